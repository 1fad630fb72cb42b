"""Weight products: exact integer blocks for quantised weights, trees of 32 for float weights."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.backends import blocks
from specla.backends.base import QuantisedRows, Weight
from specla.backends.numpy.quantise import BLOCK, pad_blocks
from specla.backends.numpy.sums import halving_tree, segmented_sum
from specla.backends.weights import WeightSource

Float32 = npt.NDArray[np.float32]

_TILE_FLOATS = 1 << 22
"""Intermediate block sums are kept below this many floats by cutting rows of W into tiles."""


@dataclass(frozen=True)
class IntegerMatrix:
    """A quantised matrix, blocks first: weight = values * scale - minimum * minimum_scale.

    values [blocks, 32, M]: integers, held in float32 because the products below use a float
    matrix product on them.  scale [blocks, 1, M].  minimum, minimum_scale [blocks, 1, M] or None.
    """

    values: Float32
    scale: Float32
    minimum: Float32 | None
    minimum_scale: Float32 | None


@dataclass(frozen=True)
class FloatMatrix:
    """values [32, blocks, M]: position inside the block first, so that a tree adds along it."""

    values: Float32


def load(source: WeightSource) -> Weight:
    """See Backend.load."""
    if source.kind in blocks.NATIVE:
        return Weight(source, True, _load_integers(source))
    padded = pad_blocks(blocks.dequantise(source.kind, source.data, source.cols))
    values = padded.reshape(source.rows, -1, BLOCK).transpose(2, 1, 0)
    return Weight(source, False, FloatMatrix(np.ascontiguousarray(values, dtype=np.float32)))


def _load_integers(source: WeightSource) -> IntegerMatrix:
    unpacked = blocks.unpack(source.kind, source.data, source.cols)

    def by_block(x: npt.NDArray[np.generic]) -> Float32:
        return np.ascontiguousarray(x.T[:, None, :], dtype=np.float32)

    return IntegerMatrix(
        values=np.ascontiguousarray(unpacked.values.transpose(1, 2, 0), dtype=np.float32),
        scale=by_block(unpacked.scale),
        minimum=None if unpacked.min_value is None else by_block(unpacked.min_value),
        minimum_scale=None if unpacked.min_scale is None else by_block(unpacked.min_scale),
    )


def embed(tokens: npt.NDArray[np.int32], weight: Weight, out: Float32) -> None:
    """See Backend.embed."""
    source = weight.source
    out[...] = blocks.dequantise(source.kind, source.data[tokens], source.cols)


@np.errstate(all="ignore")
def linear_quantised(x: QuantisedRows, weight: Weight, out: Float32) -> None:
    """See Backend.linear_quantised."""
    matrix: IntegerMatrix = weight.handle
    n, n_blocks = x.scale.shape
    # [blocks, N, 32] and [blocks, N, 1]
    by_row = x.values.reshape(n, n_blocks, BLOCK)
    values = np.ascontiguousarray(by_row.transpose(1, 0, 2), dtype=np.float32)
    scale = x.scale.T[:, :, None]
    tile = max(_TILE_FLOATS // (n * n_blocks), 1)
    with _one_blas_thread() if n > 1 else nullcontext():
        for start in range(0, out.shape[1], tile):
            part = slice(start, start + tile)
            out[:, part] = segmented_sum(_block_terms(values, scale, matrix, part))


def _one_blas_thread() -> AbstractContextManager[Any]:
    """Keep BLAS from spreading these small products over threads that wait by spinning: with a
    busy neighbour that turned 1 ms into 300 ms. Results are exact integers either way."""
    limit: AbstractContextManager[Any] = _blas_threads().limit(limits=1, user_api="blas")
    return limit


@cache
def _blas_threads() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _block_terms(values: Float32, scale: Float32, matrix: IntegerMatrix, part: slice) -> Float32:
    """Contribution of each block: [blocks, N, tile]."""
    # Integers below 2^24 in float32: exact in any order of addition, so a float matrix product
    # (which has no specified order) is an integer product here. blocks.py proves the bound.
    sums: Float32 = values @ matrix.values[:, :, part]
    terms: Float32 = sums * (matrix.scale[:, :, part] * scale)
    if matrix.minimum is None or matrix.minimum_scale is None:
        return terms
    x_sums = values.sum(axis=2, keepdims=True)  # integers below 2^12: exact
    offset = x_sums * matrix.minimum[:, :, part]  # integers below 2^18: exact
    reduced: Float32 = terms - offset * (matrix.minimum_scale[:, :, part] * scale)
    return reduced


@np.errstate(all="ignore")
def linear_float(x: Float32, weight: Weight, out: Float32) -> None:
    """See Backend.linear_float."""
    matrix: FloatMatrix = weight.handle
    # [N, 32, blocks, 1]
    values = pad_blocks(x).reshape(x.shape[0], -1, BLOCK).transpose(0, 2, 1)[..., None]
    tile = max(_TILE_FLOATS // (BLOCK * values.shape[2]), 1)
    for start in range(0, out.shape[1], tile):
        part = slice(start, start + tile)
        for n in range(x.shape[0]):
            products = matrix.values[:, :, part] * values[n]
            out[n, part] = segmented_sum(halving_tree(products, axis=0))
