"""Attention and products of many rows are cut into slices; no bit depends on where."""

from __future__ import annotations

import pytest

from ptx.needs import need_compiler

need_compiler()

import torch  # noqa: E402

from ptx.cases import Recorder, triton_backend  # noqa: E402
from ptx.run import EmulatedLauncher, emulated  # noqa: E402
from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.backends.pools import KvShape  # noqa: E402
from specla.backends.triton import attention, products  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.core.plan import Place, build_plan, map_arrays  # noqa: E402
from specla.core.topology import Forest, Tree  # noqa: E402
from specla.testing.kernels import kernel_cases  # noqa: E402
from specla.testing.kernels.bench import compare  # noqa: E402

pytestmark = pytest.mark.triton


@pytest.mark.parametrize("budget", [1, 40_000])
def test_slices_keep_every_bit(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last slice may be shorter; padding and depths differ between rows."""
    monkeypatch.setattr(attention, "SCRATCH_BYTES", budget)
    # and the blocks' maxima are compared in more than one go
    monkeypatch.setattr(attention, "TOPS", 2)
    launcher = EmulatedLauncher()
    with emulated(launcher):
        compare("attention", kernel_cases.cases["attention"], triton_backend(), NumpyBackend(), 3)
    assert len(launcher.launched) > 3 * 3


PRODUCTS = ("linear_quantised", "linear_float", "linear_group", "linear_add", "linear_swiglu")


@pytest.mark.parametrize("name", PRODUCTS)
def test_slices_of_products_keep_every_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row at a time; the kit's cases have several."""
    whole, sliced = EmulatedLauncher(), EmulatedLauncher()
    for launcher in (whole, sliced):
        with emulated(launcher):
            compare(name, kernel_cases.cases[name], triton_backend(), NumpyBackend(), 5)
        monkeypatch.setattr(products, "SCRATCH_BYTES", 1)
    assert len(sliced.launched) > len(whole.launched)


def test_scratch_is_bounded() -> None:
    """A prefill of 512 rows at the end of 128 thousand positions, with the heads of the 27B."""
    backend, rows, context = TritonBackend(torch.device("meta")), 512, 131_072
    kv = backend.kv_pool(KvShape(1, 1, context // 64 + 1, 4, 256, context, "f16"))
    plan = build_plan(Forest((Tree.chain([0] * rows),)), [Place(0, context - rows, 0, (), ())])
    device = map_arrays(plan, lambda _, array: backend.upload(array))
    q, out = (backend.empty((rows, 24, 256)) for _ in range(2))
    recorder = Recorder()
    with emulated(recorder):
        backend.attention(q, kv, 0, device, 1 / 16, out)
    buffers = backend._scratch._buffers.values()
    assert sum(buffer.numel() * 4 for buffer in buffers) <= attention.SCRATCH_BYTES
    assert len(recorder.launches) >= 3 * rows * 24 * (context // 64) * 320 * 4 // (256 << 20)
    # the slices share their code
    assert len({launch.key for launch in recorder.launches}) == 3
