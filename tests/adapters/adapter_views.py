"""What the tests of the adapters share: views, a target, and reading a proposal by paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from specla.adapters.base import TargetInfo
from specla.core.proposal import Proposal, SequenceView


def no_features(start: int, stop: int) -> NoReturn:
    raise AssertionError(f"features({start}, {stop}) of an adapter that declared none")


def view(
    tokens: Sequence[int],
    *,
    prompt_length: int | None = None,
    budget: int = 64,
    max_depth: int = 64,
    key: int = 0,
) -> SequenceView:
    prompt = len(tokens) if prompt_length is None else prompt_length
    return SequenceView(key, tokens, prompt, budget, max_depth, no_features)


def target(vocab_size: int) -> TargetInfo:
    return TargetInfo(
        architecture="qwen35",
        vocab_size=vocab_size,
        d_model=8,
        n_layers=4,
        eos_ids=(0,),
        max_nodes=4096,
        backend=None,
    )


def paths(proposal: Proposal) -> list[tuple[int, ...]]:
    """The tokens from the root (excluded) to each candidate, in the proposal's order."""
    result: list[tuple[int, ...]] = []
    for token, parent in zip(proposal.tokens, proposal.parents, strict=True):
        result.append((*(result[parent] if parent >= 0 else ()), token))
    return result
