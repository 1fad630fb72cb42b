"""The target's own choice after a node: what a candidate must be to be accepted."""

from __future__ import annotations

from collections.abc import Sequence

from specla.core.acceptance import Choose
from specla.core.sampling import Sampler
from specla.errors import SpeclaError
from specla.models.qwen35.target import Qwen35Target, Verified


def chooser(
    target: Qwen35Target, sampler: Sampler, verified: Verified, tokens: Sequence[int]
) -> Choose:
    """The choices of plain decoding, asking the device for no more than the sampler needs.

    verified: one sequence's tree, the target's last pass; its rows are the nodes.
    tokens: of that sequence, the root last; they stay as they are while choices are made.
    A choice raises SpeclaError if no token is possible (all logits are NaN or -inf), and whatever
    a processor of the sampler raises.
    """
    vocab = target.config.vocab_size
    top = sampler.top_needed(vocab)
    if top is None:

        def choice(node: int, accepted: tuple[int, ...], position: int) -> int:
            row = target.logits(verified, node)
            return sampler.choose(row, [*tokens, *accepted], position)

    elif sampler.params.is_greedy:
        greedy = target.argmax(verified)

        def choice(node: int, accepted: tuple[int, ...], position: int) -> int:
            return _possible(int(greedy[node]), position)

    else:
        values, ids = target.top_k(verified, top)

        def choice(node: int, accepted: tuple[int, ...], position: int) -> int:
            return sampler.choose_from_top(values[node], ids[node], position, vocab_size=vocab)

    return lambda node, accepted: choice(node, accepted, len(tokens) + len(accepted))


def _possible(token: int, position: int) -> int:
    """The token that argmax found. Raises SpeclaError if it found none (-1)."""
    if token < 0:
        raise SpeclaError(
            f"no token is possible at position {position}: every logit is NaN or -inf; "
            f"check the model file"
        )
    return token
