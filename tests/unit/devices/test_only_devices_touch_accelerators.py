"""Only `strop.devices` says `torch.cuda`, `torch.npu`, `.cuda()` or names an accelerator to torch."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src" / "strop"
KINDS = ("cuda", "npu", "xpu", "mps")


def accelerator_uses(code: str) -> list[int]:
    """Returns the lines that address a kind of accelerator."""
    return sorted({line for node in ast.walk(ast.parse(code)) for line in _uses(node)})


def _uses(node: ast.AST) -> Iterator[int]:
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr=name) | ast.Call(func=ast.Attribute(attr=name)) if (
            name in KINDS
        ):
            yield node.lineno
        case ast.Call(func=ast.Attribute(attr="device" | "to"), args=[ast.Constant(value=str(text)), *_]) if (
            _names_accelerator(text)
        ):
            yield node.lineno
        case ast.keyword(arg="device" | "device_type", value=ast.Constant(value=str(text))) if _names_accelerator(text):
            yield node.value.lineno
        case ast.Import() | ast.ImportFrom() if any(_is_accelerator_module(name) for name in _imported(node)):
            yield node.lineno


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    return [prefix + alias.name for alias in node.names]


def _names_accelerator(text: str) -> bool:
    return text.split(":")[0] in KINDS


def _is_accelerator_module(name: str) -> bool:
    return name.split(".")[0] == "torch_npu" or any(f"{name}.".startswith(f"torch.{kind}.") for kind in KINDS)


def test_no_other_package_touches_an_accelerator() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if "devices" not in path.relative_to(SOURCE).parts
        for line in accelerator_uses(path.read_text())
    ]
    assert found == []


def test_the_lint_sees_the_devices_package_itself() -> None:
    assert accelerator_uses((SOURCE / "devices" / "cuda.py").read_text())


@pytest.mark.parametrize(
    "code",
    [
        "torch.cuda.synchronize()",
        "x = torch.npu",
        "import torch.cuda as c",
        "from torch import cuda",
        "from torch.cuda import Stream",
        "import torch_npu",
        "x.cuda()",
        "x.to('cuda:0')",
        "torch.device('cuda', 0)",
        "torch.empty(3, device='cuda')",
        "torch.autocast(device_type='cuda')",
    ],
)
def test_the_lint_sees_each_way_to_touch_one(code: str) -> None:
    assert accelerator_uses(code) == [1]


@pytest.mark.parametrize("code", ["x.to('cpu')", "device.synchronize()", "name = 'cuda'", "import torch"])
def test_the_lint_lets_other_code_pass(code: str) -> None:
    assert accelerator_uses(code) == []
