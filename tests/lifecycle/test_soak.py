"""Hundreds of rounds of mixed acceptance over several sequences, compared in bytes every round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.chosen import reference
from support.forests import paths_of, random_tree
from support.setup import make_driver
from support.tiny import VOCAB, tiny_target

from specla.core.lifecycle import Phase
from specla.fuzz.lifecycle.driver import Driver
from specla.fuzz.lifecycle.texts import Failure, Text
from specla.fuzz.plain import difference
from specla.models.qwen35.target import Qwen35Target

pytestmark = pytest.mark.usefixtures("backend_name")

SETTINGS: list[tuple[int, int, dict[str, Any]]] = [
    (1, 70, {"kind": "Q8_0", "pattern": "gag", "kv": "f16", "features": (0, 2)}),
    (2, 70, {"kind": "F32", "pattern": "gga", "kv": "f32", "config": {"conv_width": 3}}),
    (3, 45, {"pattern": "gg", "max_nodes": 16, "config": {"conv_width": 2, "tied": False}}),
    (4, 25, {"pattern": "aa", "max_nodes": 6}),
]


def play(driver: Driver, rng: np.random.Generator, rounds: int) -> None:
    """Rounds as an engine plays them, and everything an engine might do in between."""
    context = driver.target.options.context
    for _ in range(rounds):
        while len(driver.texts) < 2:
            opened = driver.open()
            assert opened is not None
            # prompts around the page boundary of 64 are the interesting ones
            length = int(rng.choice([1, 2, 5, 30, 62, 63, 64, 65]))
            prompt = rng.integers(0, VOCAB, length).tolist()
            for piece in cut(rng, prompt, driver.target.options.chunk):
                driver.prefill([(opened, piece)])
        one_round(driver, rng)
        for text in list(driver.texts):
            between_rounds(driver, rng, text)
            driver.check_state(text)
            if len(text.tokens) > context - 20:
                driver.close(text)
        driver.plain.forget(keep=[t.tokens for t in driver.texts])


def cut(rng: np.random.Generator, tokens: list[int], chunk: int) -> list[tuple[int, ...]]:
    pieces = []
    while tokens:
        n = int(rng.integers(1, chunk + 1))
        pieces.append(tuple(tokens[:n]))
        tokens = tokens[n:]
    return pieces


def one_round(driver: Driver, rng: np.random.Generator) -> None:
    batch = [text for text in driver.texts if rng.random() < 0.8] or driver.texts[:1]
    items = [(text, grow(driver, rng)) for text in batch]
    assert driver.verify(items)
    if rng.random() < 0.1:
        items = [(text, grow(driver, rng)) for text in batch]
        assert driver.verify(items)
    accepted = []
    for text, tree in items:
        paths = paths_of(tree)
        choice = rng.random()
        if choice < 0.1:
            driver.discard(text)
        elif choice < 0.3:
            driver.commit(text, (0,))
        elif choice < 0.5:
            driver.commit(text, max(paths, key=len))
        else:
            accepted.append((text, paths[int(rng.integers(len(paths)))]))
    if accepted:
        driver.commit_all(accepted)


def grow(driver: Driver, rng: np.random.Generator) -> Any:
    nodes = int(rng.integers(1, driver.target.options.max_nodes + 1))
    return random_tree(rng, nodes, VOCAB, chainlike=float(rng.choice([0.0, 0.4, 0.9, 1.0])))


def between_rounds(driver: Driver, rng: np.random.Generator, text: Text) -> None:
    choice = rng.random()
    if choice < 0.08:
        driver.flush(text)
    elif choice < 0.14:
        driver.prefill([(text, tuple(rng.integers(0, VOCAB, 3).tolist()))])
    elif choice < 0.2:
        driver.fork(text)
    elif choice < 0.26 and not driver.saved:
        driver.snapshot(text)
    elif choice < 0.32 and driver.saved:
        driver.restore(text, driver.saved[0])
        driver.release(driver.saved[0])


@pytest.mark.parametrize(("seed", "rounds", "options"), SETTINGS)
def test_soak(seed: int, rounds: int, options: dict[str, Any]) -> None:
    driver = make_driver(seed, **options)
    play(driver, np.random.default_rng(seed), rounds)
    # what the oracle remembers is worth what a fresh sequence says of it
    judge = tiny_target(seed, backend=reference(), **(options | {"slots": 1}))
    for text in driver.texts:
        if text.phase is not Phase.VERIFIED:
            found = driver.target.state_arrays(text.sequence)
            assert difference(found, fresh(judge, text.tokens)) == ""
            break
    else:
        pytest.fail("no sequence was left to judge")
    driver.close_all()


def any_failure(rng: np.random.Generator) -> Failure:
    when = str(rng.choice(["before", "after", "wreck"]))
    if rng.random() < 0.3:
        return Failure(int(rng.integers(4)), when, ("conv_verify", "gdn_verify"))
    return Failure(int(rng.integers(70)), when)


def test_soak_with_failures() -> None:
    """A failure somewhere in every second round: between layers it costs nothing, inside a durable
    write it says so and a snapshot brings the sequence back."""
    rng = np.random.default_rng(5)
    driver = make_driver(6, pattern="gag")
    text = driver.open()
    assert text is not None
    driver.prefill([(text, (1, 2, 3))])
    broken = retried = 0
    for _ in range(80):
        saved = driver.snapshot(text)
        assert saved is not None
        failure = any_failure(rng)
        tree = grow(driver, rng)
        if not driver.verify([(text, tree)], failure):
            if text.broken:
                broken += 1
                driver.restore(text, saved)
            else:
                retried += 1
                driver.check_state(text)
            if rng.random() < 0.3:
                driver.flush(text)
            assert driver.verify([(text, tree)])
        paths = paths_of(tree)
        path = paths[int(rng.integers(len(paths)))]
        if not driver.commit(text, path, Failure(0, "wreck") if rng.random() < 0.1 else None):
            driver.restore(text, saved)
        driver.check_state(text)
        driver.release(saved)
        if len(text.tokens) > 140:
            driver.close(text)
            text = driver.open()
            assert text is not None
        driver.plain.forget(keep=[text.tokens])
    assert broken >= 5 and retried >= 20, "the failures must strike both inside and between writes"
    driver.close_all()


def fresh(target: Qwen35Target, tokens: tuple[int, ...]) -> dict[str, np.ndarray]:
    """State arrays of a new sequence that prefilled ``tokens`` one by one, without any memory."""
    sequence = target.open()
    for token in tokens:
        target.prefill([(sequence, (token,))])
    arrays = target.state_arrays(sequence)
    target.close(sequence)
    return arrays
