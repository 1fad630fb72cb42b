"""Large quantised matrices made on the device out of small ones that the host has packed.

A few hundred rows of random blocks in the file's encoding are loaded as any matrix is. Each piece
of a large matrix's row, of 256 columns where these divide it, is then that of a random small row:
rows differ from each other, scales are sane, every byte is memory of its own, and any row can be
put together again on the host in the file's encoding, for the reference.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from random_blocks import BLOCKS, random_blocks

from specla.backends.base import Backend, Weight
from specla.backends.weights import WeightSource

SMALL = 320
"""Rows of a small matrix."""


def pieces_of(cols: int) -> int:
    """Pieces of a row: of 256 columns, a block of any kind, or else of 32."""
    return cols // 256 if cols % 256 == 0 else cols // 32


def small_matrix(backend: Any, kind: str, cols: int, gain: float = 1.0) -> Weight:
    """SMALL rows of ``cols`` weights with a deviation of gain / sqrt(cols), loaded."""
    rng = np.random.default_rng([cols, *kind.encode()])
    data = random_blocks(rng, kind, SMALL * cols, gain / cols**0.5).reshape(SMALL, -1)
    # the backend's own loading, whatever a subclass does
    loaded: Weight = backend.load(WeightSource(f"random {kind}", kind, SMALL, cols, data))
    return loaded


def choice_of(weight: Weight, rows: int, random: Any, device: Any) -> Any:
    """Which small row each piece of each row comes from: int32 [pieces, rows]."""
    import torch

    pieces = pieces_of(weight.source.cols)
    return torch.randint(SMALL, (pieces, rows), dtype=torch.int32, device=device, generator=random)


def mixed(weight: Weight, name: str, choice: Any) -> Weight:
    """The large matrix. Its source has a kind and a shape, and no data.

    Raises RuntimeError if the packing isn't blocks first, then rows (packing.py).
    """
    arrays = {
        f.name: _mixed(f.name, getattr(weight.handle, f.name), choice) for f in _fields(weight)
    }
    rows, nothing = choice.shape[1], np.empty((choice.shape[1], 0), np.uint8)
    source = WeightSource(name, weight.source.kind, rows, weight.source.cols, nothing)
    return Weight(source, True, replace(weight.handle, **arrays))


def _fields(weight: Weight) -> list[Any]:
    """The packed arrays' names."""
    return [f for f in fields(weight.handle) if hasattr(getattr(weight.handle, f.name), "shape")]


def _mixed(name: str, small: Any, choice: Any) -> Any:
    import torch

    if small.numel() == 1:
        return small
    pieces, rows = choice.shape
    if small.shape[0] % pieces or small.shape[1] != SMALL:
        raise RuntimeError(
            f"{name} is packed as {list(small.shape)}; mixtures.py wants blocks of {pieces} "
            f"pieces, then {SMALL} rows"
        )
    each = small.shape[0] // pieces
    large = torch.empty(
        (small.shape[0], rows, *small.shape[2:]), dtype=small.dtype, device=small.device
    )
    for piece in range(pieces):
        part = slice(piece * each, (piece + 1) * each)
        torch.index_select(small[part], 1, choice[piece], out=large[part])
    return large


def copied(weight: Weight) -> Weight:
    """The same matrix in other memory."""
    arrays = {f.name: getattr(weight.handle, f.name).clone() for f in _fields(weight)}
    return replace(weight, handle=replace(weight.handle, **arrays))


def file_bytes(kind: str, rows: int, cols: int) -> int:
    """Size of a matrix in the file's encoding."""
    block, size = BLOCKS[kind]
    return rows * cols // block * size


def reference_rows(weight: Weight, choice: Any, wanted: np.ndarray, reference: Backend) -> Weight:
    """Some rows of the large matrix, from the file's encoding, loaded by another backend."""
    source = weight.source
    pieces = pieces_of(source.cols)
    data = source.data.reshape(SMALL, pieces, -1)
    rows = choice[:, wanted].cpu().numpy()
    picked = data[rows.T, np.arange(pieces)].reshape(len(wanted), -1)
    return reference.load(WeightSource(source.name, source.kind, len(wanted), source.cols, picked))
