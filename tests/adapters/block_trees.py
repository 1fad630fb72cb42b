"""What the tests of ddtree and dspark share: adapters on a fake drafter, trees by brute force."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from adapter_views import paths, target, view
from fake_drafter import FakeDrafter, log_softmax

from specla.adapters.base import Adapter
from specla.adapters.block import BlockAdapter
from specla.backends.numpy.backend import NumpyBackend
from specla.core.proposal import Proposal, SequenceView, to_tree

Row = Callable[[tuple[int, ...]], np.ndarray]
"""Log-probabilities [vocab] of what follows a path."""


def bound(kind: type[BlockAdapter], drafter: FakeDrafter, **options: Any) -> BlockAdapter:
    """An adapter bound to a target, with this drafter instead of one from a file."""
    adapter = kind.__new__(kind)
    Adapter.__init__(adapter, kind.Options("a draft.gguf", **options))
    adapter._drafter = drafter  # bind() keeps one that serves the target
    adapter.bind(replace(target(drafter.logits.shape[1]), backend=NumpyBackend()))
    return adapter


def propose(adapter: Adapter, drafter: FakeDrafter, root: int = 0, **limits: int) -> Proposal:
    """One proposal, which the engine would take."""
    seen: SequenceView = view([1, root], **limits)
    (proposal,) = adapter.propose([seen])
    to_tree(proposal, seen, vocab_size=drafter.logits.shape[1], adapter="test")
    return proposal


def tempered(logits: np.ndarray, width: int, temperature: float) -> np.ndarray:
    """Log-probabilities [vocab] of a row's best, divided; all the others weigh as one token."""
    stated = log_softmax(logits)
    best = np.argsort(-logits, kind="stable")[:width]
    others = max(1.0 - np.exp(stated[best]).sum(), 0.0) if width < len(logits) else 0.0
    weights = np.exp(stated[best] / temperature)
    result = np.full(len(logits), -np.inf)
    result[best] = np.log(weights / (weights.sum() + others ** (1.0 / temperature)))
    return result


def best_paths(
    row: Row, top_k: int, budget: int, depth: int, tau: float, *, seed: bool
) -> list[tuple[tuple[int, ...], float]]:
    """Paths and log-probabilities in the order of a proposal, from all paths that there are.

    No scores may be equal.
    """
    found: list[tuple[bool, float, tuple[int, ...], float]] = []
    open_paths: list[tuple[tuple[int, ...], float, bool]] = [((), 0.0, True)]
    while open_paths:
        path, q, on_spine = open_paths.pop()
        values = row(path)
        for rank, token in enumerate(np.argsort(-values, kind="stable")[:top_k].tolist()):
            if values[token] == -math.inf:
                continue
            spine = seed and on_spine and rank == 0
            score = q + float(values[token])
            found.append((not spine, -score, (*path, token), float(values[token])))
            if len(path) + 1 < depth:
                open_paths.append(((*path, token), score, spine))
    firsts = [-score for _, score, path, _ in found if len(path) == 1]
    floor = max(firsts, default=0.0) - tau
    inside = sorted(entry for entry in found if -entry[1] >= floor)
    taken = [(path, value) for _, _, path, value in inside[:budget]]
    spine: list[tuple[tuple[int, ...], float]] = []
    while children := [e for e in taken if e[0][:-1] == (spine[-1][0] if spine else ())]:
        spine.append(children[0])
    return spine + [entry for entry in taken if entry not in spine]


def assert_is(proposal: Proposal, expected: Iterable[tuple[tuple[int, ...], float]]) -> None:
    """The proposal has these paths and log-probabilities, in this order."""
    wanted = list(expected)
    assert paths(proposal) == [path for path, _ in wanted]
    for got, (_, value) in zip(proposal.log_probs or (), wanted, strict=True):
        assert math.isclose(got, value, rel_tol=1e-5, abs_tol=1e-5)
