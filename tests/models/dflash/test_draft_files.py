"""Files in both namings, gaps and what fills them, and files that must be refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.drafters import LUCEBOX, DraftSpec, bound, drafter_tensors, write_drafter
from support.tiny import VOCAB, tiny_target

from specla.adapters.base import Needs
from specla.binding import target_info
from specla.errors import FileFormatError, OptionError, SpeclaError, UnsupportedModelError
from specla.models.dflash.keys import Dialect
from specla.models.dflash.load import open_drafter
from specla.models.gguf.write import Value

U32 = "u32"


def _write(tmp_path: Path, **changes: Any) -> Path:
    return write_drafter(tmp_path / "draft.gguf", **changes)


def test_both_namings_say_the_same(tmp_path: Path) -> None:
    llama = open_drafter(write_drafter(tmp_path / "a.gguf", window=4, sliding=(True, False)))
    lucebox = open_drafter(
        write_drafter(tmp_path / "b.gguf", arch=LUCEBOX, window=4, sliding=(True, False))
    )
    assert llama.config.dialect is Dialect.LLAMA_CPP
    assert lucebox.config.dialect is Dialect.LUCEBOX
    assert llama.layers == lucebox.layers == (0, 2)
    for name in ("mask_token", "block_size", "sliding", "window", "anchor_first", "rope", "notes"):
        assert getattr(llama.config, name) == getattr(lucebox.config, name)
    assert llama.notes == ()


def test_older_tensor_names(tmp_path: Path) -> None:
    tensors = drafter_tensors(DraftSpec(arch=LUCEBOX))
    renamed = {
        "dflash_fc.weight": tensors["dflash.fc.weight"],
        "dflash_hidden_norm.weight": tensors["dflash.hidden_norm.weight"],
        "dflash.fc.weight": None,
        "dflash.hidden_norm.weight": None,
    }
    for i in range(2):
        renamed[f"blk.{i}.post_attention_norm.weight"] = tensors[f"blk.{i}.ffn_norm.weight"]
        renamed[f"blk.{i}.ffn_norm.weight"] = None
    draft = open_drafter(_write(tmp_path, arch=LUCEBOX, tensors=renamed))
    assert np.array_equal(draft.weights.layers[1].ffn_norm, tensors["blk.1.ffn_norm.weight"])
    assert draft.weights.fc.cols == 64


@pytest.mark.parametrize(
    ("anchor", "rank", "first"), [(None, 0, False), (None, 3, True), (False, 3, False)]
)
def test_which_slot_drafts_first(
    tmp_path: Path, anchor: bool | None, rank: int, first: bool
) -> None:
    draft = open_drafter(_write(tmp_path, anchor=anchor, rank=rank))
    assert draft.config.anchor_first is first


def test_gaps_are_filled_and_named(tmp_path: Path) -> None:
    gone = ["rope.freq_base", "dflash.block_size", "attention.layer_norm_rms_epsilon"]
    gone += ["dflash.mask_token_id"]
    draft = open_drafter(
        _write(tmp_path, arch=LUCEBOX, metadata={f"{LUCEBOX}.{key}": None for key in gone})
    )
    assert len(draft.notes) == 4 and all("\n" not in note for note in draft.notes)
    for key in gone:
        assert any(f"{LUCEBOX}.{key} is missing" in note for note in draft.notes)
    config = draft.config
    assert (config.block_size, config.mask_token, config.rms_eps) == (16, 248070, 1e-6)
    assert config.rope.base is None


def test_missing_base_is_the_targets(tmp_path: Path) -> None:
    """The tiny target's base is the one that the files name, so both draft alike."""
    named = _write(tmp_path)
    target = tiny_target(features=(0, 2))
    one = bound(named, target)
    other = bound(
        write_drafter(tmp_path / "b.gguf", metadata={"dflash.rope.freq_base": None}), target
    )
    assert np.array_equal(one._table.cos, other._table.cos)


NAN_NORM = np.full(32, np.nan, np.float32)
REFUSED: dict[str, tuple[dict[str, Any], type[SpeclaError], str]] = {
    "another architecture": ({"arch": "llama"}, UnsupportedModelError, "'llama' is no drafter"),
    "no model": (
        {"metadata": {"general.type": Value("str", "adapter")}},
        UnsupportedModelError,
        "holds a 'adapter'",
    ),
    "no layers named": (
        {"metadata": {"dflash.target_layers": None}},
        FileFormatError,
        "target_layers is missing",
    ),
    "layer 0 in llama.cpp's count": (
        {"metadata": {"dflash.target_layers": Value("i32", [0, 3])}},
        FileFormatError,
        "target_layers holds 0; it counts from 1",
    ),
    "a layer twice": (
        {"metadata": {"dflash.target_layers": Value("i32", [2, 2])}},
        FileFormatError,
        "a layer twice",
    ),
    "no layers at all": (
        {"metadata": {"dflash.target_layers": Value("i32", [])}},
        FileFormatError,
        "names 0 layers",
    ),
    "no mask": (
        {"metadata": {"tokenizer.ggml.mask_token_id": None}},
        FileFormatError,
        "mask_token_id is missing",
    ),
    "a block of millions": (
        {"metadata": {"dflash.block_size": Value(U32, 1 << 30)}},
        FileFormatError,
        "block_size is 1073741824",
    ),
    "layers without end": (
        {"metadata": {"dflash.block_count": Value(U32, 1 << 30)}},
        FileFormatError,
        "block_count is 1073741824",
    ),
    "one layer too many": (
        {"metadata": {"dflash.block_count": Value(U32, 3)}},
        FileFormatError,
        "tensor blk.2",
    ),
    "heads that don't divide": (
        {"metadata": {"dflash.attention.head_count_kv": Value(U32, 3)}},
        FileFormatError,
        "no multiple of 3 KV heads",
    ),
    "an odd head": (
        {"metadata": {"dflash.attention.key_length": Value(U32, 7)}},
        UnsupportedModelError,
        "value_length is 8, key_length 7",
    ),
    "a wrong type": (
        {"metadata": {"dflash.block_size": Value("str", "8")}},
        FileFormatError,
        "must be an integer",
    ),
    "an infinite base": (
        {"metadata": {"dflash.rope.freq_base": Value("f32", float("inf"))}},
        FileFormatError,
        "freq_base is inf",
    ),
    "a negative base": (
        {"metadata": {"dflash.rope.freq_base": Value("f32", -1.0)}},
        FileFormatError,
        "freq_base is -1.0",
    ),
    "unknown scaling": (
        {"rope": {"scaling.type": Value("str", "longrope")}},
        UnsupportedModelError,
        "'longrope'; linear and yarn",
    ),
    "yarn without its context": (
        {"rope": {"scaling.type": Value("str", "yarn"), "scaling.factor": Value("f32", 2.0)}},
        FileFormatError,
        "original_context_length is missing",
    ),
    "scaling by nothing": (
        {"rope": {"scaling.type": Value("str", "linear"), "scaling.factor": Value("f32", -2.0)}},
        FileFormatError,
        "scaling.factor is -2.0",
    ),
    "a pattern of another length": (
        {"window": 4, "sliding": (True,)},
        FileFormatError,
        "has 1 entries for 2 layers",
    ),
    "a pattern without a window": (
        {"window": 0, "sliding": (True, False)},
        FileFormatError,
        "there is no attention.sliding_window",
    ),
    "a logit scale": (
        {"metadata": {"dflash.logit_scale": Value("f32", 0.5)}},
        UnsupportedModelError,
        "logit_scale is 0.5",
    ),
    "softcapping": (
        {"metadata": {"dflash.final_logit_softcapping": Value("f32", 30.0)}},
        UnsupportedModelError,
        "final_logit_softcapping is 30.0",
    ),
    "a value scale": (
        {"metadata": {"dflash.attention.value_scale": Value("f32", 2.0)}},
        UnsupportedModelError,
        "value_scale is 2.0",
    ),
    "lucebox's context norm": (
        {
            "arch": LUCEBOX,
            "metadata": {f"{LUCEBOX}.dflash.context_kv_layer_norm": Value("bool", True)},
        },
        UnsupportedModelError,
        "context_kv_layer_norm is true",
    ),
    "attention sinks": (
        {"tensors": {"blk.0.attn_sinks": np.ones(4, np.float32)}},
        UnsupportedModelError,
        "'blk.0.attn_sinks' is part of no drafter",
    ),
    "no fc": ({"tensors": {"fc.weight": None}}, FileFormatError, "fc.weight is missing"),
    "fc for other features": (
        {"tensors": {"fc.weight": np.ones((32, 63), np.float32)}},
        FileFormatError,
        "63 columns for features of 2 layers",
    ),
    "fc of another width": (
        {"tensors": {"fc.weight": np.ones((31, 64), np.float32)}},
        FileFormatError,
        "fc.weight has the shape [31, 64]",
    ),
    "a NaN in a norm": (
        {"tensors": {"blk.1.attn_norm.weight": NAN_NORM}},
        FileFormatError,
        "blk.1.attn_norm.weight holds a NaN",
    ),
    "a missing value projection": (
        {"tensors": {"blk.0.attn_v.weight": None}},
        FileFormatError,
        "blk.0.attn_v.weight is missing",
    ),
    "half a Markov head": (
        {"rank": 3, "tensors": {"markov_w2.weight": None}},
        FileFormatError,
        "markov_w1.weight is there, markov_w2 is not",
    ),
    "a Markov head of two ranks": (
        {"rank": 3, "tensors": {"markov_w2.weight": np.ones((VOCAB, 4), np.float32)}},
        FileFormatError,
        "markov_w2.weight has the shape",
    ),
    "a promised confidence head": (
        {"rank": 3, "confidence": True, "tensors": {"conf_proj.weight": None}},
        FileFormatError,
        "conf_proj.weight is missing",
    ),
    "a confidence head of another width": (
        {"rank": 3, "confidence": True, "tensors": {"conf_proj.weight": np.ones(34, np.float32)}},
        FileFormatError,
        "conf_proj.weight has the shape",
    ),
    "a selector without its sizes": (
        {"dflash2": (2, 8, 5, 4), "metadata": {"dflash.selector_top_k": None}},
        FileFormatError,
        "selector_top_k is missing",
    ),
    "convolution groups that don't divide": (
        {"dflash2": (2, 8, 5, 4), "metadata": {"dflash.conv_group_size": Value(U32, 5)}},
        FileFormatError,
        "conv_group_size is 5, which doesn't divide the width 32",
    ),
    "a convolution of other taps": (
        {"dflash2": (2, 8, 5, 4), "metadata": {"dflash.conv_kernel_size": Value(U32, 3)}},
        FileFormatError,
        "tensor blk.0.attn_conv_base has the shape",
    ),
    "convolutions without a selector": (
        {"dflash2": (2, 8, 5, 4), "tensors": {"selector_hidden.weight": None}},
        UnsupportedModelError,
        "is part of no drafter that specla knows",
    ),
    "a reduced vocabulary without a head": (
        {"draft_ids": (1, 2), "tensors": {"output.weight": None}},
        FileFormatError,
        "there is no output.weight",
    ),
    "a token twice": ({"draft_ids": (1, 2, 1)}, FileFormatError, "two entries to one token"),
    "a negative token": ({"draft_ids": (1, -2)}, FileFormatError, "maps to tokens -2..1"),
    "more rows than tokens": (
        {"draft_ids": (1, 2), "tensors": {"output.weight": np.ones((3, 32), np.float32)}},
        FileFormatError,
        "output.weight has 3 rows, d2t lists 2",
    ),
    "a YaRN frequency of nothing": (
        {
            "metadata": {
                "dflash.rope.scaling.type": Value("str", "yarn"),
                "dflash.rope.scaling.factor": Value("f32", 4.0),
                "dflash.rope.scaling.original_context_length": Value("u32", 64),
                "dflash.rope.scaling.yarn_beta_fast": Value("f32", 0.0),
            }
        },
        FileFormatError,
        "yarn_beta_fast must be positive",
    ),
    "YaRN over a base of one": (
        {
            "metadata": {
                "dflash.rope.freq_base": Value("f32", 1.0),
                "dflash.rope.scaling.type": Value("str", "yarn"),
                "dflash.rope.scaling.factor": Value("f32", 4.0),
                "dflash.rope.scaling.original_context_length": Value("u32", 64),
            }
        },
        FileFormatError,
        "freq_base is 1",
    ),
    "a map of floats": (
        {"draft_ids": (1, 2), "tensors": {"d2t": np.ones(2, np.float32)}},
        FileFormatError,
        "d2t must be a list of integers",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path: Path, name: str) -> None:
    changes, kind, message = REFUSED[name]
    path = _write(tmp_path, **changes)
    with pytest.raises(SpeclaError) as caught:
        open_drafter(path)
    assert type(caught.value) is kind and message in str(caught.value)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="can't open"):
        open_drafter(tmp_path / "missing.gguf")
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(FileFormatError):
        open_drafter(tmp_path / "text.gguf")


UNFIT: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a layer that isn't there": ({"target_layers": (1, 3)}, {}, "reads the output of layer 3"),
    "another width": ({"target_width": 48}, {}, "features of width 48 from 2 layers"),
    "shared matrices of another width": ({"d_model": 24}, {}, "has the width 24 and shares"),
    "one shared matrix": ({"d_model": 24, "own_output": True}, {}, "has the width 24 and shares"),
    "another vocabulary": (
        {"vocab": 41, "own_embedding": True, "own_output": True},
        {},
        "token_embd.weight has 41 rows for 40 tokens",
    ),
    "a Markov head of another vocabulary": (
        {"vocab": 39, "rank": 2, "mask": 3},
        {},
        "markov_w1.weight has 39 rows",
    ),
    "a selector of another vocabulary": (
        {"vocab": 39, "dflash2": (2, 8, 5, 4), "mask": 3},
        {},
        "selector_predecessor.weight has 39 rows",
    ),
    "a mask beyond the vocabulary": ({"mask": 40}, {}, "masks with token 40 of 40"),
    "a drafted token beyond it": ({"draft_ids": (3, 40)}, {}, "drafts token 40 of 40"),
    "a block too large": ({}, {"block": 13}, "block size is 13; 2..12 is possible"),
    "a block of the root alone": ({}, {"block": 1}, "block size is 1; 2..12 is possible"),
    "no window": ({}, {"window": 0}, "window is 0; it must be 1 or more"),
    "a window for a single layer": (
        {"n_layers": 1},
        {"window": 4},
        "has a single layer, which sees everything",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_unfit(tmp_path: Path, name: str) -> None:
    changes, options, message = UNFIT[name]
    path = _write(tmp_path, **changes)
    target = tiny_target(features=(0, 1, 2))
    if name.startswith("a layer"):
        draft = open_drafter(path)
        info = target_info(target, Needs(features=(0, 1), parts=True))
        with pytest.raises(OptionError) as caught:
            draft.bind(info, **options)
    else:
        with pytest.raises(OptionError) as caught:
            bound(path, target, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_another_token_list(tmp_path: Path) -> None:
    tokens = [f"t{i}" for i in range(VOCAB)]
    path = _write(tmp_path, metadata={"tokenizer.ggml.tokens": Value("str", tokens)})
    draft = open_drafter(path)
    same = tiny_target(features=(0, 2))
    bound(path, same)  # a target that lists no tokens can't be compared
    info = target_info(same, Needs(features=(0, 2), parts=True))
    draft.bind(replace(info, vocabulary=draft.config.vocabulary))
    with pytest.raises(OptionError, match="its token list differs"):
        draft.bind(replace(info, vocabulary="another"))
    shorter = write_drafter(
        tmp_path / "b.gguf", metadata={"tokenizer.ggml.tokens": Value("str", tokens[:-1])}
    )
    with pytest.raises(OptionError, match="has 39 tokens, the target has 40"):
        bound(shorter, same)


def test_options_change_the_model(tmp_path: Path) -> None:
    target = tiny_target(features=(0, 2))
    path = _write(tmp_path, rank=2)
    assert bound(path, target, block=1).depth == 1
    assert bound(path, target, block=12).depth == 12
    assert bound(path, target).config.sliding == (False, False)
    windowed = bound(path, target, window=5).config
    assert (windowed.window, windowed.sliding) == (5, (True, False))
    ready = write_drafter(tmp_path / "b.gguf", window=7, sliding=(False, True))
    assert bound(ready, target, window=5).config.sliding == (False, True)
    assert bound(ready, target, window=5).config.window == 5
