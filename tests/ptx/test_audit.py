"""All kernels of the backend compile for all targets to code that keeps the contract."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ptx.needs import need_compiler

need_compiler()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from ptx.audit import BEGIN, END, audit, default_launches, one_of_each, page_with  # noqa: E402
from ptx.compile import TARGETS, Launch  # noqa: E402
from specla.backends.triton.launch import EXACT  # noqa: E402
from specla.backends.triton.packing import LAYOUTS  # noqa: E402

pytestmark = pytest.mark.triton

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu-sizes.md"


@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_keeps_the_rules(target: str) -> None:
    """One launch of each kernel; tools/gpu_audit.py checks all of them."""
    findings = list(audit(one_of_each(), [target]))
    assert findings
    assert {f"{one.kernel}: {p}" for one in findings for p in one.problems} == set()


def test_every_format_is_audited() -> None:
    launches = [launch for launch in default_launches() if launch.name == "_segment"]
    names = ("BITS", "OFFSET", "SUBS", "TOKENS")
    at = [(list(launches[0].signature).index(name),) for name in names]
    found = {tuple(launch.constants[place] for place in at) for launch in launches}
    formats = {(layout.bits, layout.offset, layout.subs) for layout in LAYOUTS.values()}
    assert found == {(*one, tokens) for one in formats for tokens in (16, 32, 64)}


@triton.jit
def _wrong(x, out, KIND: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    v = tl.load(x + i)
    if KIND == "fused":
        v = v * v + 1.5
    elif KIND == "exponential":
        v = tl.exp(v)
    elif KIND == "quotient":
        v = 1.5 / v
    elif KIND == "root":
        v = tl.sqrt(v)
    elif KIND == "inverse root":
        v = tl.rsqrt(v)
    tl.store(out + i, v)


KINDS = ("fused", "exponential", "quotient", "root", "inverse root")


@pytest.mark.parametrize("target", ["sm_90", "gfx90a", "gfx1201"])
@pytest.mark.parametrize("kind", (*KINDS, "nothing"))
def test_wrong_kernels_break_them(kind: str, target: str) -> None:
    options = {"num_warps": 4, **EXACT, "enable_fp_fusion": kind == "fused"}
    signature = {"x": "*fp32", "out": "*fp32", "KIND": "constexpr", "N": "constexpr"}
    launch = Launch(_wrong, signature, {(2,): kind, (3,): 256}, {}, options)
    (finding,) = audit([launch], [target])
    # what AMD's compiler makes of a plain / is correctly rounded
    right = kind == "nothing" or (kind == "quotient" and target.startswith("gfx"))
    assert bool(finding.problems) != right


def test_table_of_the_page_is_complete() -> None:
    """Written by tools/gpu_audit.py: each kernel has its row."""
    text = PAGE.read_text(encoding="utf-8")
    written = text.split(BEGIN)[1].split(END)[0]
    names = {launch.name for launch in default_launches()}
    assert names == {name for name in names if f"| `{name}` |" in written}


def test_writing_a_table_keeps_the_page() -> None:
    options = {"num_warps": 1, **EXACT}
    signature = {"x": "*fp32", "out": "*fp32", "KIND": "constexpr", "N": "constexpr"}
    launch = Launch(_wrong, signature, {(2,): "nothing", (3,): 32}, {}, options)
    (finding,) = audit([launch], ["sm_90"])
    page = page_with(f"a\n{BEGIN}\nold\n{END}\nb\n", [finding, replace(finding, target="sm_80")])
    assert page.startswith(f"a\n{BEGIN}\n") and page.endswith(f"{END}\nb\n")
    assert "old" not in page and "| sm_90 | sm_80 |" in page
