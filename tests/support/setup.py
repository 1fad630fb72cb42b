"""A driver over a tiny target on a failing backend, with plain decoding beside it."""

from __future__ import annotations

from typing import Any

from support.chosen import chosen_backend, reference
from support.tiny import tiny_target

from specla.fuzz.failing import FailingBackend
from specla.fuzz.lifecycle.driver import Driver
from specla.fuzz.plain import PlainDecoder

_plain: dict[str, PlainDecoder] = {}


def make_driver(seed: int = 0, **options: Any) -> Driver:
    """options: of tiny_target."""
    target = tiny_target(seed, backend=FailingBackend(chosen_backend()), **options)
    return Driver(target, plain_decoder(seed, **options))


def plain_decoder(seed: int, **options: Any) -> PlainDecoder:
    """Plain decoding on the reference backend; one for equal settings: it only remembers."""
    key = repr((seed, sorted(options.items())))
    if key not in _plain:
        target = tiny_target(seed, backend=reference(), **(options | {"slots": 1}))
        _plain[key] = PlainDecoder(target)
    return _plain[key]
