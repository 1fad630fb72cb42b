"""Tokenizer of a GGUF file, streaming detokenisation, stop strings and chat templates."""

from __future__ import annotations

from specla.models.tokenizer.chat import ChatTemplate
from specla.models.tokenizer.errors import ChatTemplateError, TextError
from specla.models.tokenizer.pretokenizers import PRE_TOKENIZERS
from specla.models.tokenizer.stops import StopMatcher, StopStep
from specla.models.tokenizer.stream import StreamDecoder
from specla.models.tokenizer.tokenizer import Tokenizer

__all__ = [
    "PRE_TOKENIZERS",
    "ChatTemplate",
    "ChatTemplateError",
    "StopMatcher",
    "StopStep",
    "StreamDecoder",
    "TextError",
    "Tokenizer",
]
