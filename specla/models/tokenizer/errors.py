"""Errors of text and templates: what a prompt or a chat template can do wrong."""

from __future__ import annotations

from specla.errors import SpeclaError


class TextError(SpeclaError):
    """A text can't be tokenized, or a token id can't be turned into text."""


class ChatTemplateError(SpeclaError):
    """A chat template is broken, did something forbidden, or refused the messages."""


def one_line(message: object, limit: int = 300) -> str:
    """`message` on one line, at most `limit` characters, never empty."""
    text = " ".join(str(message).split()) or type(message).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."
