"""What config.json decides: precedence of the layouts, layers, windows, RoPE; nothing assumed
silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models.convert import dflash_build as draft

from specla.errors import FileFormatError, SpeclaError, UnsupportedModelError
from specla.models.convert import convert_checkpoint


def keys_of(tmp_path: Path, c: dict[str, Any], **kwargs: Any) -> tuple[dict[str, Any], list[str]]:
    """(the file's keys without their prefix, the notes but for the missing tokenizer's)."""
    tensors = draft.arrays(draft.shapes(**kwargs))
    gguf, notes = draft.converted(tmp_path, c, tensors)
    keys = {key.removeprefix("dflash."): value for key, value in gguf.metadata.items()}
    return keys, [note for note in notes if "without a tokenizer" not in note]


def refusal(
    tmp_path: Path, c: dict[str, Any], kind: type[SpeclaError] = FileFormatError, **kwargs: Any
) -> str:
    folder = draft.checkpoint(tmp_path, c, draft.arrays(draft.shapes(**kwargs)))
    with pytest.raises(kind) as caught:
        convert_checkpoint(folder, tmp_path / "d.gguf", "f32")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]
    return str(caught.value)


class TestLayouts:
    """Nested values that a reader overlooks used to become other models' defaults."""

    @pytest.mark.parametrize("key", ["mask_token_id", "block_size"])
    def test_a_missing_value_is_an_error(self, tmp_path: Path, key: str) -> None:
        expected = f"{key} is missing, in dflash_config and at the top level; add it"
        assert expected in refusal(tmp_path, draft.nested(**{f"dflash__{key}": None}))

    @pytest.mark.parametrize("key", ["mask_token_id", "block_size"])
    def test_nested_wins_with_a_note(self, tmp_path: Path, key: str) -> None:
        keys, notes = keys_of(tmp_path, draft.nested(**{key: 5, f"dflash__{key}": 7}))
        stored = "tokenizer.ggml.mask_token_id" if key == "mask_token_id" else key
        assert keys[stored] == 7
        wanted = f"{key} is 7 in dflash_config and 5 at the top level; the former is used"
        assert notes == [wanted]

    def test_the_same_twice_is_no_news(self, tmp_path: Path) -> None:
        _, notes = keys_of(tmp_path, draft.nested(mask_token_id=90, block_size=8))
        assert notes == []

    def test_a_mixture(self, tmp_path: Path) -> None:
        c = draft.nested(dflash__block_size=None, block_size=6)
        assert keys_of(tmp_path, c)[0]["block_size"] == 6

    @pytest.mark.parametrize(
        ("changes", "causal"),
        [
            ({}, None),
            ({"dflash__causal": True}, True),
            ({"is_causal": False}, False),
            ({"is_causal": False, "dflash__causal": True}, False),
        ],
    )
    def test_causality_is_a_top_level_key(
        self, tmp_path: Path, changes: dict[str, Any], causal: bool | None
    ) -> None:
        keys, _ = keys_of(tmp_path, draft.nested(**changes))
        assert keys.get("attention.causal") is causal

    def test_sizes_that_only_the_tensors_know(self, tmp_path: Path) -> None:
        keys, notes = keys_of(tmp_path, draft.nested(head_dim=None, intermediate_size=None))
        assert keys["attention.key_length"] == draft.HEAD_DIM
        assert keys["feed_forward_length"] == draft.INNER
        assert len(notes) == 2 and notes[0].startswith("head_dim is missing; 16 is the size of")

    def test_the_librarys_layer_config_wins(self, tmp_path: Path) -> None:
        c = draft.speculators(architectures=["DFlashDraftModel"], hidden_size=1, rms_norm_eps=1.0)
        assert keys_of(tmp_path, c)[0]["embedding_length"] == draft.WIDTH

    def test_factors(self, tmp_path: Path) -> None:
        c = draft.nested(
            dflash__attention_value_scale=0.5, output_multiplier=2.0,
            dflash__final_logit_softcapping=30.0, input_embedding_scale=8.0,
        )  # fmt: skip
        keys, _ = keys_of(tmp_path, c)
        assert (keys["attention.value_scale"], keys["logit_scale"]) == (0.5, 2.0)
        assert (keys["final_logit_softcapping"], keys["embedding_scale"]) == (30.0, 8.0)
        assert (
            "final_logit_softcapping"
            not in keys_of(tmp_path, draft.nested(final_logit_softcapping=0.0))[0]
        )


class TestCapturedLayers:
    def test_ids_from_one_are_not_shifted_again(self, tmp_path: Path) -> None:
        c = draft.nested(dflash__target_layer_ids=None, aux_hidden_state_layer_ids=[2, 4, 7])
        assert keys_of(tmp_path, c)[0]["target_layers"] == [2, 4, 7]

    def test_both_may_agree(self, tmp_path: Path) -> None:
        c = draft.nested(aux_hidden_state_layer_ids=[2, 4, 7])
        assert keys_of(tmp_path, c)[0]["target_layers"] == [2, 4, 7]

    def test_both_may_not_disagree(self, tmp_path: Path) -> None:
        found = refusal(tmp_path, draft.nested(aux_hidden_state_layer_ids=[1, 3, 6]))
        assert "[1, 3, 6] and aux_hidden_state_layer_ids [1, 3, 6] name different layers" in found

    @pytest.mark.parametrize(
        ("n_target", "count", "layers"),
        [
            (64, 5, [1, 16, 31, 46, 61]),
            (32, 5, [1, 8, 15, 22, 29]),
            (8, 1, [4]),
            (8, 2, [1, 5]),
        ],
    )
    def test_evenly_spaced_with_a_note(
        self, tmp_path: Path, n_target: int, count: int, layers: list[int]
    ) -> None:
        c = draft.nested(dflash__target_layer_ids=None, num_target_layers=n_target)
        keys, notes = keys_of(tmp_path, c, n_captured=count)
        assert keys["target_layers"] == [layer + 1 for layer in layers]
        assert "evenly spaced layers were assumed" in notes[0]

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"dflash__target_layer_ids": None, "num_target_layers": None}, "add the layers' ids"),
            ({"dflash__target_layer_ids": None, "num_target_layers": 3}, "don't spread over 3"),
            ({"dflash__target_layer_ids": [1, 3]}, "names 2 layers, fc.weight has columns for 3"),
            ({"dflash__target_layer_ids": [1, 3, 8]}, "names layer 8, num_target_layers is 8"),
            ({"dflash__target_layer_ids": [1, 3, 3]}, "a list of different layers from 0"),
            ({"dflash__target_layer_ids": [-1, 3, 5]}, "a list of different layers from 0"),
            ({"dflash__target_layer_ids": "1,3,6"}, "target_layer_ids is '1,3,6'"),
            ({"dflash__target_layer_ids": []}, "target_layer_ids is []"),
            ({"dflash__target_layer_ids": [1, 3, True]}, "target_layer_ids is [1, 3, True]"),
            ({"dflash__target_layer_ids": [1, 3, 10**9]}, "a list of different layers"),
            (
                {"dflash__target_layer_ids": None, "aux_hidden_state_layer_ids": [0, 2, 4]},
                "aux_hidden_state_layer_ids is [0, 2, 4]; a list of different layers from 1",
            ),
        ],
    )
    def test_refusals(self, tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
        assert expected in refusal(tmp_path, draft.nested(**changes))


SLIDING, FULL = "sliding_attention", "full_attention"


class TestWindow:
    @pytest.mark.parametrize(
        ("changes", "size", "pattern", "n_notes"),
        [
            ({"sliding_window": 32}, None, None, 0),
            ({"layer_types": [FULL, FULL], "use_sliding_window": True, "sliding_window": 3},
             None, None, 0),
            ({"layer_types": [SLIDING, FULL], "use_sliding_window": True, "sliding_window": 32},
             32, [True, False], 0),
            ({"layer_types": [SLIDING, FULL], "sliding_window": 32}, None, None, 1),
            ({"dflash__use_swa": True, "dflash__swa_window_size": 16}, 16, [True, True], 0),
            ({"dflash__use_swa": True, "sliding_window": 24}, 24, [True, True], 0),
            ({"dflash__use_swa": True, "dflash__swa_window_size": 16, "layer_types": [FULL, FULL]},
             16, [True, True], 1),
            ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
             8, [False, True], 1),
        ],
    )  # fmt: skip
    def test_patterns(
        self,
        tmp_path: Path,
        changes: dict[str, Any],
        size: int | None,
        pattern: list[bool] | None,
        n_notes: int,
    ) -> None:
        keys, notes = keys_of(tmp_path, draft.nested(**changes))
        assert keys.get("attention.sliding_window") == size
        assert keys.get("attention.sliding_window_pattern") == pattern
        assert len(notes) == n_notes

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"layer_types": [FULL]}, "a list of 2 layer types"),
            ({"layer_types": [FULL, "chunked"]}, "layer_types is 'chunked'"),
            ({"layer_types": [FULL, [1]]}, "layer_types is [1]"),
            ({"use_sliding_window": True}, "sliding_window is missing"),
            ({"use_sliding_window": "yes"}, "use_sliding_window is 'yes'"),
            ({"dflash__use_swa": True, "dflash__swa_window_size": -4}, "swa_window_size is -4"),
        ],
    )
    def test_refusals(self, tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
        assert expected in refusal(tmp_path, draft.nested(**changes))


YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 16.0,
    "original_max_position_embeddings": 64,
}


class TestRope:
    def rope(self, tmp_path: Path, c: dict[str, Any]) -> dict[str, Any]:
        keys, notes = keys_of(tmp_path, c)
        assert notes == []
        start = "rope."
        return {key[len(start) :]: value for key, value in keys.items() if key.startswith(start)}

    def test_yarn(self, tmp_path: Path) -> None:
        assert self.rope(tmp_path, draft.nested(rope_parameters=YARN)) == {
            "freq_base": 1e4,
            "scaling.type": "yarn",
            "scaling.factor": 16.0,
            "scaling.original_context_length": 64,
        }

    def test_all_of_yarn_in_the_older_layout(self, tmp_path: Path) -> None:
        rope = {"type": "yarn", "factor": 4, "extrapolation_factor": 1.5, "attn_factor": 1.25,
                "beta_fast": 24, "beta_slow": 2}  # fmt: skip
        c = draft.flat("DFlashDraftModel", rope_scaling=rope, original_max_position_embeddings=128)
        assert self.rope(tmp_path, c) == {
            "freq_base": 1e6,
            "scaling.type": "yarn",
            "scaling.factor": 4.0,
            "scaling.original_context_length": 128,
            "scaling.yarn_ext_factor": 1.5,
            "scaling.attn_factor": float(np.float32(1.25 / (1 + 0.1 * np.log(4)))),
            "scaling.yarn_beta_fast": 24.0,
            "scaling.yarn_beta_slow": 2.0,
        }

    @pytest.mark.parametrize(
        ("changes", "wanted"),
        [
            ({}, 1.0),
            ({"attention_factor": 1 + 0.1 * np.log(16)}, 1.0),
            ({"attention_factor": 1.0}, 1 / (1 + 0.1 * np.log(16))),
            ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1 / (1 + 0.1 * np.log(16))),
            ({"mscale": 2.0, "mscale_all_dim": 0.5},
             (1 + 0.2 * np.log(16)) / (1 + 0.05 * np.log(16)) / (1 + 0.1 * np.log(16))),
            ({"mscale": 2.0}, 1.0),
        ],
    )  # fmt: skip
    def test_yarns_magnitude_is_written_relative_to_its_own(
        self, tmp_path: Path, changes: dict[str, Any], wanted: float
    ) -> None:
        found = self.rope(tmp_path, draft.nested(rope_parameters=YARN | changes))
        assert found.get("scaling.attn_factor", 1.0) == float(np.float32(wanted))
        assert ("scaling.attn_factor" in found) is bool(wanted != 1.0)

    @pytest.mark.parametrize(
        ("rope", "expected"),
        [
            ({"rope_theta": 5e5}, {"freq_base": 5e5}),
            (
                {"rope_type": "linear", "rope_theta": 1e4, "factor": 2},
                {"freq_base": 1e4, "scaling.type": "linear", "scaling.factor": 2.0},
            ),
            (
                {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
                {"freq_base": 1e4, "dimension_count": 8},
            ),
            (
                {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e4}},
                {"freq_base": 1e4},
            ),
        ],
    )
    def test_others(self, tmp_path: Path, rope: dict[str, Any], expected: dict[str, Any]) -> None:
        assert self.rope(tmp_path, draft.nested(rope_parameters=rope)) == expected

    @pytest.mark.parametrize(
        ("rope", "kind", "expected"),
        [
            ({}, FileFormatError, "rope_theta is missing"),
            (YARN | {"factor": None}, FileFormatError, "factor is missing"),
            (
                YARN | {"original_max_position_embeddings": None},
                FileFormatError,
                "original_max_position_embeddings is missing",
            ),
            (YARN | {"factor": -1}, FileFormatError, "factor is -1"),
            (YARN | {"factor": 0.5}, FileFormatError, "factor is 0.5; a number from 1"),
            (YARN | {"truncate": False}, UnsupportedModelError, "truncate False"),
            (YARN | {"rope_type": "longrope"}, UnsupportedModelError, "rope type 'longrope'"),
            (
                {"rope_theta": 1e4, "partial_rotary_factor": 0.1},
                FileFormatError,
                "partial_rotary_factor is 0.1",
            ),
            (
                {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e3}},
                UnsupportedModelError,
                "rope_theta 1000.0 of the sliding layers beside 10000",
            ),
        ],
    )
    def test_refusals(
        self, tmp_path: Path, rope: dict[str, Any], kind: type[SpeclaError], expected: str
    ) -> None:
        assert expected in refusal(tmp_path, draft.nested(rope_parameters=rope), kind)


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "layers": (
        {"num_hidden_layers": 3},
        "num_hidden_layers is 3, but 2 layers are in the tensors; one of both is wrong",
    ),
    "width": ({"hidden_size": 32}, "hidden_size is 32, but 64 is the size of fc.weight"),
    "head": ({"head_dim": 32}, "head_dim is 32, but 16 is the size of layers.0.self_attn.q_norm"),
    "inner": ({"intermediate_size": 64}, "intermediate_size is 64, but 72 is the size of"),
    "heads": (
        {"num_attention_heads": 8},
        "q_proj.weight has the shape [64, 64], the configuration needs [128, 64]",
    ),
    "KV heads": (
        {"num_key_value_heads": 4},
        "k_proj.weight has the shape [32, 64], the configuration needs [64, 64]",
    ),
    "uneven": ({"num_key_value_heads": 3}, "num_attention_heads is 4; a multiple of"),
    "mask": ({"dflash__mask_token_id": 96}, "mask_token_id is 96; an id below 96"),
    "negative mask": ({"dflash__mask_token_id": -1}, "mask_token_id is -1"),
    "a mask of another type": ({"dflash__mask_token_id": "<mask>"}, "mask_token_id is '<mask>'"),
    "block": ({"dflash__block_size": 0}, "block_size is 0; an integer from 1"),
    "vocabulary": ({"vocab_size": None}, "vocab_size is missing"),
    "context": ({"max_position_embeddings": None}, "max_position_embeddings is missing"),
    "eps": ({"rms_norm_eps": 0}, "rms_norm_eps is 0"),
    "an eps that a float32 can't hold": ({"rms_norm_eps": 1e-200}, "rms_norm_eps is 1e-200"),
    "a base that a float32 can't hold": (
        {"rope_parameters": {"rope_theta": 10**200}},
        "rope_theta is 1000",
    ),
    "causal": ({"is_causal": 1}, "is_causal is 1; true or false"),
    "draft vocabulary": ({"draft_vocab_size": 97}, "draft_vocab_size is 97; at most vocab_size"),
    "no map": ({"draft_vocab_size": 40}, "lm_head.weight is missing, which a reduced vocabulary"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions(tmp_path: Path, case: str) -> None:
    changes, expected = CONTRADICTIONS[case]
    assert expected in refusal(tmp_path, draft.nested(**changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"attention_bias": True}, "attention_bias True"),
        ({"enable_qwen35_gated_q_proj": True}, "enable_qwen35_gated_q_proj True"),
        ({"dflash__attention_mode": "mla"}, "attention_mode 'mla'"),
        ({"dflash__projector_type": "domino"}, "projector_type 'domino'"),
        ({"quantization_config": {"bits": 4}}, "only float checkpoints"),
        ({"architectures": ["Gemma4DSparkModel"]}, "a drafter of architectures ['Gemma4DSpark"),
        ({"architectures": "DFlashDraftModel"}, "a drafter of architectures 'DFlash"),
    ],
)
def test_what_is_not_supported(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert expected in refusal(tmp_path, draft.nested(**changes), UnsupportedModelError)


def test_an_unnamed_architecture_with_a_drafters_configuration(tmp_path: Path) -> None:
    assert keys_of(tmp_path, draft.nested(architectures=None))[0]["block_size"] == 8


class TestSelector:
    def test_zeros_mean_none(self, tmp_path: Path) -> None:
        keys, _ = keys_of(tmp_path, draft.nested(dflash__conv_kernel_size=0))
        assert "conv_kernel_size" not in keys

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"dflash__selector_rank": None}, "selector_rank is missing"),
            ({"dflash__conv_kernel_size": None}, "conv_kernel_size is missing"),
            ({"dflash__conv_group_size": 5}, "conv_group_size is 5; a divisor of hidden_size"),
            (
                {"dflash__conv_kernel_size": 2},
                "base_kernel has the shape [2, 3, 64], the configuration needs [2, 2, 64]",
            ),
            (
                {"dflash__selector_rank": 16},
                "predecessor_codebook has the shape [96, 8], the configuration needs [96, 16]",
            ),
        ],
    )
    def test_refusals(self, tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
        c = draft.dflash2_config()
        for key, value in changes.items():
            c["dflash_config"][key.removeprefix("dflash__")] = value
        tensors = draft.arrays(draft.shapes(), draft.dflash2_shapes())
        folder = draft.checkpoint(tmp_path, c, tensors)
        with pytest.raises(FileFormatError, match=r"^[^\n]*$") as caught:
            convert_checkpoint(folder, tmp_path / "d.gguf", "f32")
        assert expected in str(caught.value)

    def test_tensors_without_their_keys(self, tmp_path: Path) -> None:
        tensors = draft.arrays(draft.shapes(), draft.dflash2_shapes())
        folder = draft.checkpoint(tmp_path, draft.nested(), tensors)
        with pytest.raises(FileFormatError, match="has no place in a dflash model"):
            convert_checkpoint(folder, tmp_path / "d.gguf", "f32")

    def test_more_candidates_than_llama_cpp_takes(self, tmp_path: Path) -> None:
        c = draft.dflash2_config()
        c["dflash_config"]["selector_top_k"] = 8
        tensors = draft.arrays(draft.shapes(), draft.dflash2_shapes())
        _, notes = draft.converted(tmp_path, c, tensors)
        assert any("more than llama.cpp can pack" in note for note in notes)
