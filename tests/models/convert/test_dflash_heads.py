"""DSpark heads: every published name, inline or in a side file, and which slot predicts."""

from __future__ import annotations

import builtins
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models.convert import dflash_build as draft
from models.convert import hf_build as build

from specla.errors import FileFormatError, OptionError, SpeclaError, UnsupportedModelError
from specla.models.convert import convert_checkpoint
from specla.models.convert.dflash.dspark_heads import head_name
from specla.models.gguf import GgufFile

HEADS = ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight", "conf_proj.bias")
HEAD_SHAPES = draft.markov_shapes() | draft.confidence_shapes()
PUBLISHED = {
    "library": HEAD_SHAPES.keys(),
    "prefixed": [f"model.{name}" for name in HEAD_SHAPES],
    "staged": [f"mtp.2.{name}" for name in HEAD_SHAPES],
    "side": [
        "dspark_markov_head.markov_w1.weight",
        "dspark_markov_head.markov_w2.weight",
        "dspark_confidence_head.weight",
        "dspark_confidence_head.bias",
    ],
    "short": [
        "markov_w1.weight",
        "markov_w2.weight",
        "confidence_proj.weight",
        "confidence_proj.bias",
    ],
}


def heads(seed: int = 5) -> dict[str, np.ndarray]:
    return draft.arrays(HEAD_SHAPES, seed=seed)


def named(arrays: dict[str, np.ndarray], layout: str) -> dict[str, np.ndarray]:
    return dict(zip(PUBLISHED[layout], arrays.values(), strict=True))


def check_heads(gguf: GgufFile, arrays: dict[str, np.ndarray]) -> None:
    for name, values in zip(HEADS, arrays.values(), strict=True):
        np.testing.assert_array_equal(gguf.tensors[name].to_float32(), values, err_msg=name)


def with_side_file(
    tmp_path: Path, c: dict[str, Any], arrays: dict[str, np.ndarray], name: str, **kwargs: Any
) -> tuple[GgufFile, tuple[str, ...]]:
    side = tmp_path / "hf" / name
    side.parent.mkdir(exist_ok=True)
    build.write_safetensors(side, arrays)
    kwargs.setdefault("aux_heads", "auto")
    return draft.converted(tmp_path, c, draft.arrays(draft.shapes()), **kwargs)


def refusal(
    tmp_path: Path, c: dict[str, Any], tensors: dict[str, np.ndarray],
    kind: type[SpeclaError] = FileFormatError, **kwargs: Any,
) -> str:  # fmt: skip
    folder = draft.checkpoint(tmp_path, c, tensors)
    output = tmp_path / "out" / "d.gguf"
    output.parent.mkdir()
    with pytest.raises(kind) as caught:
        convert_checkpoint(folder, output, "f32", **kwargs)
    assert "\n" not in str(caught.value) and list(output.parent.iterdir()) == []
    return str(caught.value)


@pytest.mark.parametrize("layout", PUBLISHED)
def test_inline_under_every_name(tmp_path: Path, layout: str) -> None:
    arrays = heads()
    tensors = draft.arrays(draft.shapes()) | named(arrays, layout)
    gguf, _ = draft.converted(tmp_path, draft.flat(), tensors)
    check_heads(gguf, arrays)
    assert gguf.metadata["dflash.has_confidence_head"] is True


@pytest.mark.parametrize("layout", PUBLISHED)
def test_a_side_file_of_the_usual_name(tmp_path: Path, layout: str) -> None:
    arrays = heads()
    extra = {"domino_start": np.zeros(3, dtype=np.float32)}
    name = "dflash_aux_heads.safetensors"
    gguf, notes = with_side_file(tmp_path, draft.nested(), named(arrays, layout) | extra, name)
    check_heads(gguf, arrays)
    assert f"left out 1 tensors of {name} that are no DSpark heads" in notes


def test_a_side_file_elsewhere(tmp_path: Path) -> None:
    arrays = heads()
    side = tmp_path / "heads.safetensors"
    build.write_safetensors(side, named(arrays, "side"))
    tensors = draft.arrays(draft.shapes())
    gguf, _ = draft.converted(tmp_path, draft.flat(), tensors, aux_heads=side)
    check_heads(gguf, arrays)


def test_it_replaces_inline_heads(tmp_path: Path) -> None:
    side = tmp_path / "heads.safetensors"
    build.write_safetensors(side, named(heads(6), "side"))
    tensors = draft.arrays(draft.shapes()) | heads(5)
    gguf, notes = draft.converted(tmp_path, draft.flat(), tensors, aux_heads=side)
    check_heads(gguf, heads(6))
    assert "the checkpoint's own DSpark heads were replaced by heads.safetensors's" in notes


def test_inline_heads_win_over_a_usual_name(tmp_path: Path) -> None:
    folder = draft.checkpoint(tmp_path, draft.flat(), draft.arrays(draft.shapes()) | heads(5))
    build.write_safetensors(folder / "dflash_aux_heads.safetensors", named(heads(6), "side"))
    done = convert_checkpoint(folder, tmp_path / "d.gguf", "f32")
    check_heads(GgufFile.open(done.path), heads(5))
    assert any("dflash_aux_heads.safetensors was not read" in note for note in done.notes)


def test_names_that_are_no_heads() -> None:
    for name in ("norm.weight", "model.layers.0.mlp.up_proj.weight", "mtp.0.fc.weight", "d2t"):
        assert head_name(name) is None
    assert head_name("xmarkov_head.markov_w1.weight") is None


class TestPickled:
    @pytest.mark.parametrize("wrapped", [False, True])
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
    def test_only_with_torch(self, tmp_path: Path, dtype: str, wrapped: bool) -> None:
        torch = pytest.importorskip("torch")
        arrays = heads()
        state = {
            name: torch.from_numpy(values).to(getattr(torch, dtype))
            for name, values in named(arrays, "side").items()
        }
        (tmp_path / "hf").mkdir()
        side = tmp_path / "hf" / "dflash_aux_heads.pt"
        torch.save({"state_dict": state} if wrapped else state, side)
        gguf, _ = draft.converted(tmp_path, draft.nested(), draft.arrays(draft.shapes()))
        check_heads(gguf, arrays)

    def test_without_torch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = builtins.__import__

        def without(name: str, *args: Any, **kwargs: Any) -> Any:
            if name == "torch":
                raise ImportError(name)
            return real(name, *args, **kwargs)

        side = tmp_path / "heads.pt"
        side.write_bytes(b"x")
        monkeypatch.setattr(builtins, "__import__", without)
        tensors = draft.arrays(draft.shapes())
        assert "needs PyTorch" in refusal(tmp_path, draft.flat(), tensors, aux_heads=side)

    def test_code_is_never_run(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")

        class Attack:
            def __reduce__(self) -> tuple[Any, ...]:
                return (Path.touch, (tmp_path / "owned",))

        side = tmp_path / "heads.pt"
        for content in (pickle.dumps({"a": Attack()}), b"", b"PK\x03\x04 rubbish", b"\x80\x02]"):
            side.write_bytes(content)
            folder = draft.checkpoint(tmp_path, draft.flat(), draft.arrays(draft.shapes()))
            with pytest.raises(FileFormatError, match=r"heads\.pt: [^\n]*$"):
                convert_checkpoint(folder, tmp_path / "d.gguf", "f32", aux_heads=side)
        assert not (tmp_path / "owned").exists() and not (tmp_path / "d.gguf").exists()


class TestConfidence:
    def test_a_missing_bias_is_zero(self, tmp_path: Path) -> None:
        groups = draft.shapes(), draft.markov_shapes(), draft.confidence_shapes(bias=False)
        gguf, notes = draft.converted(tmp_path, draft.flat(), draft.arrays(*groups))
        bias = gguf.tensors["conf_proj.bias"]
        assert bias.shape == (1,) and bias.to_float32().tolist() == [0.0]
        assert "the confidence head has no bias; zero was written" in notes

    def test_one_of_the_hidden_state_only(self, tmp_path: Path) -> None:
        narrow = {"confidence_head.proj.weight": (1, draft.WIDTH)}
        tensors = draft.arrays(draft.shapes(), draft.markov_shapes(), narrow)
        gguf, notes = draft.converted(tmp_path, draft.flat(), tensors)
        found = gguf.tensors["conf_proj.weight"].to_float32()
        assert found.shape == (1, draft.WIDTH + draft.RANK)
        np.testing.assert_array_equal(
            found[:, : draft.WIDTH], tensors["confidence_head.proj.weight"]
        )
        assert not found[:, draft.WIDTH :].any()
        assert any("reads the hidden state only" in note for note in notes)

    def test_vectors_and_scalars(self, tmp_path: Path) -> None:
        tensors = draft.arrays(draft.shapes()) | heads()
        weight = tensors["confidence_head.proj.weight"]
        tensors["confidence_head.proj.weight"] = weight[0]
        tensors["confidence_head.proj.bias"] = tensors["confidence_head.proj.bias"][0]
        gguf, _ = draft.converted(tmp_path, draft.flat(), tensors)
        np.testing.assert_array_equal(gguf.tensors["conf_proj.weight"].to_float32(), weight)
        assert gguf.tensors["conf_proj.bias"].shape == (1,)


class TestFirstSlot:
    """`sample_from_anchor`: said, by the format, or assumed with a note; never lost."""

    @pytest.mark.parametrize(
        ("c", "inline", "anchored", "noted"),
        [
            (draft.flat(), True, True, False),
            (draft.flat(), False, True, False),
            (draft.flat(sample_from_anchor=False), True, False, False),
            (draft.nested(dflash__sample_from_anchor=False), True, False, False),
            (draft.speculators(), True, False, False),
            (draft.speculators(sample_from_anchor=True), True, True, False),
            (draft.nested(dflash__projector_type="dspark"), True, True, False),
            (draft.nested(dflash__shift_label=True), True, True, False),
            (draft.nested(dflash__shift_label=False), True, False, False),
            # a DFlash architecture with heads: inline ones are DSpark exports under that label,
            # those of a side file were trained on a backbone whose slots are DFlash's
            (draft.nested(), True, True, True),
            (draft.nested(), False, False, True),
        ],
    )  # fmt: skip
    def test_cases(
        self, tmp_path: Path, c: dict[str, Any], inline: bool, anchored: bool, noted: bool
    ) -> None:
        if inline:
            tensors = draft.arrays(draft.shapes()) | heads()
            gguf, notes = draft.converted(tmp_path, c, tensors)
        else:
            gguf, notes = with_side_file(tmp_path, c, heads(), "dflash_aux_heads.safetensors")
        assert gguf.metadata["dflash.sample_from_anchor"] is anchored
        assert any("sample_from_anchor is missing" in note for note in notes) is noted

    @pytest.mark.parametrize("c", [draft.flat(), draft.speculators()])
    def test_heads_that_should_be_there(self, tmp_path: Path, c: dict[str, Any]) -> None:
        found = refusal(tmp_path, c, draft.arrays(draft.shapes()), OptionError)
        assert "its Markov head is missing" in found and "dflash_aux_heads.safetensors" in found

    def test_it_survives_without_heads(self, tmp_path: Path) -> None:
        tensors = draft.arrays(draft.shapes()) | heads()
        gguf, notes = draft.converted(tmp_path, draft.flat(), tensors, aux_heads=None)
        assert gguf.metadata["dflash.sample_from_anchor"] is True
        assert "dflash.has_confidence_head" not in gguf.metadata
        assert any("its first slot predicts already" in note for note in notes)

    def test_heads_left_out(self, tmp_path: Path) -> None:
        tensors = draft.arrays(draft.shapes()) | heads()
        c = draft.flat(sample_from_anchor=False)
        gguf, notes = draft.converted(tmp_path, c, tensors, aux_heads=None)
        assert not set(HEADS) & set(gguf.tensors)
        assert "dflash.sample_from_anchor" not in gguf.metadata
        assert "left out 4 tensors of the DSpark heads" in notes

    def test_a_usual_side_file_left_out(self, tmp_path: Path) -> None:
        name = "dflash_aux_heads.safetensors"
        gguf, notes = with_side_file(tmp_path, draft.nested(), heads(), name, aux_heads=None)
        assert not set(HEADS) & set(gguf.tensors) and len(notes) == 1


W1, W2 = "markov_head.markov_w1.weight", "markov_head.markov_w2.weight"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({W1: (95, 8)}, f"{W1} has the shape [95, 8]; [96, 8] is needed, vocab_size being 96"),
        ({W2: (95, 8)}, "[96, 8] is needed, the draft vocabulary being 96"),
        ({W2: (96, 4)}, f"{W2} has the shape [96, 4]; [96, 8] is needed"),
        ({W1: (96 * 8,)}, f"{W1} has the shape [768]"),
        ({W2: None}, "the Markov head is incomplete: markov_w2 is missing"),
        ({W1: None, W2: None}, "the Markov head is incomplete: markov_w1 is missing"),
        ({"confidence_head.proj.weight": (1, 70)}, "[1, 72] is needed (hidden_size + markov_rank)"),
        ({"confidence_head.proj.weight": (2, 72)}, "has the shape [2, 72]"),
        ({"confidence_head.proj.weight": ()}, "has the shape []"),
        ({"confidence_head.proj.weight": None}, "but not the weight of that head"),
        ({"confidence_head.proj.bias": (2,)}, "proj.bias has the shape [2]; [1] is needed"),
        ({"markov_w1.weight": (96, 8)}, "are the same head"),
        ({"markov_head.gate_proj.weight": (8, 8)}, "gate_proj.weight' has no place"),
    ],
)
def test_heads_that_do_not_fit(
    tmp_path: Path, changes: dict[str, tuple[int, ...] | None], expected: str
) -> None:
    shapes = {name: shape for name, shape in (HEAD_SHAPES | changes).items() if shape is not None}
    tensors = draft.arrays(draft.shapes(), shapes)
    assert expected in refusal(tmp_path, draft.flat(), tensors)


def test_a_stated_rank_that_differs(tmp_path: Path) -> None:
    tensors = draft.arrays(draft.shapes()) | heads()
    found = refusal(tmp_path, draft.flat(markov_rank=16), tensors)
    assert f"{W1} has the shape [96, 8]; markov_rank is 16" in found


def test_other_kinds_of_heads(tmp_path: Path) -> None:
    tensors = draft.arrays(draft.shapes()) | heads()
    c = draft.flat(markov_head_type="gated")
    assert "markov_head_type 'gated'" in refusal(tmp_path, c, tensors, UnsupportedModelError)


class TestSideFiles:
    def fails(self, tmp_path: Path, side: Path, kind: type[SpeclaError]) -> str:
        return refusal(tmp_path, draft.nested(), draft.arrays(draft.shapes()), kind, aux_heads=side)

    def test_absent(self, tmp_path: Path) -> None:
        side = tmp_path / "none.safetensors"
        assert "no such file" in self.fails(tmp_path, side, OptionError)

    def test_of_another_kind(self, tmp_path: Path) -> None:
        side = tmp_path / "heads.bin"
        side.write_bytes(b"x")
        assert "a .safetensors or .pt file is needed" in self.fails(tmp_path, side, OptionError)

    def test_without_heads(self, tmp_path: Path) -> None:
        side = tmp_path / "heads.safetensors"
        build.write_safetensors(side, {"domino_start": np.zeros(3, dtype=np.float32)})
        found = self.fails(tmp_path, side, FileFormatError)
        assert "holds no DSpark head among its 1 tensors" in found

    def test_of_another_model(self, tmp_path: Path) -> None:
        side = tmp_path / "heads.safetensors"
        build.write_safetensors(side, draft.arrays({W1: (512, 8), W2: (512, 8)}))
        found = self.fails(tmp_path, side, FileFormatError)
        assert found.startswith(str(side)) and "vocab_size being 96" in found

    def test_damaged(self, tmp_path: Path) -> None:
        side = tmp_path / "heads.safetensors"
        side.write_bytes(b"x" * 20)
        assert "not a safetensors file" in self.fails(tmp_path, side, FileFormatError)

    @pytest.mark.parametrize("name", [W1, "confidence_head.proj.weight"])
    def test_values_that_are_not_finite(self, tmp_path: Path, name: str) -> None:
        arrays = heads()
        arrays[name][0, 3] = np.nan
        side = tmp_path / "heads.safetensors"
        build.write_safetensors(side, arrays)
        assert f"{name} holds a NaN" in self.fails(tmp_path, side, FileFormatError)
