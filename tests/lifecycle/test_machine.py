"""Any order of operations, legal or not, with failures between and inside layers."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.chosen import computing_on
from support.forests import paths_of, random_tree
from support.setup import make_driver
from support.tiny import VOCAB

from specla.core.lifecycle import Phase
from specla.core.topology import Tree
from specla.fuzz.lifecycle.driver import Driver, Failure, Saved, Text

LONGEST = 140  # of a context of 160
seeds = st.integers(0, 2**32 - 1)
failures = st.one_of(
    st.none(),
    st.builds(
        Failure,
        st.one_of(st.integers(0, 70), st.integers(0, 3)),
        st.sampled_from(["before", "after", "wreck"]),
        st.sampled_from([("conv_verify", "gdn_verify"), ("fold_state", "fold_window")])
        | st.just(Failure(0).names),
    ),
)


class Lifecycle(RuleBasedStateMachine):
    """All sequences of one target; the driver checks each step against plain decoding."""

    driver: Driver
    backend = "numpy"

    @initialize(pattern=st.sampled_from(["gag", "gga"]), kind=st.sampled_from(["F32", "Q8_0"]))
    def start(self, pattern: str, kind: str) -> None:
        with computing_on(self.backend):
            self.driver = make_driver(7, pattern=pattern, kind=kind, features=(0,))
        self.driver.open()

    def text(self, data: st.DataObject) -> Text:
        return data.draw(st.sampled_from(self.driver.texts))

    def batch(self, data: st.DataObject) -> list[Text]:
        some = st.lists(st.sampled_from(self.driver.texts), min_size=1, unique_by=id)
        return [t for t in data.draw(some) if len(t.tokens) < LONGEST]

    def saved(self, data: st.DataObject) -> Saved:
        return data.draw(st.sampled_from(self.driver.saved))

    @rule()
    def open(self) -> None:
        self.driver.open()

    @precondition(lambda self: self.driver.texts)
    @rule(data=st.data(), seed=seeds, length=st.integers(1, 16), failure=failures)
    def prefill(self, data: st.DataObject, seed: int, length: int, failure: Failure) -> None:
        rng = np.random.default_rng(seed)
        batch = self.batch(data)
        # chunk is 16 for all together
        shares = [(t, rng.integers(0, VOCAB, max(length // len(batch), 1))) for t in batch]
        if batch:
            self.driver.prefill([(t, tuple(ids.tolist())) for t, ids in shares], failure)

    @precondition(lambda self: any(t.phase is not Phase.VERIFIED for t in self.driver.texts))
    @rule(data=st.data(), failure=failures, seed=seeds)
    def verify(self, data: st.DataObject, failure: Failure | None, seed: int) -> None:
        rng = np.random.default_rng(seed)
        batch = self.batch(data)
        if batch:
            self.driver.verify([(t, self.tree(rng)) for t in batch], failure)

    def tree(self, rng: np.random.Generator) -> Tree:
        return random_tree(rng, int(rng.integers(1, 10)), VOCAB, chainlike=rng.choice([0, 0.5, 1]))

    @precondition(lambda self: any(t.tree for t in self.driver.texts))
    @rule(data=st.data(), kind=st.sampled_from(["root", "longest", "any"]), failure=failures)
    def commit(self, data: st.DataObject, kind: str, failure: Failure | None) -> None:
        text = data.draw(st.sampled_from([t for t in self.driver.texts if t.tree]))
        assert text.tree is not None
        paths = paths_of(text.tree)
        path = (0,) if kind == "root" else max(paths, key=len)
        if kind == "any":
            path = data.draw(st.sampled_from(paths))
        self.driver.commit(text, path, failure)

    @precondition(lambda self: self.driver.texts)
    @rule(data=st.data(), seed=seeds, check=st.booleans())
    def one_round(self, data: st.DataObject, seed: int, check: bool) -> None:
        """As an engine does it: verify, then accept some path."""
        rng = np.random.default_rng(seed)
        batch = [t for t in self.batch(data) if not t.broken]
        if not batch:
            return
        self.driver.verify([(t, self.tree(rng)) for t in batch])
        accepted = []
        for text in batch:
            assert text.tree is not None
            paths = paths_of(text.tree)
            accepted.append((text, paths[int(rng.integers(len(paths)))]))
        self.driver.commit_all(accepted)
        for text in batch if check else ():
            self.driver.check_state(text)

    @precondition(lambda self: any(t.tree for t in self.driver.texts))
    @rule(data=st.data(), seed=seeds)
    def verify_again(self, data: st.DataObject, seed: int) -> None:
        text = data.draw(st.sampled_from([t for t in self.driver.texts if t.tree]))
        self.driver.verify([(text, self.tree(np.random.default_rng(seed)))])

    @precondition(lambda self: self.driver.texts)
    @rule(data=st.data())
    def commit_at_any_time(self, data: st.DataObject) -> None:
        self.driver.commit(self.text(data), (0,))

    @precondition(lambda self: self.driver.texts)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        self.driver.discard(self.text(data))

    @precondition(lambda self: self.driver.texts)
    @rule(data=st.data(), failure=failures)
    def flush(self, data: st.DataObject, failure: Failure | None) -> None:
        self.driver.flush(self.text(data), failure)

    @precondition(lambda self: self.driver.texts)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        self.driver.fork(self.text(data))

    @precondition(lambda self: self.driver.texts and len(self.driver.saved) < 2)
    @rule(data=st.data())
    def snapshot(self, data: st.DataObject) -> None:
        self.driver.snapshot(self.text(data))

    @precondition(lambda self: self.driver.texts and self.driver.saved)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        # into any sequence: its own, another one, a broken one
        self.driver.restore(self.text(data), self.saved(data))

    @precondition(lambda self: self.driver.saved)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.driver.release(self.saved(data))

    @precondition(lambda self: self.driver.texts)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        self.driver.close(self.text(data))

    @precondition(lambda self: self.driver.texts)
    @rule(data=st.data())
    def check(self, data: st.DataObject) -> None:
        self.driver.check_state(self.text(data))

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            for text in self.driver.texts:
                if text.phase in (Phase.CLEAN, Phase.PENDING):
                    self.driver.check_state(text)
            self.driver.close_all()


class CompiledLifecycle(Lifecycle):
    """The same on the compiled backend, against plain decoding on the reference."""

    backend = "numba"


SETTINGS = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = SETTINGS
TestCompiledLifecycle = CompiledLifecycle.TestCase
TestCompiledLifecycle.settings = settings(SETTINGS, max_examples=10)
