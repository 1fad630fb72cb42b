"""One soak: rounds of the engine, and after each all state is compared with plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from time import monotonic

from soak_plain import Digests, PlainText, state_digests
from soak_proposals import REGIMES, SoakAdapter
from soak_result import JUDGED_FROM, Result, resident_bytes

from specla.adapters.base import Adapter, create_adapter
from specla.check import Trace
from specla.core.acceptance import cut
from specla.core.sampling import Sampler, SamplingParams
from specla.core.topology import Tree
from specla.engine import Request, Session
from specla.models.qwen35.target import Qwen35Target, TargetOptions
from specla.testing.alarm import DriftAlarm
from specla.verification import TreeVerifier

SAMPLERS = (
    SamplingParams(),
    SamplingParams(temperature=0.8, top_k=40, top_p=0.95),
    SamplingParams(),
    SamplingParams(temperature=1.0, repetition_penalty=1.1, min_p=0.02),
)
"""By sequence: greedy, from the best logits, greedy, from all logits."""

SAMPLE_EVERY = 500
"""Rounds from one look at the memory to the next."""

AfterRound = Callable[[Tree, tuple[int, ...]], None]
"""Told the tree of a round and the path that was committed."""


@dataclass(frozen=True)
class Settings:
    """What to soak and how long. rounds: of each regime."""

    rounds: int = 10_000
    context: int = 192
    max_nodes: int = 12
    seed: int = 0
    keep_going: int = 0

    def options(self, features: tuple[int, ...]) -> TargetOptions:
        """Room for a sequence and the copy of it that is compared; prefills in odd pieces."""
        return TargetOptions(self.context, self.max_nodes, 48, slots=2, features=features)


@dataclass
class Targets:
    """speculative, plain: two targets of one backend.  reference: of the reference backend."""

    speculative: Qwen35Target
    plain: Qwen35Target
    reference: Qwen35Target


def watched(after: AfterRound) -> type[TreeVerifier]:
    """The engine's own verifier, which then tells somebody of each round."""

    class Watched(TreeVerifier):
        def settle(self, count: int) -> None:
            super().settle(count)
            if count:
                after(self._tree, cut(self._accepted, self._tree, count).path)

    return Watched


class Soak:
    """Rounds of one regime on one pair of targets. texts: token ids that prompts are cut from.

    regime: one of REGIMES, or else the expression of an adapter, which then proposes.
    on_progress: told a line now and then.
    """

    def __init__(
        self,
        targets: Targets,
        regime: str,
        settings: Settings,
        texts: Sequence[int],
        on_progress: Callable[[str], None],
    ) -> None:
        self._targets, self._regime, self._settings = targets, regime, settings
        self._texts, self._on_progress = texts, on_progress
        name = targets.speculative.backend.name
        self.alarm = DriftAlarm(f"{name}, {regime}", settings.keep_going)
        self.result = Result(name, regime, self.alarm)
        self._warm = max(1, min(settings.rounds // 2, 1000))
        self._done = False

    def run(self) -> Result:
        """All rounds, or as far as the alarm lets them go."""
        start = monotonic()
        if self._settings.rounds >= JUDGED_FROM:
            _fill_caches(self._targets.speculative)
        for number in count():
            self._sequence(number)
            self.result.seconds = monotonic() - start
            if self._done:
                return self.result
        raise AssertionError("unreachable")

    def _sequence(self, number: int) -> None:
        """One prompt, decoded until the context is full."""
        # a string seeds all bits, and alike everywhere
        rng = Random(f"{self._settings.seed} {self._regime} {number}")
        vocab = self._targets.plain.config.vocab_size
        prompt = self._prompt(rng, vocab)
        sampler = Sampler(replace(SAMPLERS[number % len(SAMPLERS)], seed=number))
        plain = PlainText(self._targets.plain, prompt, sampler)
        adapter: Adapter
        if self._regime in REGIMES:
            adapter = SoakAdapter(plain, self._regime, rng, vocab)
        else:
            adapter = create_adapter(self._regime)
        try:
            self._decode(number, prompt, sampler, plain, adapter)
            names = plain.differing(self._targets.reference)
        finally:
            plain.close()
        self.result.sequences += 1
        if names:
            self._done = True
            self.result.reference_differs = [f"sequence {number}", *names]

    def _prompt(self, rng: Random, vocab: int) -> list[int]:
        """Any length up to half of the context, often next to the end of a page; one in four is
        no text at all."""
        most = self._settings.context // 2
        edges = [n for n in (1, 2, 63, 64, 65, 66, 127, 128, 129) if n <= most]
        length = rng.choice(edges) if rng.random() < 0.5 else rng.randint(1, most)
        if rng.random() < 0.25:
            return [rng.randrange(vocab) for _ in range(length)]
        start = rng.randrange(max(1, len(self._texts) - length))
        return list(self._texts[start : start + length])

    def _decode(
        self,
        number: int,
        prompt: list[int],
        sampler: Sampler,
        plain: PlainText,
        adapter: Adapter,
    ) -> None:
        trace, tokens = Trace(), list(prompt)

        def after(tree: Tree, path: tuple[int, ...]) -> None:
            names = self._compare(session, plain, tokens, len(path), trace)
            if isinstance(adapter, SoakAdapter):
                names += _unexpected(adapter, path)
            where = f"sequence {number}, position {len(tokens) - 1}"
            self._count(tree, path)
            if not self.alarm.told(len(path), names, where):
                self._done = True
            if self.result.rounds == self._settings.rounds:
                self._done = True
            if self._done:
                session.cancel()

        session = Session(
            self._targets.speculative, adapter, prompt, verifier=watched(after), adapter_name="soak"
        )
        with session:
            limit = self._settings.context + 1 - len(prompt)
            budget = self._settings.max_nodes - 1
            request = Request(limit, sampler, budget=budget, on_logits=trace.on_logits)
            for event in session.generate(request):
                tokens.append(event.token)

    def _compare(
        self,
        session: Session,
        plain: PlainText,
        tokens: list[int],
        committed: int,
        trace: Trace,
    ) -> list[str]:
        """Names of whatever the round left otherwise than plain decoding has it."""
        names = []
        for position in range(len(tokens) - committed, len(tokens)):
            self.result.digest.update(plain.logits(position))
            if trace.digests.pop(position) != plain.logits(position):
                names.append(f"logits at position {position}")
            if tokens[position] != plain.token(position):
                names.append(f"token at position {position}")
                # what comes after it is compared with plain decoding of the same tokens
                plain.follow(tokens[: position + 1])
        if session.stats.refused or session.stats.adapter_errors:
            reason = session.stats.refusal or session.stats.adapter_error
            raise RuntimeError(f"the adapter of the soak failed: {reason}")
        found, wanted = self._copied(session), plain.state(len(tokens) - 1)
        names += [name for name, digest in wanted.items() if found[name] != digest]
        for digest in wanted.values():
            self.result.digest.update(digest)
        self.result.states += 1
        self.result.logits += committed
        return names

    def _copied(self, session: Session) -> Digests:
        """Of a copy, which may be flushed: the sequence itself keeps its pending factors."""
        target = self._targets.speculative
        twin = target.fork(session.sequence)
        try:
            return state_digests(target, twin)
        finally:
            target.close(twin)

    def _count(self, tree: Tree, path: tuple[int, ...]) -> None:
        result = self.result
        result.rounds += 1
        result.tokens += len(path)
        result.accept_lengths[len(path)] += 1
        result.nodes += len(tree)
        result.chains += max(tree.depths) == len(tree) - 1
        result.gathers += path != tuple(range(len(path)))
        if result.rounds >= self._warm and self._is_sample(result.rounds):
            self._look_at_memory()

    def _is_sample(self, rounds: int) -> bool:
        return rounds in (self._warm, self._settings.rounds) or rounds % SAMPLE_EVERY == 0

    def _look_at_memory(self) -> None:
        result = self.result
        size = resident_bytes()
        if size is not None:
            result.memory.append((result.rounds, size))
        self._on_progress(
            f"{result.backend}, {result.regime}: round {result.rounds} of {self._settings.rounds}, "
            f"sequence {result.sequences}, accept length {result.mean_accept_length:.2f}, "
            f"{self.alarm.differing} rounds differ, {(size or 0) / 2**20:.1f} MiB"
        )


def _fill_caches(target: Qwen35Target) -> None:
    """One step of every size that can occur: a backend may keep something for each size, which
    would look like a leak where a size is first seen late."""
    options = target.options
    for n in range(1, 1 + min(options.context, max(options.chunk, options.max_nodes))):
        sequence = target.open()
        if n <= options.max_nodes:
            target.verify([(sequence, Tree.chain([0] * n))])
            target.discard(sequence)
        if n <= options.chunk:
            target.prefill([(sequence, [0] * n)])
        target.close(sequence)


def _unexpected(adapter: SoakAdapter, path: tuple[int, ...]) -> list[str]:
    """What the target agreed with, if that is not what the adapter knows to be right."""
    wanted = (0, *(candidate + 1 for candidate in adapter.accepted))
    adapter.forget()  # without room for candidates nobody will ask it
    return [] if path == wanted else [f"accepted path {path} instead of {wanted}"]
