"""Plans in one buffer: what kernels find there, and what pads them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.forests import forests
from support.plans import commit_plan, same, step_plan

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

import torch  # noqa: E402

from specla.backends.triton import plans, staging  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.backends.triton.plans import PackedPlans, padded_keys, padded_rows  # noqa: E402
from specla.core.plan import Place, StepPlan, build_plan  # noqa: E402
from specla.core.topology import Forest, Tree  # noqa: E402

pytestmark = MARKS


def packed(padded: bool, context: int = 5000) -> PackedPlans:
    return PackedPlans(TritonBackend(), context, padded=padded)


def on_host(plan: Any) -> Any:
    values = {f.name: getattr(plan, f.name) for f in fields(plan)}
    tensors = {k: v.numpy() for k, v in values.items() if isinstance(v, torch.Tensor)}
    return replace(plan, **tensors)


CASES = st.lists(st.tuples(forests(), st.integers(0, 3)), min_size=1, max_size=4)


@given(CASES)
def test_without_padding_they_are_what_was_planned(cases: list[tuple[Forest, int]]) -> None:
    buffers = packed(padded=False)
    for forest, layers in cases:
        plan = step_plan(forest, layers)
        assert same(on_host(buffers.upload(plan)), plan)
    commit = commit_plan((0, 2, 5), (0, 3))
    assert same(on_host(buffers.upload(commit)), commit)


@given(CASES)
def test_padded_plans_begin_as_planned_and_go_on_harmlessly(
    cases: list[tuple[Forest, int]],
) -> None:
    buffers = packed(padded=True)
    for forest, layers in cases:
        plan = step_plan(forest, layers)
        found = on_host(buffers.upload(plan))
        n, rows = plan.n_rows, padded_rows(plan.n_rows)
        assert (found.n_rows, found.n_sequences) == (rows, plan.n_sequences)
        for field in fields(StepPlan):
            wanted, got = getattr(plan, field.name), getattr(found, field.name)
            if isinstance(wanted, np.ndarray):
                assert np.array_equal(got[: len(wanted)], wanted), field.name
        for name in ("tokens", "sequence", "position", "kv_row", "path_start", "parent"):
            rest = getattr(found, name)[n:]
            assert len(rest) == rows - n
            assert (rest == (-1 if name == "parent" else 0)).all(), name
        assert found.counts.tolist() == plan.counts.tolist()


def test_steps_of_one_size_lie_in_one_place() -> None:
    """A graph finds its plan where it was; arrays and their rows begin at 16 bytes."""
    buffers = packed(padded=True)
    five = Tree.build([1, 2, 3, 4, 5], [-1, 0, 0, 2, 2])
    first = buffers.upload(step_plan(Forest((five,)), layers=3))
    second = buffers.upload(step_plan(Forest((Tree.chain([9] * 6),)), layers=3))
    other = buffers.upload(step_plan(Forest((Tree.chain([9] * 7),)), layers=3))
    for field in fields(StepPlan):
        one, two, third = (getattr(plan, field.name) for plan in (first, second, other))
        if isinstance(one, torch.Tensor):
            assert (one.data_ptr(), one.shape) == (two.data_ptr(), two.shape)
            assert one.data_ptr() != third.data_ptr()
            assert one.data_ptr() % 16 == 0
    assert all(row.data_ptr() % 16 == 0 for row in first.pending_state)
    assert first.tokens[:6].tolist() == [9] * 6


def test_sizes() -> None:
    assert [padded_rows(n) for n in (1, 5, 6, 22, 128, 129, 512)] == [1, 6, 6, 24, 128, 192, 512]
    assert [padded_keys(n, 5000) for n in (1, 1024, 1025, 4097, 5000)] == [
        *(1024, 1024, 2048),
        *(5000, 5000),
    ]
    assert padded_keys(100, 160) == 160
    plan = build_plan(Forest((Tree.lone(1),)), [Place(0, 1500, 0, (), ())])
    assert packed(padded=True).upload(plan).n_keys == 2048
    assert packed(padded=False).upload(plan).n_keys == 1501


def test_paths_longer_than_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many light chains far below the root: another buffer, and the old one stays good."""
    monkeypatch.setattr(plans, "_path_room", lambda rows, needed: max(rows, needed))
    buffers = packed(padded=True)
    deep = Tree.build(range(8), [-1, 0, 1, 2, 3, 3, 3, 3])
    plain = step_plan(Forest((Tree.chain(range(8)),)))
    first = buffers.upload(plain)
    plan = step_plan(Forest((deep,)))
    found = on_host(buffers.upload(plan))
    assert np.array_equal(found.paths[: len(plan.paths)], plan.paths)
    assert first.paths[:8].tolist() == plain.paths.tolist()


# -- copies that nobody waits for ------------------------------------------------------------------


def test_a_copy_has_read_its_source_when_it_returns() -> None:
    backend = TritonBackend()
    target = backend.zeros((3, 4), "int32")
    host = np.arange(8, dtype=np.int32).reshape(2, 4)
    view = backend.upload(host, into=target)
    host[:] = -1
    assert view.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]] and target[2].tolist() == [0] * 4
    large = np.ones(staging.MOST_BYTES // 4 + 1, dtype=np.float32)
    assert backend.upload(large, into=backend.zeros(large.shape)).sum() == len(large)


class Event:
    """Of a GPU that is slow: a copy is done when somebody has waited for it."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def record(self, stream: Any) -> None:
        self.log.append("record")

    def synchronize(self) -> None:
        self.log.append("wait")


def test_memory_is_used_again_only_when_its_copy_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: log.append("wait for all"))
    piece = staging._Piece(torch.device("cpu"))
    piece._done = Event(log)  # type: ignore[assignment]

    class Target:
        """What is copied to; the copy may be interrupted."""

        fails = False

        def copy_(self, source: Any, non_blocking: bool) -> None:
            assert non_blocking
            log.append("copy")
            if self.fails:
                raise KeyboardInterrupt

    target = Target()
    for _ in range(2):
        piece.copy(torch.zeros(4), target)
    assert log == ["wait", "copy", "record", "wait", "copy", "record"]
    log.clear()
    target.fails = True
    with pytest.raises(KeyboardInterrupt):
        piece.copy(torch.zeros(4), target)
    target.fails = False
    piece.copy(torch.zeros(4), target)
    assert log == ["wait", "copy", "wait for all", "copy", "record"]
