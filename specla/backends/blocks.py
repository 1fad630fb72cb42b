"""GGUF weight blocks as exact integers and float32 scales, the input of the product contract.

A weight of a native kind is ``value * scale - min_value * min_scale`` with integer `value` and
`min_value`: the integer sub-scales of the K-quants are multiplied into the values, so what is
left is one float32 scale (and one minimum scale) per block of 32.

Exact sums: with int8 activations |x| <= 127 a block of 32 has |sum(value * x)| <= 127 * 32 * 4096
= 16,646,144 < 2**24 for every native kind (the largest |value| is 4096, Q6_K: -32 * -128), so
block sums are exact in int32 and in float32. |min_value| <= 63.

Encodings: ggml's block layouts (k-quants: super-blocks of 256 with float16 scale d and, in Q4_K
and Q5_K, float16 minimum scale dmin; 6-bit sub-scales and minima packed in 12 bytes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specla.errors import UnsupportedModelError

BLOCK = 32
NATIVE = ("Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K")
# largest |value| that `unpack` can return, by kind
MAX_VALUE = {"Q8_0": 128, "Q4_0": 8, "Q4_K": 15 * 63, "Q5_K": 31 * 63, "Q6_K": 32 * 128}


@dataclass(frozen=True)
class IntegerBlocks:
    """A matrix in blocks of 32: weight = values * scale - min_value * min_scale.

    values: int16 [rows, blocks, 32].  scale: float32 [rows, blocks].
    min_value: int16 [rows, blocks] and min_scale: float32 [rows, blocks], or both None.
    """

    values: np.ndarray
    scale: np.ndarray
    min_value: np.ndarray | None
    min_scale: np.ndarray | None


@dataclass(frozen=True)
class BlockParts:
    """The same as a file has it: values = quants * sub_scale, scales once for each run of blocks.

    quants: int16 [rows, blocks, 32].  sub_scale: int16 [rows, blocks, 1 or 2], each for 32 or 16
    columns, or None.  min_value: as above.  scale, min_scale: float16 [rows, runs].
    """

    quants: np.ndarray
    sub_scale: np.ndarray | None
    min_value: np.ndarray | None
    scale: np.ndarray
    min_scale: np.ndarray | None


def parts(kind: str, data: np.ndarray, cols: int) -> BlockParts:
    """Blocks of a native kind in their parts.

    kind: one of NATIVE.  data: uint8 [rows, row_bytes].  cols: weights per row.
    Raises UnsupportedModelError for another kind, or when cols doesn't fit the row size.
    """
    if kind not in NATIVE:
        raise UnsupportedModelError(f"type {kind} has no integer blocks; dequantise it instead")
    reader, block, block_bytes = _READERS[kind]
    rows, row_bytes = data.shape
    if cols <= 0 or cols % block or cols // block * block_bytes != row_bytes:
        raise UnsupportedModelError(
            f"{kind} rows of {cols} weights can't have {row_bytes} bytes (blocks of {block} "
            f"weights in {block_bytes} bytes)"
        )
    packed = np.ascontiguousarray(data, dtype=np.uint8).reshape(rows, -1, block_bytes)
    return reader(packed)


def unpack(kind: str, data: np.ndarray, cols: int) -> IntegerBlocks:
    """Blocks of a native kind as integers and scales: see :func:`parts`."""
    found = parts(kind, data, cols)
    values, count = found.quants, found.quants.shape[1]
    if found.sub_scale is not None:
        halves = values.reshape(*found.sub_scale.shape, -1)
        values = (halves * found.sub_scale[..., None]).reshape(values.shape)

    def widened(scale: np.ndarray) -> np.ndarray:
        return np.repeat(scale.astype(np.float32), count // scale.shape[1], axis=1)

    return IntegerBlocks(
        values,
        widened(found.scale),
        found.min_value,
        None if found.min_scale is None else widened(found.min_scale),
    )


def dequantise(kind: str, data: np.ndarray, cols: int) -> np.ndarray:
    """Weights as float32 [rows, cols], exactly as ggml defines them.

    kind: GGML type name.  data: uint8 [rows, row_bytes].  F32 gives a view of `data`.
    Raises UnsupportedModelError for types without an exact float32 conversion.
    """
    rows = data.shape[0]
    if kind == "F32":
        return data.view(np.float32).reshape(rows, cols)
    if kind == "F16":
        return data.view(np.float16).astype(np.float32).reshape(rows, cols)
    if kind == "BF16":
        bits = data.view(np.uint16).astype(np.uint32) << np.uint32(16)
        return bits.view(np.float32).reshape(rows, cols)
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import QuantError
    from gguf.quants import dequantize as ggml_dequantise

    if kind not in GGMLQuantizationType.__members__:
        raise UnsupportedModelError(f"type {kind} is unknown to this version of the gguf package")
    try:
        # an infinite or NaN scale in a damaged block is a value like any other
        with np.errstate(all="ignore"):
            values = ggml_dequantise(np.ascontiguousarray(data), GGMLQuantizationType[kind])
    except (NotImplementedError, QuantError):
        raise UnsupportedModelError(
            f"type {kind} can't be converted to float32; requantise the model"
        ) from None
    return np.asarray(values, dtype=np.float32).reshape(rows, cols)


def _float16(packed: np.ndarray, at: int) -> np.ndarray:
    """float16 [rows, blocks or super-blocks] at byte `at` of each."""
    raw = np.ascontiguousarray(packed[:, :, at : at + 2])
    return raw.view("<f2")[..., 0].astype(np.float16)


def _q8_0(packed: np.ndarray) -> BlockParts:
    quants = np.ascontiguousarray(packed[:, :, 2:]).view(np.int8).astype(np.int16)
    return BlockParts(quants, None, None, _float16(packed, 0), None)


def _q4_0(packed: np.ndarray) -> BlockParts:
    nibbles = packed[:, :, 2:]
    quants = np.concatenate([nibbles & 15, nibbles >> 4], axis=2).astype(np.int16)
    return BlockParts(quants - np.int16(8), None, None, _float16(packed, 0), None)


def _sub_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """6-bit sub-scales and minima, int16 [rows, super-blocks, 8] each, from bytes 4..16.

    Blocks 0..3 have theirs in the low 6 bits of bytes 0..3 and 4..7; blocks 4..7 have four low
    bits in the nibbles of bytes 8..11 and two high bits on top of bytes 0..3 and 4..7.
    """
    low, mid, high = packed[:, :, 4:8], packed[:, :, 8:12], packed[:, :, 12:16]
    scales = [low & 63, (high & 15) | (low >> 6 << 4)]
    minima = [mid & 63, (high >> 4) | (mid >> 6 << 4)]
    return (
        np.concatenate(scales, axis=2).astype(np.int16),
        np.concatenate(minima, axis=2).astype(np.int16),
    )


def _nibble_blocks(packed: np.ndarray) -> np.ndarray:
    """int16 [rows, super-blocks, 8, 32]: each run of 32 bytes is a low and a high block."""
    rows, count, _ = packed.shape
    runs = packed.reshape(rows, count, 4, 1, BLOCK)
    return np.concatenate([runs & 15, runs >> 4], axis=3).reshape(rows, count, 8, BLOCK)


def _with_minima(packed: np.ndarray, quants: np.ndarray) -> BlockParts:
    rows, count, _ = packed.shape
    scales, minima = _sub_scales(packed)
    return BlockParts(
        quants.astype(np.int16).reshape(rows, count * 8, BLOCK),
        scales.reshape(rows, count * 8, 1),
        minima.reshape(rows, count * 8),
        _float16(packed, 0),
        _float16(packed, 2),
    )


def _q4_k(packed: np.ndarray) -> BlockParts:
    return _with_minima(packed, _nibble_blocks(packed[:, :, 16:]))


def _q5_k(packed: np.ndarray) -> BlockParts:
    # bit b of the 32 high-bit bytes belongs to block b
    bits = packed[:, :, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return _with_minima(packed, _nibble_blocks(packed[:, :, 48:]) | bits << 4)


def _q6_k(packed: np.ndarray) -> BlockParts:
    rows, count, _ = packed.shape
    # halves of 128 weights: 64 bytes of low nibbles, 32 bytes of four 2-bit high parts
    low = packed[:, :, :128].reshape(rows, count, 2, 1, 2, BLOCK)
    low = np.concatenate([low & 15, low >> 4], axis=3).reshape(rows, count, 2, 4, BLOCK)
    high = packed[:, :, 128:192].reshape(rows, count, 2, 1, BLOCK)
    high = high >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None] & 3
    quants = (low | high << 4).astype(np.int16) - np.int16(32)
    scales = np.ascontiguousarray(packed[:, :, 192:208]).view(np.int8).astype(np.int16)
    return BlockParts(
        quants.reshape(rows, count * 8, BLOCK),
        scales.reshape(rows, count * 8, 2),
        None,
        _float16(packed, 208),
        None,
    )


# kind -> (function, weights per block, bytes per block)
_READERS: dict[str, tuple[Callable[[np.ndarray], BlockParts], int, int]] = {
    "Q8_0": (_q8_0, 32, 34),
    "Q4_0": (_q4_0, 32, 18),
    "Q4_K": (_q4_k, 256, 144),
    "Q5_K": (_q5_k, 256, 176),
    "Q6_K": (_q6_k, 256, 210),
}
