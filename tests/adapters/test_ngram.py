"""The ngram adapter: trees by hand, an oracle by brute force, and the incremental index."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import pytest
from adapter_views import paths, view
from hypothesis import given
from hypothesis import strategies as st
from text_options import ngram_options, propose, texts

from specla.adapters.base import create_adapter
from specla.adapters.ngram import NgramAdapter, NgramIndex, NgramOptions
from specla.core.proposal import Proposal
from specla.errors import OptionError

A, B, C, D, X, Y, Z = range(7)


def probabilities(proposal: Proposal) -> list[float]:
    assert proposal.log_probs is not None or not proposal.tokens
    return [math.exp(value) for value in proposal.log_probs or ()]


def brute_force(
    tokens: list[int], chosen: NgramOptions, budget: int, max_depth: int
) -> list[tuple[tuple[int, ...], float]]:
    """Paths and probabilities in order, from the definition, by looking at everything."""
    for n in range(min(chosen.max_match, len(tokens) - 1), chosen.min_match - 1, -1):
        ends = [e for e in range(n, len(tokens)) if tokens[e - n : e] == tokens[-n:]]
        if ends:
            break
    else:
        return []
    ends = ends[-chosen.occurrences :]
    counts: Counter[tuple[int, ...]] = Counter({(): len(ends)})
    latest: dict[tuple[int, ...], int] = {}
    siblings = defaultdict(set)
    for end in ends:
        for depth in range(1, min(chosen.max_depth, max_depth, len(tokens) - end) + 1):
            path = tuple(tokens[end : end + depth])
            counts[path] += 1
            latest[path] = end
            siblings[path[:-1]].add(path)

    def rank(path: tuple[int, ...]) -> tuple[int, int, int, int]:
        return -counts[path], len(path), -latest[path], path[-1]

    allowed = {
        path
        for family in siblings.values()
        for path in sorted(family, key=rank)[: chosen.max_children]
    }
    open_paths = [p for p in latest if all(p[:i] in allowed for i in range(1, len(p) + 1))]
    best = sorted(open_paths, key=rank)[:budget]
    return [(path, counts[path] / counts[path[:-1]]) for path in best]


def test_a_single_occurrence_gives_a_chain() -> None:
    proposal = propose(NgramAdapter(), [A, B, C, D, X, A, B])
    assert proposal == Proposal([C, D, X, A, B], [-1, 0, 1, 2, 3], [0.0] * 5)


def test_several_occurrences_merge_into_a_tree_with_counts() -> None:
    # after A B came C three times (then D twice, X once) and Y once
    text = [A, B, C, D, Z, A, B, Y, Z, A, B, C, D, Z, A, B, C, X, Z, A, B]
    adapter = NgramAdapter(NgramOptions(max_match=2))
    proposal = propose(adapter, text, max_depth=2)
    assert paths(proposal) == [(C,), (C, D), (Y,), (C, X), (Y, Z)]
    assert list(proposal.parents) == [-1, 0, -1, 0, 2]
    assert probabilities(proposal) == pytest.approx([3 / 4, 2 / 3, 1 / 4, 1 / 3, 1])
    for budget in range(6):
        best = propose(adapter, text, max_depth=2, budget=budget)
        assert paths(best) == paths(proposal)[:budget]


def test_the_longest_suffix_decides() -> None:
    # A B alone was followed by Y twice, but C A B by D
    text = [X, A, B, Y, X, A, B, Y, C, A, B, D, C, A, B]
    assert paths(propose(NgramAdapter(), text, max_depth=1)) == [(D,)]
    short = NgramAdapter(NgramOptions(max_match=2))
    assert paths(propose(short, text, max_depth=1)) == [(Y,), (D,)]


def test_equal_counts_prefer_the_shallower_then_the_more_recent() -> None:
    text = [A, B, C, C, A, B, D, D, A, B]
    assert paths(propose(NgramAdapter(), text, max_depth=2)) == [(D,), (C,), (D, D), (C, C)]


def test_a_repeated_token_overlaps_itself() -> None:
    proposal = propose(NgramAdapter(NgramOptions(max_match=2)), [A, A, A, A, A])
    assert paths(proposal) == [(A,), (A, A), (A, A, A)]
    # of three occurrences two go on for two tokens, one for three
    assert probabilities(proposal) == pytest.approx([1, 2 / 3, 1 / 2])


def test_limits_of_the_options() -> None:
    text = [A, B, C, Z, A, B, D, Z, A, B, X, Z, A, B]
    two = NgramAdapter(NgramOptions(max_match=2, max_children=2, max_depth=1))
    assert paths(propose(two, text)) == [(X,), (D,)]
    recent = NgramAdapter(NgramOptions(occurrences=1, max_depth=3))
    assert paths(propose(recent, text)) == [(X,), (X, Z), (X, Z, A)]


@given(texts, ngram_options, st.integers(0, 64), st.integers(0, 12))
def test_equals_brute_force(
    text: list[int], chosen: NgramOptions, budget: int, max_depth: int
) -> None:
    proposal = propose(NgramAdapter(chosen), text, budget=budget, max_depth=max_depth)
    expected = brute_force(text, chosen, budget, max_depth)
    assert paths(proposal) == [path for path, _ in expected]
    assert probabilities(proposal) == pytest.approx([p for _, p in expected])


@given(texts, ngram_options, st.data())
def test_incremental_index_equals_index_from_scratch(
    text: list[int], chosen: NgramOptions, data: st.DataObject
) -> None:
    adapter = NgramAdapter(chosen)
    sizes = sorted(data.draw(st.lists(st.integers(1, len(text)), min_size=1, max_size=6)))
    adapter.open(view(text[: sizes[0]]))
    for size in [*sizes, len(text)]:
        propose(adapter, text[:size])
    scratch = NgramIndex(chosen.min_match, chosen.max_match)
    scratch.extend(text)
    assert vars(adapter._indices[0]) == vars(scratch)


def test_a_text_that_shrank_or_changed_is_indexed_anew() -> None:
    adapter = NgramAdapter()
    propose(adapter, [A, B, C, A, B])
    for text in ([A, B, D, A], [X, Y, Z, X, Y], [A, B, A, B]):
        assert propose(adapter, text) == propose(NgramAdapter(), text)


def test_sequences_do_not_see_each_other() -> None:
    adapter = NgramAdapter()
    texts = {1: [A, B, C, A, B], 2: [A, B, D, A, B], 3: [X, Y]}
    proposals = adapter.propose([view(text, key=key, max_depth=1) for key, text in texts.items()])
    assert [paths(p) for p in proposals] == [[(C,)], [(D,)], []]


def test_close_drops_the_state() -> None:
    adapter = NgramAdapter()
    seen = [view([A, B, C, A, B], key=key) for key in (1, 2)]
    for one in seen:
        adapter.open(one)
    adapter.close(seen[0])
    assert set(adapter._indices) == {2}
    adapter.close(seen[0])
    adapter.close(seen[1])
    assert not adapter._indices


def test_options_from_text() -> None:
    adapter = create_adapter("ngram", {"min_match": "1", "max_match": "3", "max_depth": "4"})
    assert isinstance(adapter, NgramAdapter)
    assert adapter.options == NgramOptions(min_match=1, max_match=3, max_depth=4)


@pytest.mark.parametrize(
    ("given_options", "words"),
    [
        ({"min_match": "0"}, ("min_match", "0", "1 to 8")),
        ({"min_match": "9"}, ("min_match", "9", "1 to 8")),
        ({"max_match": "33"}, ("max_match", "33", "1 to 32")),
        ({"max_depth": "0"}, ("max_depth", "0", "1 to 4096")),
        ({"max_children": "-1"}, ("max_children", "-1", "1 to 4096")),
        ({"occurrences": "5000"}, ("occurrences", "5000", "1 to 4096")),
        ({"max_depth": "deep"}, ("max_depth", "deep", "a whole number")),
        ({"depth": "3"}, ("depth", "max_depth", "known")),
    ],
)
def test_bad_options(given_options: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(OptionError) as caught:
        create_adapter("ngram", given_options)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in ("ngram", *words))


@pytest.mark.parametrize("value", [2.0, True, "2", None])
def test_options_built_in_code_must_be_integers(value: object) -> None:
    with pytest.raises(OptionError, match=r"min_match is .*integer"):
        NgramOptions(min_match=value)  # type: ignore[arg-type]
