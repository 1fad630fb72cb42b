"""The tiny target of specla.fuzz, on the running test's backend."""

from __future__ import annotations

from typing import Any

from support.chosen import chosen_backend

from specla.fuzz import tiny
from specla.fuzz.tiny import VOCAB, source, tiny_config, tiny_weights
from specla.models.qwen35.target import Qwen35Target

__all__ = ["VOCAB", "source", "tiny_config", "tiny_target", "tiny_weights"]


def tiny_target(seed: int = 0, *, backend: Any = None, **settings: Any) -> Qwen35Target:
    """backend: that of the running test, unless given.  settings: of specla.fuzz.tiny."""
    return tiny.tiny_target(backend or chosen_backend(), seed, **settings)
