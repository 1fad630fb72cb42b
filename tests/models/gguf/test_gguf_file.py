"""GgufFile on sound files: same values as the gguf package's reader, shards, quoting."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
from models.gguf.gguf_build import Tensor, Typed, gguf_bytes, tensor

from specla.errors import FileFormatError, SpeclaError, UnsupportedModelError
from specla.models.gguf import GgufFile

ONE = {"t": tensor(np.arange(6, dtype=np.float32).reshape(2, 3))}


def write(path: Path, *args: object, **kwargs: object) -> Path:
    path.write_bytes(gguf_bytes(*args, **kwargs))  # type: ignore[arg-type]
    return path


def opening_fails(path: Path) -> str:
    """The one-line message of the error that opening gives."""
    with pytest.raises(SpeclaError) as caught:
        GgufFile.open(path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400 + len(str(path))
    assert path.name in message
    return message


@pytest.mark.parametrize(
    "name", ["golden/a-f32.gguf", "golden/b-Q4_K_M.gguf", "golden/b-Q6_K.gguf", "stories260K.gguf"]
)
def test_equals_the_gguf_packages_reader(shared_data: Path, name: str) -> None:
    from gguf import GGUFReader

    ours, theirs = GgufFile.open(shared_data / name), GGUFReader(shared_data / name)
    assert [t.name for t in theirs.tensors] == list(ours.tensors)
    for reference in theirs.tensors:
        found = ours.tensors[reference.name]
        assert found.kind == reference.tensor_type.name
        assert found.shape == tuple(int(dim) for dim in reversed(reference.shape))
        assert found.raw.tobytes() == reference.data.tobytes()
    keys = [key for key in theirs.fields if not key.startswith("GGUF.")]
    assert keys == list(ours.metadata)
    for key in keys:
        assert ours.metadata.get(key) == theirs.fields[key].contents()


def test_real_vocabulary_opens_fast(shared_data: Path) -> None:
    start = time.perf_counter()
    gguf = GgufFile.open(shared_data / "ggml-vocab-qwen35.gguf")
    tokens = gguf.metadata.get_strs("tokenizer.ggml.tokens")
    assert time.perf_counter() - start < 5
    assert len(tokens) == 151_936 == gguf.metadata.count("tokenizer.ggml.tokens")


def test_values_of_every_type(tmp_path: Path) -> None:
    metadata = {
        "u8": Typed("u8", 255), "i8": Typed("i8", -128), "u16": Typed("u16", 65535),
        "i16": Typed("i16", -2), "u32": 2**32 - 1, "i32": Typed("i32", -7), "f32": 0.5,
        "yes": True, "no": False, "text": "héllo\n", "empty": "", "u64": Typed("u64", 2**64 - 1),
        "i64": Typed("i64", -(2**63)), "f64": Typed("f64", 1e300), "ints": [1, 2, 3],
        "bools": [True, False], "strs": ["a", "", "ü"], "floats": [1.5, -2.0],
        "none": Typed("str", []),
    }  # fmt: skip
    found = GgufFile.open(write(tmp_path / "m.gguf", metadata, ONE)).metadata
    for key, item in metadata.items():
        assert found.get(key) == (item.value if isinstance(item, Typed) else item)
    assert len(found) == len(metadata) and "u8" in found and "absent" not in found
    assert found.get("absent") is None
    assert found.get_int("i64") == -(2**63)
    assert found.get_float("u8") == 255.0
    assert found.get_bool("yes") is True
    assert found.get_str("text") == "héllo\n"
    assert found.get_ints("ints") == [1, 2, 3]
    assert found.get_floats("floats") == [1.5, -2.0]
    assert found.get_bools("bools") == [True, False]
    assert found.get_strs("strs") == ["a", "", "ü"]
    assert found.get_int("absent", 3) == 3 and found.get_str("absent", None) is None
    assert found.type_name("strs") == "array of string" and found.type_name("u8") == "uint8"


@pytest.mark.parametrize(
    ("getter", "key", "expected"),
    [
        ("get_int", "absent", "absent is missing"),
        ("get_int", "text", "must be an integer, found string 'x'"),
        ("get_int", "yes", "must be an integer, found bool True"),
        ("get_int", "ints", "must be an integer, found array of uint32 array of 2 items"),
        ("get_float", "nan", "nan is nan; a finite number"),
        ("get_float", "text", "must be a number"),
        ("get_bool", "number", "must be a bool, found uint32 7"),
        ("get_str", "number", "must be a string, found uint32 7"),
        ("get_ints", "number", "must be an array of integers, found uint32 7"),
        ("get_strs", "ints", "must be an array of strings"),
        ("get_bools", "absent", "absent is missing"),
        ("get_str", "latin", "not UTF-8"),
        ("get_strs", "latins", "not UTF-8"),
        ("get_bool", "maybe", "holds the byte 2"),
    ],
)
def test_a_wrong_value_names_file_key_and_value(
    tmp_path: Path, getter: str, key: str, expected: str
) -> None:
    metadata = {
        "text": "x", "yes": True, "number": 7, "ints": [1, 2], "nan": float("nan"),
        "latin": Typed("str", b"\xff\xfe"), "latins": Typed("str", [b"ok", b"\xff\n"]),
        "maybe": b"\x07\x00\x00\x00\x02",
    }  # fmt: skip
    found = GgufFile.open(write(tmp_path / "m.gguf", metadata)).metadata
    with pytest.raises(FileFormatError) as caught:
        getattr(found, getter)(key)
    message = str(caught.value)
    assert "m.gguf: metadata " in message and key in message and expected in message
    assert "\n" not in message


def test_integer_bounds(tmp_path: Path) -> None:
    found = GgufFile.open(write(tmp_path / "m.gguf", {"n": 7})).metadata
    assert found.get_int("n", low=7, high=7) == 7
    for bounds in ({"low": 8}, {"high": 6}):
        with pytest.raises(FileFormatError, match="n is 7"):
            found.get_int("n", **bounds)


def test_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    gguf = GgufFile.open(write(tmp_path / "m.gguf", {}, ONE))
    source = gguf.tensor("t")
    assert source.shape == (2, 3) and source.kind == "F32" and source.raw.dtype == np.uint8
    assert not source.raw.flags.writeable and not source.raw.flags.owndata
    assert source.to_float32().tolist() == [[0, 1, 2], [3, 4, 5]]
    weight = source.to_weight()
    assert (weight.name, weight.kind, weight.rows, weight.cols) == ("t", "F32", 2, 3)
    assert weight.data.shape == (2, 12)
    with pytest.raises(FileFormatError, match="tensor other is missing"):
        gguf.tensor("other")


def test_leading_ones_and_vectors_become_matrices(tmp_path: Path) -> None:
    data = np.arange(6, dtype=np.float32).tobytes()
    tensors = {
        "vector": Tensor((6,), 0, data),
        "padded": Tensor((1, 1, 2, 3), 0, data),
        "cube": Tensor((2, 1, 3), 0, data),
    }
    gguf = GgufFile.open(write(tmp_path / "m.gguf", {}, tensors))
    assert (gguf.tensor("vector").to_weight().rows, gguf.tensor("vector").cols) == (1, 6)
    assert gguf.tensor("padded").to_weight().rows == 2
    with pytest.raises(FileFormatError, match=r"cube.*not a matrix"):
        gguf.tensor("cube").to_weight()


def test_a_type_without_conversion_is_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", {}, {"ids": Tensor((4,), 26, bytes(16))})
    with pytest.raises(UnsupportedModelError, match=r"m\.gguf: tensor 'ids': type I32"):
        GgufFile.open(path).tensor("ids").to_float32()


def test_versions_and_alignment(tmp_path: Path) -> None:
    for version in (2, 3):
        assert (
            GgufFile.open(write(tmp_path / "m.gguf", {}, ONE, version=version)).version == version
        )
    metadata = {"general.alignment": 64}
    gguf = GgufFile.open(write(tmp_path / "m.gguf", metadata, ONE, alignment=64))
    assert gguf.tensor("t").to_float32()[1, 2] == 5


class TestShards:
    def shards(self, folder: Path, count: int = 3, **changes: object) -> list[Path]:
        paths = []
        for number in range(count):
            metadata = {
                "split.no": Typed("u16", number),
                "split.count": Typed("u16", count),
                "split.tensors.count": Typed("i32", count),
            }
            if number == 0:
                metadata["general.architecture"] = "qwen35"
            metadata.update({k: v for k, v in changes.items() if number == 1})  # type: ignore[misc]
            tensors = {f"t{number}": tensor(np.full((2, 3), number, dtype=np.float32))}
            path = folder / f"model-{number + 1:05d}-of-{count:05d}.gguf"
            paths.append(write(path, metadata, tensors))
        return paths

    def test_any_shard_opens_all(self, tmp_path: Path) -> None:
        paths = self.shards(tmp_path)
        for path in paths:
            gguf = GgufFile.open(path)
            assert gguf.parts == tuple(paths) and gguf.path == path
            assert gguf.architecture == "qwen35"
            assert [t.to_float32()[0, 0] for t in gguf.tensors.values()] == [0, 1, 2]
            assert gguf.n_bytes == sum(os.path.getsize(p) for p in paths)

    def test_a_missing_shard(self, tmp_path: Path) -> None:
        paths = self.shards(tmp_path)
        paths[1].unlink()
        with pytest.raises(FileFormatError, match=r"00002-of-00003\.gguf: shard is missing"):
            GgufFile.open(paths[0])

    def test_a_damaged_shard_is_named(self, tmp_path: Path) -> None:
        paths = self.shards(tmp_path)
        paths[2].write_bytes(paths[2].read_bytes()[:-40])
        with pytest.raises(FileFormatError, match=r"00003-of-00003\.gguf: truncated"):
            GgufFile.open(paths[0])

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"split.no": Typed("u16", 2)}, "split.no is 2, the name says 1"),
            ({"split.count": Typed("u16", 4)}, "split.count is 4"),
        ],
    )
    def test_contradicting_keys(
        self, tmp_path: Path, changes: dict[str, object], expected: str
    ) -> None:
        paths = self.shards(tmp_path, **changes)
        with pytest.raises(FileFormatError, match=expected):
            GgufFile.open(paths[0])

    def test_a_renamed_shard(self, tmp_path: Path) -> None:
        path = self.shards(tmp_path)[0].rename(tmp_path / "renamed.gguf")
        assert "one shard of 3" in opening_fails(path)

    def test_a_name_without_keys(self, tmp_path: Path) -> None:
        path = write(tmp_path / "m-00001-of-00002.gguf", {}, ONE)
        assert "no split.count" in opening_fails(path)

    def test_the_tensor_count_must_agree(self, tmp_path: Path) -> None:
        paths = self.shards(tmp_path, 2)
        metadata = {
            "split.no": Typed("u16", 1),
            "split.count": Typed("u16", 2),
        }
        write(paths[1], metadata, {})
        with pytest.raises(FileFormatError, match=r"hold 1 tensors, split\.tensors\.count says 2"):
            GgufFile.open(paths[0])

    def test_a_tensor_in_two_shards(self, tmp_path: Path) -> None:
        paths = self.shards(tmp_path, 2)
        metadata = {"split.no": Typed("u16", 1), "split.count": Typed("u16", 2)}
        write(paths[1], metadata, {"t0": ONE["t"]})
        with pytest.raises(FileFormatError, match="'t0' is in another shard"):
            GgufFile.open(paths[0])
