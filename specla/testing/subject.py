"""The adapter under test: how to make one, and the model on which it is tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from specla.adapters.base import Adapter, Needs, TargetInfo, create_adapter, parse_options
from specla.backends import create_backend
from specla.backends.base import Backend
from specla.binding import target_info
from specla.check import Trace, plain_decode
from specla.core.proposal import Outcome, Proposal, SequenceView
from specla.core.sampling import Sampler, SamplingParams
from specla.errors import OptionError
from specla.models.load import ModelFile, bundled_model, open_model
from specla.models.qwen35.target import Qwen35Target, TargetOptions
from specla.testing.errors import ConformanceError
from specla.testing.watch import Watch

Factory = type[Adapter] | Callable[[], Adapter] | str

SLOTS = 4
SAMPLING = {
    "greedy": SamplingParams(),
    "temperature 0.8": SamplingParams(temperature=0.8, seed=11),
}
PROMPTS = (
    "The big dog said hello. The big cat said hello. The big dog said",
    "Once upon a time, there was a little girl named Lily. She liked to",
    "Tom and Sam went to the park. Tom saw a red ball.",
)


class Watched(Adapter):
    """Passes every call on to ``inner`` under a watch.

    Proposals come back as tuples: an iterator that never ends is met here, on the clock.
    """

    def __init__(self, inner: Adapter, watch: Watch) -> None:
        super().__init__()
        self.inner, self.watch = inner, watch

    def needs(self) -> Needs:
        return self.watch.call("needs", self.inner.needs)

    def bind(self, target: TargetInfo) -> None:
        self.watch.call("bind", lambda: self.inner.bind(target))

    def open(self, view: SequenceView) -> None:
        self.watch.call("open", lambda: self.inner.open(view))

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        read: list[Proposal] = self.watch.call(
            "propose", lambda: _read(self.inner.propose(views), views)
        )
        self.watch.candidates += _candidates(read)
        return read

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self.watch.call("observe", lambda: self.inner.observe(views, outcomes))

    def close(self, view: SequenceView) -> None:
        self.watch.call("close", lambda: self.inner.close(view))


def _read(proposals: Any, views: Sequence[SequenceView]) -> Any:
    if not isinstance(proposals, (list, tuple)) or len(proposals) != len(views):
        return proposals
    return [_as_tuples(p, v.budget) for p, v in zip(proposals, views, strict=True)]


def _candidates(proposals: Any) -> int:
    if not isinstance(proposals, list):
        return 0
    return sum(len(p.tokens) for p in proposals if isinstance(getattr(p, "tokens", None), tuple))


def _as_tuples(proposal: Any, budget: int) -> Any:
    if not isinstance(proposal, Proposal):
        return proposal
    try:
        tokens = tuple(islice(proposal.tokens, budget + 1))
        parents = tuple(islice(proposal.parents, budget + 1))
    except TypeError:
        return proposal
    return Proposal(tokens, parents, _as_tuple(proposal.log_probs, budget))


def _as_tuple(log_probs: Any, budget: int) -> Any:
    # only what has a length is valid: anything else goes on as it is, to be refused
    return tuple(islice(log_probs, budget + 1)) if hasattr(log_probs, "__len__") else log_probs


@dataclass
class Subject:
    """name: for messages.  model, backend, prompts: what it is tried on.  tokens: how many are
    decoded at a time.  options: for an adapter given by name
    or class."""

    factory: Factory
    name: str
    model: ModelFile
    backend: Backend
    prompts: list[list[int]]
    tokens: int
    watch: Watch
    options: Mapping[str, str] | None = None
    figures: list[Any] = field(default_factory=list)
    _plain: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def three(self) -> list[list[int]]:
        """Three prompts: where fewer were given, others are cut from them."""
        texts = list(self.prompts)
        while len(texts) < 3:
            texts.append(texts[-1][: max(2, len(texts[-1]) - 3)])
        return texts[:3]

    def make(self) -> Any:
        """Whatever the factory returns."""
        if isinstance(self.factory, str):
            return create_adapter(self.factory, self.options)
        if isinstance(self.factory, type) and issubclass(self.factory, Adapter):
            return self.factory(parse_options(self.name, self.factory.Options, self.options or {}))
        return self.factory()

    def new(self) -> Watched:
        """One that has seen nothing yet."""
        return Watched(self.watch.call("the factory", self.make), self.watch)

    def bound(self) -> Watched:
        """One that knows its target."""
        adapter = self.new()
        adapter.bind(target_info(self.target, adapter.needs()))
        return adapter

    @cached_property
    def deterministic(self) -> bool:
        """Whether the adapter promises equal proposals for equal texts."""
        return bool(getattr(self.make(), "deterministic", True))

    @cached_property
    def needs(self) -> Needs:
        """What it declares."""
        needs = self.new().needs()
        if not isinstance(needs, Needs):
            raise ConformanceError(
                "protocol",
                expected="needs() to return specla.adapters.base.Needs",
                found=f"{type(needs).__name__}",
                remedy="Return Needs(...), or leave needs() out if nothing is needed.",
            )
        return needs

    @cached_property
    def target(self) -> Qwen35Target:
        """The model, with room for several sequences, in memory that starts as NaN."""
        options = TargetOptions(
            context=512,
            max_nodes=65,
            chunk=7,
            slots=SLOTS,
            features=self._layers(),
            poison=True,
        )
        return self.model.target(self.backend, options)

    def _layers(self) -> tuple[int, ...]:
        """Layers to capture: each once; a negative one counts from the end."""
        n = self.model.config.n_layers
        return tuple(dict.fromkeys(n + i if i < 0 else i for i in self.needs.features))

    def plain(self, prompt: Sequence[int], sampling: str, count: int) -> tuple[Trace, Any]:
        """Plain decoding of the same prompt; remembered."""
        key = (tuple(prompt), sampling, count)
        if key not in self._plain:
            sampler = Sampler(SAMPLING[sampling])
            self._plain[key] = plain_decode(self.target, prompt, count, sampler)
        found: tuple[Trace, Any] = self._plain[key]
        return found


def make_subject(
    factory: Factory,
    *,
    model: ModelFile | str | Path | None,
    backend: Backend | str,
    prompts: Sequence[str | Sequence[int]] | None,
    tokens: int,
    options: Mapping[str, str] | None,
    watch: Watch,
) -> Subject:
    """Resolve what ``check_adapter`` was given. Raises OptionError for what makes no sense."""
    opened = model if isinstance(model, ModelFile) else open_model(model or bundled_model())
    chosen = list(PROMPTS if prompts is None else prompts)
    encoded = [
        opened.tokenizer.encode(p, parse_special=False) if isinstance(p, str) else list(p)
        for p in chosen
    ]
    if not encoded or not all(2 <= len(p) <= 128 for p in encoded):
        raise OptionError("prompts must be one or more of 2 to 128 tokens each")
    if not 1 <= tokens <= 64:
        raise OptionError(f"tokens is {tokens}; it must be 1..64")
    if isinstance(factory, str):
        create_adapter(factory, options)  # a wrong name or option is the caller's mistake
    if isinstance(factory, (str, type)):
        name = factory if isinstance(factory, str) else factory.__name__
    else:
        name = type(watch.call("the factory", factory)).__name__
    made = create_backend(backend) if isinstance(backend, str) else backend
    return Subject(factory, name, opened, made, encoded, tokens, watch, options)
