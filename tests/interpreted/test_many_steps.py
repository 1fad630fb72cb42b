"""Hundreds of steps as graphs, with the reference's kernels: the bytes of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.arrays import equal
from support.forests import random_tree

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

from interpreted.recording import RecordingCapture  # noqa: E402
from interpreted.reference_kernels import REFERENCE, ReferenceKernels  # noqa: E402
from specla.backends.triton import graphs  # noqa: E402
from specla.fuzz.tiny import VOCAB, tiny_target  # noqa: E402

pytestmark = MARKS


def play(targets: list[Any], turns: int, seed: int) -> None:
    """Batches of one to three sequences, prefills and verifies of any size, any paths."""
    rng = np.random.default_rng(seed)
    pairs = [tuple(target.open() for target in targets) for _ in range(3)]
    for turn in range(turns):
        chosen = pairs[: 1 + turn % 3]
        for operation in ("prefill", "verify"):
            trees = [random_tree(rng, int(rng.integers(1, 6)), VOCAB) for _ in chosen]
            found = []
            for i, target in enumerate(targets):
                if operation == "prefill":
                    runs = [(p[i], t.tokens) for p, t in zip(chosen, trees, strict=True)]
                    result: Any = target.prefill(runs, logits=bool(turn % 2))
                else:
                    result = target.verify([(p[i], t) for p, t in zip(chosen, trees, strict=True)])
                found.append(result and target.backend.download(result.logits))
                if result:
                    found.append(target.argmax(result))
            half = len(found) // 2
            for mine, theirs in zip(found[:half], found[half:], strict=True):
                assert mine is theirs is None or equal(mine, theirs)
        for i, target in enumerate(targets):
            moves = [(p[i], t.path_to(len(t) - 1)) for p, t in zip(chosen, trees, strict=True)]
            target.store.commit_all(moves)
        if pairs[0][0].length > 110:
            for pair in pairs:
                for target, sequence in zip(targets, pair, strict=True):
                    target.close(sequence)
            pairs = [tuple(target.open() for target in targets) for _ in range(3)]
    for pair in pairs:
        mine, theirs = (t.state_arrays(s) for t, s in zip(targets, pair, strict=True))
        for name in theirs:
            assert equal(mine[name], theirs[name]), name
        views = [t.features(s, 0, s.length) for t, s in zip(targets, pair, strict=True)]
        assert equal(*(t.backend.download(v) for t, v in zip(targets, views, strict=True)))


@pytest.mark.parametrize(("kept", "kind"), [(64, "Q8_0"), (8, "F32")])
def test_many_steps(kept: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """kept: with few, graphs are dropped and made again all the time."""
    monkeypatch.setattr(graphs, "KEPT", kept)
    capture = RecordingCapture()
    backends: list[Any] = [ReferenceKernels(graphs=True, capture=capture), REFERENCE]
    settings: dict[str, Any] = {"kind": kind, "pattern": "gag", "features": (0, 2), "max_nodes": 5}
    targets = [tiny_target(b, slots=3, chunk=15, **settings) for b in backends]
    play(targets, 40, seed=kept)
    assert capture.graphs > 5


def test_prepared_steps_are_graphs_at_once() -> None:
    capture = RecordingCapture()
    backends: list[Any] = [ReferenceKernels(graphs=True, capture=capture), REFERENCE]
    targets = [tiny_target(b, pattern="ga", max_nodes=5, slots=1) for b in backends]
    targets[0].prepare_rows(range(1, 6))
    assert capture.graphs == 5
    sequences = [target.open() for target in targets]
    rng = np.random.default_rng(0)
    for size in range(1, 6):
        tree = random_tree(rng, size, VOCAB)
        found = [t.verify([(s, tree)]) for t, s in zip(targets, sequences, strict=True)]
        assert equal(*(t.backend.download(v.logits) for t, v in zip(targets, found, strict=True)))
    assert capture.graphs == 5
