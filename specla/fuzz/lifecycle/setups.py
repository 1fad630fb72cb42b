"""What the lifecycle is played on: tables, a tiny random model, the bundled model."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from specla.backends.base import Backend
from specla.fuzz.computing import computing
from specla.fuzz.failing import FailingBackend
from specla.fuzz.kernels.recurrence import PlainRecurrence
from specla.fuzz.kernels.tables import Shapes, make_tables
from specla.fuzz.kernels.target import KernelTarget
from specla.fuzz.lifecycle.driver import Driver
from specla.fuzz.plain import REMEMBERED, PlainDecoder
from specla.fuzz.tiny import tiny_target
from specla.models.load import ModelFile, bundled_model, open_model
from specla.models.qwen35.target import TargetOptions


def _wrapped(backend: Backend, failing: bool) -> Any:
    return FailingBackend(backend) if failing else backend


@dataclass(frozen=True)
class KernelSetup:
    """Layers over tables. failing: failures can be injected; without that, steps are recorded where
    the backend does that."""

    seed: int = 0
    shapes: Shapes = field(default_factory=Shapes)
    failing: bool = True
    threads: int = 1
    kv: str = "f16"
    slots: int = 3
    max_nodes: int = 9
    features: tuple[int, ...] = (0, 1)

    def build(self, backend: str) -> Driver:
        """Everything but the sequences is made anew."""
        options = TargetOptions(
            context=160,
            max_nodes=self.max_nodes,
            chunk=16,
            slots=self.slots,
            kv=self.kv,
            features=self.features,
            poison=True,
        )
        config = self.shapes.config
        tables = make_tables(config, self.seed)
        wrapped = _wrapped(computing(backend, self.threads), self.failing)
        target = KernelTarget(config, tables, wrapped, options)
        return Driver(target, PlainRecurrence(config, tables, options), target.outputs)


@dataclass(frozen=True)
class TinySetup:
    """A tiny random model; the oracle decodes plainly on the reference backend."""

    seed: int = 0
    pattern: str = "gag"
    kind: str = "F32"
    failing: bool = True
    threads: int = 1
    kv: str = "f16"
    slots: int = 3

    def build(self, backend: str) -> Driver:
        """A new target; the oracle goes on from what it knows."""
        wrapped = _wrapped(computing(backend, self.threads), self.failing)
        target = tiny_target(wrapped, self.seed, slots=self.slots, **self._options())
        oracle = _tiny_oracle(self.seed, tuple(self._options().items()))
        oracle.trim(REMEMBERED["tiny"])
        return Driver(target, oracle)

    def _options(self) -> dict[str, Any]:
        return {"pattern": self.pattern, "kind": self.kind, "kv": self.kv, "features": (0,)}


@cache
def _tiny_oracle(seed: int, options: tuple[tuple[str, Any], ...]) -> PlainDecoder:
    return PlainDecoder(tiny_target(computing("numpy"), seed, slots=1, **dict(options)))


@dataclass(frozen=True)
class BundledSetup:
    """The bundled model; the oracle decodes plainly on the reference backend."""

    failing: bool = False
    threads: int = 1
    slots: int = 2

    def build(self, backend: str) -> Driver:
        """A new target; the oracle goes on from what it knows."""
        wrapped = _wrapped(computing(backend, self.threads), self.failing)
        options = _bundled_options(self.slots)
        _bundled_oracle().trim(REMEMBERED["bundled"])
        return Driver(_bundled().target(wrapped, options), _bundled_oracle())


def _bundled_options(slots: int) -> TargetOptions:
    return TargetOptions(
        context=160, max_nodes=9, chunk=16, slots=slots, features=(1,), poison=True
    )


@cache
def _bundled() -> ModelFile:
    return open_model(bundled_model())


@cache
def _bundled_oracle() -> PlainDecoder:
    return PlainDecoder(_bundled().target(computing("numpy"), _bundled_options(1)))
