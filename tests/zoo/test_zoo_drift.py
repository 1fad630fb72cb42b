"""The bug zoo: drift over many rounds, and a control (docs/bug-zoo.md). The long runs are
``benchmarks/soak.py``."""

from __future__ import annotations

import numpy as np
import pytest
from support.forests import paths_of, random_tree
from support.tiny import tiny_target
from zoo.zoo_driver import GREEDY, PROMPT, knowing, opened, state_differs, truth

from specla.engine import Request, Session
from specla.verification import SequentialVerifier

pytestmark = pytest.mark.usefixtures("backend_name")


def distance(found: np.ndarray, wanted: np.ndarray) -> int:
    """Units in the last place between two float32 arrays, at most. 0: the same bytes."""
    bits = [array.view(np.int32).astype(np.int64) for array in (found, wanted)]
    ordered = [np.where(b < 0, -(b & 0x7FFFFFFF), b) for b in bits]
    signs = bits[0] != bits[1]
    return int(np.where(signs, np.maximum(abs(ordered[0] - ordered[1]), 1), 0).max())


@pytest.mark.parametrize("acceptance", ["none", "any", "all"])
def test_sglang_28695_no_drift_over_many_rounds(acceptance: str) -> None:
    """sglang#28695: long outputs degenerated, for update vectors were computed from a reconstructed
    state and not from the exact one. A meter that reads the distance to plain decoding, and the
    durable state is never put right in between."""
    target = tiny_target(19, pattern="gg", context=1024, max_nodes=6)
    rng, fast, slow = np.random.default_rng(19), opened(target), opened(target)
    readings = []
    for i in range(80):
        tree = random_tree(rng, int(rng.integers(2, 7)))
        paths = paths_of(tree)
        path = {"none": (0,), "any": paths[int(rng.integers(len(paths)))]}.get(acceptance)
        path = max(paths, key=len) if path is None else path
        target.verify([(fast, tree)])
        target.commit(fast, path)
        for node in path:
            target.prefill([(slow, [tree.tokens[node]])])
        if i % 20 == 19:
            copy = target.fork(fast)
            found, wanted = target.state_arrays(copy), target.state_arrays(slow)
            readings.append([distance(found[n], wanted[n]) for n in ("state", "window")])
            target.close(copy)
    assert readings == [[0, 0]] * 4


def test_vllm_ddtree_11_a_control_that_cannot_be_wrong() -> None:
    """vllm-ddtree, section 11: include a control that can't be wrong. Its verify never has more
    than one row, so none of the above can touch it; and the meter is shown to move."""
    target = tiny_target(19, context=64, max_nodes=9)
    right = truth(target, 16)
    for verifier in (None, SequentialVerifier):
        chosen = {} if verifier is None else {"verifier": verifier}
        with Session(target, knowing(right, 1), PROMPT, **chosen) as session:  # type: ignore[arg-type]
            assert [e.token for e in session.generate(Request(16, GREEDY, budget=8))] == right
            assert state_differs(session, 16) == []
            assert (session.stats.rows == 16) is (verifier is SequentialVerifier)
    one = np.array([0.0, 1.0], np.float32)
    assert distance(one, one) == 0
    assert distance(one, np.nextafter(one, np.float32(2))) == 1
    assert distance(np.array([0.0], np.float32), np.array([-0.0], np.float32)) == 1
