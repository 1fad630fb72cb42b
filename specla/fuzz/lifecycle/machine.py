"""Any order of operations, legal or not, with failures between and inside layers."""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from specla.fuzz.kernels.tables import Shapes
from specla.fuzz.lifecycle import operations as op
from specla.fuzz.lifecycle.draws import batches, failures, numbers, tokens
from specla.fuzz.lifecycle.driver import Driver
from specla.fuzz.lifecycle.setups import BundledSetup, KernelSetup, TinySetup
from specla.fuzz.machine import FuzzMachine
from specla.fuzz.tiny import VOCAB


def _some(machine: Any) -> bool:
    return bool(machine.world.texts)


def _undecided(machine: Any) -> bool:
    return any(text.tree is not None for text in machine.world.texts)


class Lifecycle(FuzzMachine):
    """All sequences of one target; the driver checks each step against plain decoding."""

    world: Driver
    operations = op.OPERATIONS
    vocab: ClassVar[int] = VOCAB

    def failure(self, data: st.DataObject) -> Any:
        return data.draw(failures(self.world.backend is not None), label="failure")

    def batch(self, data: st.DataObject) -> Any:
        most = self.world.target.options.max_nodes
        return data.draw(batches(self.vocab, most), label="trees")

    @rule(data=st.data())
    def open(self, data: st.DataObject) -> None:
        self.play(op.Open(self.failure(data)))

    @precondition(_some)
    @rule(text=numbers)
    def close(self, text: int) -> None:
        self.play(op.Close(text))

    @precondition(_some)
    @rule(data=st.data())
    def prefill(self, data: st.DataObject) -> None:
        share = st.tuples(numbers, tokens(self.vocab, 16))
        shares = data.draw(st.lists(share, min_size=1, max_size=2))
        self.play(op.Prefill(tuple(shares), self.failure(data)))

    @precondition(_some)
    @rule(data=st.data())
    def verify(self, data: st.DataObject) -> None:
        self.play(op.Verify(self.batch(data), self.failure(data)))

    @precondition(_undecided)
    @rule(data=st.data())
    def verify_again(self, data: st.DataObject) -> None:
        self.play(op.Verify(self.batch(data), self.failure(data)))

    @precondition(_undecided)
    @rule(data=st.data(), end=st.integers(0, 8))
    def commit(self, data: st.DataObject, end: int) -> None:
        texts = self.world.texts
        undecided = [i for i, text in enumerate(texts) if text.tree is not None]
        text = data.draw(st.sampled_from(undecided))
        self.play(op.Commit(text, end, self.failure(data)))

    @precondition(_some)
    @rule(text=numbers, end=st.integers(0, 8))
    def commit_at_any_time(self, text: int, end: int) -> None:
        self.play(op.Commit(text, end))

    @precondition(_some)
    @rule(text=numbers, path=st.lists(st.integers(-1, 9), max_size=4))
    def commit_nonsense(self, text: int, path: list[int]) -> None:
        self.play(op.CommitNonsense(text, tuple(path)))

    @precondition(_some)
    @rule(data=st.data(), ends=st.lists(st.integers(0, 8), min_size=1, max_size=3))
    def round(self, data: st.DataObject, ends: list[int]) -> None:
        self.play(op.Round(self.batch(data), tuple(ends), data.draw(st.booleans())))

    @precondition(_some)
    @rule(data=st.data(), ends=st.lists(st.integers(0, 8), min_size=1, max_size=3))
    def another_round(self, data: st.DataObject, ends: list[int]) -> None:
        # what engines do most of the time: two rules make it twice as likely
        self.play(op.Round(self.batch(data), tuple(ends)))

    @precondition(_some)
    @rule(text=numbers, data=st.data())
    def plain_steps(self, text: int, data: st.DataObject) -> None:
        self.play(op.PlainSteps(text, data.draw(tokens(self.vocab, 3))))

    @precondition(_some)
    @rule(text=numbers)
    def discard(self, text: int) -> None:
        self.play(op.Discard(text))

    @precondition(_some)
    @rule(text=numbers, data=st.data())
    def flush(self, text: int, data: st.DataObject) -> None:
        self.play(op.Flush(text, self.failure(data)))

    @precondition(_some)
    @rule(text=numbers, data=st.data())
    def fork(self, text: int, data: st.DataObject) -> None:
        self.play(op.Fork(text, self.failure(data)))

    @precondition(_some)
    @rule(text=numbers, data=st.data())
    def snapshot(self, text: int, data: st.DataObject) -> None:
        self.play(op.Snapshot(text, self.failure(data)))

    @precondition(lambda self: self.world.texts and self.world.saved)
    @rule(text=numbers, saved=numbers, data=st.data())
    def restore(self, text: int, saved: int, data: st.DataObject) -> None:
        self.play(op.Restore(text, saved, self.failure(data)))

    @precondition(lambda self: self.world.saved)
    @rule(saved=numbers)
    def release(self, saved: int) -> None:
        self.play(op.Release(saved))

    @precondition(_some)
    @rule(text=numbers)
    def check(self, text: int) -> None:
        self.play(op.Check(text))

    def begin_with(self, setup: Any) -> None:
        self.begin(setup)
        self.play(op.Open())


shapes = st.builds(
    Shapes,
    pattern=st.sampled_from(["gag", "ga", "gga", "ag"]),
    key_heads=st.sampled_from([1, 2]),
    value_heads=st.sampled_from([2, 4]),
    key_dim=st.sampled_from([5, 8, 32]),
    value_dim=st.sampled_from([4, 8, 32]),
    kv_heads=st.sampled_from([1, 2]),
    conv_width=st.sampled_from([4, 2, 3, 5]),
)


class KernelLifecycle(Lifecycle):
    """On layers over tables."""

    @initialize(
        shapes=shapes,
        seed=st.integers(0, 3),
        failing=st.booleans(),
        threads=st.sampled_from([1, 2]),
        kv=st.sampled_from(["f16", "f32"]),
        slots=st.integers(2, 4),
    )
    def start(
        self, shapes: Shapes, seed: int, failing: bool, threads: int, kv: str, slots: int
    ) -> None:
        self.begin_with(KernelSetup(seed, shapes, failing, threads, kv, slots))


class TinyLifecycle(Lifecycle):
    """On a tiny random model."""

    @initialize(
        seed=st.integers(0, 1),
        pattern=st.sampled_from(["gag", "gga"]),
        kind=st.sampled_from(["F32", "Q8_0"]),
        failing=st.booleans(),
        threads=st.sampled_from([1, 2]),
        kv=st.sampled_from(["f16", "f32"]),
    )
    def start(
        self, seed: int, pattern: str, kind: str, failing: bool, threads: int, kv: str
    ) -> None:
        self.begin_with(TinySetup(seed, pattern, kind, failing, threads, kv))


class BundledLifecycle(Lifecycle):
    """On the bundled model."""

    vocab = 2000

    @initialize(failing=st.booleans(), threads=st.sampled_from([1, 2]))
    def start(self, failing: bool, threads: int) -> None:
        self.begin_with(BundledSetup(failing, threads))
