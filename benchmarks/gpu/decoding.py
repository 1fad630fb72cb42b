"""A whole model: plain decoding, and speculation with a proposal that knows the text.

The model has the measured shape and random Q4_K_M weights. Everything is compared with plain
decoding first: tokens, logits and state of the first rounds in bytes, then the tokens of every
timed run. Plain and speculative runs alternate; speed-ups are medians of neighbouring runs' ratios.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np
from harness import Table, interleaved, median_ratio
from replay import Setting as ReplaySetting
from replay import settings as replay_settings

from gpu.launching import counted
from gpu.parts import Findings, Setting
from gpu.timing import shown
from specla.adapters.base import Adapter, create_adapter
from specla.adapters.replay import ReplayAdapter
from specla.backends.steps import StepRunner
from specla.check import MismatchError, Trace, compare, plain_decode
from specla.core.sampling import Sampler, SamplingParams
from specla.core.topology import Tree
from specla.engine import Request, Session
from specla.models.qwen35.target import Qwen35Target, TargetOptions
from specla.stats import GenerationStats

QUANTISATION = "Q4_K_M"


def decoding(setting: Setting, findings: Findings) -> None:
    """Make the model, then all settings."""
    from gpu.random_model import RandomBackend, random_weights

    sizes = setting.sizes
    length = sizes.tokens + max(sizes.trees) + 1
    room = TargetOptions(
        context=sizes.prompt + length + max(sizes.trees), max_nodes=max(sizes.trees), chunk=64
    )
    weights = random_weights(sizes.shape, QUANTISATION)
    target = Qwen35Target(weights, RandomBackend(setting.device), room)
    run = _Decoding(setting, findings, target, length)
    launches = {n: launches_per_step(target, n) for n in sorted({1, *sizes.trees})}
    findings.figures |= {"quantisation": QUANTISATION, "launches": launches}
    print(f"launches of a step by nodes, one by one: {launches}")
    run.check(create_adapter("none"), 0)
    columns = ("launches", "plain tok/s", "tok/s", "speed-up", "round, ms", "draft, ms")
    table = Table("accept length", "nodes", "form", *columns)
    for asked in replay_settings(list(sizes.accepts), list(sizes.trees)):
        if setting.clock.over:
            findings.left_out.append(f"accept length {asked.accept}, {asked.nodes} nodes")
            continue
        row = run.measure(asked)
        if row is not None:
            row["launches"] = launches.get(asked.nodes)
            findings.rows("replay").append(row)
            _print(table, row)
    plain = run.plain_seconds
    speed = sizes.tokens / statistics.median(plain) if plain else None
    findings.figures["plain_tokens_per_second"] = speed
    print(f"plain decoding, tokens/s: {shown(speed)}")


def _print(table: Table, row: dict[str, Any]) -> None:
    timed = ("plain_tokens_per_second", "tokens_per_second", "speed_up", "round", "draft")
    cells = [shown(row[name], 1e3 if name in ("round", "draft") else 1.0) for name in timed]
    accept = f"{row['accept_length']:.2f}"
    table.row(accept, f"{row['nodes']:.1f}", row["form"], row["launches"] or "-", *cells)


def launches_per_step(target: Qwen35Target, nodes: int) -> int:
    """Launches of one verify of a chain, made one by one: what a graph takes together."""
    sequence = target.open()
    recording, target._runner = target._runner, StepRunner()
    try:
        with counted() as count:
            target.verify([(sequence, Tree.chain(range(nodes)))])
        return count.launches
    finally:
        target._runner = recording
        target.close(sequence)


@dataclass(frozen=True)
class _Run:
    seconds: float
    tokens: list[int]
    stats: GenerationStats


class _Decoding:
    """A target, a prompt, and what plain decoding makes of it."""

    def __init__(
        self, setting: Setting, findings: Findings, target: Qwen35Target, length: int
    ) -> None:
        self.setting, self.findings, self.target = setting, findings, target
        self.length = length
        rng = np.random.default_rng(0)
        vocabulary = setting.sizes.shape.vocab_size
        self.prompt = [int(t) for t in rng.integers(0, vocabulary, setting.sizes.prompt)]
        sampler = Sampler(SamplingParams())
        self.truth, self.state = plain_decode(target, self.prompt, setting.sizes.checked, sampler)
        self.text = self.truth.tokens
        self.text = self._timed(create_adapter("none"), 0, length).tokens
        self.plain_seconds: list[float] = []

    def check(self, adapter: Adapter, budget: int) -> None:
        """Raise MismatchError unless the first tokens, their logits and the state are those of
        decoding without trees, banks and commits."""
        trace, target = Trace(), self.target
        with Session(target, adapter, self.prompt) as session:
            request = Request(
                len(self.truth.tokens),
                Sampler(SamplingParams()),
                budget=budget,
                on_logits=trace.on_logits,
            )
            trace.tokens = [event.token for event in session.generate(request)]
            state = target.state_arrays(session.sequence)
        compare(trace, self.truth, state, self.state, len(self.prompt))

    def measure(self, asked: ReplaySetting) -> dict[str, Any] | None:
        """Figures of one setting; None, and a problem, if it isn't plain decoding's text."""
        budget = asked.nodes - 1
        count = max(self.setting.sizes.tokens // asked.accept, 1) * asked.accept
        adapter = partial(ReplayAdapter.of, self.text, accept=asked.accept, branch=asked.branch)
        last: list[GenerationStats] = []

        def speculative() -> float:
            run = self._timed(adapter(), budget, count)
            last.append(run.stats)
            return run.seconds

        try:
            self.check(adapter(), budget)
            tasks = {
                "plain": lambda: self._timed(create_adapter("none"), 0, count).seconds,
                "speculative": speculative,
            }
            if not self.setting.rehearsal:
                interleaved(tasks, 1)  # graphs are captured, clocks are up
            times = interleaved(tasks, self.setting.sizes.runs)
        except MismatchError as error:
            self.findings.problem(f"{asked.nodes} nodes, {asked.name}: {error}")
            return None
        # for the median over all settings: seconds of `tokens` tokens
        scale = self.setting.sizes.tokens / count
        if not self.setting.rehearsal:
            self.plain_seconds += [seconds * scale for seconds in times["plain"]]
        return self._row(asked, count, last[-1], times)

    def _row(
        self,
        asked: ReplaySetting,
        count: int,
        stats: GenerationStats,
        times: dict[str, list[float]],
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "accept": asked.accept,
            "budget": asked.nodes - 1,
            "form": asked.name,
            "accept_length": stats.mean_accept_length,
            "nodes": stats.rows / stats.rounds,
        }
        figures: dict[str, float] = {
            "plain_tokens_per_second": count / statistics.median(times["plain"]),
            "tokens_per_second": count / statistics.median(times["speculative"]),
            "speed_up": median_ratio(times["plain"], times["speculative"]),
            "round": stats.step_seconds / stats.rounds,
            "draft": stats.seconds["draft"] / stats.rounds,
        }
        hidden = self.setting.rehearsal
        return row | {name: None if hidden else value for name, value in figures.items()}

    def _timed(self, adapter: Adapter, budget: int, count: int) -> _Run:
        """Decode the first ``count`` tokens; only whole rounds are timed (see replay.py).

        Raises MismatchError for a text that isn't plain decoding's.
        """
        request = Request(self.length, Sampler(SamplingParams()), budget=budget)
        with Session(self.target, adapter, self.prompt) as session:
            events: Any = session.generate(request)
            start = perf_counter()
            tokens = [event.token for event in islice(events, count)]
            events.close()  # commits the last round
            seconds = perf_counter() - start
        shared = min(len(self.text), len(tokens))
        if tokens[:shared] != self.text[:shared]:
            raise MismatchError("the tokens of a timed run differ from plain decoding's")
        return _Run(seconds, tokens, session.stats)
