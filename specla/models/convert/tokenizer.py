"""A checkpoint's tokenizer.json (byte-level BPE) as GGUF tokenizer metadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specla.errors import OptionError, UnsupportedModelError
from specla.models.convert.hf_config import TokenIds
from specla.models.convert.json_file import Keys, load_json
from specla.models.gguf.text import fail, quoted, shown_path
from specla.models.gguf.write import Value
from specla.models.tokenizer.metadata import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    read_metadata,
)
from specla.models.tokenizer.pretokenizers import PRE_TOKENIZERS

_PREFIX = "tokenizer.ggml."


@dataclass(frozen=True)
class _Vocabulary:
    tokens: list[str]
    types: list[int]
    ids: dict[str, int]


def tokenizer_metadata(folder: Path, ids: TokenIds, pre: str | None) -> dict[str, Value]:
    """GGUF metadata of the tokenizer in a checkpoint folder.

    pre: name of the pre-tokeniser, or None to find it from the regular expression in
    tokenizer.json. Ids without a token, up to the embedding's rows, become unused `[PADn]`.
    Raises FileFormatError or UnsupportedModelError, one line, for anything unfit.
    """
    if pre is not None and pre not in PRE_TOKENIZERS:
        known = ", ".join(PRE_TOKENIZERS)
        raise OptionError(f"pre-tokeniser {quoted(pre)} is unknown; use one of {known}")
    path = folder / "tokenizer.json"
    if not path.exists():
        fail(path, "is missing; add it, or convert without a tokenizer")
    keys = Keys(path, load_json(path))
    model = keys.part("model")
    if model.get("type") != "BPE":
        found = quoted(model.get("type"))
        raise UnsupportedModelError(
            f"{shown_path(path)}: a {found} model; byte-level BPE is needed"
        )
    vocabulary = _vocabulary(keys, model, ids.vocab_size)
    metadata = {
        f"{_PREFIX}model": Value("str", "gpt2"),
        f"{_PREFIX}pre": Value("str", pre or _pre_tokenizer(keys)),
        f"{_PREFIX}tokens": Value("str", vocabulary.tokens),
        f"{_PREFIX}token_type": Value("i32", vocabulary.types),
        f"{_PREFIX}merges": Value("str", _merges(model)),
    }
    metadata |= _special(folder, ids, vocabulary)
    template = _chat_template(folder)
    if template:
        metadata["tokenizer.chat_template"] = Value("str", template)
    # the reader's own checks, so that nothing is written that can't be read
    read_metadata({key: value.value for key, value in metadata.items()}, shown_path(path))
    return metadata


def _vocabulary(keys: Keys, model: Keys, size: int) -> _Vocabulary:
    path = keys.path
    tokens: list[str | None] = [None] * size
    types = [NORMAL] * size

    def place(token: Any, index: Any, kind: int) -> None:
        if not isinstance(token, str) or type(index) is not int or index < 0:
            fail(path, f"damaged: {quoted(token)} has the token id {quoted(index)}")
        if index >= size:
            fail(path, f"token {quoted(token)} has the id {index}, the embedding has {size} rows")
        if tokens[index] not in (None, token):
            fail(path, f"the id {index} stands for {quoted(tokens[index])} and {quoted(token)}")
        tokens[index], types[index] = token, kind

    for token, index in model.part("vocab").values.items():
        place(token, index, NORMAL)
    added = keys.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(entry, dict) for entry in added):
        fail(path, f"added_tokens is {quoted(added)}; a list of objects is needed")
    for entry in added:
        content = entry.get("content")
        special = bool(entry.get("special")) or _looks_special(content)
        place(content, entry.get("id"), CONTROL if special else USER_DEFINED)
    filled = [f"[PAD{index}]" if token is None else token for index, token in enumerate(tokens)]
    types = [UNUSED if token is None else kind for token, kind in zip(tokens, types, strict=True)]
    ids = {token: index for index, token in enumerate(filled)}
    return _Vocabulary(filled, types, ids)


def _looks_special(content: Any) -> bool:
    """Whether a token is a control token by its look, as llama.cpp's converter decides."""
    return isinstance(content, str) and content.startswith("<|") and content.endswith("|>")


def _merges(model: Keys) -> list[str]:
    merges = model.get("merges") or []
    if not isinstance(merges, list):
        model.reject("merges", merges, "a list")
    lines = []
    for merge in merges:
        line = merge if isinstance(merge, str) else None
        if isinstance(merge, list) and all(isinstance(part, str) for part in merge):
            line = " ".join(merge)
        if line is None or line.count(" ") != 1:
            fail(model.path, f"the merge {quoted(merge)} is not a pair of byte-level tokens")
        lines.append(line)
    return lines


def _pre_tokenizer(keys: Keys) -> str:
    found = list(_patterns(keys.get("pre_tokenizer")))
    for name, pattern in PRE_TOKENIZERS.items():
        if pattern in found:
            return name
    known = ", ".join(PRE_TOKENIZERS)
    raise UnsupportedModelError(
        f"{shown_path(keys.path)}: its pre-tokeniser is none of {known}; name one if it is the same"
    )


def _patterns(node: Any) -> Iterator[str]:
    """Regular expressions of all Split steps."""
    if isinstance(node, dict):
        pattern = node.get("pattern")
        if isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str):
            yield pattern["Regex"]
        for step in node.get("pretokenizers") or []:
            yield from _patterns(step)


def _special(folder: Path, known: TokenIds, vocabulary: _Vocabulary) -> dict[str, Value]:
    path = folder / "tokenizer_config.json"
    keys = Keys(path, load_json(path) if path.exists() else {})
    eos = list(known.eos_ids)
    named = _named_id(keys, "eos_token", vocabulary)
    if named is not None:
        eos = [named, *(token for token in eos if token != named)]
    bos, pad = _named_id(keys, "bos_token", vocabulary), _named_id(keys, "pad_token", vocabulary)
    result = {"add_bos_token": Value("bool", keys.boolean("add_bos_token", False))}
    ids = {
        "bos_token_id": known.bos_id if bos is None else bos,
        "eos_token_id": eos[0] if eos else None,
        # a second end of text, such as the end of a turn
        "eot_token_id": eos[1] if len(eos) > 1 else None,
        "padding_token_id": known.pad_id if pad is None else pad,
    }
    result |= {name: Value("u32", token) for name, token in ids.items() if token is not None}
    return {_PREFIX + name: value for name, value in result.items()}


def _named_id(keys: Keys, key: str, vocabulary: _Vocabulary) -> int | None:
    found = keys.get(key)
    content = found.get("content") if isinstance(found, dict) else found
    if content is None:
        return None
    if not isinstance(content, str) or content not in vocabulary.ids:
        fail(keys.path, f"{key} is {quoted(found)}, which is not in the vocabulary")
    return vocabulary.ids[content]


def _chat_template(folder: Path) -> str | None:
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            fail(path, "can't be read as UTF-8 text")
    path = folder / "tokenizer_config.json"
    found = load_json(path).get("chat_template") if path.exists() else None
    if isinstance(found, list):
        named = {entry.get("name"): entry for entry in found if isinstance(entry, dict)}
        found = named.get("default", {}).get("template")
    if found is not None and not isinstance(found, str):
        fail(path, f"chat_template is {quoted(found)}; text is needed")
    return found
