"""Bad drafter checkpoints: one line each, and nothing under the output's name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.convert import dflash_build as draft

from specla.errors import FileFormatError, OptionError, SpeclaError, UnsupportedModelError
from specla.models.convert import convert_checkpoint


def fails(
    folder: Path, kind: type[SpeclaError] = FileFormatError, outtype: str = "f32", **kwargs: Any
) -> str:
    output = folder.parent / "out" / "d.gguf"
    output.parent.mkdir(exist_ok=True)
    with pytest.raises(kind) as caught:
        convert_checkpoint(folder, output, outtype, **kwargs)
    assert "\n" not in str(caught.value) and list(output.parent.iterdir()) == []
    return str(caught.value)


def tensors() -> dict[str, np.ndarray]:
    return draft.arrays(draft.shapes())


@pytest.mark.parametrize("name", draft.shapes())
def test_every_tensor_is_needed(tmp_path: Path, name: str) -> None:
    arrays = tensors()
    del arrays[name]
    found = fails(draft.checkpoint(tmp_path, draft.nested(), arrays))
    assert f"tensor {name} is missing" in found


@pytest.mark.parametrize("name", ["norm.weight", "layers.1.self_attn.k_norm.weight", "fc.weight"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite(tmp_path: Path, name: str, bad: float) -> None:
    arrays = tensors()
    arrays[name].flat[3] = bad
    folder = draft.checkpoint(tmp_path, draft.nested(), arrays)
    for outtype in ("f32", "q8_0"):
        assert f"{name} holds a NaN" in fails(folder, outtype=outtype)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("hidden_norm.weight", (63,), "hidden_norm.weight has the shape [63], the configuration"),
        ("norm.weight", (64, 1), "norm.weight has the shape [64, 1]"),
        ("fc.weight", (64, 190), "tensor fc.weight has the shape [64, 190]; [64, n * 64]"),
        ("fc.weight", (64 * 192,), "hidden_size is 64, but 12288 is the size of fc.weight"),
        ("layers.1.mlp.down_proj.weight", (64, 64), "has the shape [64, 64], the configuration"),
        ("layers.1.self_attn.v_proj.weight", (64, 64), "the configuration needs [32, 64]"),
        ("embed_tokens.weight", (95, 64), "the configuration needs [96, 64]"),
        ("lm_head.weight", (95, 64), "the configuration needs [96, 64]"),
    ],
)
def test_wrong_shapes(tmp_path: Path, name: str, shape: tuple[int, ...], expected: str) -> None:
    arrays = tensors() | draft.arrays({name: shape})
    assert expected in fails(draft.checkpoint(tmp_path, draft.nested(), arrays))


@pytest.mark.parametrize(
    "name",
    [
        "layers.0.self_attn.q_proj.bias",
        "layers.0.mlp.up_proj.weight_scale_inv",
        "aux_hidden_norm.0.weight",
        "layers.0.self_attn.g_proj.weight",
        "candidate_selector.predecessor_codebook",
    ],
)
def test_a_tensor_that_would_be_lost(tmp_path: Path, name: str) -> None:
    arrays = tensors() | draft.arrays({name: (4, 4)})
    found = fails(draft.checkpoint(tmp_path, draft.nested(), arrays))
    assert f"tensor '{name}' has no place in a dflash model" in found


def test_two_spellings_of_one_tensor(tmp_path: Path) -> None:
    arrays = tensors() | draft.arrays({"model.norm.weight": (draft.WIDTH,)})
    assert "'norm.weight' and 'model.norm.weight' collide" in fails(
        draft.checkpoint(tmp_path, draft.nested(), arrays)
    )


def test_a_mask_vector_of_its_own(tmp_path: Path) -> None:
    folder = draft.checkpoint(tmp_path, draft.nested(), tensors())
    (folder / "mask_embedding.pt").write_bytes(b"x")
    assert "holds mask_embedding.pt" in fails(folder)


SMALL = 40


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({3: -4}, "leads from row 3 to the token -1 of 96"),
        ({39: 57}, "leads from row 39 to the token 96 of 96"),
        ({5: -1}, "leads from two rows to the same token"),
    ],
)
def test_a_vocabulary_map_outside(tmp_path: Path, change: dict[int, int], expected: str) -> None:
    arrays = tensors() | draft.arrays({"lm_head.weight": (SMALL, draft.WIDTH)})
    arrays["d2t"] = np.zeros(SMALL, dtype=np.int64)
    for row, offset in change.items():
        arrays["d2t"][row] = offset
    assert expected in fails(draft.checkpoint(tmp_path, draft.nested(), arrays))


def test_vocabulary_maps_of_another_size_or_type(tmp_path: Path) -> None:
    arrays = tensors() | draft.arrays({"lm_head.weight": (SMALL, draft.WIDTH)})
    c = draft.nested(draft_vocab_size=SMALL)
    assert "tensor d2t is missing: draft_vocab_size is 40" in fails(
        draft.checkpoint(tmp_path, c, arrays)
    )
    arrays["d2t"] = np.zeros(SMALL - 1, dtype=np.int64)
    found = fails(draft.checkpoint(tmp_path, c, arrays))
    assert "draft_vocab_size is 40, but d2t has 39 rows" in found
    arrays["d2t"] = np.zeros(SMALL, dtype=np.float32)
    assert "tensor d2t holds F32 values" in fails(draft.checkpoint(tmp_path, c, arrays))


class TestFiles:
    def test_a_broken_config(self, tmp_path: Path) -> None:
        folder = draft.checkpoint(tmp_path, draft.nested(), tensors())
        for content, expected in (
            (b'{"dflash_config": {', "not valid JSON"),
            (b'{"dflash_config": {"a": 1, "a": 2}}', "the key 'a' occurs twice"),
            (b"\xff", "not UTF-8"),
            (b"[]", "not a JSON object"),
        ):
            (folder / "config.json").write_bytes(content)
            assert expected in fails(folder)

    @pytest.mark.parametrize("value", [[1], "x", 7])
    def test_a_part_that_is_no_object(self, tmp_path: Path, value: object) -> None:
        c = draft.nested() | {"dflash_config": value}
        found = fails(draft.checkpoint(tmp_path, c, tensors()))
        assert "dflash_config is" in found and "an object is needed" in found

    def test_an_unreadable_shard(self, tmp_path: Path) -> None:
        folder = draft.checkpoint(tmp_path, draft.nested(), tensors(), shards=2)
        (folder / "model-00002-of-00002.safetensors").unlink()
        assert "model-00002-of-00002.safetensors: can't read it" in fails(folder)

    def test_truncation_anywhere(self, tmp_path: Path) -> None:
        folder = draft.checkpoint(tmp_path, draft.nested(), tensors())
        path = folder / "model.safetensors"
        whole = path.read_bytes()
        for length in [0, 7, 9, 2000, *range(4000, len(whole), 40_009), len(whole) - 1]:
            path.write_bytes(whole[:length])
            assert "model.safetensors" in fails(folder)

    def test_an_existing_output(self, tmp_path: Path) -> None:
        folder = draft.checkpoint(tmp_path, draft.nested(), tensors())
        output = tmp_path / "d.gguf"
        output.write_bytes(b"mine")
        with pytest.raises(OptionError, match="exists already"):
            convert_checkpoint(folder, output)
        assert output.read_bytes() == b"mine"

    def test_a_failure_leaves_the_old_file(self, tmp_path: Path) -> None:
        arrays = tensors()
        arrays["layers.1.mlp.down_proj.weight"][0, 0] = np.nan
        folder = draft.checkpoint(tmp_path, draft.nested(), arrays)
        output = tmp_path / "d.gguf"
        output.write_bytes(b"mine")
        with pytest.raises(FileFormatError, match="holds a NaN"):
            convert_checkpoint(folder, output, overwrite=True)
        assert output.read_bytes() == b"mine"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["d.gguf", "hf"]

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_folder_that_may_not_be_written(self, tmp_path: Path) -> None:
        folder = draft.checkpoint(tmp_path, draft.nested(), tensors())
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        with pytest.raises(OptionError, match="can't write it"):
            convert_checkpoint(folder, closed / "d.gguf")


@pytest.mark.parametrize(
    "c",
    [
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
        {"model_type": "deepseek_v4", "dspark_block_size": 5},
        {"model_type": ["qwen3_5"]},
        {},
    ],
)
def test_neither_target_nor_drafter(tmp_path: Path, c: dict[str, Any]) -> None:
    found = fails(draft.checkpoint(tmp_path, c, tensors()), UnsupportedModelError)
    assert "is not supported; specla converts a drafter (architectures DFlashDraftModel" in found
    assert "a target (model_type qwen3_5_text, qwen3_5)" in found


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**40) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
KEYS = [*draft.nested(), *draft.nested()["dflash_config"], "aux_hidden_state_layer_ids",
        "use_sliding_window", "sliding_window", "layer_types", "is_causal", "draft_vocab_size",
        "transformer_layer_config", "sample_from_anchor", "rope_scaling", "markov_rank",
        "conv_kernel_size", "output_multiplier", "has_embed_tokens"]  # fmt: skip


@given(key=st.sampled_from(KEYS), value=JUNK, inner=st.booleans())
def test_a_configuration_with_junk_in_it(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any, inner: bool
) -> None:
    """Any value anywhere gives a file that reads back, or one line."""
    c = draft.nested()
    (c["dflash_config"] if inner else c)[key] = value
    folder = draft.checkpoint(tmp_path_factory.mktemp("junk"), c, tensors())
    output = folder.parent / "d.gguf"
    try:
        convert_checkpoint(folder, output, "f32")
    except SpeclaError as error:
        assert "\n" not in str(error) and not output.exists()
