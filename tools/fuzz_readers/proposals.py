"""Proposals, paths and adapter expressions: made from bytes, valid ones and all kinds of others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np

from specla.adapters.base import Adapter
from specla.adapters.expression import parse, resolve
from specla.adapters.guard import GuardedAdapter
from specla.core.proposal import Proposal, SequenceView, to_tree
from specla.core.topology import Forest, Tree, prune
from specla.errors import ProposalError, SpeclaError

VOCABULARY = 50
EXPRESSIONS = ("ngram", "adaptive(fallback(suffix, ngram))", "fallback(suffix, ngram)", "none")
EXPRESSION_SNIPPETS = (
    "ngram", "suffix", "adaptive", "fallback", "dspark", "ddtree", "chain", "mtp", "none", "replay",
    "(", ")", ",", " ", "\n", "\x00", "é", "((((((((", "))))))))", "adaptive(" * 20, "ngram," * 70,
    "x" * 200, "=", "1", "-1", "1e999", "nan", "true", "depth", "width", "min", "max", "draft", ".",
)  # fmt: skip


class Number:
    """Not an int, but usable as an index; or failing when it is used so."""

    def __init__(self, value: int, error: type[Exception] | None) -> None:
        self._value, self._error = value, error

    def __index__(self) -> int:
        if self._error is not None:
            raise self._error("line 1\nline 2")
        return self._value

    def __repr__(self) -> str:
        if self._error is not None:
            raise self._error("no repr")
        return "Number\n" * 50


class _Bytes:
    """Choices read from an input; zeros when it is used up."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)

    def byte(self) -> int:
        return next(self._data, 0)

    def below(self, n: int) -> int:
        return self.byte() % n


_OWN_WORDS = "line 1\nline 2", "no repr", "half-way\nthrough", "generator raised StopIteration"
_OWN = [str((text,)) for text in _OWN_WORDS]
_ERRORS = (None, KeyError, RuntimeError, RecursionError, OverflowError, MemoryError, StopIteration)


def _item(source: _Bytes, near: int) -> Any:
    """An element of a list of tokens or parents; mostly a fitting one."""
    choice = source.byte()
    if choice < 200:
        return choice % VOCABULARY if near < 0 else max(near - 1 - choice % 4, -1)
    rare = (
        -2, VOCABULARY, 1 << 31, 1 << 63, -(1 << 200), 1 << 9000, 10**5000, True, None, 1.0, 1.5,
        float("nan"), "1", b"1", [], (), np.int64(3), np.uint64((1 << 64) - 1), np.float32(1),
        np.bool_(True), np.array(2), np.array([1, 2]), 1j, object(), Number(3, None),
        Number(3, _ERRORS[source.below(len(_ERRORS))]), "x" * 10_000, "a\nb",
    )  # fmt: skip
    return rare[choice % len(rare)]


def _list(source: _Bytes, parents: bool) -> Any:
    size = source.below(14)
    items = [_item(source, i if parents else -1) for i in range(size)]
    choice = source.byte()
    if choice < 180:
        return items
    shapes: tuple[Any, ...] = (
        tuple(items), iter(items), {i: i for i in range(size)}, range(-1, size - 1), None, 7,
        "abc", b"abc", np.arange(size), np.zeros((2, 3), int), itertools.count(), _endless(items),
        _failing(_ERRORS[1 + source.below(len(_ERRORS) - 1)]), Liar(items, 1 << 40),
        Liar(items, -1),
    )  # fmt: skip
    return shapes[choice % len(shapes)]


class Liar(list[Any]):
    """A list that claims another length."""

    def __init__(self, items: list[Any], length: int) -> None:
        super().__init__(items)
        self._length = length

    def __len__(self) -> int:
        return self._length


def _endless(items: list[Any]) -> Iterator[Any]:
    return itertools.cycle(items or [0])


def _failing(error: type[Exception] | None) -> Iterator[int]:
    yield 1
    raise (error or ValueError)("half-way\nthrough")


def _log_probs(source: _Bytes) -> Any:
    choice = source.byte()
    if choice < 128:
        return None
    values: tuple[Any, ...] = (
        -0.5, -float("inf"), float("nan"), 1.0, 0.0005, "x", None, 10**400, -(10**400),
        np.float32(-1), np.array([1.0, 2.0]), Number(1, KeyError), 1j,
    )  # fmt: skip
    made = [
        values[source.below(len(values))] if source.below(4) == 0 else -0.1
        for _ in range(choice % 14)
    ]
    return (made, tuple(made), 5, "abc", Liar(made, 3), np.array([-0.1, -0.2]))[source.below(6)]


class Hostile(Adapter):
    """Proposes what it is told to."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def propose(self, views: Any) -> Any:
        return self._answer


def check_proposal(data: bytes) -> None:
    """A proposal by each way in. A guard lets nothing through: its tree is always a sound one."""
    source = _Bytes(data)
    tokens, parents = _list(source, False), _list(source, True)
    proposal: Any = Proposal(tokens, parents, _log_probs(source))
    answers = ([proposal], proposal, [], [proposal, proposal], [None], None, (proposal,), ["x"])
    depth, budget = source.below(6), 1 + source.below(20)
    view = SequenceView(1, [1, 2, 3], 2, budget, depth, lambda start, stop: None)
    guard = GuardedAdapter(
        Hostile(answers[source.below(len(answers)) if source.below(4) == 0 else 0]),
        "hostile", VOCABULARY, on_refusal=_short, on_error=_short,
    )  # fmt: skip
    tree, kept, reason = guard.propose(view)
    _sound(tree, budget, depth)
    if len(kept) != len(tree) or (reason is not None and len(tree) != 1):
        raise ArithmeticError("what was refused was kept")
    path = _list(source, True)
    _ours(lambda: tree.check_path(path))
    _ours(lambda: Tree.build(_list(source, False), _list(source, True), vocab_size=VOCABULARY))
    fresh = Proposal(_list(source, False), _list(source, True), _log_probs(source))
    try:
        to_tree(fresh, view, vocab_size=VOCABULARY, adapter="a")
    except ProposalError as error:
        _short(str(error))


def _sound(tree: Tree, budget: int, depth: int) -> None:
    again = Tree.build(tree.tokens, tree.parents, vocab_size=VOCABULARY)
    if again != tree or len(tree) > budget + 1 or max(tree.depths) > depth:
        raise ArithmeticError("the guard let a tree through that doesn't fit")
    forest = Forest((tree, Tree.lone(3)))
    _ = forest.offsets, tree.children, prune(tree, 1)
    if any(type(token) is not int for token in tree.tokens + tree.parents):
        raise ArithmeticError("the guard let something through that is no int")


def _short(reason: str) -> None:
    if "\n" in reason or len(reason) > 400:
        raise ArithmeticError(f"a reason that is no short line: {reason[:200]!r}")


def _ours(call: Any) -> None:
    try:
        call()
    except SpeclaError as error:
        _short(str(error))
    except Exception as error:
        # a list that fails by itself is its owner's affair, but for a proposal
        if str(error.args[:1]) not in _OWN:
            raise


def check_expression(text: str) -> None:
    """``EXPRESSION|key=value|...``, as the command line takes them apart."""
    expression, *options = text.split("|")
    str(parse(expression))
    given = dict(option.partition("=")[::2] for option in options[:8])
    resolve(expression, given)


def some_bytes(random: Random) -> bytes:
    return random.randbytes(random.choice((8, 32, 64)))
