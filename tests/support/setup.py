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
    """options: of tiny_target. The plain decoder computes on the reference backend; those of equal
    settings are shared: they only remember."""
    backend = FailingBackend(chosen_backend())
    target = tiny_target(seed, backend=backend, **options)
    key = repr((seed, sorted(options.items())))
    if key not in _plain:
        _plain[key] = PlainDecoder(
            tiny_target(seed, backend=reference(), **(options | {"slots": 1}))
        )
    return Driver(target, backend, _plain[key], lambda result: backend.download(result.logits))
