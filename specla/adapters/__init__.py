"""Adapters: code that turns a draft into proposals. To add one, name it below."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from specla.adapters.base import Adapter, adapters

_PLACES = {
    "adaptive": "adaptive.adapter:AdaptiveAdapter",
    "chain": "chain:ChainAdapter",
    "ddtree": "ddtree:DdtreeAdapter",
    "dspark": "dspark:DsparkAdapter",
    "fallback": "fallback:FallbackAdapter",
    "mtp": "mtp:MtpAdapter",
    "ngram": "ngram:NgramAdapter",
    "none": "none:NoneAdapter",
    "replay": "replay:ReplayAdapter",
    "suffix": "suffix.adapter:SuffixAdapter",
}


def _loader(place: str) -> Callable[[], type[Adapter]]:
    def load() -> type[Adapter]:
        module, name = place.split(":")
        found: type[Adapter] = getattr(import_module(f"{__name__}.{module}"), name)
        return found

    return load


for _name, _place in _PLACES.items():
    adapters.register(_name, _loader(_place))

__all__ = ["Adapter", "adapters"]
