"""Compiled code with other tiles than the backend's own: no bit depends on how work is cut."""

from __future__ import annotations

import pytest

from ptx.needs import need_compiler

need_compiler()

from ptx.cases import triton_backend  # noqa: E402
from ptx.run import EmulatedLauncher, emulated  # noqa: E402
from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.backends.triton import (  # noqa: E402
    choices,
    conv,
    endings,
    gather,
    gdn,
    norms,
    quantise,
    segments,
)
from specla.testing.kernels import kernel_cases  # noqa: E402
from specla.testing.kernels.bench import compare  # noqa: E402

pytestmark = pytest.mark.triton

TILES = [
    (gdn, "TILE", 4, 1, ("gdn_verify", "fold_state", "gdn_prefill")),
    (gdn, "TILE", 32, 4, ("gdn_verify", "fold_state")),
    (conv, "BLOCK", 32, 1, ("conv_verify", "conv_prefill")),
    (gather, "BLOCK", 16, 1, ("gather",)),
    (norms, "LOG_CHUNK", 6, 2, ("rms_norm", "rms_norm_operand")),
    (quantise, "MANY", 1, 1, ("quantise",)),
    (segments, "ROWS", 16, 2, ("linear_quantised", "linear_float")),
    (segments, "ROWS", 128, 8, ("linear_quantised",)),
    (endings, "SIZE", 64, 1, ("linear_group", "linear_add")),
    (choices, "PART", 16, 1, ("argmax", "soft_sums")),
]


@pytest.mark.parametrize(
    ("module", "name", "tile", "warps", "kernel"),
    [(m, n, t, w, k) for m, n, t, w, kernels in TILES for k in kernels],
    ids=lambda value: getattr(value, "__name__", str(value)).rpartition(".")[2],
)
def test_tiles_keep_every_bit(
    module: object,
    name: str,
    tile: int,
    warps: int,
    kernel: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert getattr(module, name) != tile
    monkeypatch.setattr(module, name, tile)
    launcher = EmulatedLauncher(warps=warps)
    with emulated(launcher):
        compare(kernel, kernel_cases.cases[kernel], triton_backend(), NumpyBackend(), 2)
    assert launcher.launched
