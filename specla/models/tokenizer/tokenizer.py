"""Byte-level BPE tokenizer built from GGUF metadata, on the `tokenizers` library.

Text is not normalised (no NFC): llama.cpp does the same, its published test vectors demand it, and
only so is `decode(encode(text))` the text itself. The models' Python tokenizers compose text to NFC
first, so their ids differ for decomposed input such as "e" + U+0301, and for nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from specla.errors import OptionError, UnsupportedModelError
from specla.models.tokenizer.bytelevel import letters_to_bytes
from specla.models.tokenizer.chat import ChatTemplate
from specla.models.tokenizer.errors import TextError, one_line
from specla.models.tokenizer.metadata import (
    CONTROL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    TokenizerMetadata,
    read_metadata,
)
from specla.models.tokenizer.pretokenizers import pre_tokenizer_pattern

MAX_WHITESPACE_RUN = 1_000_000
"""Longest run of white space that is encoded; the regular expressions give up far beyond it."""

_END_TOKENS = ("<|im_end|>", "<|endoftext|>")
_HIDDEN_TYPES = frozenset((UNKNOWN, CONTROL, UNUSED))
_SURROGATE = re.compile("[\ud800-\udfff]")
_WHITESPACE = re.compile(r"\s+")


class Tokenizer:
    """Text to token ids and back, without loss. Immutable and safe to share between threads."""

    def __init__(self, metadata: TokenizerMetadata) -> None:
        self._bpe = _build_bpe(metadata)
        # tens of megabytes for a large vocabulary, and the library has its own copy by now
        self._meta = replace(metadata, vocab={}, merges=[])
        special = {
            token: index
            for index, (token, kind) in enumerate(zip(metadata.tokens, metadata.types, strict=True))
            if kind in (CONTROL, USER_DEFINED) and token
        }
        self._special: Mapping[str, int] = MappingProxyType(special)
        # Longest first: an alternation takes the first alternative that fits.
        names = sorted(special, key=len, reverse=True)
        self._special_pattern = re.compile("|".join(map(re.escape, names))) if names else None

    @classmethod
    def from_metadata(cls, meta: Mapping[str, object], source: str) -> Tokenizer:
        """Build from GGUF metadata as plain Python values; `source` names the file in errors.

        Raises FileFormatError (missing or inconsistent keys) and UnsupportedModelError (a
        tokenizer model or pre-tokenizer that specla doesn't know).
        """
        return cls(read_metadata(meta, source))

    @property
    def vocab_size(self) -> int:
        """Number of token ids, special and unused ones included."""
        return len(self._meta.tokens)

    @property
    def bos_id(self) -> int | None:
        """Beginning-of-text token, where the file names one."""
        return self._meta.bos_id

    @property
    def eos_id(self) -> int | None:
        """End-of-text token, where the file names one."""
        return self._meta.eos_id

    @property
    def eot_id(self) -> int | None:
        """End-of-turn token, where the file names one."""
        return self._meta.eot_id

    @property
    def pad_id(self) -> int | None:
        """Padding token, where the file names one."""
        return self._meta.pad_id

    @property
    def add_bos(self) -> bool:
        """Whether the file asks for a beginning-of-text token before every prompt."""
        return self._meta.add_bos

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end generation: the file's eos, eot and eom, and Qwen's usual two."""
        meta = self._meta
        declared = {meta.eos_id, meta.eot_id, meta.eom_id}
        usual = {
            self._special[name]
            for name in _END_TOKENS
            if name in self._special and meta.types[self._special[name]] == CONTROL
        }
        return frozenset(index for index in declared | usual if index is not None)

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Control and user-defined tokens: text -> id, in id order, read-only."""
        return self._special

    def is_hidden(self, token_id: int) -> bool:
        """Whether `skip_special` hides the token: control, unknown and unused tokens.

        User-defined tokens such as `<think>` are text that a reader wants to see. Raises TextError
        for an id outside the vocabulary.
        """
        return self._meta.types[self._checked(token_id)] in _HIDDEN_TYPES

    def encode(self, text: str, *, parse_special: bool, add_bos: bool | None = None) -> list[int]:
        """Token ids of `text`.

        parse_special: control and user-defined tokens written out in the text become their ids
        (leftmost first, then longest); otherwise they are text like any other, which is what
        untrusted text wants. add_bos: put the beginning-of-text token in front; None does as the
        file says.

        Raises TextError for lone surrogates (invalid UTF-8 on input) and absurd white space, and
        OptionError for add_bos=True without such a token.
        """
        self._check_text(text)
        ids = self._bos(add_bos)
        if not parse_special or self._special_pattern is None:
            ids += self._encode_plain(text)
            return ids
        position = 0
        for match in self._special_pattern.finditer(text):
            ids += self._encode_plain(text[position : match.start()])
            ids.append(self._special[match.group()])
            position = match.end()
        ids += self._encode_plain(text[position:])
        return ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """Text of `ids`; bytes that are not UTF-8 become U+FFFD.

        skip_special leaves out control, unknown and unused tokens. Raises TextError for an id
        outside the vocabulary.
        """
        data = b"".join(
            [self.token_bytes(i) for i in ids if not (skip_special and self.is_hidden(i))]
        )
        return data.decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for (a special token: its name in UTF-8).

        Raises TextError for an id outside the vocabulary.
        """
        index = self._checked(token_id)
        text = self._meta.tokens[index]
        if self._meta.types[index] in (CONTROL, USER_DEFINED, UNKNOWN):
            return text.encode("utf-8")
        return letters_to_bytes(text)

    def chat_template(self) -> ChatTemplate:
        """The file's chat template, with `bos_token` and `eos_token` preset.

        Raises UnsupportedModelError where the file has none, ChatTemplateError where it is broken.
        """
        meta = self._meta
        if meta.chat_template is None:
            raise UnsupportedModelError(
                f"{meta.source}: has no chat template (tokenizer.chat_template): "
                "give the prompt as raw text"
            )
        preset = {
            "bos_token": "" if meta.bos_id is None else meta.tokens[meta.bos_id],
            "eos_token": "" if meta.eos_id is None else meta.tokens[meta.eos_id],
        }
        return ChatTemplate(meta.chat_template, name=f"{meta.source}: chat template", preset=preset)

    def _checked(self, token_id: int) -> int:
        if not 0 <= token_id < len(self._meta.tokens):
            raise TextError(
                f"token id {token_id} is outside the vocabulary: use 0 to {self.vocab_size - 1}"
            )
        return token_id

    def _bos(self, add_bos: bool | None) -> list[int]:
        wanted = self._meta.add_bos if add_bos is None else add_bos
        if not wanted:
            return []
        if self._meta.bos_id is None:
            raise OptionError(
                f"{self._meta.source}: names no beginning-of-text token "
                "(tokenizer.ggml.bos_token_id): encode without one"
            )
        return [self._meta.bos_id]

    def _encode_plain(self, text: str) -> list[int]:
        if not text:
            return []
        try:
            ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        except BaseException as error:
            # A Rust panic is no Exception; everything else (Ctrl-C) must pass.
            if type(error).__name__ != "PanicException":
                raise
            raise TextError(
                f"text of {len(text)} characters can't be tokenized ({one_line(error, 80)}): "
                "shorten it"
            ) from None
        return ids

    def _check_text(self, text: str) -> None:
        if not isinstance(text, str):
            raise TextError(f"text is a {type(text).__name__}: give a string")
        surrogate = None if text.isascii() else _SURROGATE.search(text)
        if surrogate is not None:
            raise TextError(
                f"text holds a lone surrogate U+{ord(surrogate.group()):04X} at character "
                f"{surrogate.start()} (invalid UTF-8 on input?): give valid Unicode text"
            )
        if len(text) > MAX_WHITESPACE_RUN:
            longest = max((len(run) for run in _WHITESPACE.findall(text)), default=0)
            if longest > MAX_WHITESPACE_RUN:
                raise TextError(
                    f"text holds a run of {longest} white-space characters, the limit is "
                    f"{MAX_WHITESPACE_RUN}: shorten it"
                )


def _build_bpe(metadata: TokenizerMetadata) -> Any:
    """Pre-tokenizer and BPE merges as one `tokenizers` pipeline, without any special tokens."""
    pattern = pre_tokenizer_pattern(metadata.pre, metadata.source)
    from tokenizers import Regex, Tokenizer, pre_tokenizers
    from tokenizers.models import BPE

    pipeline = Tokenizer(BPE(metadata.vocab, metadata.merges))
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return pipeline
