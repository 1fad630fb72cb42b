"""Adapters: code that turns a draft into proposals. To add one, register it below."""

from __future__ import annotations

from specla.adapters.base import Adapter, adapters


def _none() -> type[Adapter]:
    from specla.adapters.none import NoneAdapter

    return NoneAdapter


def _ngram() -> type[Adapter]:
    from specla.adapters.ngram import NgramAdapter

    return NgramAdapter


def _replay() -> type[Adapter]:
    from specla.adapters.replay import ReplayAdapter

    return ReplayAdapter


adapters.register("none", _none)
adapters.register("ngram", _ngram)
adapters.register("replay", _replay)

__all__ = ["Adapter", "adapters"]
