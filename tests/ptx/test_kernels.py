"""Compiled code of every kernel of the Triton backend writes the reference's bytes, without a GPU.

Kernels and inputs come from the cases of specla.testing.kernels: a new kernel joins by itself.
"""

from __future__ import annotations

import pytest

from ptx.needs import need_compiler

need_compiler()

from ptx.cases import EXAMPLES, launching_cases, triton_backend  # noqa: E402
from ptx.run import EmulatedLauncher, emulated  # noqa: E402
from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.testing.kernels.bench import compare  # noqa: E402

pytestmark = pytest.mark.triton

CASES = launching_cases()
SETTINGS = {
    "as launched": EmulatedLauncher(),
    "1 warp": EmulatedLauncher(warps=1),
    "2 warps, block after block": EmulatedLauncher(warps=2, lanes_at_once=1),
    "8 warps, sm_80": EmulatedLauncher(warps=8, target="sm_80"),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", CASES)
def test_compiled_kernel_has_the_reference_bytes(name: str, setting: str) -> None:
    launcher = SETTINGS[setting]
    launcher.launched.clear()
    with emulated(launcher):
        compare(name, CASES[name], triton_backend(), NumpyBackend(), EXAMPLES)
    assert launcher.launched
