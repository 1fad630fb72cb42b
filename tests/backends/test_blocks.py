"""Quantised blocks as integers and scales, against the gguf package's dequantisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given
from hypothesis import strategies as st

from specla.backends.blocks import BLOCK, MAX_VALUE, NATIVE, IntegerBlocks, dequantise, unpack
from specla.errors import UnsupportedModelError
from specla.models.gguf import GgufFile

# where the float16 scales lie in a block
SCALES_AT = {"Q8_0": [0], "Q4_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def random_rows(kind: str, seed: int, rows: int, blocks: int) -> tuple[np.ndarray, int]:
    """Random bytes of a kind with finite scales, and the number of columns."""
    rng = np.random.default_rng(seed)
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    data = rng.integers(0, 256, (rows, blocks, block_bytes), dtype=np.uint8)
    for at in SCALES_AT[kind]:
        # any finite float16, subnormals and zeros included
        bits = rng.integers(0, 0x7C00, (rows, blocks), dtype=np.uint16)
        bits |= rng.integers(0, 2, bits.shape, dtype=np.uint16) << 15
        data[:, :, at : at + 2] = bits[..., None].view(np.uint8)
    return data.reshape(rows, -1), blocks * block


def exact(blocks: IntegerBlocks) -> np.ndarray:
    """The weights in float64, float32 where they fit: [rows, cols]."""
    weights = blocks.values * blocks.scale[..., None].astype(np.float64)
    if blocks.min_value is not None and blocks.min_scale is not None:
        weights = weights - (blocks.min_value * blocks.min_scale.astype(np.float64))[..., None]
    return weights.reshape(weights.shape[0], -1)


@pytest.mark.parametrize("kind", NATIVE)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 5), blocks=st.integers(1, 4))
def test_blocks_equal_the_reference_exactly(kind: str, seed: int, rows: int, blocks: int) -> None:
    data, cols = random_rows(kind, seed, rows, blocks)
    found = unpack(kind, data, cols)
    assert found.values.shape == (rows, cols // BLOCK, BLOCK) and found.values.dtype == np.int16
    assert found.scale.shape == (rows, cols // BLOCK) and found.scale.dtype == np.float32
    reference = dequantize(data, GGMLQuantizationType[kind])
    # d * integer has at most 24 significant bits, so one rounding at most: equal, not close
    np.testing.assert_array_equal(exact(found).astype(np.float32), reference)
    if found.min_value is None or found.min_scale is None:
        assert found.min_value is None and found.min_scale is None
        np.testing.assert_array_equal(exact(found), reference.astype(np.float64))
    else:
        assert found.min_value.shape == found.min_scale.shape == found.scale.shape
        assert found.min_value.dtype == np.int16 and found.min_scale.dtype == np.float32
    np.testing.assert_array_equal(dequantise(kind, data, cols), reference)


@pytest.mark.parametrize("kind", NATIVE)
@given(seed=st.integers(0, 2**32))
def test_bounds(kind: str, seed: int) -> None:
    data, cols = random_rows(kind, seed, 4, 2)
    found = unpack(kind, data, cols)
    values = found.values.astype(np.int64)
    assert np.abs(values).max() <= MAX_VALUE[kind]
    assert (np.abs(values).sum(axis=2) * 127).max() < 2**24
    if found.min_value is not None:
        assert found.min_value.min() >= 0 and found.min_value.max() <= 63


def test_the_block_sum_bound_holds_for_every_kind() -> None:
    assert set(MAX_VALUE) == set(NATIVE)
    assert max(MAX_VALUE.values()) * BLOCK * 127 < 2**24


@pytest.mark.parametrize("kind", NATIVE)
def test_the_largest_values_are_reached(kind: str) -> None:
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    extremes = []
    for byte in (0x00, 0x80, 0xFF):
        for scale_byte in (0x80, 0xFF):
            data = np.full((1, block_bytes), byte, dtype=np.uint8)
            if kind == "Q6_K":
                data[:, 192:208] = scale_byte
            extremes.append(int(np.abs(unpack(kind, data, block).values.astype(int)).max()))
    assert max(extremes) == MAX_VALUE[kind]


@pytest.mark.parametrize("name", ["b-Q8_0", "b-Q4_0", "b-Q4_K_M", "b-Q6_K"])
def test_golden_files(shared_data: Path, name: str) -> None:
    gguf = GgufFile.open(shared_data / "golden" / f"{name}.gguf")
    native = [source for source in gguf.tensors.values() if source.kind in NATIVE]
    assert len(native) > 50
    for source in native:
        found = exact(unpack(source.kind, source.by_rows(), source.cols))
        reference = dequantize(source.by_rows(), GGMLQuantizationType[source.kind])
        np.testing.assert_array_equal(found.astype(np.float32), reference)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ2_0"])
def test_dequantise_equals_the_reference(kind: str) -> None:
    values = np.random.default_rng(1).standard_normal((3, 512)).astype(np.float32)
    data = quantize(values, GGMLQuantizationType[kind]).view(np.uint8).reshape(3, -1)
    found = dequantise(kind, data, 512)
    assert found.dtype == np.float32 and found.shape == (3, 512)
    reference = np.asarray(dequantize(data, GGMLQuantizationType[kind])).reshape(3, 512)
    np.testing.assert_array_equal(found, reference)


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "IQ4_XS", "IQ4_NL", "MXFP4", "IQ2_XXS"])
def test_dequantise_takes_types_that_only_gguf_knows(kind: str) -> None:
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    data = np.random.default_rng(2).integers(0, 256, (2, 3 * block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        reference = dequantize(data, GGMLQuantizationType[kind])
    np.testing.assert_array_equal(dequantise(kind, data, 3 * block), reference)


@pytest.mark.parametrize("kind", ["I32", "F64", "Q8_K", "Q8_1", "NOPE"])
def test_types_without_conversion_are_named(kind: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"type {kind} "):
        dequantise(kind, np.zeros((1, 8), dtype=np.uint8), 2)


def test_unpack_refuses_what_it_can_not_take() -> None:
    with pytest.raises(UnsupportedModelError, match="type IQ4_XS"):
        unpack("IQ4_XS", np.zeros((1, 136), dtype=np.uint8), 256)
    for cols, row_bytes in ((33, 34), (32, 35), (64, 34), (0, 0)):
        with pytest.raises(UnsupportedModelError, match="Q8_0 rows"):
            unpack("Q8_0", np.zeros((1, row_bytes), dtype=np.uint8), cols)


def test_infinite_scales_pass_silently() -> None:
    data = np.zeros((1, 34), dtype=np.uint8)
    data[0, :2] = np.array([np.inf], dtype=np.float16).view(np.uint8)
    data[0, 2:] = 1
    assert np.isinf(dequantise("Q8_0", data, 32)).all()
    assert np.isinf(unpack("Q8_0", data, 32).scale).all()
