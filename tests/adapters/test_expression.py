"""Adapter expressions: grammar, options, and errors of one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
from adapter_views import view
from hypothesis import given
from hypothesis import strategies as st

from specla.adapters.adaptive.adapter import AdaptiveAdapter
from specla.adapters.base import Adapter, adapters, check_options, create_adapter
from specla.adapters.combinator import Combinator
from specla.adapters.expression import MAX_DEPTH, MAX_NAMES, Expression, parse
from specla.adapters.fallback import FallbackAdapter
from specla.adapters.ngram import NgramAdapter
from specla.adapters.suffix.adapter import SuffixAdapter
from specla.core.proposal import Proposal, SequenceView
from specla.errors import OptionError


@dataclass(frozen=True)
class DraftOptions:
    draft: str
    tau: float = 6.0
    min_match: int = 1


class Drafting(Adapter):
    """An adapter with a required option; making one is what checking must not do."""

    Options = DraftOptions
    made: ClassVar[list[DraftOptions]] = []

    def __init__(self, options: DraftOptions) -> None:
        super().__init__(options)
        self.made.append(options)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        return [Proposal() for _ in views]


class Pair(Combinator):
    """Somebody else's combinator: exactly two, the second decides."""

    arity = (2, 2)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        return self.parts[1].propose(views)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drafting, "made", [])
    monkeypatch.setitem(adapters._factories, "my.draft", lambda: Drafting)
    monkeypatch.setitem(adapters._factories, "pair", lambda: Pair)


names = st.sampled_from(["a", "b_c", "d.e", "f-2", "two words"])
expressions = st.recursive(
    names.map(Expression),
    lambda inner: st.builds(Expression, names, st.lists(inner, max_size=3).map(tuple)),
    max_leaves=6,
)
blanks = st.sampled_from(["", " ", "  \n"])


@given(expressions, st.data())
def test_what_is_written_is_parsed(expression: Expression, data: st.DataObject) -> None:
    text = ""
    for character in str(expression).replace(", ", ","):
        around = data.draw(st.tuples(blanks, blanks)) if character in "()," else ("", "")
        text += around[0] + character + around[1]
    assert parse(text) == expression
    assert str(parse(text)) == str(expression)


@given(st.text(alphabet="ab(), ", max_size=20))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        expression = parse(text)
    except OptionError as error:
        assert "\n" not in str(error)
    else:
        assert parse(str(expression)) == expression


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "name is missing before its end"),
        ("fallback(", "name is missing before its end"),
        ("fallback(ngram", "',' or ')' is missing before its end"),
        ("fallback(ngram,)", "name is missing before ')'"),
        ("fallback(,ngram)", "name is missing before ','"),
        ("(ngram)", "name is missing before '('"),
        ("ngram)", "')' after its end"),
        ("fallback(ngram) suffix", "'suffix' after its end"),
        ("fallback(ngram)(suffix)", "'(' after its end"),
        ("fallback(ngram(", "name is missing before its end"),
        ("fallback(" * (MAX_DEPTH + 1), "deep in each other"),
        (f"fallback({', '.join(['ngram'] * (MAX_NAMES + 1))})", "at most"),
        ("fallback(ngram, oracle)", "unknown adapter 'oracle'; known: adaptive, "),
        ("fallback", "'fallback' takes 1 or more adapters, not 0; write fallback(ADAPTER)"),
        ("fallback()", "takes 1 or more adapters, not 0"),
        ("adaptive", "'adaptive' takes 1 adapter, not 0; write adaptive(ADAPTER)"),
        ("adaptive(ngram, suffix)", "takes 1 adapter, not 2"),
        ("pair(ngram)", "takes 2 adapters, not 1; write pair(ADAPTER, ADAPTER)"),
        ("ngram(suffix)", "'ngram' is not made of others; write ngram alone"),
        ("ngram()", "'ngram' is not made of others"),
        ("g" * 1300, "is no adapter's name"),
        (f"fallback(ngram){'g' * 1300}", "'gggggggggggggggggggg'... after its end"),
        (f"fallback(fallback(ngram){'g' * 1300})", "missing before 'gggggggggggggggggggg'..."),
    ],
)
def test_malformed_expressions(text: str, why: str) -> None:
    for function in (create_adapter, check_options):
        with pytest.raises(OptionError) as caught:
            function(text)
        assert why in str(caught.value)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


def test_options_go_to_those_that_have_them() -> None:
    adapter = create_adapter(
        " adaptive( fallback(suffix,my.draft , ngram) )",
        {"min_match": "3", "ngram.min_match": "4", "my.draft.tau": "2.5", "draft": "x.gguf"},
    )
    assert isinstance(adapter, AdaptiveAdapter)
    (fallback,) = adapter.inner
    assert isinstance(fallback, FallbackAdapter)
    suffix, drafting, ngram = fallback.inner
    assert isinstance(suffix, SuffixAdapter) and suffix.options.min_match == 3
    assert isinstance(drafting, Drafting)
    assert drafting.options == DraftOptions("x.gguf", 2.5, 3)
    # the one that names its adapter goes before the other
    assert isinstance(ngram, NgramAdapter) and ngram.options.min_match == 4
    assert [part.name for part in fallback.parts] == ["suffix", "my.draft", "ngram"]


def test_a_name_used_twice_gets_its_options_twice() -> None:
    adapter = create_adapter("pair(ngram, fallback(ngram))", {"ngram.max_depth": "5"})
    assert isinstance(adapter, Pair)
    first, second = adapter.inner
    assert first.options.max_depth == second.inner[0].options.max_depth == 5
    assert first is not second.inner[0]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("my.draft", {}, "adapter 'my.draft' needs the option draft; give --draft FILE"),
        ("fallback(my.draft)", {}, "'my.draft' needs the option draft; give --draft FILE"),
        ("replay", {}, "needs the option path; give --adapter-opt path="),
        (
            "fallback(ngram, my.draft)",
            {"colour": "red"},
            "adapter 'fallback(ngram, my.draft)' has no option 'colour'; known: my.draft.draft, "
            "my.draft.min_match, my.draft.tau, ngram.max_children, ",
        ),
        ("fallback(ngram)", {"suffix.alpha": "1"}, "no option 'suffix.alpha'; known: ngram.max_"),
        ("fallback(ngram)", {"ngram.tau": "1"}, "no option 'ngram.tau'; known: ngram.max_"),
        ("ngram", {"colour": "red"}, "adapter 'ngram' has no option 'colour'; known: max_children"),
        ("fallback(none)", {"x": "1"}, "known: none"),
        ("ngram", {"ngram.max_match": "red"}, "option max_match is 'red'"),
        ("fallback(ngram)", {"max_match": "0"}, "1 to"),
        ("adaptive(ngram)", {"margin": "-1"}, "option margin is -1.0"),
        ("adaptive(ngram)", {"share": "nan"}, "option share is nan"),
        ("adaptive(ngram)", {"probe": "0"}, "option probe is 0"),
        ("suffix", {"alpha": "nan"}, "option alpha is nan"),
        ("suffix", {"shared": "maybe"}, "option shared is 'maybe'; it must be true or false"),
        ("suffix", {"max_tokens": "5"}, "option max_tokens is 5"),
    ],
)
def test_bad_options(text: str, options: dict[str, str], message: str) -> None:
    for function in (create_adapter, check_options):
        with pytest.raises(OptionError) as caught:
            function(text, options)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_checking_makes_no_adapter() -> None:
    check_options("adaptive(my.draft)", {"draft": "x.gguf"})
    assert not Drafting.made
    create_adapter("adaptive(my.draft)", {"draft": "x.gguf"})
    assert len(Drafting.made) == 1


def test_a_class_that_is_no_adapter_is_its_authors_business(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(adapters._factories, "third", lambda: dict)
    with pytest.raises(OptionError, match="'third' from specla is no subclass of"):
        check_options("fallback(third)")


def test_somebody_elses_combinator_works() -> None:
    adapter = create_adapter("pair(none, ngram)", {"max_depth": "1"})
    (proposal,) = adapter.propose([view([1, 2, 3, 1, 2])])
    assert list(proposal.tokens) == [3]


def test_the_number_of_inner_adapters_is_checked_in_code_too() -> None:
    with pytest.raises(OptionError, match="takes 1 adapter, not 0"):
        AdaptiveAdapter()
