"""Compiled code of every kernel of the Triton backend writes the reference's bytes, without a GPU.

Kernels and inputs come from the cases of specla.testing.kernels: a new kernel joins by itself.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptx.needs import need_compiler

need_compiler()

from ptx.cases import EXAMPLES, launching_cases, triton_backend  # noqa: E402
from ptx.machine import LANES  # noqa: E402
from ptx.run import EmulatedLauncher, emulated  # noqa: E402
from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.testing.kernels.bench import Bench, compare  # noqa: E402
from specla.testing.kernels.products import random_source  # noqa: E402

pytestmark = pytest.mark.triton

CASES = launching_cases()
SETTINGS = {
    "as launched": EmulatedLauncher(),
    "1 warp": EmulatedLauncher(warps=1),
    "2 warps, block after block": EmulatedLauncher(warps=2, lanes_at_once=1),
    "8 warps, sm_80": EmulatedLauncher(warps=8, target="sm_80"),
}
PRODUCTS = (("Q8_0", 12), ("Q4_0", 20), ("Q4_K", 40), ("Q5_K", 70), ("Q6_K", 30))
"""Formats, and numbers of tokens in tiles of 16, 32 and 64."""
COSTLY = ("attention", "gdn_verify", "gdn_prefill", "linear_quantised", "linear_float", "soft_sums")
"""Large programs, of which most examples need one of their own."""


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", CASES)
def test_compiled_kernel_has_the_reference_bytes(name: str, setting: str) -> None:
    examples = 2 if name in COSTLY and setting != "as launched" else EXAMPLES
    launcher = replace(SETTINGS[setting], launched=[])
    if name == "attention":
        launcher.lanes_at_once = LANES
    with emulated(launcher):
        compare(name, CASES[name], triton_backend(), NumpyBackend(), examples)
    assert launcher.launched


@pytest.mark.parametrize("setting", ["as launched", "8 warps, sm_80"])
@pytest.mark.parametrize(("kind", "tokens"), PRODUCTS)
def test_product_of_every_format(kind: str, tokens: int, setting: str) -> None:
    """Integer matrix instructions of both architectures, in every tile of tokens."""

    def case(b: Bench) -> None:
        cols = 512
        source = random_source(b.rng, kind, 80, 2 if "_K" in kind else cols // 32, b.mood)
        rows = b.backend.quantised_rows(tokens, cols)
        b.backend.quantise(b.floats("x", tokens, cols), rows)
        out = b.result("out", tokens, source.rows)
        b.backend.linear_quantised(rows, b.backend.load(source), out)

    launcher = replace(SETTINGS[setting], launched=[])
    with emulated(launcher):
        compare("linear_quantised", case, triton_backend(), NumpyBackend(), 3)
