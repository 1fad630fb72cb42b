"""From what the user gave to prompt tokens."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from specla.cli.decode_config import DecodeConfig
from specla.errors import OptionError
from specla.models.tokenizer.tokenizer import Tokenizer

MAX_PROMPT_BYTES = 64 * 1024 * 1024
"""A file beyond this is no prompt but a mistake (or endless)."""


def read_prompt(config: DecodeConfig) -> str:
    """The prompt's text. One newline at the end of a file or pipe, which editors and `echo` add,
    is not part of it; everything else is taken as it is.

    Raises OptionError when it can't be read, is too large or isn't UTF-8.
    """
    if config.text is not None:
        return config.text
    if config.file == "-":
        if sys.stdin is None:
            raise OptionError("standard input is closed; give --prompt TEXT or --file FILE")
        return _decoded(_read(sys.stdin.buffer), "standard input")
    path = Path(config.file or "")
    try:
        with open(path, "rb") as file:
            return _decoded(_read(file), f"prompt file {path}")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise OptionError(f"prompt file {path}: {reason}; name a text file") from None


def _read(file: BinaryIO) -> bytes:
    return file.read(MAX_PROMPT_BYTES + 1)


def _decoded(data: bytes, source: str) -> str:
    if len(data) > MAX_PROMPT_BYTES:
        raise OptionError(
            f"{source} is larger than {MAX_PROMPT_BYTES >> 20} MiB; give a shorter prompt"
        )
    try:
        text = data.decode("utf-8")
        return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")
    except UnicodeDecodeError as error:
        raise OptionError(
            f"{source}: byte {error.start} (0x{data[error.start]:02x}) is not UTF-8; "
            f"convert the text to UTF-8"
        ) from None


def prompt_tokens(config: DecodeConfig, text: str, tokenizer: Tokenizer) -> list[int]:
    """Token ids of the prompt, at least one.

    A chat template's text may name special tokens, a raw prompt only with ``config.special``. An
    empty prompt becomes the beginning-of-text token, or the end-of-text token that separates
    texts in models without one. Raises SpeclaError when there is neither, or for a bad template.
    """
    if config.chat:
        text = _rendered(config, text, tokenizer)
    ids = tokenizer.encode(text, parse_special=config.chat or config.special, add_bos=False)
    # some chat templates write the token themselves
    if tokenizer.add_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
        ids.insert(0, tokenizer.bos_id)
    if ids:
        return ids
    for token in (tokenizer.bos_id, tokenizer.eos_id):
        if token is not None:
            return [token]
    raise OptionError(
        "the prompt is empty, and the model names no token that begins a text; give a prompt"
    )


def _rendered(config: DecodeConfig, text: str, tokenizer: Tokenizer) -> str:
    messages = [{"role": "user", "content": text}]
    if config.system is not None:
        messages.insert(0, {"role": "system", "content": config.system})
    return tokenizer.chat_template().render(messages)
