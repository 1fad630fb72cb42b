"""Weight products of the compiled backend, at every CPU level: the reference's bytes."""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir
from numba_values import moods, seeds, strided, values
from support.arrays import equal, filled, quantised_rows

from specla.backends.base import QuantisedRows
from specla.backends.blocks import NATIVE
from specla.backends.numba import dot, features, panels, products
from specla.backends.numba.backend import NumbaBackend
from specla.backends.numba.jit import Kernel
from specla.backends.numba.panels import KINDS
from specla.backends.numba.vector_code import splat
from specla.backends.numpy.backend import NumpyBackend
from specla.backends.weights import WeightSource
from specla.errors import OptionError, UnsupportedModelError
from specla.testing.kernels.products import SCALES_AT, float_source, random_source

REFERENCE = NumpyBackend()
LEVELS = [level for level in features.LEVELS if features.supported(level)]
ROWS = st.one_of(st.integers(1, 50), st.sampled_from([16, 32, 48]))


def rows_of(backend: Any, values: np.ndarray, scale: np.ndarray) -> QuantisedRows:
    """Rows with given values and scales, the rest as quantise would fill it."""
    rows = quantised_rows(backend, values)
    rows.values[...], rows.scale[...] = values, scale
    rows.sums[...] = values.reshape((*rows.sums.shape, 16)).sum(axis=-1)
    if rows.pairs is not None:
        rows.pairs[...] = values.reshape(len(values), -1, 4)[..., [0, 2, 1, 3]].reshape(
            values.shape
        )
    return rows


def run(backend: Any, source: WeightSource, x: np.ndarray) -> np.ndarray:
    weight = backend.load(source)
    out = filled(len(x), source.rows)
    if weight.quantised:
        rows = quantised_rows(REFERENCE, x)
        REFERENCE.quantise(x, rows)
        backend.linear_quantised(rows_of(backend, rows.values, rows.scale), weight, out)
    else:
        backend.linear_float(x, weight, out)
    return out


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", NATIVE)
@settings(max_examples=25)
@given(n=st.integers(1, 12), rows=ROWS, blocks=st.integers(1, 20), mood=moods, seed=seeds)
def test_linear_quantised(
    level: str, kind: str, n: int, rows: int, blocks: int, mood: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    blocks = 1 + blocks % 4 if "_K" in kind else blocks
    source = random_source(rng, kind, rows, blocks, mood)
    x = values(rng, mood, n, source.cols)
    assert equal(run(NumbaBackend(level), source, x), run(REFERENCE, source, x))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", NATIVE)
def test_largest_integers(level: str, kind: str) -> None:
    """Every weight and activation at its limit, all signs alike: nothing saturates."""
    size, size_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    for fill in (0x00, 0x7F, 0x80, 0xFF):
        data = np.full((17, 1, size_bytes), fill, dtype=np.uint8)
        for at in SCALES_AT[kind]:
            data[:, :, at : at + 2] = np.array([1.0], dtype=np.float16).view(np.uint8)
        source = WeightSource("w", kind, 17, size, data.reshape(17, -1))
        for value in (127, -127):
            ones = np.ones((7, size // 32), dtype=np.float32)
            results = []
            for backend in (NumbaBackend(level), REFERENCE):
                x = rows_of(backend, np.full((7, size), value, dtype=np.int8), ones)
                out = filled(7, 17)
                backend.linear_quantised(x, backend.load(source), out)
                results.append(out)
            assert equal(*results)


@pytest.mark.parametrize("kind", [*NATIVE, "BF16"])
def test_many_tokens_and_runs_of_panels(kind: str) -> None:
    """More tokens than a batch has; panels in any order and number."""
    rng, tokens = np.random.default_rng(5), products.TOKEN_BATCH + 7
    if kind == "BF16":
        data = rng.integers(0, 256, (70, 2 * 544), dtype=np.uint8)
        source = WeightSource("w", kind, 70, 544, data)
    else:
        source = random_source(rng, kind, 70, 3 if "_K" in kind else 17, "plain")
    x, backend = values(rng, "plain", tokens, source.cols), NumbaBackend()
    wanted = run(REFERENCE, source, x)
    assert equal(run(backend, source, x), wanted)

    def cut(kernel: Kernel, units: int, *arguments: Any, share: bool) -> None:
        assert units == 5 or kernel.name == "quantise"
        runs = ((3, 5), (0, 1), (2, 2), (1, 3)) if units == 5 else ((0, units),)
        for first, last in runs:
            kernel(*arguments, first, last)

    weight = backend.load(source)
    backend._launch = cut
    backend.load = lambda source: weight
    assert equal(run(backend, source, x), wanted)


@pytest.mark.parametrize("kind", NATIVE)
def test_repacking_on_two_threads(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random_source(np.random.default_rng(6), kind, 70, 3, "plain")
    alone = NumbaBackend().load(source).handle
    monkeypatch.setattr(panels, "SHARED_BYTES", 0)
    together = NumbaBackend(threads=2).load(source).handle
    for part in ("quants", "subs", "scales"):
        assert equal(getattr(together, part), getattr(alone, part))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@settings(max_examples=25)
@given(n=st.integers(1, 6), rows=ROWS, cols=st.integers(1, 700), mood=moods, seed=seeds)
def test_linear_float(kind: str, n: int, rows: int, cols: int, mood: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = values(rng, mood, rows, cols)
    source = float_source(kind, w)
    x = strided(rng, values(rng, mood, n, cols))
    assert equal(run(NumbaBackend(), source, x), run(REFERENCE, source, x))


def test_other_types_become_float32() -> None:
    rng = np.random.default_rng(2)
    size, size_bytes = GGML_QUANT_SIZES[GGMLQuantizationType.Q5_0]
    data = rng.integers(0, 256, (20, 3, size_bytes), dtype=np.uint8)
    data[:, :, :2] = rng.standard_normal((20, 3, 1)).astype(np.float16).view(np.uint8)
    source = WeightSource("w", "Q5_0", 20, 3 * size, data.reshape(20, -1))
    x = values(rng, "plain", 3, source.cols)
    assert not NumbaBackend().load(source).quantised
    assert equal(run(NumbaBackend(), source, x), run(REFERENCE, source, x))


@pytest.mark.parametrize("kind", [*NATIVE, "F16", "BF16"])
def test_as_small_as_the_file(kind: str) -> None:
    size, size_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    data = np.zeros((64, 1024 // size * size_bytes), dtype=np.uint8)
    source = WeightSource("w", kind, 64, 1024, data)
    assert NumbaBackend().load(source).handle.nbytes <= 1.03 * data.nbytes


def test_bad_row_size_is_refused_at_load() -> None:
    source = WeightSource("w", "Q8_0", 2, 40, np.zeros((2, 34), dtype=np.uint8))
    with pytest.raises(UnsupportedModelError, match="can't have 34 bytes"):
        NumbaBackend().load(source)


def test_level_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="'sse9' is unknown; choose one of portable"):
        NumbaBackend("sse9")
    monkeypatch.setenv(features.VARIABLE, "portable")
    assert NumbaBackend().level == "portable"
    monkeypatch.setattr(features, "has", lambda feature: False)
    with pytest.raises(OptionError, match="isn't supported by this processor"):
        NumbaBackend("vnni")


# -- VNNI on machines without it: its code with the one instruction emulated, and the instruction
# -- as LLVM selects it


def _emulated(builder: Any, how: str, acc: Any, w: Any, word: Any) -> Any:
    """vpdpbusd in plain code: unsigned bytes of w times signed bytes of x, four to a lane."""
    wide = ir.VectorType(dot.I32, 64)
    x = builder.bitcast(splat(builder, word, 16), dot.BYTES)
    product = builder.mul(builder.zext(w, wide), builder.sext(x, wide))
    for i in range(4):
        acc = builder.add(acc, builder.shuffle_vector(product, product, dot.lanes(16, i, 4)))
    return acc


@pytest.mark.parametrize("kind", NATIVE)
def test_vnni_code_around_an_emulated_instruction(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dot, "byte_dot", _emulated)
    made = products._integer_product(KINDS[kind], features.LEVELS.index("vnni"))
    compiled = Kernel(made.function, made.signature, cached=False)
    monkeypatch.setattr(products, "product", lambda kind, level: compiled)
    for seed, mood in enumerate(["plain", "huge", "hostile"]):
        rng = np.random.default_rng(seed)
        source = random_source(rng, kind, 37, 4 if "_K" in kind else 19, mood)
        x = values(rng, mood, 15, source.cols)  # tiles of 8, 4, 2 and 1
        backend = NumbaBackend()
        backend.level = "vnni"
        assert equal(run(backend, source, x), run(REFERENCE, source, x))


@pytest.mark.parametrize(
    ("how", "cpu", "register"),
    [("vnni", "icelake-server", "%zmm"), ("vnni256", "alderlake", "%ymm")],
)
def test_vnni_instruction_is_selected(how: str, cpu: str, register: str) -> None:
    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    try:
        target = llvmlite.binding.Target.from_triple("x86_64-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this LLVM has no x86 back end")
    module = ir.Module()
    function = ir.Function(
        module, ir.FunctionType(dot.INTS, [dot.INTS, dot.BYTES, dot.I32]), "quad"
    )
    builder = ir.IRBuilder(function.append_basic_block())
    acc, w, x = function.args
    builder.ret(dot.byte_dot(builder, how, acc, w, x))
    parsed = llvmlite.binding.parse_assembly(str(module))
    parsed.verify()
    text = target.create_target_machine(cpu=cpu, opt=3).emit_assembly(parsed)
    found = [line.split() for line in text.splitlines() if "vpdpbusd" in line]
    assert len(found) == (1 if how == "vnni" else 2)
    for line in found:
        # AT&T order: signed bytes (activations), unsigned bytes (weights), sums
        assert all(register in operand for operand in line[-3:]), text
    if how == "vnni":
        # arguments come as zmm0 (sums) and zmm1 (weights)
        assert found[0][-2].startswith("%zmm1") and found[0][-1] == "%zmm0", text
