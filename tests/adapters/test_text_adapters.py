"""What holds for every adapter that guesses from the text alone: ngram and suffix."""

from __future__ import annotations

import pytest
from adapter_views import view
from hypothesis import given
from hypothesis import strategies as st
from text_options import ngram_options, propose, suffix_options, texts

from specla.adapters.base import Adapter
from specla.adapters.ngram import NgramAdapter
from specla.adapters.suffix.adapter import SuffixAdapter
from specla.core.proposal import Proposal, ReadOnly, to_tree

OPTIONS = {NgramAdapter: ngram_options, SuffixAdapter: suffix_options}
each = pytest.mark.parametrize("kind", OPTIONS)


@each
@given(text=texts, budget=st.integers(0, 64), max_depth=st.integers(0, 12), data=st.data())
def test_proposals_are_valid(
    kind: type[Adapter], text: list[int], budget: int, max_depth: int, data: st.DataObject
) -> None:
    seen = view(ReadOnly(text), budget=budget, max_depth=max_depth)
    (proposal,) = kind(data.draw(OPTIONS[kind])).propose([seen])
    tree = to_tree(proposal, seen, vocab_size=5, adapter="tested")
    assert len(tree) <= budget + 1
    assert max(tree.depths) <= max_depth


@each
@given(text=texts, data=st.data())
def test_a_text_that_grows_is_a_text_from_scratch(
    kind: type[Adapter], text: list[int], data: st.DataObject
) -> None:
    options = data.draw(OPTIONS[kind])
    adapter = kind(options)
    sizes = sorted(data.draw(st.lists(st.integers(1, len(text)), min_size=1, max_size=6)))
    adapter.open(view(text[: sizes[0]]))
    for size in [*sizes, len(text)]:
        assert propose(adapter, text[:size]) == propose(kind(options), text[:size])


@each
@given(first=texts, second=texts)
def test_a_sequence_opened_again_starts_from_scratch(
    kind: type[Adapter], first: list[int], second: list[int]
) -> None:
    adapter = kind()
    adapter.open(view(first))
    adapter.propose([view(first)])
    adapter.open(view(second))
    assert propose(adapter, second) == propose(kind(), second)


@each
def test_nothing_to_match_gives_an_empty_proposal(kind: type[Adapter]) -> None:
    adapter = kind()
    for text in ([0], [0, 1], [0, 1, 2, 3], [0, 1, 2, 1]):
        assert propose(adapter, text, key=len(text)) == Proposal()


@each
@pytest.mark.parametrize("text", [[0, 1, 2, 3] * 500, list(range(1000))])
def test_looks_only_at_new_tokens(kind: type[Adapter], text: list[int]) -> None:
    class Counting(list[int]):
        read = 0

        def __getitem__(self, index):  # type: ignore[no-untyped-def]
            found = super().__getitem__(index)
            Counting.read += len(found) if isinstance(index, slice) else 1
            return found

    adapter = kind()
    grown = Counting(text)
    adapter.open(view(grown))
    propose(adapter, grown)
    Counting.read = 0
    grown += [0, 1, 2]
    propose(adapter, grown)
    assert Counting.read <= 8
