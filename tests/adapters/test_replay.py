"""The replay adapter: exact replay, error rate, branching, limits, options and files."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from adapter_views import paths, target, view
from hypothesis import given
from hypothesis import strategies as st

from specla.adapters.base import create_adapter
from specla.adapters.replay import ReplayAdapter, ReplayOptions
from specla.core.proposal import Proposal, ReadOnly, SequenceView, to_tree
from specla.errors import LifecycleError, OptionError

VOCAB = 50
RECORDING = [(7 * i * i + 3 * i) % VOCAB for i in range(40)]
PROMPT = [1, 2, 3]


def bound(tokens: list[int] = RECORDING, vocab_size: int = VOCAB, **options: Any) -> ReplayAdapter:
    adapter = ReplayAdapter.of(tokens, **options)
    adapter.bind(target(vocab_size))
    return adapter


def at(position: int, tokens: list[int] = RECORDING, **limits: int) -> SequenceView:
    """The view after ``position`` recorded tokens."""
    return view([*PROMPT, *tokens[:position]], prompt_length=len(PROMPT), **limits)


def propose(adapter: ReplayAdapter, seen: SequenceView) -> Proposal:
    (proposal,) = adapter.propose([seen])
    return proposal


def accepted(proposal: Proposal, continuation: list[int]) -> list[int]:
    """Candidates on the walk along the continuation."""
    children = {
        (parent, token): i
        for i, (token, parent) in enumerate(zip(proposal.tokens, proposal.parents, strict=True))
    }
    walk: list[int] = []
    for token in continuation:
        node = children.get((walk[-1] if walk else -1, token))
        if node is None:
            break
        walk.append(node)
    return walk


settings_of_a_tree = st.fixed_dictionaries(
    {
        "error": st.sampled_from([0.0, 0.3, 1.0]),
        "accept": st.sampled_from([0, 0, 1, 3]),
        "branch": st.integers(1, 5),
        "side_depth": st.integers(0, 4),
        "depth": st.integers(0, 6),
        "seed": st.integers(0, 2**64 - 1),
    }
)


@given(
    st.integers(6, 30),
    st.data(),
    settings_of_a_tree,
    st.integers(0, 64),
    st.integers(0, 12),
)
def test_proposals_are_valid(
    size: int, data: st.DataObject, options: dict[str, Any], budget: int, max_depth: int
) -> None:
    recording = data.draw(st.lists(st.integers(0, size - 1), max_size=40))
    done = data.draw(st.integers(0, len(recording) + 2))
    adapter = bound(recording, vocab_size=size, **options)
    text = ReadOnly([*PROMPT, *([5] * done)])
    seen = view(text, prompt_length=len(PROMPT), budget=budget, max_depth=max_depth)
    proposal = propose(adapter, seen)
    tree = to_tree(proposal, seen, vocab_size=size, adapter="replay")
    assert max(tree.depths) <= max_depth
    # nothing is left unused: the tree is empty only where it must be
    left = max(0, min(len(recording) - done, budget, max_depth))
    assert (len(tree) == 1) == (left == 0)
    if options["branch"] == 1:
        assert len(tree) - 1 == (min(left, options["depth"]) if options["depth"] else left)


@pytest.mark.parametrize("position", [0, 1, 17, 39, 40, 41])
def test_without_errors_it_is_the_exact_continuation(position: int) -> None:
    proposal = propose(bound(), at(position, [*RECORDING, 9]))
    assert list(proposal.tokens) == RECORDING[position:]
    assert list(proposal.parents) == list(range(-1, len(RECORDING[position:]) - 1))
    assert proposal.log_probs is None


def test_it_keeps_the_position_when_the_text_differs() -> None:
    seen = view([*PROMPT, 40, 41], prompt_length=len(PROMPT), budget=4)
    assert list(propose(bound(), seen).tokens) == RECORDING[2:6]


def test_the_position_counts_from_the_prompt() -> None:
    seen = view(list(range(10)), prompt_length=8, budget=2)
    assert list(propose(bound(), seen).tokens) == RECORDING[2:4]


@pytest.mark.parametrize("branch", [1, 3])
def test_error_one_is_never_right(branch: int) -> None:
    adapter = bound(error=1.0, branch=branch, side_depth=1)
    for position in range(len(RECORDING)):
        proposal = propose(adapter, at(position))
        assert len(proposal.tokens) > 0
        assert accepted(proposal, RECORDING[position:]) == []


@pytest.mark.parametrize(("error", "branch"), [(0.1, 1), (0.35, 1), (0.35, 3), (0.9, 2)])
def test_error_rate(error: float, branch: int) -> None:
    recording = [(i * i) % VOCAB for i in range(6000)]
    adapter = bound(recording, error=error, branch=branch, seed=11)
    right = 0
    for position in range(len(recording)):
        proposal = propose(adapter, at(position, recording, budget=branch))
        right += len(accepted(proposal, recording[position:]))
    # five standard deviations of a binomial
    slack = 5 * (error * (1 - error) / len(recording)) ** 0.5
    assert right / len(recording) == pytest.approx(1 - error, abs=slack)


@pytest.mark.parametrize("branch", [1, 3])
@pytest.mark.parametrize("accept", [1, 2, 5])
def test_accept_ends_what_is_right(branch: int, accept: int) -> None:
    adapter = bound(accept=accept, branch=branch)
    for position in range(len(RECORDING) - accept):
        proposal = propose(adapter, at(position, budget=branch * accept + 1))
        assert len(accepted(proposal, RECORDING[position:])) == accept - 1
        assert len(proposal.tokens) == branch * accept + 1  # the budget is used all the same
    rest = propose(adapter, at(len(RECORDING) - accept + 1))
    assert len(accepted(rest, RECORDING[len(RECORDING) - accept + 1 :])) == accept - 1


def test_accept_and_errors_together() -> None:
    both, errors = bound(accept=4, error=0.3, seed=4), bound(error=0.3, seed=4)
    lengths = set()
    for position in range(30):
        there = RECORDING[position:]
        length = len(accepted(propose(both, at(position)), there))
        assert length == min(3, len(accepted(propose(errors, at(position)), there)))
        lengths.add(length)
    assert lengths == {0, 1, 2, 3}


def test_errors_are_independent_along_the_spine() -> None:
    recording = [(i * i) % VOCAB for i in range(20000)]
    (proposal,) = bound(recording, error=0.5, seed=3).propose(
        [at(0, recording, budget=4096, max_depth=4096)]
    )
    wrong = [a != b for a, b in zip(proposal.tokens, recording, strict=False)]
    assert sum(wrong) / len(wrong) == pytest.approx(0.5, abs=0.04)
    both = sum(a and b for a, b in pairwise(wrong)) / len(wrong)
    assert both == pytest.approx(0.25, abs=0.04)


def test_an_erroneous_position_is_the_same_in_every_round() -> None:
    adapter = bound(error=0.5, seed=2)
    whole = propose(adapter, at(0)).tokens
    assert whole != RECORDING
    for position in range(len(RECORDING)):
        assert propose(adapter, at(position)).tokens == whole[position:]


@pytest.mark.parametrize("side_depth", [0, 2])
@pytest.mark.parametrize("branch", [2, 4])
def test_the_right_token_is_at_each_level_of_the_spine(branch: int, side_depth: int) -> None:
    adapter = bound(branch=branch, side_depth=side_depth)
    proposal = propose(adapter, at(5))
    walk = accepted(proposal, RECORDING[5:])
    per_level = 1 + (branch - 1) * (1 + side_depth)
    assert len(walk) == -(-64 // per_level)
    for parent in [-1, *walk[:-2]]:
        assert proposal.parents.count(parent) == branch
    assert len(proposal.tokens) == 64


def test_the_right_token_is_at_every_place_among_its_siblings() -> None:
    adapter = bound(branch=3)
    places = set()
    for position in range(30):
        proposal = propose(adapter, at(position, budget=3))
        places.add(proposal.tokens.index(RECORDING[position]))
    assert places == {0, 1, 2}


@pytest.mark.parametrize("error", [0.0, 1.0])
def test_siblings_are_distinct_in_the_smallest_vocabulary(error: float) -> None:
    recording = [i % 6 for i in range(30)]
    adapter = bound(recording, vocab_size=6, branch=5, error=error)
    for position, right in enumerate(recording):
        tokens = list(propose(adapter, at(position, recording, budget=5)).tokens)
        assert len(set(tokens)) == len(tokens) == 5
        assert (right in tokens) == (error == 0)


def test_junk_chains_hang_below_wrong_siblings_only() -> None:
    proposal = propose(bound(branch=2, side_depth=2, depth=2), at(0))
    walk = accepted(proposal, RECORDING)
    by_depth = [path for path in paths(proposal) if path[0] != RECORDING[0]]
    assert sorted(map(len, by_depth)) == [1, 2, 3]
    assert len(walk) == 2 and len(proposal.tokens) == 8
    # the junk isn't what the recording has at its position either
    assert all(path[i] != RECORDING[i] for path in by_depth for i in range(len(path)))


def test_depth_and_the_end_of_the_recording_cut_the_spine() -> None:
    assert list(propose(bound(depth=3), at(4)).tokens) == RECORDING[4:7]
    assert list(propose(bound(branch=1), at(38)).tokens) == RECORDING[38:]
    assert propose(bound(branch=3, side_depth=2), at(40)) == Proposal()
    assert propose(bound([]), at(0)) == Proposal()


@given(settings_of_a_tree, st.integers(0, 39), st.integers(0, 64))
def test_a_proposal_depends_on_position_and_options_only(
    options: dict[str, Any], position: int, budget: int
) -> None:
    adapter = bound(**options)
    adapter.propose([at(3), at(20, budget=5)])
    assert propose(adapter, at(position, budget=budget)) == propose(
        bound(**options), at(position, budget=budget)
    )


def test_seeds_differ() -> None:
    trees = {tuple(propose(bound(error=0.5, branch=2, seed=s), at(0)).tokens) for s in range(8)}
    assert len(trees) == 8


def test_a_recorded_proposal_stays_the_same() -> None:
    proposal = propose(bound(error=0.5, branch=2, side_depth=1, seed=5), at(3, budget=9))
    assert (list(proposal.tokens), list(proposal.parents)) == (GOLDEN_TOKENS, GOLDEN_PARENTS)


GOLDEN_TOKENS = [30, 3, 40, 44, 13, 13, 49, 41, 39]
GOLDEN_PARENTS = [-1, -1, 0, 1, 1, 4, 3, 3, 7]


def test_bind_comes_first() -> None:
    with pytest.raises(LifecycleError, match="bind"):
        ReplayAdapter.of([1]).propose([at(0)])


@pytest.mark.parametrize("content", [[1, 2, 3], {"tokens": [1, 2, 3], "model": "any"}])
def test_options_and_recording_from_text(tmp_path: Path, content: object) -> None:
    file = tmp_path / "recording.json"
    file.write_text(json.dumps(content))
    adapter = create_adapter(
        "replay", {"path": str(file), "error": "0.25", "branch": "2", "seed": "9", "depth": "2"}
    )
    assert adapter.options == ReplayOptions(str(file), error=0.25, branch=2, seed=9, depth=2)
    adapter.bind(target(VOCAB))
    assert len(adapter.propose([at(0)])[0].tokens) == 4


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("error", "1.5", ("1.5", "0 to 1")),
        ("error", "-0.1", ("-0.1", "0 to 1")),
        ("error", "nan", ("nan", "0 to 1")),
        ("error", "often", ("often", "a number")),
        ("accept", "-1", ("-1", "0 to 4096")),
        ("branch", "0", ("0", "1 to 64")),
        ("branch", "65", ("65", "1 to 64")),
        ("side_depth", "-1", ("-1", "0 to 64")),
        ("depth", "-1", ("-1", "0 to 4096")),
        ("seed", "-1", ("-1", str(2**64 - 1))),
        ("branch", "2.5", ("2.5", "a whole number")),
        ("budget", "3", ("budget", "known")),
    ],
)
def test_bad_options(tmp_path: Path, option: str, text: str, words: tuple[str, ...]) -> None:
    file = tmp_path / "recording.json"
    file.write_text("[1]")
    fails({"path": str(file), option: text}, "replay", option, *words)


def test_the_path_is_required() -> None:
    fails({}, "replay", "path")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("not a JSON file",)),
        (b"[1, 2", ("not a JSON file",)),
        (b"\xff\xfe\x00", ("not a JSON file",)),
        (b"[" * 100_000, ("not a JSON file",)),
        (b"[" + b"9" * 5000 + b"]", ("recording.json",)),
        (b"12", ("holds no recording", "list of token ids")),
        (b'{"ids": [1]}', ("holds no recording",)),
        (b'{"tokens": 3}', ("holds no recording",)),
        (b'{"tokens": null}', ("holds no recording",)),
        (b'[1, "2"]', ("tokens[1]", "'2'", "integer")),
        (b"[1, 2.0]", ("tokens[1]", "2.0", "integer")),
        (b"[true]", ("tokens[0]", "True", "integer")),
        (b"[1, 2, -3]", ("tokens[2]", "-3")),
        (b"[4294967296]", ("tokens[0]", "4294967296")),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, words: tuple[str, ...]) -> None:
    file = tmp_path / "recording.json"
    file.write_bytes(content)
    fails({"path": str(file)}, "replay", "recording.json", *words)


@pytest.mark.parametrize("name", ["missing.json", ".", "bad\0name"])
def test_files_that_can_not_be_opened(tmp_path: Path, name: str) -> None:
    fails({"path": f"{tmp_path}/{name}"}, "replay", tmp_path.name)


def test_recording_of_another_vocabulary() -> None:
    adapter = ReplayAdapter.of([1, VOCAB - 1, VOCAB])
    with pytest.raises(OptionError, match=r"tokens\[2\].* is 50; .*0\.\.49") as caught:
        adapter.bind(target(VOCAB))
    assert "\n" not in str(caught.value)
    adapter.bind(target(VOCAB + 1))


def test_a_vocabulary_too_small_for_the_branches() -> None:
    ReplayAdapter.of([0], branch=3).bind(target(4))
    with pytest.raises(OptionError, match=r"branch is 4; .*less than 4"):
        ReplayAdapter.of([0], branch=4).bind(target(4))


def fails(options: dict[str, str], *words: str) -> None:
    with pytest.raises(OptionError) as caught:
        create_adapter("replay", options)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 1000
    assert all(word in message for word in words), message
