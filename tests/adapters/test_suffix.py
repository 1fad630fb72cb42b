"""The suffix adapter: the automaton against counting by hand, trees against their definition."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from adapter_views import paths, view
from hypothesis import given
from hypothesis import strategies as st
from text_options import propose, suffix_options, texts

from specla.adapters.suffix.adapter import MATCH_LIMIT, SuffixAdapter, SuffixOptions
from specla.adapters.suffix.automaton import ROOT, Cursor, SuffixAutomaton
from specla.adapters.suffix.corpus import Corpus
from specla.core.proposal import Proposal, to_tree
from specla.errors import OptionError

A, B, C, D, X, Y, Z = range(7)

Path = tuple[int, ...]


def ends(text: Sequence[int], path: Sequence[int]) -> list[int]:
    """Where ``path`` occurs: the places after it."""
    n = len(path)
    return [e for e in range(n, len(text) + 1) if list(text[e - n : e]) == list(path)]


# -- the automaton ---------------------------------------------------------------------------------


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=40),
    st.integers(1, 12),
)
def test_counts_and_matches_are_those_of_all_substrings(
    count: int, steps: list[tuple[int, int]], limit: int
) -> None:
    """Several texts grow in turns; at every step everything is counted by hand."""
    automaton = SuffixAutomaton(limit)
    grown: list[list[int]] = [[] for _ in range(count)]
    cursors = [Cursor() for _ in range(count)]
    # which token, over all texts, each place holds
    numbers: list[list[int]] = [[] for _ in range(count)]
    for number, (which, token) in enumerate(steps):
        which %= count
        grown[which].append(token)
        numbers[which].append(number)
        automaton.extend(cursors[which], [token])
        longest = 1 + number % limit
        wanted = 0
        for n in range(1, min(longest, len(grown[which])) + 1):
            if sum(len(ends(text, grown[which][-n:])) for text in grown) > 1:
                wanted = n
        state, length = automaton.match(cursors[which], longest)
        assert length == wanted
        assert (state == ROOT) == (wanted == 0)
    for text in grown:
        for start in range(len(text)):
            state = ROOT
            for stop in range(start + 1, min(len(text), start + limit) + 1):
                state = automaton.children[state][text[stop - 1]]
                found = [
                    (t, e) for t, other in enumerate(grown) for e in ends(other, text[start:stop])
                ]
                assert automaton.count[state] == len(found)
                assert automaton.latest[state] == max(numbers[t][e - 1] for t, e in found)


@given(texts, st.integers(2, 8))
def test_a_text_in_pieces_is_the_text_at_once(text: list[int], limit: int) -> None:
    whole, pieces = SuffixAutomaton(limit), SuffixAutomaton(limit)
    cursor = Cursor()
    for token in text:
        pieces.extend(cursor, [token])
    other = Cursor()
    whole.extend(other, text)
    assert vars(whole) == vars(pieces)
    assert len(whole.link) <= 2 * len(text) + 1


# -- the tree --------------------------------------------------------------------------------------


def brute_force(
    text: list[int], chosen: SuffixOptions, budget: int, max_depth: int
) -> list[tuple[Path, float]]:
    """Paths and their probabilities in order, from the definition, by looking at everything."""
    matches: list[tuple[int, int]] = []
    for n in range(min(MATCH_LIMIT, len(text)), 0, -1):
        earlier = len(ends(text, text[-n:])) - 1
        if earlier > (matches[-1][1] if matches else 0):
            matches.append((n, earlier))
    matches = [m for m in matches if m[0] >= chosen.min_match][: chosen.matches]
    ranked: list[tuple[tuple[float, int, int, int], Path]] = []
    weight = 1.0
    for k, (n, earlier) in enumerate(matches):
        suffix = text[-n:]
        most = min(int(chosen.alpha * n), chosen.max_depth, max_depth)
        level: list[Path] = [()]
        for depth in range(1, most + 1):
            grown = []
            for path in level:
                family = []
                for token in set(text):
                    places = ends(text, [*suffix, *path, token])
                    p = weight * len(places) / earlier if places else 0.0
                    if places and p >= chosen.min_prob:
                        family.append(((-p, k, depth, -places[-1]), (*path, token)))
                family = sorted(family)[: chosen.max_children]
                ranked += family
                grown += [path for _, path in family]
            level = grown
        weight /= earlier + 1
    best: dict[Path, float] = {}
    for rank, path in sorted(ranked):
        if len(best) < budget and path not in best:
            best[path] = -rank[0]
    return list(best.items())


@given(texts, suffix_options, st.integers(0, 40), st.integers(0, 12))
def test_equals_brute_force(
    text: list[int], chosen: SuffixOptions, budget: int, max_depth: int
) -> None:
    proposal = propose(SuffixAdapter(chosen), text, budget=budget, max_depth=max_depth)
    expected = brute_force(text, chosen, budget, max_depth)
    assert paths(proposal) == [path for path, _ in expected]
    chances = dict(expected) | {(): 1.0}
    for path, log_prob in zip(paths(proposal), proposal.log_probs or (), strict=True):
        assert math.exp(log_prob) == pytest.approx(chances[path] / chances[path[:-1]])


def test_counts_make_the_tree() -> None:
    # after A B came C three times (then D twice, X once) and Y once
    text = [A, B, C, D, Z, A, B, Y, Z, A, B, C, D, Z, A, B, C, X, Z, A, B]
    adapter = SuffixAdapter(SuffixOptions(matches=1, min_match=3))
    # the longest match is Z A B, which occurred three times
    proposal = propose(adapter, text, max_depth=2)
    assert paths(proposal) == [(C,), (Y,), (C, X), (C, D), (Y, Z)]
    chances = [math.exp(value) for value in proposal.log_probs or ()]
    assert chances == pytest.approx([2 / 3, 1 / 3, 1 / 2, 1 / 2, 1])


def test_a_shorter_match_fills_the_tree_with_what_the_longest_did_not_say() -> None:
    # C A B was followed by D once; A B by D, and three times by Y
    text = [C, A, B, D, X, A, B, Y, X, A, B, Y, Z, A, B, Y, C, A, B]
    alone = SuffixAdapter(SuffixOptions(matches=1))
    assert paths(propose(alone, text, max_depth=1)) == [(D,)]
    both = propose(SuffixAdapter(), text, max_depth=1)
    assert paths(both) == [(D,), (Y,)]
    # 3 of 4, weighted with 1 / (1 + 1) for the longer match that occurred once
    assert math.exp((both.log_probs or [])[1]) == pytest.approx(3 / 4 / 2)


def test_depth_follows_the_length_of_the_match() -> None:
    text = [A, B, C, D, X, Y, Z, A, B]
    for alpha, depth in ((0.0, 0), (0.5, 1), (1.0, 2), (1.9, 3), (2.0, 4)):
        chosen = SuffixOptions(alpha=alpha)
        assert len(propose(SuffixAdapter(chosen), text).tokens) == depth


def test_long_repetitions_are_followed_beyond_the_longest_match() -> None:
    period = list(range(7))
    text = period * 60 + period[:3]
    proposal = propose(SuffixAdapter(), text, budget=20)
    assert list(proposal.tokens) == (period[3:] + period * 3)[:20]
    assert list(proposal.parents) == list(range(-1, 19))


# -- sequences -------------------------------------------------------------------------------------


def test_sequences_do_not_see_each_other_unless_shared() -> None:
    grown = {1: [A, B, C, D, A, B], 2: [X, A, B]}
    for shared, expected in ((False, [[(C,)], []]), (True, [[(C,)], [(C,)]])):
        adapter = SuffixAdapter(SuffixOptions(shared=shared))
        views = [view(text, key=key, max_depth=1) for key, text in grown.items()]
        assert [paths(p) for p in adapter.propose(views)] == expected
        assert adapter.deterministic is not shared


def test_a_closed_sequence_is_remembered_if_shared() -> None:
    for shared, expected in ((False, []), (True, [(C,)])):
        adapter = SuffixAdapter(SuffixOptions(shared=shared))
        adapter.open(view([X, A, B], key=1))
        # the last tokens come with the close
        adapter.close(view([X, A, B, C], key=1))
        adapter.close(view([X, A, B, C], key=1))
        adapter.open(view([A, B], key=2))
        assert paths(propose(adapter, [A, B], key=2, max_depth=1)) == expected
        assert set(adapter._corpora) == {2}


def test_a_text_that_shrank_or_changed_is_taken_for_another() -> None:
    adapter = SuffixAdapter()
    propose(adapter, [A, B, C, A, B])
    for text in ([A, B, D, A], [X, Y, Z, X, Y], [A, B, A, B]):
        seen = view(text)
        (proposal,) = adapter.propose([seen])
        to_tree(proposal, seen, vocab_size=7, adapter="suffix")


# -- memory ----------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=9), st.booleans()),
        max_size=25,
    ),
    st.integers(1, 30),
)
def test_memory_is_bounded_and_holds_the_newest(
    steps: list[tuple[int, list[int], bool]], most: int
) -> None:
    corpus = Corpus(6, most)
    grown: dict[int, list[int]] = {}
    for key, new, closing in steps:
        text = grown.setdefault(key, [])
        text += new
        corpus.follow(key, text)
        remembered = [t.tokens for t in corpus._texts.values()]
        assert corpus.automaton.size <= most
        assert sum(map(len, remembered)) <= corpus.automaton.size
        if new:
            # the end of the text that grew last is there
            kept = remembered[-1]
            assert kept and kept == text[-len(kept) :]
            assert len(kept) >= min(len(text), most // 2, 1)
        # what is remembered counts as if it were all there ever was
        if sum(map(len, remembered)) == corpus.automaton.size:
            for path in {tuple(t[i : i + 2]) for t in remembered for i in range(len(t) - 1)}:
                state = ROOT
                for token in path:
                    state = corpus.automaton.children[state][token]
                wanted = sum(len(ends(t, path)) for t in remembered)
                assert corpus.automaton.count[state] == wanted
        if closing:
            corpus.close(key)
            del grown[key]


def test_a_long_text_is_forgotten_from_its_beginning() -> None:
    most = 2 * MATCH_LIMIT
    adapter = SuffixAdapter(SuffixOptions(max_tokens=most))
    text = [A, B, C, *range(10, 20), A, B]
    assert paths(propose(adapter, text, max_depth=1)) == [(C,)]
    text += [*range(100, 100 + most), A, B]
    assert propose(adapter, text) == Proposal()
    text += [D, A, B]
    assert paths(propose(adapter, text, max_depth=1)) == [(D,)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_match", 0),
        ("min_match", MATCH_LIMIT + 1),
        ("max_depth", 0),
        ("max_children", True),
        ("matches", 0),
        ("alpha", float("inf")),
        ("alpha", -1.0),
        ("min_prob", 1.5),
        ("max_tokens", 2 * MATCH_LIMIT - 1),
    ],
)
def test_options_out_of_range(field: str, value: float) -> None:
    with pytest.raises(OptionError, match=rf"adapter 'suffix': option {field} is "):
        SuffixOptions(**{field: value})  # type: ignore[arg-type]
