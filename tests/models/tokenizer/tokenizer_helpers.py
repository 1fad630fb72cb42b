"""Metadata for tokenizer tests: a tiny vocabulary, a GGUF file's, and the Qwen3.6 package's."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from specla.models.tokenizer.bytelevel import BYTE_LETTERS, bytes_to_letters

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS[12] = "d"

TINY_MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "Ġwor l", "Ġworl d"]
TINY_SPECIAL = {"<|end|>": 3, "<|im_start|>": 3, "<|im_end|>": 3, "<think>": 4, "<|end|>!": 4}


def tiny_metadata(**changes: object) -> dict[str, object]:
    """256 byte tokens (id = byte), merged tokens, special tokens, two unused tokens.

    changes: `tokens=...` replaces `tokenizer.ggml.tokens`, and so on; None removes the key.
    """
    merged = [merge.replace(" ", "") for merge in TINY_MERGES]
    tokens = [*BYTE_LETTERS, *merged, *TINY_SPECIAL, "[PAD0]", "[PAD1]"]
    kinds = [1] * (256 + len(merged)) + list(TINY_SPECIAL.values()) + [5, 5]
    meta: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": list(TINY_MERGES),
        "tokenizer.ggml.eos_token_id": tokens.index("<|end|>"),
    }
    for name, value in changes.items():
        key = "tokenizer.chat_template" if name == "chat_template" else f"tokenizer.ggml.{name}"
        meta[key] = value
    return {key: value for key, value in meta.items() if value is not None}


def gguf_metadata(path: Path) -> dict[str, object]:
    """All metadata of a GGUF v3 file as Python values (the gguf package takes 10 s for these)."""
    data = path.read_bytes()
    magic, version, _, count = struct.unpack_from("<4sIQQ", data)
    assert (magic, version) == (b"GGUF", 3)
    offset = 24
    meta: dict[str, object] = {}
    for _ in range(count):
        key, offset = _value(data, offset, 8)
        (kind,) = struct.unpack_from("<I", data, offset)
        meta[key], offset = _value(data, offset + 4, kind)
    return meta


def _value(data: bytes, offset: int, kind: int) -> tuple[Any, int]:
    if kind == 8:
        (size,) = struct.unpack_from("<Q", data, offset)
        return data[offset + 8 : offset + 8 + size].decode("utf-8"), offset + 8 + size
    if kind == 9:
        inner, length = struct.unpack_from("<IQ", data, offset)
        offset += 12
        items = []
        for _ in range(length):
            item, offset = _value(data, offset, inner)
            items.append(item)
        return items, offset
    code = "<" + _SCALARS[kind]
    return struct.unpack_from(code, data, offset)[0], offset + struct.calcsize(code)


def read_vectors(folder: Path, name: str) -> list[tuple[str, list[int]]]:
    """(text, ids) pairs of a llama.cpp tokenizer test: each text ends with a separator line."""
    raw = (folder / f"{name}.inp").read_bytes().decode("utf-8")
    texts = raw.split("\n__ggml_vocab_test__\n")
    assert texts.pop() == ""
    lines = (folder / f"{name}.out").read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    return [
        (text, [int(number) for number in line.split()])
        for text, line in zip(texts, lines, strict=True)
    ]


def ranks_metadata(ranks: dict[bytes, int], special: dict[str, int]) -> dict[str, object]:
    """GGUF-like metadata of a tiktoken vocabulary; `<|...|>` tokens are control tokens.

    A few tokens can't be reached by merging. They get no merge, as in the model's own files;
    tiktoken yields them all the same where a whole word is such a token.
    """
    size = max(*ranks.values(), *special.values()) + 1
    tokens = [f"[PAD{index}]" for index in range(size)]
    kinds = [5] * size
    for data, index in ranks.items():
        tokens[index], kinds[index] = bytes_to_letters(data), 1
    for text, index in special.items():
        tokens[index], kinds[index] = text, 3 if text.startswith("<|") else 4
    merges = []
    for data, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(data) > 1:
            pair = _last_merge(data, rank, ranks)
            if pair is not None:
                merges.append(" ".join(map(bytes_to_letters, pair)))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": special["<|im_end|>"],
        "tokenizer.ggml.padding_token_id": special["<|endoftext|>"],
    }


def _last_merge(data: bytes, rank: int, ranks: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two tokens that BPE with all lower ranks leaves of a token; None if it leaves more."""
    parts = [data[i : i + 1] for i in range(len(data))]
    while len(parts) > 2:
        pairs = [ranks.get(parts[i] + parts[i + 1], rank) for i in range(len(parts) - 1)]
        lowest = min(pairs)
        if lowest >= rank:
            return None
        i = pairs.index(lowest)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts[0], parts[1]
