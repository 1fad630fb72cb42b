"""Adapters made of adapters: what each inner one needs, sees and is told.

An inner adapter can't tell that it is one: it gets its own layers, its own numbering, and what
became of its own proposals. An expression such as ``adaptive(fallback(suffix, ngram))`` names the
parts (expression.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, islice
from operator import lt
from typing import Any, ClassVar

from specla.adapters.base import Adapter, Needs, TargetInfo
from specla.core.proposal import Outcome, Proposal, SequenceView, to_tree
from specla.core.topology import MAX_TOKEN
from specla.errors import OptionError, ProposalError, SpeclaError


class Combinator(Adapter):
    """Base class of adapters that are made of others.

    inner: the others, in the order given.  names: what messages call them, their classes' names
    unless given.  A subclass sets ``arity`` and writes ``propose`` and ``observe`` with the
    :class:`Part` of each inner adapter, ``self.parts``; the other hooks are forwarded here.

    Raises OptionError for a number of inner adapters that ``arity`` rules out.
    """

    arity: ClassVar[tuple[int, int | None]] = (1, None)
    """Fewest and most inner adapters; None for any number."""

    def __init__(
        self,
        options: Any = None,
        inner: Sequence[Adapter] = (),
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(options)
        check_arity(type(self).__name__, type(self), len(inner))
        self.inner: tuple[Adapter, ...] = tuple(inner)
        called = names if names is not None else [type(adapter).__name__ for adapter in inner]
        self.parts = tuple(Part(a, name) for a, name in zip(self.inner, called, strict=True))
        if not all(adapter.deterministic for adapter in self.inner):
            # for this instance only; the class says what it does of itself
            vars(self)["deterministic"] = False

    def needs(self) -> Needs:
        """All that any inner adapter needs; layers in the order in which they are first named."""
        needs = [adapter.needs() for adapter in self.inner]
        return Needs(
            features=tuple(dict.fromkeys(layer for need in needs for layer in need.features)),
            embeddings=any(need.embeddings for need in needs),
            lm_head=any(need.lm_head for need in needs),
            parts=any(need.parts for need in needs),
        )

    def bind(self, target: TargetInfo) -> None:
        """Raises OptionError, naming the inner adapter, when one doesn't fit the target."""
        for part in self.parts:
            part.bind(target)

    def open(self, view: SequenceView) -> None:
        """Every inner adapter is told, also when another one fails."""
        _call_all(self.parts, "open", lambda part: part.open(view))

    def close(self, view: SequenceView) -> None:
        """Every inner adapter is told, also when another one fails."""
        _call_all(self.parts, "close", lambda part: part.close(view))

    def report(self) -> dict[str, Any]:
        """What the inner adapters report, in their order."""
        inner = [{"adapter": part.name, **part.adapter.report()} for part in self.parts]
        return {"inner": inner}


class Part:
    """One inner adapter's side of a combinator. name: what messages call it."""

    def __init__(self, adapter: Adapter, name: str) -> None:
        self.adapter = adapter
        self.name = name
        self._vocab_size = MAX_TOKEN
        # which of the captured layers are this adapter's; None: all, in the same order
        self._columns: slice | list[int] | None = None

    def bind(self, target: TargetInfo) -> None:
        """Show the adapter what it asked for of the target, and no more."""
        needs = self.adapter.needs()
        wanted = needs.layers(target.n_layers)
        missing = [layer for layer in wanted if layer not in target.features]
        if missing:
            raise OptionError(
                f"adapter {self.name!r} needs features of layers {missing}, which this target "
                f"does not capture; its needs must not change"
            )
        own = replace(
            target,
            features=wanted,
            embed=target.embed if needs.embeddings else None,
            lm_head=target.lm_head if needs.lm_head else None,
            parts=target.parts if needs.parts else None,
        )
        self._vocab_size = target.vocab_size
        self._columns = _columns(target.features, own.features)
        try:
            self.adapter.bind(own)
        except MemoryError:
            raise
        except Exception as error:
            raise OptionError(reason(self.name, "bind", error)) from error

    def view(self, view: SequenceView) -> SequenceView:
        """The adapter's own copy of a view, with its own layers only."""
        features = view.features
        if self._columns is not None:
            features = _selecting(features, self._columns)
        return replace(view, features=features)

    def open(self, view: SequenceView) -> None:
        """The sequence begins."""
        self.adapter.open(self.view(view))

    def propose(self, views: Sequence[SequenceView]) -> list[Any]:
        """What the adapter returned: one item per view, which :meth:`checked` may find bad.

        Raises ProposalError naming the adapter if it raised or returned no such list.
        """
        try:
            proposals = self.adapter.propose([self.view(view) for view in views])
        except Exception as error:
            raise ProposalError(reason(self.name, "propose", error)) from error
        if not isinstance(proposals, (list, tuple)) or len(proposals) != len(views):
            raise ProposalError(
                f"adapter {self.name!r} must return a list of one proposal per view"
            )
        return list(proposals)

    def checked(self, proposal: Any, view: SequenceView) -> Proposal:
        """The proposal as lists of plain numbers. Raises ProposalError if it is malformed."""
        try:
            found = _plain(proposal, view.budget, self._vocab_size)
            if found is not None:
                return found
            tree = to_tree(proposal, view, vocab_size=self._vocab_size, adapter=self.name)
            log_probs = proposal.log_probs
            return Proposal(
                list(tree.tokens[1:]),
                [parent - 1 for parent in tree.parents[1:]],
                None if log_probs is None else [min(float(value), 0.0) for value in log_probs],
            )
        except ProposalError:
            raise
        except Exception as error:
            raise ProposalError(reason(self.name, "propose", error)) from error

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        """What became of the adapter's own proposals, in its own numbering."""
        self.adapter.observe([self.view(view) for view in views], outcomes)

    def close(self, view: SequenceView) -> None:
        """The sequence is over."""
        self.adapter.close(self.view(view))


def _call_all(parts: Sequence[Part], hook: str, call: Callable[[Part], None]) -> None:
    # one that fails must not keep the others from being told
    failures: list[str] = []
    for part in parts:
        try:
            call(part)
        except Exception as error:
            failures.append(reason(part.name, hook, error))
    if failures:
        raise ProposalError("; ".join(failures))


def reason(name: str, hook: str, error: Exception) -> str:
    """One line that names the adapter and what it did."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = "(its message can't be shown)"
    if isinstance(error, SpeclaError) and repr(name) in text:
        return text
    return f"adapter {name!r} failed in {hook}: {type(error).__name__}: {text}"


def check_arity(name: str, kind: type[Combinator], count: int) -> None:
    """Raise OptionError, naming the combinator, for a number of inner adapters it can't have."""
    low, high = kind.arity
    if count >= low and (high is None or count <= high):
        return
    wanted = f"{low} or more" if high is None else str(low) if low == high else f"{low} to {high}"
    word = "adapter" if wanted == "1" else "adapters"
    form = f"{name}({', '.join(['ADAPTER'] * max(low, 1))})"
    raise OptionError(f"adapter {name!r} takes {wanted} {word}, not {count}; write {form}")


def _columns(captured: Sequence[int], own: Sequence[int]) -> slice | list[int] | None:
    if tuple(captured) == tuple(own):
        return None
    places = [captured.index(layer) for layer in own]
    if places and places == list(range(places[0], places[0] + len(places))):
        # adjacent: a view of the array, no copy
        return slice(places[0], places[0] + len(places))
    return places


def _selecting(
    features: Callable[[int, int], Any], columns: slice | list[int]
) -> Callable[[int, int], Any]:
    if not columns and isinstance(columns, list):

        def refuse(start: int, stop: int) -> Any:
            raise OptionError(f"features({start}, {stop}) of an adapter that declared no layers")

        return refuse
    return lambda start, stop: features(start, stop)[:, columns]


def _plain(proposal: Any, budget: int, vocab_size: int) -> Proposal | None:
    """A proposal of plain ints that is well-formed, quickly; None when a closer look is needed."""
    tokens = list(islice(proposal.tokens, budget + 1))
    parents = list(islice(proposal.parents, budget + 1))
    count = len(tokens)
    if count > budget or len(parents) != count:
        return None
    if not set(map(type, chain(tokens, parents))) <= {int}:
        return None
    if count and not (min(tokens) >= 0 and max(tokens) < vocab_size and min(parents) >= -1):
        return None
    if not all(map(lt, parents, range(count))) or len({*zip(parents, tokens, strict=True)}) < count:
        return None
    log_probs = proposal.log_probs
    if log_probs is not None:
        log_probs = list(islice(log_probs, budget + 1))
        if len(log_probs) != count or not set(map(type, log_probs)) <= {float}:
            return None
        if not all(value <= 0.0 for value in log_probs):  # false for NaN, too
            return None
    return Proposal(tokens, parents, log_probs)
