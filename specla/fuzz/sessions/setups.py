"""How a world of sessions begins: the model, the room, the backend."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from specla.fuzz.computing import computing
from specla.fuzz.failing import FailingBackend
from specla.fuzz.plain import REMEMBERED
from specla.fuzz.sessions.oracle import Oracle
from specla.fuzz.sessions.world import SessionWorld
from specla.fuzz.tiny import tiny_weights
from specla.models.load import bundled_model, open_model
from specla.models.qwen35.options import TargetOptions
from specla.models.qwen35.target import Qwen35Target
from specla.models.qwen35.weights import Qwen35Weights

REFERENCE = "numpy"

BEYOND = 80


@dataclass(frozen=True)
class SessionSetup:
    """model: "tiny" (random, made from ``seed``, ``pattern`` and ``kind``) or "bundled".

    context, max_nodes, chunk, slots, features, kv: of TargetOptions.  failing: on a backend that
    can fail on command; such a one makes its kernel calls one by one, so that recorded steps run
    only without.  threads: of a backend that has several.
    """

    model: str = "tiny"
    seed: int = 0
    pattern: str = "gag"
    kind: str = "F32"
    context: int = 80
    max_nodes: int = 17
    chunk: int = 4
    slots: int = 3
    features: tuple[int, ...] = ()
    kv: str = "f16"
    failing: bool = False
    threads: int = 1

    def build(self, backend: str) -> SessionWorld:
        """A fresh target without sessions."""
        made: Any = computing(backend, self.threads)
        if self.failing:
            made = FailingBackend(made)
        options = TargetOptions(
            context=self.context,
            max_nodes=self.max_nodes,
            chunk=self.chunk,
            slots=self.slots,
            features=self.features,
            kv=self.kv,
            poison=True,
        )
        weights = _weights(self.model, self.seed, self.pattern, self.kind)
        oracle = _oracle(
            self.model, self.seed, self.pattern, self.kind, self.features, self.kv, self.context
        )
        oracle.trim(REMEMBERED[self.model])
        target = Qwen35Target(weights, made, options)
        return SessionWorld(target, oracle, made if self.failing else None)


@cache
def _weights(model: str, seed: int, pattern: str, kind: str) -> Qwen35Weights:
    if model == "bundled":
        return open_model(bundled_model()).weights
    return tiny_weights(seed, pattern, kind)


@cache
def _oracle(
    model: str,
    seed: int,
    pattern: str,
    kind: str,
    features: tuple[int, ...],
    kv: str,
    context: int,
) -> Oracle:
    # adapters ask what would follow a full context
    options = TargetOptions(
        context=context + BEYOND, max_nodes=1, chunk=1, features=features, kv=kv
    )
    target = Qwen35Target(_weights(model, seed, pattern, kind), computing(REFERENCE), options)
    return Oracle(target)
