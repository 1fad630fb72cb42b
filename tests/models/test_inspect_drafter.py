"""`describe` and `specla inspect` on drafters: what they are and which targets they fit."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from models.convert import dflash_build as draft

from specla.cli.inspect import command
from specla.models.gguf.write import TensorToWrite, Value, write_gguf
from specla.models.inspect import describe
from specla.models.inspect_drafter import DrafterReport


def drafter_of(path: Path) -> DrafterReport:
    report = describe(path)
    assert report.drafter is not None and report.config is None and report.state is None
    assert not report.serves and report.reason == "a drafter; give it to a target with --draft"
    return report.drafter


def shown(path: Path) -> list[str]:
    result = CliRunner().invoke(command, [str(path)])
    assert result.exit_code == 0
    return [" ".join(line.split()) for line in result.output.splitlines()]


@pytest.mark.parametrize(
    ("name", "kind", "layers", "rank", "confidence"),
    [
        ("a-dflash-full", "DFlash", (0, 2, 4), None, False),
        ("b-dflash-swa", "DFlash", (1, 3, 6), None, False),
        ("b-dspark", "DSpark", (1, 3, 6), 16, True),
        ("b-dspark-noconf", "DSpark", (1, 3, 6), 16, False),
    ],
)
def test_llama_cpps_drafters(
    shared_data: Path,
    name: str,
    kind: str,
    layers: tuple[int, ...],
    rank: int | None,
    confidence: bool,
) -> None:
    path = shared_data / "golden_draft" / f"{name}.gguf"
    found = drafter_of(path)
    assert (found.kind, found.captured_layers, found.markov_rank) == (kind, layers, rank)
    assert (found.block_size, found.n_layers, found.n_captured) == (8, 2, 3)
    assert found.confidence_head is confidence and found.first_slot_predicts is (kind == "DSpark")
    width, vocab = (96, 320) if name.startswith("a") else (256, 512)
    assert (found.d_model, found.vocab_size, found.mask_token_id) == (width, vocab, vocab - 2)
    needed = max(layers) + 1
    assert found.fits == f"width {width}, vocabulary {vocab}, at least {needed} layers"
    assert not found.own_embedding and not found.own_head and not found.causal
    assert (found.window is not None) is (name == "b-dflash-swa")


def test_what_is_shown(shared_data: Path) -> None:
    lines = shown(shared_data / "golden_draft" / "b-dspark.gguf")
    for line in (
        "drafter DSpark, blocks of 8, mask token 510",
        "reads 3 target layers: 1, 3, 6",
        "layers 2, bidirectional inside the block",
        "width 256, feed-forward 320, vocabulary 512",
        "attention 4 query and 2 KV heads of 64, RoPE base 1000000",
        "heads Markov of rank 16, confidence, the root's slot predicts",
        "fits targets of width 256, vocabulary 512, at least 7 layers",
        "served as a drafter; give it to a target with --draft",
    ):
        assert line in lines, lines


def test_json(shared_data: Path) -> None:
    path = shared_data / "golden_draft" / "a-dspark.gguf"
    result = CliRunner().invoke(command, [str(path), "--json"])
    found = json.loads(result.output)
    assert found["drafter"]["captured_layers"] == [0, 2, 4] and found["config"] is None
    assert found["serves"] is False and found["drafter"]["kind"] == "DSpark"


def test_a_target_has_no_drafters_part(shared_data: Path) -> None:
    assert describe(shared_data / "golden" / "a-f32.gguf").drafter is None


def test_everything_at_once(tmp_path: Path) -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
            "original_max_position_embeddings": 64}  # fmt: skip
    c = draft.speculators(
        use_sliding_window=True,
        sliding_window=32,
        layer_types=["sliding_attention", "full_attention"],
        is_causal=True,
        rope_parameters=rope,
    )
    del c["transformer_layer_config"]["rope_parameters"]
    small = 40
    head = {"lm_head.weight": (small, draft.WIDTH)}
    tensors = draft.arrays(draft.shapes(), draft.markov_shapes(small), head)
    tensors["d2t"] = np.zeros(small, dtype=np.int64)
    gguf, _ = draft.converted(tmp_path, c, tensors)
    found = drafter_of(gguf.path)
    assert (found.window, found.sliding_layers, found.causal) == (32, (True, False), True)
    assert (found.rope_base, found.rope_scaling) == (1e4, "yarn 4")
    assert (found.draft_vocab_size, found.vocab_size, found.own_head) == (small, draft.VOCAB, True)
    assert not found.first_slot_predicts
    lines = shown(gguf.path)
    assert "layers 2, causal inside the block, 1 with a window of 32" in lines
    wanted = "feed-forward 72, vocabulary 96 (drafts 40 of them), its own head"
    assert any(line.endswith(wanted) for line in lines)
    assert any(line.endswith("RoPE base 10000, scaled: yarn 4") for line in lines)
    assert "heads Markov of rank 8" in lines


def test_dflash2(tmp_path: Path) -> None:
    tensors = draft.arrays(draft.shapes(), draft.dflash2_shapes())
    gguf, _ = draft.converted(tmp_path, draft.dflash2_config(), tensors)
    found = drafter_of(gguf.path)
    assert (found.kind, found.selector_rank, found.selector_top_k) == ("DFlash2", 8, 4)
    assert found.vocab_size is None and found.fits == "width 64, at least 7 layers"
    assert "heads selector of rank 8 over 4" in shown(gguf.path)


def written(path: Path, keys: dict[str, Value], shapes: dict[str, tuple[int, ...]]) -> Path:
    tensors = []
    for name, shape in shapes.items():
        raw = np.zeros(shape, dtype="<f4").tobytes()
        tensors.append(TensorToWrite(name, "F32", shape, lambda raw=raw: iter([raw])))
    file = io.BytesIO()
    write_gguf(file, keys, tensors)
    path.write_bytes(file.getvalue())
    return path


def older_keys(arch: str) -> dict[str, Value]:
    sizes = {"embedding_length": 32, "block_count": 1, "feed_forward_length": 64,
             "attention.head_count": 2, "attention.head_count_kv": 1,
             "attention.key_length": 16, "dflash.block_size": 16,
             "dflash.mask_token_id": 77}  # fmt: skip
    keys = {f"{arch}.{name}": Value("u32", size) for name, size in sizes.items()}
    return keys | {
        "general.architecture": Value("str", arch),
        f"{arch}.rope.freq_base": Value("f32", 1e7),
        f"{arch}.dflash.target_layer_ids": Value("i32", [1, 16, 31]),
    }


@pytest.mark.parametrize("arch", ["qwen35-dflash-draft", "dflash-draft"])
def test_the_older_naming_counts_layers_from_zero(tmp_path: Path, arch: str) -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "dflash.fc.weight": (32, 96),
        "dflash.dspark.markov.w1": (50, 4),
        "dflash.dspark.confidence.weight": (36,),
    }
    found = drafter_of(written(tmp_path / "d.gguf", older_keys(arch), shapes))
    assert (found.kind, found.captured_layers, found.mask_token_id) == ("DSpark", (1, 16, 31), 77)
    assert (found.block_size, found.vocab_size, found.markov_rank) == (16, 50, 4)
    assert found.confidence_head


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"dflash-draft.block_count": None}, "dflash-draft.block_count is missing"),
        (
            {"dflash-draft.dflash.target_layer_ids": Value("i32", [1, 2])},
            "target_layer_ids is [1, 2]; 3 layers from 0 are needed, as in fc.weight",
        ),
        ({"dflash-draft.embedding_length": Value("u32", 64)}, "tensor fc.weight has the shape"),
        ({"dflash-draft.rope.freq_base": Value("str", "x")}, "must be a number"),
    ],
)
def test_a_drafter_that_can_not_be_read(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    keys = older_keys("dflash-draft") | change
    keys = {name: value for name, value in keys.items() if value is not None}
    path = written(tmp_path / "d.gguf", keys, {"dflash.fc.weight": (32, 96)})
    report = describe(path)
    assert report.drafter is None and not report.serves
    assert report.reason is not None and expected in report.reason
    assert any(line.startswith("served no: ") for line in shown(path))


def test_what_is_not_named(tmp_path: Path) -> None:
    keys = older_keys("dflash-draft")
    for name in ("dflash.target_layer_ids", "dflash.block_size", "dflash.mask_token_id",
                 "rope.freq_base"):  # fmt: skip
        del keys[f"dflash-draft.{name}"]
    # no layer is named as sliding, so none slides
    keys["dflash-draft.attention.sliding_window"] = Value("u32", 8)
    path = written(tmp_path / "d.gguf", keys, {"dflash_fc.weight": (32, 96)})
    assert drafter_of(path).captured_layers == () and drafter_of(path).fits == "width 32"
    assert "reads 3 target layers: not named" in shown(path)
    assert "drafter DFlash, blocks of not named, mask token not named" in shown(path)
    assert "layers 1, bidirectional inside the block" in shown(path)
