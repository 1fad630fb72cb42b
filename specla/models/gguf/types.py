"""GGUF value types and GGML tensor types.

Value types are fixed by the GGUF specification (versions 2 and 3). The tensor type table is the
`gguf` package's, loaded on first use because that import takes a fifth of a second.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

BOOL, STRING, ARRAY = 7, 8, 9

# value type id -> (name, NumPy dtype)
SCALARS: dict[int, tuple[str, str]] = {
    0: ("uint8", "<u1"),
    1: ("int8", "<i1"),
    2: ("uint16", "<u2"),
    3: ("int16", "<i2"),
    4: ("uint32", "<u4"),
    5: ("int32", "<i4"),
    6: ("float32", "<f4"),
    BOOL: ("bool", "<u1"),
    10: ("uint64", "<u8"),
    11: ("int64", "<i8"),
    12: ("float64", "<f8"),
}
SIZES: dict[int, int] = {type_id: int(dtype[2]) for type_id, (_, dtype) in SCALARS.items()}
FLOATS = frozenset({6, 12})
INTEGERS = frozenset(SCALARS) - FLOATS - {BOOL}


def value_type_name(type_id: int) -> str:
    """Readable name of a value type id, known or not."""
    if type_id in SCALARS:
        return SCALARS[type_id][0]
    return {STRING: "string", ARRAY: "array"}.get(type_id, f"type {type_id}")


class TensorType(NamedTuple):
    """name: GGML type name. block: elements per block. block_bytes: bytes per block."""

    name: str
    block: int
    block_bytes: int


def tensor_type(name: str) -> TensorType:
    """The type of that name, which must be one of :func:`tensor_types`."""
    return _by_name()[name]


@cache
def _by_name() -> dict[str, TensorType]:
    return {kind.name: kind for kind in tensor_types().values()}


@cache
def tensor_types() -> dict[int, TensorType]:
    """GGML type id -> TensorType, for every type that the installed `gguf` package knows."""
    from gguf.constants import GGML_QUANT_SIZES

    return {
        int(kind): TensorType(kind.name, block, block_bytes)
        for kind, (block, block_bytes) in GGML_QUANT_SIZES.items()
    }
