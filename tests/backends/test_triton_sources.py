"""The GPU backend's sources keep to the contract: one launcher, exact functions only.

Read as text: neither torch nor triton is needed.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from triton_rules import names_of_kernels, parsed, violations

import specla

PACKAGE = Path(specla.__file__).parent
SOURCES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((PACKAGE / "backends" / "triton").rglob("*.py"))
}


KERNELS = names_of_kernels(parsed(SOURCES))


def test_the_kernels_of_the_backend_keep_the_rules() -> None:
    assert violations(parsed(SOURCES)) == []


def test_there_are_kernels_to_judge() -> None:
    assert len(KERNELS) > 30 and {"halves", "_walk", "_convolve"} <= KERNELS


KERNEL = """
import triton
import triton.language as tl

@triton.jit
def _kernel(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n, 0.0)
    {}
    tl.store(x + i, v, i < n)
"""
INSIDE = {
    "v = tl.exp(v)": "tl.exp",
    "v = tl.math.exp2(v)": "tl.math.exp2",
    "v = tl.log(v)": "tl.log",
    "v = tl.sqrt(v)": "tl.sqrt",
    "v = tl.rsqrt(v)": "tl.rsqrt",
    "v = tl.sigmoid(v)": "tl.sigmoid",
    "v = tl.math.sqrt_rn(v)": "tl.math.sqrt_rn",
    "v = tl.math.fma(v, v, v)": "tl.math.fma",
    "v = tl.fma(v, v, v)": "tl.fma",
    "v = tl.extra.cuda.libdevice.exp(v)": "libdevice",
    "v = tl.inline_asm_elementwise('', '', [v], tl.float32, True, 1)": "inline_asm_elementwise",
    "v = tl.cumsum(v, 0)": "tl.cumsum",
    "v = tl.reduce(v, 0, add)": "tl.reduce",
    "tl.atomic_add(x + i, v)": "tl.atomic_add",
    "v = v.exp()": ".exp",
    "v = v.sum(0)": ".sum",
    "v = v / 2.0": "division",
    "v /= 2.0": "division",
    "v = v + tl.sum(v, 0)": "a sum over an axis",
    "v = v + tl.sum(v * v)": "a sum over an axis",
    "v = tl.dot(v, v)": "a dot",
    "v = tl.dot(v, v, out_dtype=tl.float32)": "a dot",
}
FINE = [
    "v = div(v, v)",
    "v = halves(v, 3, 1)",
    "n = n // 2",
    "v = v + tl.sum((v > 0).to(tl.int32), 0).to(tl.int32)",
    "v = tl.dot(v, v, out_dtype=tl.int32)",
    "v = tl.where(v == v, v, 0.0).to(tl.int32, bitcast=True)",
]


def judged(text: str, module: str = "gdn") -> list[str]:
    return violations(parsed({module: text}), KERNELS)


@pytest.mark.parametrize("line", INSIDE)
def test_inexact_arithmetic_is_found(line: str) -> None:
    found = judged(KERNEL.format(line))
    assert found and all(entry.startswith("gdn:") for entry in found)
    assert any(INSIDE[line] in entry for entry in found), found


@pytest.mark.parametrize("line", FINE)
def test_exact_arithmetic_is_let_through(line: str) -> None:
    assert judged(KERNEL.format(line)) == []


@pytest.mark.parametrize(
    "line",
    [
        "_kernel[(1,)](x, 1, BLOCK=16)",
        "some.module._kernel[(1,)](x, 1, BLOCK=16)",
        "start = _kernel[(1,)]",
        "KERNELS['any'](x)",
        "_kernel.run(x, grid=(1,))",
        "_kernel.warmup(x, grid=(1,))",
        # of another module
        "_rms_norm[(1,)](x)",
        "from triton.language.extra import libdevice",
    ],
)
def test_a_launch_past_the_helper_is_found(line: str) -> None:
    text = KERNEL.format("v = v + v")
    assert judged(text) == []
    assert judged(f"{text}\n\ndef outside(x):\n    {line}\n")


def test_the_helper_itself_is_judged() -> None:
    text = SOURCES["launch"]
    assert judged(text, "launch") == []
    fused = text.replace('"enable_fp_fusion": False', '"enable_fp_fusion": True')
    twice = text.replace("    if 0 in grid:\n", "    kernel[grid](*arguments)\n    if 0 in grid:\n")
    for changed in (fused, twice):
        assert changed != text and len(judged(changed, "launch")) == 1


def test_nothing_else_imports_torch_or_triton_with_itself() -> None:
    """Only functions do: the package works without them."""
    importing = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if (PACKAGE / "backends" / "triton") in path.parents:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if {name.split(".")[0] for name in names} & {"torch", "triton"}:
                importing.append(str(path.relative_to(PACKAGE)))
            if any(name.startswith("specla.backends.triton") for name in names):
                importing.append(str(path.relative_to(PACKAGE)))
    assert importing == []
