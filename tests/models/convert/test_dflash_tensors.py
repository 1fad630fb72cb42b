"""Drafter checkpoints to GGUF: every tensor and key, in both layouts and every float type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from models.convert import dflash_build as draft

from specla.models.gguf import GgufFile

PLAIN = {
    "general.architecture": "dflash",
    "general.type": "model",
    "general.name": "hf",
    "general.file_type": 0,
    "general.quantization_version": 2,
    "dflash.block_count": draft.LAYERS,
    "dflash.context_length": 512,
    "dflash.embedding_length": draft.WIDTH,
    "dflash.feed_forward_length": draft.INNER,
    "dflash.attention.head_count": draft.HEADS,
    "dflash.attention.head_count_kv": draft.KV_HEADS,
    "dflash.attention.layer_norm_rms_epsilon": float(np.float32(1e-6)),
    "dflash.attention.key_length": draft.HEAD_DIM,
    "dflash.attention.value_length": draft.HEAD_DIM,
    "dflash.rope.freq_base": 1e6,
    "dflash.block_size": 8,
    "dflash.target_layers": [2, 4, 7],
    "tokenizer.ggml.mask_token_id": 90,
}
DSPARK = {"dflash.sample_from_anchor": True, "dflash.has_confidence_head": True}


def check(gguf: GgufFile, tensors: dict[str, np.ndarray], keys: dict[str, Any]) -> None:
    """Values, shapes and keys, as specla's reader and as the `gguf` package see them."""
    wanted = draft.expected(tensors)
    assert set(gguf.tensors) == set(wanted)
    reader = GGUFReader(gguf.path)
    theirs = {tensor.name: tensor for tensor in reader.tensors}
    assert set(theirs) == set(wanted)
    for name, values in wanted.items():
        assert gguf.tensors[name].kind == "F32"
        assert gguf.tensors[name].shape == values.shape, name
        np.testing.assert_array_equal(gguf.tensors[name].to_float32(), values, err_msg=name)
        np.testing.assert_array_equal(theirs[name].data.reshape(values.shape), values, err_msg=name)
    assert dict(gguf.metadata) == keys
    found = {
        name: part.contents() for name, part in reader.fields.items() if not name.startswith("GGUF")
    }
    assert found == keys


def test_nested(tmp_path: Path) -> None:
    tensors = draft.arrays(draft.shapes())
    gguf, notes = draft.converted(tmp_path, draft.nested(), tensors)
    check(gguf, tensors, PLAIN)
    assert notes == ("written without a tokenizer, which llama.cpp needs; name the target",)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("layout", ["nested", "flat"])
def test_dspark(tmp_path: Path, layout: str, dtype: str, shards: int) -> None:
    c = draft.nested("Qwen3DSparkModel") if layout == "nested" else draft.flat()
    tensors = draft.arrays(draft.shapes(), draft.markov_shapes(), draft.confidence_shapes())
    gguf, notes = draft.converted(tmp_path, c, tensors, write={"dtype": dtype, "shards": shards})
    check(gguf, tensors, PLAIN | DSPARK)
    assert len(notes) == 1


def test_speculators(tmp_path: Path) -> None:
    tensors = draft.arrays(draft.shapes(), draft.markov_shapes())
    gguf, _ = draft.converted(tmp_path, draft.speculators(), tensors)
    keys = {"dflash.sample_from_anchor": False, "dflash.has_confidence_head": False}
    check(gguf, tensors, PLAIN | keys)


def test_dflash2(tmp_path: Path) -> None:
    tensors = draft.arrays(draft.shapes(), draft.dflash2_shapes())
    gguf, _ = draft.converted(tmp_path, draft.dflash2_config(), tensors)
    keys = {
        "dflash.conv_kernel_size": draft.CONV,
        "dflash.conv_group_size": draft.GROUP,
        "dflash.selector_rank": draft.SELECTOR_RANK,
        "dflash.selector_top_k": draft.TOP_K,
    }
    check(gguf, tensors, PLAIN | keys)


def test_prefixed_names_and_sinks(tmp_path: Path) -> None:
    sinks = {f"layers.{layer}.self_attn.sinks": (draft.HEADS,) for layer in range(draft.LAYERS)}
    tensors = draft.arrays(draft.shapes(), sinks)
    prefixed = {f"model.{name}": values for name, values in tensors.items()}
    gguf, _ = draft.converted(tmp_path, draft.nested(), prefixed)
    check(gguf, tensors, PLAIN)


def test_value_types_are_llama_cpps(tmp_path: Path) -> None:
    c = draft.nested(
        "Qwen3DSparkModel", use_sliding_window=True, sliding_window=32, is_causal=True,
        layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    tensors = draft.arrays(draft.shapes(), draft.markov_shapes())
    gguf, _ = draft.converted(tmp_path, c, tensors)
    fields = GGUFReader(gguf.path).fields
    for key, types in {
        "dflash.block_size": [GGUFValueType.UINT32],
        "dflash.target_layers": [GGUFValueType.ARRAY, GGUFValueType.INT32],
        "dflash.sample_from_anchor": [GGUFValueType.BOOL],
        "dflash.has_confidence_head": [GGUFValueType.BOOL],
        "dflash.attention.causal": [GGUFValueType.BOOL],
        "dflash.attention.sliding_window": [GGUFValueType.UINT32],
        "dflash.attention.sliding_window_pattern": [GGUFValueType.ARRAY, GGUFValueType.BOOL],
        "tokenizer.ggml.mask_token_id": [GGUFValueType.UINT32],
    }.items():
        assert fields[key].types == types, key


@pytest.mark.parametrize("outtype", ["f16", "bf16", "q8_0", "q4_0"])
def test_encodings(tmp_path: Path, outtype: str) -> None:
    groups = draft.shapes(), draft.markov_shapes(), draft.confidence_shapes()
    tensors = draft.arrays(*groups)
    gguf, _ = draft.converted(tmp_path, draft.flat(), tensors, outtype)
    assert (
        gguf.metadata["general.file_type"] == {"f16": 1, "bf16": 32, "q8_0": 7, "q4_0": 2}[outtype]
    )
    for name, values in draft.expected(tensors).items():
        source = gguf.tensors[name]
        kind = outtype.upper()
        if len(values.shape) == 1 or name.startswith("conf_proj"):
            kind = "F32"
        elif kind in ("Q8_0", "Q4_0") and values.shape[-1] % 32:
            kind = "F16"
        assert source.kind == kind, name
        ggml = GGMLQuantizationType[kind]
        wanted = np.asarray(dequantize(quantize(values, ggml), ggml)).reshape(values.shape)
        np.testing.assert_array_equal(source.to_float32(), wanted, err_msg=name)
    # rank 8 fills no block, the width does
    quantised = outtype in ("q8_0", "q4_0")
    assert gguf.tensors["markov_w1.weight"].kind == ("F16" if quantised else outtype.upper())
    assert gguf.tensors["fc.weight"].kind == outtype.upper()


def test_convolution_bases_stay_exact(tmp_path: Path) -> None:
    tensors = draft.arrays(draft.shapes(), draft.dflash2_shapes())
    gguf, _ = draft.converted(tmp_path, draft.dflash2_config(), tensors, "q8_0")
    kinds = {name: gguf.tensors[f"blk.0.attn_conv_{name}"].kind for name in ("base", "proj.weight")}
    assert kinds == {"base": "F32", "proj.weight": "Q8_0"}
    assert gguf.tensors["selector_hidden.weight"].kind == "Q8_0"


def test_interleaved_rope_becomes_halves(tmp_path: Path) -> None:
    """Rotating pairs before or halves after the conversion is the same turn."""
    tensors = draft.arrays(draft.shapes(), draft.markov_shapes())
    c = draft.nested("LingDSparkModel", rope_is_neox_style=False)
    gguf, _ = draft.converted(tmp_path, c, tensors)
    half = draft.HEAD_DIM // 2
    for name, n_heads in (("q", draft.HEADS), ("k", draft.KV_HEADS)):
        pairs = tensors[f"layers.1.self_attn.{name}_proj.weight"].reshape(n_heads, half, 2, -1)
        found = gguf.tensors[f"blk.1.attn_{name}.weight"].to_float32()
        halves = found.reshape(n_heads, 2, half, draft.WIDTH)
        norm = gguf.tensors[f"blk.1.attn_{name}_norm.weight"].to_float32()
        for side in (0, 1):
            np.testing.assert_array_equal(halves[:, side], pairs[:, :, side])
            np.testing.assert_array_equal(
                norm.reshape(2, half)[side],
                tensors[f"layers.1.self_attn.{name}_norm.weight"].reshape(half, 2)[:, side],
            )


EMBEDDING = {"embed_tokens.weight": (draft.VOCAB, draft.WIDTH)}
HEAD = {"lm_head.weight": (draft.VOCAB, draft.WIDTH)}


class TestEmbeddingAndHead:
    def test_dflash_keeps_both(self, tmp_path: Path) -> None:
        tensors = draft.arrays(draft.shapes(), EMBEDDING, HEAD)
        gguf, _ = draft.converted(tmp_path, draft.nested(), tensors)
        check(gguf, tensors, PLAIN)

    def test_a_lone_embedding_is_noted(self, tmp_path: Path) -> None:
        tensors = draft.arrays(draft.shapes(), EMBEDDING)
        gguf, notes = draft.converted(tmp_path, draft.nested(), tensors)
        check(gguf, tensors, PLAIN)
        assert any("takes the embedding for both" in note for note in notes)
        _, notes = draft.converted(tmp_path, draft.nested(tie_word_embeddings=True), tensors)
        assert len(notes) == 1

    def test_an_embedding_that_is_only_a_copy(self, tmp_path: Path) -> None:
        tensors = draft.arrays(draft.shapes(), EMBEDDING)
        gguf, notes = draft.converted(tmp_path, draft.nested(has_embed_tokens=False), tensors)
        assert "token_embd.weight" not in gguf.tensors
        assert any("has_embed_tokens is false" in note for note in notes)

    def test_dspark_leaves_a_full_head_out(self, tmp_path: Path) -> None:
        tensors = draft.arrays(draft.shapes(), draft.markov_shapes(), HEAD)
        gguf, notes = draft.converted(tmp_path, draft.flat(), tensors)
        assert "output.weight" not in gguf.tensors
        assert any("left out lm_head.weight" in note for note in notes)

    def test_dspark_leaves_a_tied_head_out(self, tmp_path: Path) -> None:
        tensors = draft.arrays(draft.shapes(), draft.markov_shapes(), EMBEDDING)
        tensors["lm_head.weight"] = tensors["embed_tokens.weight"]
        gguf, _ = draft.converted(tmp_path, draft.flat(), tensors)
        assert "token_embd.weight" in gguf.tensors and "output.weight" not in gguf.tensors

    def test_an_embedding_never_stands_in_for_another_head(self, tmp_path: Path) -> None:
        groups = draft.shapes(), draft.markov_shapes(), EMBEDDING, HEAD
        tensors = draft.arrays(*groups)
        gguf, _ = draft.converted(tmp_path, draft.flat(), tensors)
        check(gguf, tensors, PLAIN | DSPARK | {"dflash.has_confidence_head": False})


class TestReducedVocabulary:
    SMALL = 40

    def tensors(self) -> dict[str, np.ndarray]:
        head = {"lm_head.weight": (self.SMALL, draft.WIDTH)}
        tensors = draft.arrays(draft.shapes(), draft.markov_shapes(self.SMALL), head)
        self.ids = np.sort(np.random.default_rng(1).permutation(draft.VOCAB)[: self.SMALL])
        tensors["d2t"] = (self.ids - np.arange(self.SMALL)).astype(np.int64)
        return tensors

    @pytest.mark.parametrize("stated", [True, False])
    def test_offsets_become_ids(self, tmp_path: Path, stated: bool) -> None:
        tensors = self.tensors()
        tensors["t2d"] = np.zeros(draft.VOCAB, dtype=np.int64)
        c = draft.speculators(**({"draft_vocab_size": self.SMALL} if stated else {}))
        gguf, notes = draft.converted(tmp_path, c, tensors, "q8_0")
        source = gguf.tensors["d2t"]
        assert (source.kind, source.shape) == ("I64", (self.SMALL,))
        assert source.raw.view("<i8").tolist() == self.ids.tolist()
        (theirs,) = [one for one in GGUFReader(gguf.path).tensors if one.name == "d2t"]
        assert theirs.tensor_type == GGMLQuantizationType.I64
        assert theirs.data.tolist() == self.ids.tolist()
        assert gguf.tensors["output.weight"].shape == (self.SMALL, draft.WIDTH)
        assert gguf.tensors["markov_w2.weight"].shape == (self.SMALL, draft.RANK)
        assert "left out 1 tensors that only training needs" in notes

    def test_a_plain_drafter_may_have_one(self, tmp_path: Path) -> None:
        tensors = {name: t for name, t in self.tensors().items() if not name.startswith("markov")}
        c = draft.nested(draft_vocab_size=self.SMALL)
        gguf, _ = draft.converted(tmp_path, c, tensors)
        assert {"d2t", "output.weight"} < set(gguf.tensors)
        assert "dflash.sample_from_anchor" not in gguf.metadata
