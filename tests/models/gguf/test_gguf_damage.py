"""Damaged and hostile files: one error line, quickly, and never another exception."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models.gguf.gguf_build import Tensor, Typed, gguf_bytes, string, tensor, value

from specla.errors import FileFormatError, SpeclaError
from specla.models.gguf import GgufFile

TENSORS = {
    "first": tensor(np.arange(64, dtype=np.float32).reshape(2, 32)),
    "second": Tensor((3, 64), 8, bytes(3 * 2 * 34)),
    "third": tensor(np.ones(5, dtype=np.float32)),
}
METADATA = {
    "general.architecture": "qwen35",
    "general.alignment": 32,
    "tokenizer.ggml.tokens": ["a", "bc", ""],
    "qwen35.block_count": 2,
    "flags": [True, False, True],
    "small": Typed("u8", 1),
}
SOUND = gguf_bytes(METADATA, TENSORS)


def touch_everything(path: Path) -> None:
    gguf = GgufFile.open(path)
    for key in gguf.metadata:
        gguf.metadata.get(key)
    for source in gguf.tensors.values():
        source.to_float32()


def message_of(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    start = time.perf_counter()
    with pytest.raises(FileFormatError) as caught:
        GgufFile.open(path)
    assert time.perf_counter() - start < 1
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert len(message) < 1000 + len(str(path))
    return message


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    last_tensor_end = len(SOUND) - (-20 % 32)
    for length in range(1, last_tensor_end):
        message_of(path, SOUND[:length])
    # only padding is missing from here on
    for length in range(last_tensor_end, len(SOUND) + 1):
        path.write_bytes(SOUND[:length])
        touch_everything(path)


def test_truncation_of_a_real_file(shared_data: Path, tmp_path: Path) -> None:
    whole = (shared_data / "golden" / "b-Q4_K_M.gguf").read_bytes()
    for length in [*range(1, len(whole), 40_009), len(whole) - 1024]:
        message_of(tmp_path / "m.gguf", whole[:length])


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_open_or_raise_one_line(tmp_path: Path, data: st.DataObject) -> None:
    damaged = bytearray(SOUND)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(SOUND) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    path = tmp_path / "m.gguf"
    path.write_bytes(damaged)
    start = time.perf_counter()
    try:
        touch_everything(path)
    except SpeclaError as error:
        assert "\n" not in str(error)
    assert time.perf_counter() - start < 1


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tail=st.binary(max_size=300))
def test_arbitrary_bytes_after_the_magic(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00" + tail)
    try:
        touch_everything(path)
    except SpeclaError as error:
        assert "\n" not in str(error)


HUGE = 2**60
CASES = {
    "empty": (b"", "is empty"),
    "other file": (b"PK\x03\x04" + bytes(100), "not a GGUF file"),
    "one byte": (b"G", "not a GGUF file"),
    "version 1": (gguf_bytes(version=1), "GGUF version 1 is not supported"),
    "version 0": (gguf_bytes(version=0), "GGUF version 0 is not supported"),
    "version 99": (gguf_bytes(version=99), "GGUF version 99 is not supported"),
    "big-endian": (gguf_bytes(version=0x03000000), "big-endian"),
    "2^60 tensors": (gguf_bytes(n_tensors=HUGE), f"claims {HUGE} tensors"),
    "2^60 keys": (gguf_bytes(n_keys=HUGE), f"claims {HUGE} metadata keys"),
    "one tensor too many": (gguf_bytes(METADATA, TENSORS, n_tensors=4), "damaged"),
    "one key too many": (gguf_bytes(METADATA, TENSORS, n_keys=7), "damaged"),
    "huge string": (
        gguf_bytes([("k", struct.pack("<IQ", 8, 2**40) + bytes(64))]),
        f"needs {2**40} bytes",
    ),
    "huge key": (gguf_bytes(n_keys=1) + struct.pack("<Q", 2**40) + bytes(64), "has a length of"),
    "huge array": (
        gguf_bytes([("k", struct.pack("<IIQ", 9, 4, HUGE) + bytes(64))]),
        f"claims {HUGE} items in 'k'",
    ),
    "huge string array": (
        gguf_bytes([("k", struct.pack("<IIQ", 9, 8, HUGE) + bytes(64))]),
        f"claims {HUGE} items in 'k'",
    ),
    "array of arrays": (
        gguf_bytes([("k", struct.pack("<IIQ", 9, 9, 1) + value([1, 2])[0:] + bytes(64))]),
        "array of arrays",
    ),
    "unknown value type": (
        gguf_bytes([("k", struct.pack("<I", 77) + bytes(64))]),
        "unknown GGUF value type 77",
    ),
    "unknown item type": (
        gguf_bytes([("k", struct.pack("<IIQ", 9, 77, 1) + bytes(64))]),
        "unknown GGUF value type 77",
    ),
    "key not UTF-8": (gguf_bytes(n_keys=1)[:24] + string(b"\xff\xfe") + bytes(99), "not UTF-8"),
    "empty key": (gguf_bytes([("", 1)]) + bytes(64), "has a length of 0 bytes"),
    "duplicate key": (gguf_bytes([("k", 1), ("k", 2)]), "'k' occurs twice"),
    "duplicate tensor": (
        gguf_bytes((), [("t", TENSORS["third"]), ("t", TENSORS["third"])]),
        "tensor 't' occurs twice",
    ),
    "tensor name not UTF-8": (gguf_bytes((), {b"\xff": TENSORS["third"]}), "not UTF-8"),
    "newline in a name": (
        gguf_bytes((), {"a\nb": Tensor((1,), 0, bytes(4), offset=1)}),
        r"'a\nb' at offset 1 is not 32-aligned",
    ),
    "no dimensions": (gguf_bytes((), {"t": Tensor((), 0, bytes(4))}), "has 0 dimensions"),
    "five dimensions": (
        gguf_bytes((), {"t": Tensor((1,) * 5, 0, bytes(4))}),
        "has 5 dimensions",
    ),
    "an empty dimension": (gguf_bytes((), {"t": Tensor((2, 0), 0, bytes(4))}), "claims the shape"),
    "overflowing product": (
        gguf_bytes((), {"t": Tensor((2**33, 2**33), 0, bytes(64))}),
        "claims the shape",
    ),
    "product that wraps to a small number": (
        gguf_bytes((), {"t": Tensor((2**32, 2**32 + 1), 0, bytes(64))}),
        "claims the shape",
    ),
    "offset beyond the file": (
        gguf_bytes((), {"t": Tensor((4,), 0, bytes(16), offset=2**20)}),
        "truncated or damaged: tensor 't' ends",
    ),
    "offset that wraps": (
        gguf_bytes((), {"t": Tensor((4,), 0, bytes(16), offset=2**64 - 32)}),
        "truncated or damaged: tensor 't' ends",
    ),
    "unaligned offset": (
        gguf_bytes((), {"t": Tensor((4,), 0, bytes(64), offset=4)}),
        "is not 32-aligned",
    ),
    "overlapping tensors": (
        gguf_bytes((), {"s": Tensor((16,), 0, bytes(64)), "t": Tensor((1,), 0, b"", offset=32)}),
        "'s' and 't' overlap",
    ),
    "overlapping tensors of long strange names": (
        gguf_bytes(
            (),
            {
                "s" + "\U000e0001" * 200: Tensor((16,), 0, bytes(64)),
                "t" + "\U000e0001" * 200: Tensor((1,), 0, b"", offset=32),
            },
        ),
        "overlap",
    ),
    "removed tensor type": (
        gguf_bytes((), {"t": Tensor((32,), 4, bytes(64))}),
        "GGML type 4",
    ),
    "unknown tensor type": (
        gguf_bytes((), {"t": Tensor((32,), 2**31, bytes(64))}),
        f"GGML type {2**31}",
    ),
    "row not a multiple of the block": (
        gguf_bytes((), {"t": Tensor((2, 33), 8, bytes(99))}),
        "not a multiple of the Q8_0 block",
    ),
    "zero alignment": (gguf_bytes({"general.alignment": 0}), "general.alignment is 0"),
    "odd alignment": (gguf_bytes({"general.alignment": 48}), "general.alignment is 48"),
    "alignment of another type": (
        gguf_bytes({"general.alignment": "32"}),
        "general.alignment must be a uint32",
    ),
    "absurd alignment": (
        gguf_bytes({"general.alignment": 2**31}, TENSORS),
        "truncated or damaged",
    ),
    "absurd shard count": (
        gguf_bytes({"split.count": 2**31}),
        "split.count is",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_hostile_headers(tmp_path: Path, case: str) -> None:
    content, expected = CASES[case]
    assert expected in message_of(tmp_path / "m.gguf", content)


def test_hostile_counts_cost_no_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    for content, _ in CASES.values():
        message_of(tmp_path / "m.gguf", content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


class TestPaths:
    def fails(self, path: Path | str) -> str:
        with pytest.raises(FileFormatError) as caught:
            GgufFile.open(path)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def test_no_file(self, tmp_path: Path) -> None:
        assert "absent.gguf: can't open the model file: No such" in self.fails(
            tmp_path / "absent.gguf"
        )

    def test_folder(self, tmp_path: Path) -> None:
        assert "is a folder" in self.fails(tmp_path)

    def test_a_file_as_folder(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"x")
        assert "can't open" in self.fails(tmp_path / "f" / "m.gguf")

    def test_null_and_newline_in_the_path(self) -> None:
        assert "can't open" in self.fails("a\0b.gguf")
        assert r"a\nb.gguf" in self.fails("a\nb.gguf")

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
    def test_a_pipe_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.gguf")
        assert "not a regular file" in self.fails(tmp_path / "pipe.gguf")

    def test_a_device(self) -> None:
        if not os.path.exists("/dev/zero"):
            pytest.skip("no /dev/zero on this system")
        assert "not a regular file" in self.fails("/dev/zero")
