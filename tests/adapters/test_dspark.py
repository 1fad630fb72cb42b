"""The dspark adapter on drafters made of tables."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from adapter_views import paths, view
from block_trees import assert_is, best_paths, bound, propose
from fake_drafter import FakeConfidence, FakeDrafter, FakeMarkov, log_softmax, random_drafter
from hypothesis import given, settings
from hypothesis import strategies as st

from specla.adapters.dspark import DsparkAdapter, DsparkOptions
from specla.core.proposal import Proposal
from specla.errors import OptionError

VOCAB = 6
limits = st.fixed_dictionaries({"budget": st.integers(1, 30), "max_depth": st.integers(1, 4)})
trees = st.fixed_dictionaries(
    {
        "tau": st.sampled_from([0.0, 1.0, 3.0, 6.0, math.inf]),
        "top_k": st.integers(1, 4),
        "chain_seed": st.booleans(),
    }
)


def exact_row(drafter: FakeDrafter, root: int, path: tuple[int, ...]) -> np.ndarray:
    """Log-probabilities after a path, over the whole vocabulary."""
    assert drafter.markov is not None
    return log_softmax(drafter.logits[len(path)] + drafter.markov.table[(root, *path)[-1]])


def shortlist_row(drafter: FakeDrafter, root: int, path: tuple[int, ...], size: int) -> np.ndarray:
    """The same, where only the ``size`` best tokens of a row are corrected and can be children."""
    assert drafter.markov is not None
    logits = drafter.logits[len(path)].astype(np.float64)
    listed = np.argsort(-logits, kind="stable")[:size]
    logits[listed] += drafter.markov.table[(root, *path)[-1], listed]
    result = log_softmax(logits)
    result[np.setdiff1d(np.arange(VOCAB), listed)] = -np.inf
    return result


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), trees, limits, st.sampled_from([0, 4, 5, VOCAB, 50]))
def test_each_branch_is_corrected_by_its_own_tokens(
    seed: int, tree: dict[str, float], limit: dict[str, int], shortlist: int
) -> None:
    drafter = random_drafter(seed)
    adapter = bound(DsparkAdapter, drafter, shortlist=shortlist, **tree)
    exact = shortlist in (0, VOCAB, 50)
    expected = best_paths(
        lambda path: (
            exact_row(drafter, 2, path) if exact else shortlist_row(drafter, 2, path, shortlist)
        ),
        int(tree["top_k"]),
        limit["budget"],
        min(3, limit["max_depth"], limit["budget"]),
        tree["tau"],
        seed=bool(tree["chain_seed"]),
    )
    assert_is(propose(adapter, drafter, root=2, **limit), expected)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shortlist", [0, VOCAB])
def test_the_spine_bias_gives_all_nodes_of_a_depth_the_same_children(
    seed: int, shortlist: int
) -> None:
    drafter = random_drafter(seed)
    adapter = bound(DsparkAdapter, drafter, bias="spine", shortlist=shortlist, tau=math.inf)
    spine = [2]
    for depth in range(3):
        spine.append(int(exact_row(drafter, 2, (*spine[1:],)).argmax()))
        assert len(spine) == depth + 2
    expected = best_paths(
        lambda path: exact_row(drafter, 2, tuple(spine[1 : len(path) + 1])),
        4, 22, 3, math.inf, seed=False,
    )  # fmt: skip
    assert_is(propose(adapter, drafter, root=2, budget=22), expected)


@pytest.mark.parametrize(("greedy", "given_temperature"), [(True, None), (False, 0.5), (True, 0.5)])
@pytest.mark.parametrize("shortlist", [0, VOCAB])
def test_a_greedy_target_makes_the_draft_bold(
    greedy: bool, given_temperature: float | None, shortlist: int
) -> None:
    drafter = random_drafter(3)
    adapter = bound(
        DsparkAdapter, drafter, shortlist=shortlist, tau=math.inf, temperature=given_temperature
    )
    (proposal,) = adapter.propose([replace(view([1, 2], budget=9), greedy=greedy)])
    expected = best_paths(
        lambda path: log_softmax(exact_row(drafter, 2, path) / 0.5),
        4, 9, 3, math.inf, seed=False,
    )  # fmt: skip
    assert_is(proposal, expected)
    plain = bound(DsparkAdapter, drafter, shortlist=shortlist, tau=math.inf)
    assert propose(plain, drafter, root=2, budget=9).log_probs != proposal.log_probs


def test_spine_and_branch_differ_where_siblings_are_followed_by_other_tokens() -> None:
    """After 1 comes 3, after 2 comes 4; the row itself knows only that it is one of them."""
    table = np.zeros((5, 5), np.float32)
    table[1, 3] = table[2, 4] = 5.0
    logits = np.array([[-9, 1, 0.9, -9, -9], [-9, -9, -9, 1, 1]], np.float32)
    drafter = FakeDrafter(logits, FakeMarkov(table))
    branch = propose(bound(DsparkAdapter, drafter, top_k=2), drafter, budget=4)
    spine = propose(bound(DsparkAdapter, drafter, top_k=2, bias="spine"), drafter, budget=4)
    assert paths(branch) == [(1,), (1, 3), (2,), (2, 4)]
    assert paths(spine) == [(1,), (1, 3), (2,), (2, 3)]


def greedy_chain(drafter: FakeDrafter, root: int, count: int) -> list[tuple[int, float]]:
    chain: list[tuple[int, float]] = []
    for _ in range(count):
        row = exact_row(drafter, root, tuple(token for token, _ in chain))
        chain.append((int(row.argmax()), float(row.max())))
    return chain


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("budget", "max_depth"), [(22, 9), (2, 9), (22, 1)])
def test_a_chain_is_greedy_over_the_whole_vocabulary(
    seed: int, budget: int, max_depth: int
) -> None:
    drafter = random_drafter(seed)
    adapter = bound(DsparkAdapter, drafter, shape="chain")
    proposal = propose(adapter, drafter, root=3, budget=budget, max_depth=max_depth)
    chain = greedy_chain(drafter, 3, min(3, budget, max_depth))
    assert list(proposal.tokens) == [token for token, _ in chain]
    assert list(proposal.parents) == list(range(-1, len(chain) - 1))
    assert np.allclose(list(proposal.log_probs or ()), [value for _, value in chain], atol=1e-5)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("p_min", [0.2, 0.5, 0.9])
def test_confidence_cuts_the_chain_before_the_first_doubtful_token(seed: int, p_min: float) -> None:
    drafter = random_drafter(seed)
    assert drafter.confidence is not None
    whole = [token for token, _ in greedy_chain(drafter, 3, 3)]
    before = [3, *whole]
    sure = [bool(drafter.confidence.table[row, before[row]] >= p_min) for row in range(3)]
    count = sure.index(False) if False in sure else 3
    adapter = bound(DsparkAdapter, drafter, shape="chain", p_min=p_min)
    assert list(propose(adapter, drafter, root=3).tokens) == whole[:count]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shortlist", [0, 5])
def test_in_a_tree_a_doubtful_node_has_no_children_and_confidence_may_count(
    seed: int, shortlist: int
) -> None:
    drafter = random_drafter(seed)
    assert drafter.confidence is not None
    confidence = drafter.confidence.table

    def row(path: tuple[int, ...]) -> np.ndarray:
        sure = float(confidence[len(path), (2, *path)[-1]])
        if sure < 0.3:
            return np.full(VOCAB, -np.inf)
        exact = exact_row(drafter, 2, path)
        return np.log(sure) + (shortlist_row(drafter, 2, path, 5) if shortlist else exact)

    options = {"p_min": 0.3, "confidence": True, "shortlist": shortlist, "tau": math.inf}
    proposal = propose(bound(DsparkAdapter, drafter, **options), drafter, root=2, budget=12)
    assert_is(proposal, best_paths(row, 4, 12, 3, math.inf, seed=False))


def test_a_tree_of_one_child_over_the_whole_vocabulary_is_the_chain() -> None:
    for seed in range(8):
        drafter = random_drafter(seed)
        tree = bound(DsparkAdapter, drafter, top_k=1, shortlist=0, tau=math.inf)
        chain = bound(DsparkAdapter, drafter, shape="chain")
        assert paths(propose(tree, drafter)) == paths(propose(chain, drafter))


def test_a_shortlist_holds_all_children() -> None:
    drafter = random_drafter(1)
    short = bound(DsparkAdapter, drafter, top_k=5, shortlist=2, tau=math.inf)
    enough = bound(DsparkAdapter, drafter, top_k=5, shortlist=5, tau=math.inf)
    assert propose(short, drafter, budget=30) == propose(enough, drafter, budget=30)


def test_no_room_no_draft() -> None:
    drafter = random_drafter(1)
    for shape in ("tree", "chain"):
        adapter = bound(DsparkAdapter, drafter, shape=shape)
        assert propose(adapter, drafter, budget=0) == Proposal()
        assert propose(adapter, drafter, max_depth=0) == Proposal()
    assert drafter.asked == []


def test_a_drafter_without_the_heads_is_refused() -> None:
    bare = random_drafter(1, heads=False)
    with pytest.raises(OptionError, match="no Markov head; use --adapter ddtree"):
        bound(DsparkAdapter, bare)
    unsure = FakeDrafter(bare.logits, FakeMarkov(np.zeros((VOCAB, VOCAB), np.float32)))
    bound(DsparkAdapter, unsure)
    for options in ({"p_min": 0.1}, {"confidence": True}):
        (name,) = options
        with pytest.raises(OptionError, match=f"option {name} needs a confidence head"):
            bound(DsparkAdapter, unsure, **options)
        unsure.confidence = FakeConfidence(np.ones((3, VOCAB), np.float32))
        bound(DsparkAdapter, unsure, **options)
        unsure.confidence = None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": "bush"}, "option shape is 'bush'; it must be tree or chain"),
        ({"bias": "root"}, "option bias is 'root'; it must be branch or spine"),
        ({"p_min": 1.5}, "option p_min is 1.5"),
        ({"shortlist": -1}, "option shortlist is -1"),
        ({"tau": -0.5}, "option tau is -0.5"),
        ({"top_k": 0}, "option top_k is 0"),
    ],
)
def test_options_out_of_range(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=f"adapter 'dspark': .*{message}"):
        DsparkOptions("a draft.gguf", **options)  # type: ignore[arg-type]
