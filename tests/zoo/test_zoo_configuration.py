"""The bug zoo: configuration, gates, and what a step costs (docs/bug-zoo.md)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any

import numpy as np
import pytest
from support.chosen import chosen_backend
from support.tiny import tiny_target
from zoo.zoo_driver import GREEDY, PROMPT, SAMPLED, knowing, truth

from specla.adapters.adaptive.adapter import AdaptiveAdapter, AdaptiveOptions
from specla.adapters.autoregressive import AutoregressiveAdapter
from specla.adapters.base import Needs, TargetInfo, parse_options
from specla.adapters.ddtree import DdtreeOptions
from specla.adapters.none import NoneAdapter
from specla.backends.options import BackendOptions
from specla.backends.plans import PlanBuffers
from specla.binding import target_info
from specla.core.plan import Place, build_plan
from specla.core.proposal import SequenceView
from specla.core.topology import Forest, Tree
from specla.engine import Request, Session
from specla.errors import OptionError
from specla.models.draft_target import DraftGuess
from specla.models.qwen35.target import Qwen35Target, TargetOptions
from specla.verification import SequentialVerifier, TreeVerifier

pytestmark = pytest.mark.usefixtures("backend_name")


def test_lucebox_692_a_refused_option_leaves_nothing_behind() -> None:
    """lucebox#692: a hidden tau stayed after a refusal, for defaults were applied before the
    request was admitted. Here a configuration is a value, made once or not at all."""
    plain = parse_options("ddtree", DdtreeOptions, {"draft": "x"})
    with pytest.raises(OptionError, match="top_k"):
        parse_options("ddtree", DdtreeOptions, {"draft": "x", "tau": "1.5", "top_k": "0"})
    with pytest.raises(OptionError, match="no option"):
        parse_options("ddtree", DdtreeOptions, {"draft": "x", "tau": "2.5", "taus": "1"})
    assert parse_options("ddtree", DdtreeOptions, {"draft": "x"}) == plain == DdtreeOptions("x")
    for value in (plain, TargetOptions(), Request(1, GREEDY), GREEDY.params, BackendOptions(1)):
        with pytest.raises(FrozenInstanceError):
            setattr(value, fields(value)[0].name, 1)


def test_lucebox_settings_are_no_property_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """lucebox: switches were read from the environment once per process, so that there was one mode
    per process. Here they are read when something is made, and requests carry their own."""
    for threads in (1, 3, 2):
        monkeypatch.setenv("SPECLA_THREADS", str(threads))
        assert BackendOptions.resolve() == BackendOptions(threads)
    target = tiny_target(18, context=64, max_nodes=9)
    settings: list[tuple[Any, Any, int]] = [
        (GREEDY, TreeVerifier, 8),
        (SAMPLED, SequentialVerifier, 3),
        (GREEDY, TreeVerifier, 0),
    ]
    texts = [truth(target, 10, sampler) for sampler, _, _ in settings]
    sessions = [
        Session(target, knowing(text, 1), PROMPT, verifier=verifier)
        for text, (_, verifier, _) in zip(texts[:2], settings[:2], strict=True)
    ]
    running = [
        session.generate(Request(10, sampler, budget=budget))
        for session, (sampler, _, budget) in zip(sessions, settings, strict=False)
    ]
    found = list(zip(*running, strict=True))
    for i, session in enumerate(sessions):
        assert [events[i].token for events in found] == texts[i]
        session.close()
    assert sessions[0].stats.rows > sessions[0].stats.rounds
    assert sessions[1].stats.rows == 10


class _Draft:
    def open(self, key: int) -> None: ...
    def close(self, key: int) -> None: ...


@dataclass(frozen=True)
class _Options:
    depth: int = 6
    p_min: float = 0.0


class _Doubtful(AutoregressiveAdapter[Any]):
    """Knows the text, and says of each further token that it is less sure."""

    name = "doubtful"

    def __init__(self, right: list[int], p_min: float) -> None:
        super().__init__(_Options(p_min=p_min))
        self.right = right

    def needs(self) -> Needs:
        return Needs(parts=True)

    def load(self, target: TargetInfo, parts: Any) -> Any:
        return _Draft()

    def guesses(self, view: SequenceView, depth: int) -> Generator[Any, None, None]:
        done = len(view.tokens) - view.prompt_length
        for i, token in enumerate(self.right[done : done + depth]):
            yield DraftGuess(token, -0.3 * (i + 1))


def test_sglang_30204_a_confidence_gate_shrinks_what_is_verified() -> None:
    """sglang#30204: a confidence gate saved nothing, for it was applied after the verify."""
    target = tiny_target(18, context=96, max_nodes=9)
    right, rows = truth(target, 32), {}
    for p_min in (0.0, 0.5, 0.7, 1.0):
        with Session(target, _Doubtful(right, p_min), PROMPT) as session:
            assert [e.token for e in session.generate(Request(21, GREEDY))] == right[:21]
            rows[p_min] = session.stats.rows / session.stats.rounds
            assert session.stats.refused == 0
    # exp(-0.3 i): six candidates, two, one, none, and the root
    assert rows == {0.0: 7.0, 0.5: 3.0, 0.7: 21 / 11, 1.0: 1.0}


def test_lucebox_a_gate_measures_the_model_that_it_has() -> None:
    """lucebox#626: a gate had one model's signature written into it, its score was frozen at the
    first draft, and its costs were profiled on made-up inputs. Here all of it is measured in the
    running text, and forgotten with the target."""
    first, second = tiny_target(18, slots=1), tiny_target(18, pattern="ga", slots=1)
    adapter = AdaptiveAdapter(AdaptiveOptions(), [NoneAdapter()])
    with Session(first, adapter, PROMPT) as session:
        list(session.generate(Request(6, GREEDY)))
    assert adapter.report()["step_ms_by_rows"] and any(adapter.report()["rounds"].values())
    adapter.bind(target_info(second, adapter.needs()))
    assert not adapter.report()["step_ms_by_rows"]
    assert not any(adapter.report()["rounds"].values())


class _Counting:
    """A backend that counts what it allocates."""

    def __init__(self) -> None:
        self.inner: Any = chosen_backend()
        self.allocated = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def empty(self, *arguments: Any, **keywords: Any) -> Any:
        self.allocated += 1
        return self.inner.empty(*arguments, **keywords)

    def plan_buffers(self, context: int) -> PlanBuffers:
        backend: Any = self
        return PlanBuffers(backend)


def test_lucebox_a_step_allocates_nothing() -> None:
    """lucebox: the graph of a tree was built anew each step, in a fresh arena of 512 MiB."""
    backend = _Counting()
    target: Qwen35Target = tiny_target(18, backend=backend, context=96, max_nodes=9)
    right = truth(target, 60)
    with Session(target, knowing(right, 1), PROMPT) as session:
        list(session.generate(Request(20, GREEDY, budget=8)))
        before = backend.allocated
        assert before
        list(session.generate(Request(30, GREEDY, budget=8)))
        assert backend.allocated == before


def test_lucebox_no_mask_grows_with_the_context() -> None:
    """The same finding: a mask as wide as the context was made on the host and uploaded each step.
    A plan has the same size wherever a sequence stands."""
    tree = Tree.build(range(9), [-1, 0, 0, 1, 1, 2, 3, 3, 6])
    sizes = []
    for committed in (0, 100_000):
        plan = build_plan(Forest((tree,)), [Place(0, committed, 0, (3,), (3,))])
        sizes.append({f.name: np.size(getattr(plan, f.name)) for f in fields(plan)})
    assert sizes[0] == sizes[1]
    assert sum(sizes[0].values()) < 200
