"""A driver over a tiny target on a failing backend, with plain decoding beside it."""

from __future__ import annotations

from typing import Any

from support.driver import Driver
from support.failing import FailingBackend
from support.plain import PlainDecoder
from support.tiny import tiny_target

from specla.backends.numpy.backend import NumpyBackend

_plain: dict[str, PlainDecoder] = {}


def make_driver(seed: int = 0, **options: Any) -> Driver:
    """options: of tiny_target. Plain decoders of equal settings are shared: they only remember."""
    backend = FailingBackend(NumpyBackend())
    target = tiny_target(seed, backend=backend, **options)
    key = repr((seed, sorted(options.items())))
    if key not in _plain:
        _plain[key] = PlainDecoder(tiny_target(seed, **(options | {"slots": 1})))
    return Driver(target, backend, _plain[key])
