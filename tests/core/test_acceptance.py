"""The walk and the cut; and the promise: any tree, any cut, the tokens of sequential sampling."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specla.core.acceptance import Acceptance, cut, walk
from specla.core.sampling import Sampler, SamplingParams
from specla.core.topology import Tree
from specla.errors import LifecycleError, TopologyError

#        0:5
#       /   \
#     1:7   2:8
#    /   \     \
#  3:9  4:7    5:9
TREE = Tree.build((5, 7, 8, 9, 7, 9), (-1, 0, 0, 1, 1, 2))


@pytest.mark.parametrize(
    ("choices", "path", "bonus"),
    [
        ({0: 6}, (0,), 6),
        ({0: 8, 2: 7}, (0, 2), 7),
        ({0: 7, 1: 7, 4: 1}, (0, 1, 4), 1),
        ({0: 7, 1: 9, 3: 9}, (0, 1, 3), 9),
        ({0: 8, 2: 9, 5: 5}, (0, 2, 5), 5),
    ],
)
def test_walk_hand_worked(choices: dict[int, int], path: tuple[int, ...], bonus: int) -> None:
    calls: list[tuple[int, tuple[int, ...]]] = []

    def choose(node: int, accepted: tuple[int, ...]) -> int:
        calls.append((node, accepted))
        return choices[node]

    got = walk(TREE, choose)
    assert got == Acceptance(path, bonus)
    assert got.accept_length == len(path)
    assert got.emitted(TREE) == tuple(choices[node] for node in path)
    # one call per node of the path, in order, with the tokens from the root (excluded) to it
    tokens = [TREE.tokens[node] for node in path[1:]]
    assert calls == [(node, tuple(tokens[:i])) for i, node in enumerate(path)]


def test_lone_root_is_plain_decoding() -> None:
    assert walk(Tree.lone(5), lambda node, accepted: 5) == Acceptance((0,), 5)


def test_numpy_choice_becomes_a_python_int() -> None:
    got = walk(TREE, lambda node, accepted: np.int64(8))  # type: ignore[arg-type,return-value]
    assert got == Acceptance((0, 2), 8)
    assert type(got.bonus) is int


@pytest.mark.parametrize(
    ("n_emit", "path", "bonus"), [(1, (0,), 7), (2, (0, 1), 9), (3, (0, 1, 3), 4)]
)
def test_cut_hand_worked(n_emit: int, path: tuple[int, ...], bonus: int) -> None:
    whole = Acceptance((0, 1, 3), 4)
    got = cut(whole, TREE, n_emit)
    assert got == Acceptance(path, bonus)
    assert got.emitted(TREE) == whole.emitted(TREE)[:n_emit]


@pytest.mark.parametrize("n_emit", [0, -1, 4, 100])
def test_cut_out_of_range(n_emit: int) -> None:
    with pytest.raises(LifecycleError, match=rf"cut a round to {n_emit} tokens: it emits 1\.\.3"):
        cut(Acceptance((0, 1, 3), 4), TREE, n_emit)


@pytest.mark.parametrize("path", [(), (1,), (0, 3), (0, 1, 6), (0, -1)])
def test_cut_of_a_path_that_is_not_in_the_tree(path: tuple[int, ...]) -> None:
    with pytest.raises(TopologyError):
        cut(Acceptance(path, 4), TREE, 1)


# --- speculation changes nothing --------------------------------------------------------------

VOCAB = 6
PROMPT = [1, 4, 2]


def model(history: Sequence[int]) -> np.ndarray:
    """float32 [VOCAB] logits, a function of the history; on a grid, so that ties occur."""
    rng = np.random.default_rng(zlib.crc32(bytes(history)))
    return (rng.integers(-6, 7, VOCAB) / 4).astype(np.float32)


def ban_last(history: Sequence[int], logits: np.ndarray) -> np.ndarray:
    logits[history[-1]] = -np.inf
    return logits


def sequential(sampler: Sampler, length: int) -> list[int]:
    tokens = list(PROMPT)
    while len(tokens) < length:
        tokens.append(sampler.choose(model(tokens), tokens, len(tokens)))
    return tokens


def random_tree(rng: random.Random, root: int, guess: Sequence[int]) -> Tree:
    """Up to 24 nodes in a random topological order. Half of the trees follow ``guess`` for a while,
    so that walks get far; all have random branches."""
    tokens, parents, taken = [root], [-1], set[tuple[int, int]]()

    def add(parent: int, token: int) -> None:
        if (parent, token) not in taken and len(tokens) < 24:
            taken.add((parent, token))
            tokens.append(token)
            parents.append(parent)

    tip = 0
    for token in guess[: rng.choice((0, 0, 2, 9))]:
        for _ in range(rng.randrange(3)):
            add(rng.randrange(len(tokens)), rng.randrange(VOCAB))
        add(tip, token)
        tip = next((i for i, p in enumerate(parents) if p == tip and tokens[i] == token), tip)
    for _ in range(rng.choice((0, 1, 6, 23))):
        add(rng.randrange(len(tokens)), rng.randrange(VOCAB))
    return Tree.build(tokens, parents)


SETTINGS = st.one_of(
    st.just(SamplingParams()),
    st.just(SamplingParams(repetition_penalty=1.7, penalty_window=5, logit_bias={2: 0.25})),
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.3, 1.0, 2.0]),
        top_k=st.integers(0, VOCAB),
        top_p=st.sampled_from([1.0, 0.8]),
        min_p=st.sampled_from([0.0, 0.1]),
        seed=st.integers(0, 2**64 - 1),
        frequency_penalty=st.sampled_from([0.0, 0.4]),
    ),
)


def speculative(
    sampler: Sampler, rng: random.Random, plain: list[int], cut_share: float
) -> tuple[list[int], list[int], list[int]]:
    """Decode as many tokens as ``plain`` holds; ``plain`` only shapes the trees.

    Returns all tokens, the committed tokens (root not among them) and the accept lengths.
    """
    length = len(plain)
    tokens, committed, lengths = list(PROMPT), list(PROMPT[:-1]), []
    while len(tokens) < length:
        tree = random_tree(rng, tokens[-1], plain[len(tokens) :])

        def choose(node: int, accepted: tuple[int, ...]) -> int:
            history = [*tokens, *accepted]  # noqa: B023 (called within this turn of the loop)
            return sampler.choose(model(history), history, len(history))

        result = walk(tree, choose)
        if rng.random() < cut_share:
            result = cut(result, tree, rng.randint(1, result.accept_length))
        result = cut(result, tree, min(result.accept_length, length - len(tokens)))
        committed += [tree.tokens[node] for node in result.path]
        tokens += result.emitted(tree)
        lengths.append(result.accept_length)
        # at every stop: all but the newest token are in the state, which is the next root
        assert committed == tokens[:-1]
    return tokens, committed, lengths


@settings(max_examples=60)
@given(
    params=SETTINGS,
    seed=st.integers(0, 10**9),
    cut_share=st.sampled_from([0.0, 0.5, 1.0]),
    ban=st.booleans(),
)
def test_any_tree_and_any_cut_give_the_sequential_tokens(
    params: SamplingParams, seed: int, cut_share: float, ban: bool
) -> None:
    sampler = Sampler(params, [ban_last] if ban else [])
    plain = sequential(sampler, 40)
    tokens, committed, _ = speculative(sampler, random.Random(seed), plain, cut_share)
    assert tokens == plain
    assert committed == plain[:-1]


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=1.0, seed=3)])
def test_the_property_is_not_vacuous(params: SamplingParams) -> None:
    """Candidates do get accepted, sometimes many, sometimes none; the text isn't constant."""
    plain = sequential(Sampler(params), 200)
    _, _, lengths = speculative(Sampler(params), random.Random(1), plain, 0.0)
    assert len(set(plain[3:])) >= 3
    assert max(lengths) >= 8
    assert lengths.count(1) >= 5
    assert sum(lengths) / len(lengths) > 1.5
