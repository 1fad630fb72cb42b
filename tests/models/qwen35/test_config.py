"""qwen35 configuration from GGUF metadata, and the one-line refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from models.gguf.gguf_build import Typed, tensor
from models.qwen35 import qwen35_build as build

from specla.errors import FileFormatError, SpeclaError, UnsupportedModelError
from specla.models.gguf import GgufFile
from specla.models.qwen35.config import Qwen35Config, read_config


def config_with(path: Path, removed: tuple[str, ...] = (), **changes: Any) -> Qwen35Config:
    keys = build.metadata()
    for key, value in changes.items():
        keys[key if "." in key else f"qwen35.{key}"] = value
    for key in removed:
        del keys[key if key in keys else f"qwen35.{key}"]
    return read_config(build.write(path / "m.gguf", keys, build.tensors()))


def test_every_field(tmp_path: Path) -> None:
    assert config_with(tmp_path) == Qwen35Config(
        name="tiny",
        n_layers=5,
        n_mtp_layers=0,
        d_model=24,
        d_ff=40,
        vocab_size=50,
        context_length=512,
        n_heads=4,
        n_kv_heads=2,
        head_dim=8,
        rotary_dim=4,
        rope_base=1e7,
        n_key_heads=2,
        n_value_heads=6,
        key_dim=5,
        value_dim=7,
        conv_width=3,
        attention_layers=(False, False, False, True, False),
        rms_eps=pytest.approx(1e-6),
        tied_output=True,
        eos_ids=(3,),
    )


def test_derived_sizes(tmp_path: Path) -> None:
    config = config_with(tmp_path)
    assert config.conv_channels == 2 * 2 * 5 + 6 * 7
    assert (config.n_gdn_layers, config.n_attention_layers) == (4, 1)


def test_golden_files(shared_data: Path) -> None:
    a = read_config(GgufFile.open(shared_data / "golden" / "a-f32.gguf"))
    assert (a.n_layers, a.d_model, a.n_key_heads, a.n_value_heads) == (6, 96, 2, 6)
    assert a.attention_layers == (False, False, False, True, False, False)
    assert not a.tied_output and a.eos_ids == (1,) and a.vocab_size == 320
    b = read_config(GgufFile.open(shared_data / "golden" / "b-Q4_K_M.gguf"))
    assert b.tied_output and b.n_attention_layers == 2 and b.rotary_dim == 16


def test_prediction_layers_are_not_trunk(shared_data: Path) -> None:
    config = read_config(GgufFile.open(shared_data / "golden_draft" / "a-with-mtp.gguf"))
    assert (config.n_layers, config.n_mtp_layers) == (6, 1)
    assert config.attention_layers == (False, False, False, True, False, False)


class TestLayers:
    @pytest.mark.parametrize(("interval", "attention"), [(1, 5), (2, 2), (4, 1), (5, 1), (6, 0)])
    def test_interval(self, tmp_path: Path, interval: int, attention: int) -> None:
        config = config_with(tmp_path, full_attention_interval=interval)
        assert config.n_attention_layers == attention
        assert all(
            is_attention == ((layer + 1) % interval == 0)
            for layer, is_attention in enumerate(config.attention_layers)
        )

    def test_interval_of_four_by_default(self, tmp_path: Path) -> None:
        config = config_with(tmp_path, removed=("full_attention_interval",))
        assert config.attention_layers == (False, False, False, True, False)

    def test_the_layer_list_wins_over_the_interval(self, tmp_path: Path) -> None:
        recurrent = [False, True, True, False, True]
        config = config_with(tmp_path, **{"qwen35.attention.recurrent_layers": recurrent})
        assert config.attention_layers == (True, False, False, True, False)

    @pytest.mark.parametrize("extra", [0, 1])
    def test_the_layer_list_with_prediction_layers(self, tmp_path: Path, extra: int) -> None:
        recurrent = [True, True, True, False, True, False][: 5 + extra]
        changes = {
            "qwen35.attention.recurrent_layers": recurrent,
            "block_count": 6,
            "nextn_predict_layers": 1,
        }
        config = config_with(tmp_path, **changes)
        assert (config.n_layers, config.n_mtp_layers) == (5, 1)
        assert config.attention_layers == (False, False, False, True, False)

    def test_the_interval_counts_trunk_layers(self, tmp_path: Path) -> None:
        config = config_with(tmp_path, block_count=6, nextn_predict_layers=2)
        assert config.attention_layers == (False, False, False, True)


class TestEosAndVocabulary:
    def test_eos_and_eot(self, tmp_path: Path) -> None:
        assert config_with(tmp_path, **{"tokenizer.ggml.eot_token_id": 7}).eos_ids == (3, 7)
        assert config_with(tmp_path, **{"tokenizer.ggml.eot_token_id": 3}).eos_ids == (3,)

    def test_none(self, tmp_path: Path) -> None:
        assert config_with(tmp_path, removed=("tokenizer.ggml.eos_token_id",)).eos_ids == ()
        absent = {"tokenizer.ggml.eos_token_id": 0xFFFFFFFF}
        assert config_with(tmp_path, **absent).eos_ids == ()

    def test_outside_the_vocabulary(self, tmp_path: Path) -> None:
        with pytest.raises(FileFormatError, match="eos_token_id is 50, outside the vocabulary"):
            config_with(tmp_path, **{"tokenizer.ggml.eos_token_id": 50})

    def test_token_list_and_embedding_must_agree(self, tmp_path: Path) -> None:
        with pytest.raises(FileFormatError, match=r"lists 2 tokens, token_embd\.weight has 50"):
            config_with(tmp_path, **{"tokenizer.ggml.tokens": ["a", "b"]})

    def test_without_an_embedding(self, tmp_path: Path) -> None:
        keys = build.metadata() | {"tokenizer.ggml.tokens": ["a", "b", "c", "d"]}
        assert read_config(build.write(tmp_path / "m.gguf", keys, {})).vocab_size == 4
        keys = build.metadata() | {"qwen35.vocab_size": 9}
        assert read_config(build.write(tmp_path / "m.gguf", keys, {})).vocab_size == 9
        with pytest.raises(FileFormatError, match=r"qwen35\.vocab_size is missing"):
            read_config(build.write(tmp_path / "m.gguf", build.metadata(), {}))

    def test_untied(self, tmp_path: Path) -> None:
        held = build.tensors()
        held["output.weight"] = tensor(build.arrays()["token_embd.weight"])
        assert not read_config(build.write(tmp_path / "m.gguf", build.metadata(), held)).tied_output


def test_sections_may_be_absent_and_the_name_too(tmp_path: Path) -> None:
    config = config_with(tmp_path, removed=("rope.dimension_sections", "general.name"))
    assert config.rotary_dim == 4 and config.name == "m"


def test_scaling_that_does_nothing_is_accepted(tmp_path: Path) -> None:
    changes = {"qwen35.rope.scaling.type": "none", "qwen35.rope.scaling.factor": 1.0}
    assert config_with(tmp_path, **changes).rope_base == 1e7


REQUIRED = sorted(
    key
    for key in build.metadata()
    if key.startswith("qwen35.")
    and not key.endswith(("full_attention_interval", "dimension_sections"))
)


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    with pytest.raises(FileFormatError, match=f"metadata {key} is missing"):
        config_with(tmp_path, removed=(key,))


@pytest.mark.parametrize("key", REQUIRED)
@pytest.mark.parametrize("value", ["text", 0, -1, 2**31 + 5, 0.0, float("nan"), [1, 2], True])
def test_an_absurd_value_is_named(tmp_path: Path, key: str, value: Any) -> None:
    if value in (-1,):
        value = Typed("i32", value)
    with pytest.raises(SpeclaError) as caught:
        if key.endswith(("epsilon", "freq_base")) and value == 2**31 + 5:
            value = Typed("f32", -1.0)
        config_with(tmp_path, **{key: value})
    message = str(caught.value)
    assert "\n" not in message and "m.gguf" in message and "qwen35." in message


@pytest.mark.parametrize(
    ("changes", "kind", "expected"),
    [
        (
            {"general.architecture": "llama"},
            UnsupportedModelError,
            "architecture 'llama' is not supported; specla serves qwen35",
        ),
        ({"general.architecture": "qwen35moe"}, UnsupportedModelError, "'qwen35moe'"),
        ({"general.architecture": 7}, FileFormatError, "general.architecture must be a string"),
        ({"general.type": "adapter"}, UnsupportedModelError, "holds a 'adapter', not a model"),
        ({"expert_count": 64}, UnsupportedModelError, "has 64 experts"),
        ({"nextn_predict_layers": 5}, FileFormatError, "nextn_predict_layers is 5"),
        (
            {"qwen35.attention.head_count_kv": 3},
            FileFormatError,
            "head_count is 4, not a multiple of 3 KV heads",
        ),
        (
            {"qwen35.ssm.group_count": 4},
            FileFormatError,
            "time_step_rank is 6, not a multiple of 4 key heads",
        ),
        ({"qwen35.ssm.inner_size": 43}, FileFormatError, "inner_size is 43, not a multiple of 6"),
        (
            {"qwen35.attention.value_length": 16},
            UnsupportedModelError,
            "key_length is 8 and value_length 16",
        ),
        ({"qwen35.rope.dimension_count": 3}, FileFormatError, "dimension_count is 3; even"),
        ({"qwen35.rope.dimension_count": 10}, FileFormatError, "even and at most 8"),
        ({"qwen35.rope.scaling.type": "yarn"}, UnsupportedModelError, "is 'yarn'"),
        ({"qwen35.rope.scaling.factor": 4.0}, UnsupportedModelError, "is 4.0; only unscaled"),
        ({"qwen35.rope.dimension_sections": [1] * 5}, FileFormatError, "dimension_sections"),
        (
            {"qwen35.attention.recurrent_layers": [True, False]},
            FileFormatError,
            "recurrent_layers has 2 entries for 5 blocks",
        ),
        ({"qwen35.ssm.conv_kernel": 1}, FileFormatError, "conv_kernel is 1; 2 to 64"),
    ],
)
def test_refusals(
    tmp_path: Path, changes: dict[str, Any], kind: type[SpeclaError], expected: str
) -> None:
    with pytest.raises(kind) as caught:
        config_with(tmp_path, **changes)
    assert expected in str(caught.value) and "\n" not in str(caught.value)
    assert str(tmp_path / "m.gguf") in str(caught.value)
