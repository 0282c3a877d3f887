"""Where a run lives and how long it goes on."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from strop.config.base import Section


class RunConfig(Section):
    """The run as a whole."""

    name: str = "run"
    """Name of the run; its folder is `output_dir/name`."""
    output_dir: Path = Path("runs")
    """Folder that holds run folders."""
    seed: int = Field(default=0, ge=0)
    """Seeds data order, sampling and initialisation of new weights."""
    steps: int = Field(default=100, ge=0)
    """Training ends after this many steps, or earlier when `data.epochs` are used up."""
    threads: int = Field(default=0, ge=0)
    """Threads for tensor work on a CPU; 0 takes every core."""
    device: Literal["auto", "cpu", "cuda", "rocm", "npu"] = "auto"
    """Where tensors live; auto takes an accelerator where there is one."""
