"""Encoding checkpoint tensors into GGUF types, a few million weights at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specla.models.convert.plan import Move
from specla.models.convert.safetensors import SafeTensor
from specla.models.gguf.text import fail, quoted
from specla.models.gguf.write import TensorToWrite

OUTTYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "q4_0": "Q4_0"}
# general.file_type, as llama.cpp numbers it
FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7, "q4_0": 2}
_QUANTISED, _BLOCK = ("Q8_0", "Q4_0"), 32
_CHUNK = 1 << 22
_LARGEST_F16 = 65504.0


def kind_for(move: Move, outtype: str) -> str:
    """GGML type of a tensor: what was asked for, F16 where rows don't fill blocks, F32 if small."""
    if not move.matrix:
        return "F32"
    kind = OUTTYPES[outtype]
    return "F16" if kind in _QUANTISED and move.shape[-1] % _BLOCK else kind


def to_write(move: Move, source: SafeTensor, kind: str) -> TensorToWrite:
    """A tensor ready for the writer. Raises FileFormatError when the shape isn't the expected."""
    expected = move.source_shape or move.shape
    if source.shape != expected:
        found = quoted(list(source.shape))
        fail(
            source.path,
            f"tensor {source.name} has the shape {found}, the configuration needs {list(expected)}",
        )
    rows = source.matrix(move.shape[-1])

    def chunks() -> Iterator[bytes]:
        count = rows.raw.shape[0]
        step = max(1, _CHUNK // move.shape[-1])
        for start in range(0, count, step):
            stop = min(start + step, count)
            chosen = slice(start, stop) if move.rows is None else move.rows[start:stop]
            values = rows.take(chosen)
            if move.cols is not None:
                values = values[:, move.cols]
            with np.errstate(over="ignore"):
                values = values if move.change is None else move.change(values)
            yield _encode(values, kind, source)

    return TensorToWrite(move.target, kind, move.shape, chunks)


def _encode(values: np.ndarray, kind: str, source: SafeTensor) -> bytes:
    largest = float(np.abs(values).max(initial=0.0))
    if not np.isfinite(largest):
        fail(source.path, f"tensor {source.name} holds a NaN or an infinity")
    if kind == "F32":
        return values.astype("<f4", copy=False).tobytes()
    if kind != "BF16" and largest > _LARGEST_F16:
        fail(source.path, f"tensor {source.name} holds {largest:g}, too large for {kind}; use bf16")
    if kind == "F16":
        return values.astype("<f2").tobytes()
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import quantize

    with np.errstate(all="ignore"):
        encoded = quantize(np.ascontiguousarray(values), GGMLQuantizationType[kind])
    return bytes(encoded.tobytes())
