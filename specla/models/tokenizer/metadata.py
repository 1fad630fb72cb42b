"""Tokenizer metadata of a GGUF file, checked: everything later code relies on holds here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specla.errors import FileFormatError, UnsupportedModelError
from specla.models.tokenizer.bytelevel import BYTE_LETTERS
from specla.models.tokenizer.errors import one_line

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Token types as GGUF numbers them."""

_PREFIX = "tokenizer.ggml."
_MAX_SPECIAL = 1 << 15
"""Most characters of all control and user-defined tokens together: they are searched for in every
prompt. Published models have up to 10,000."""


@dataclass(frozen=True)
class TokenizerMetadata:
    """Checked metadata of a byte-level BPE tokenizer.

    tokens: one string per id, byte-level letters for normal tokens, plain text for special ones.
    vocab: token -> id. types: GGUF token type per id. merges: pairs in rank order.
    """

    source: str
    pre: str
    tokens: list[str]
    vocab: dict[str, int]
    types: list[int]
    merges: list[tuple[str, str]]
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    eom_id: int | None
    pad_id: int | None
    add_bos: bool
    chat_template: str | None


def read_metadata(meta: Mapping[str, object], source: str) -> TokenizerMetadata:
    """Check the `tokenizer.*` keys of `meta` (plain Python values); `source` names the file.

    Raises UnsupportedModelError for a tokenizer model other than `gpt2`, and FileFormatError,
    naming source and key, for anything missing or inconsistent.
    """
    reader = _Reader(meta, source)
    model = reader.text("tokenizer.ggml.model")
    if model != "gpt2":
        raise UnsupportedModelError(
            f"{source}: tokenizer.ggml.model is {one_line(model, 40)!r}, but specla serves only "
            "'gpt2' (byte-level BPE): use a model with such a tokenizer"
        )
    tokens = reader.strings("tokenizer.ggml.tokens")
    vocab = _vocab(reader, tokens)
    size = len(tokens)
    template = reader.optional_text("tokenizer.chat_template")
    return TokenizerMetadata(
        source=source,
        pre=reader.text("tokenizer.ggml.pre"),
        tokens=tokens,
        vocab=vocab,
        types=_types(reader, tokens),
        merges=_merges(reader, tokens, vocab),
        bos_id=reader.token_id("bos_token_id", size),
        eos_id=reader.token_id("eos_token_id", size),
        eot_id=reader.token_id("eot_token_id", size),
        eom_id=reader.token_id("eom_token_id", size),
        pad_id=reader.token_id("padding_token_id", size),
        add_bos=reader.flag("tokenizer.ggml.add_bos_token"),
        chat_template=template,
    )


class _Reader:
    """Typed access to metadata values; every error names source and key."""

    def __init__(self, meta: Mapping[str, object], source: str) -> None:
        self._meta = meta
        self._source = source

    def fail(self, key: str, problem: str) -> FileFormatError:
        return FileFormatError(
            f"{self._source}: {key} {problem}: convert or download the file again"
        )

    def _required(self, key: str) -> object:
        value = self._meta.get(key)
        if value is None:
            raise self.fail(key, "is missing")
        return value

    def text(self, key: str) -> str:
        value = self._required(key)
        if not isinstance(value, str):
            raise self.fail(key, f"is a {type(value).__name__}, not a string")
        return value

    def optional_text(self, key: str) -> str | None:
        return None if self._meta.get(key) is None else self.text(key)

    def flag(self, key: str) -> bool:
        value = self._meta.get(key)
        if value is None:
            return False
        if value not in (True, False):
            raise self.fail(key, f"is {one_line(value, 40)}, not true or false")
        return bool(value)

    def token_id(self, name: str, size: int) -> int | None:
        key = _PREFIX + name
        value = self._meta.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, f"is a {type(value).__name__}, not a token id")
        if not 0 <= value < size:
            raise self.fail(key, f"is {value}, outside the vocabulary of {size} tokens")
        return value

    def items(self, key: str, kind: type) -> list[object]:
        value = self._required(key)
        if not isinstance(value, (list, tuple)):
            raise self.fail(key, f"is a {type(value).__name__}, not an array")
        if set(map(type, value)) - {kind}:
            index = next(i for i, item in enumerate(value) if type(item) is not kind)
            found = type(value[index]).__name__
            raise self.fail(key, f"holds a {found} at index {index}, not a {kind.__name__}")
        return list(value)

    def strings(self, key: str) -> list[str]:
        items = [item for item in self.items(key, str) if isinstance(item, str)]
        try:
            "".join(items).encode("utf-8")
        except UnicodeEncodeError:
            index = next(i for i, item in enumerate(items) if _has_surrogate(item))
            raise self.fail(key, f"holds invalid UTF-8 at index {index}") from None
        return items

    def integers(self, key: str) -> list[int]:
        return [item for item in self.items(key, int) if isinstance(item, int)]


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _vocab(reader: _Reader, tokens: list[str]) -> dict[str, int]:
    key = _PREFIX + "tokens"
    if not tokens:
        raise reader.fail(key, "is empty")
    vocab = {token: index for index, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        # The dictionary kept the last of the equal tokens, so the first one shows up as a mismatch.
        first = next(i for i, token in enumerate(tokens) if vocab[token] != i)
        name = one_line(repr(tokens[first]), 60)
        raise reader.fail(key, f"holds {name} twice, at {first} and {vocab[tokens[first]]}")
    for byte, letter in enumerate(BYTE_LETTERS):
        if letter not in vocab:
            raise reader.fail(key, f"has no token for byte 0x{byte:02x}, so not all text fits")
    return vocab


def _types(reader: _Reader, tokens: list[str]) -> list[int]:
    key = _PREFIX + "token_type"
    types = reader.integers(key)
    if len(types) != len(tokens):
        raise reader.fail(key, f"has {len(types)} entries for {len(tokens)} tokens")
    strange = set(types) - {NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE}
    if strange:
        index = next(i for i, kind in enumerate(types) if kind in strange)
        raise reader.fail(key, f"is {types[index]} at index {index}, but types are 1 to 6")
    named = (CONTROL, USER_DEFINED)
    special = sum(len(token) for token, kind in zip(tokens, types, strict=True) if kind in named)
    if special > _MAX_SPECIAL:
        raise reader.fail(
            key, f"makes {special} characters of tokens special, {_MAX_SPECIAL} are possible"
        )
    return types


def _merges(reader: _Reader, tokens: list[str], vocab: dict[str, int]) -> list[tuple[str, str]]:
    key = _PREFIX + "merges"
    lines = reader.strings(key)
    pairs: list[tuple[str, str]] = []
    for index, line in enumerate(lines):
        left, _, right = line.partition(" ")
        if not (left in vocab and right in vocab and left + right in vocab and left and right):
            raise reader.fail(key, _merge_problem(index, line, vocab))
        # the vocabulary's own strings: half a million fewer
        pairs.append((tokens[vocab[left]], tokens[vocab[right]]))
    if len(set(lines)) != len(lines):
        first: dict[str, int] = {}
        index = next(i for i, line in enumerate(lines) if first.setdefault(line, i) != i)
        name = one_line(repr(lines[index]), 60)
        raise reader.fail(key, f"holds {name} twice, at {first[lines[index]]} and {index}")
    return pairs


def _merge_problem(index: int, line: str, vocab: dict[str, int]) -> str:
    left, _, right = line.partition(" ")
    name = one_line(repr(line), 60)
    if not left or not right:
        return f"has {name} at index {index}, which is not two tokens with a space between"
    unknown = next(token for token in (left, right, left + right) if token not in vocab)
    return f"has {name} at index {index}, but {one_line(repr(unknown), 60)} is not a token"
