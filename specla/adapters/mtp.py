"""The extra prediction (MTP) layer of the target as a draft."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specla.adapters.autoregressive import AutoregressiveAdapter, check_vocabulary, opened
from specla.adapters.base import Needs, TargetInfo
from specla.adapters.checks import check_integers, check_probability
from specla.core.proposal import Proposal, SequenceView
from specla.core.topology import MAX_NODES
from specla.errors import OptionError

if TYPE_CHECKING:
    from specla.models.mtp.drafter import MtpDrafter, MtpGuess
    from specla.models.mtp.weights import MtpWeights
    from specla.models.qwen35.parts import TargetParts


@dataclass(frozen=True)
class MtpOptions:
    """Options of the mtp adapter.

    draft: GGUF with the layer, usually one of its own; empty for the layer in the target's file.
    depth: longest draft.  p_min: stop before the first token whose probability, among the ten most
    likely ones, is less.  n_min: a shorter draft is dropped.
    """

    draft: str = ""
    depth: int = 3
    p_min: float = 0.0
    n_min: int = 0

    def __post_init__(self) -> None:
        check_integers("mtp", self, depth=(1, MAX_NODES))
        check_integers("mtp", self, n_min=(0, self.depth))
        check_probability("mtp", self, "p_min")


class MtpAdapter(AutoregressiveAdapter["MtpDrafter"]):
    """Proposes a chain, token by token, from the target's last hidden state."""

    name = "mtp"
    Options = MtpOptions

    def __init__(self, options: Any = None) -> None:
        """Opens the file of the option ``draft``; loads nothing yet.

        Raises OptionError, one line, when it can't serve as a draft.
        """
        from specla.models.mtp.weights import open_mtp

        super().__init__(options if options is not None else MtpOptions())
        draft = self.options.draft
        self._weights = opened(self.name, open_mtp, draft) if draft else None

    def needs(self) -> Needs:
        """The output of the target's last layer, and its matrices."""
        return Needs(features=(-1,), parts=True)

    def load(self, target: TargetInfo, parts: TargetParts) -> MtpDrafter:
        """Raises OptionError when the target has no such layer or the draft isn't its own."""
        from specla.models.mtp.drafter import MtpDrafter

        weights = self._weights if self._weights is not None else _of_target(parts)
        _check_fit(self.options.draft, weights, target)
        column = target.features.index(target.n_layers - 1)
        return MtpDrafter(weights, parts, target.backend, column)

    def guesses(self, view: SequenceView, depth: int) -> Generator[MtpGuess, None, None]:
        """Of the extra layer."""
        return self.drafter.draft(view, depth)

    def _propose(self, view: SequenceView) -> Proposal:
        proposal = super()._propose(view)
        return proposal if len(proposal.tokens) >= self.options.n_min else Proposal()


def _of_target(parts: TargetParts) -> MtpWeights:
    from specla.models.mtp.weights import read_own_mtp

    if parts.extra is None or not parts.config.n_mtp_layers:
        raise OptionError(
            "adapter 'mtp': the target's file holds no extra prediction layer; name a file that "
            "does with --adapter-opt draft=PATH, or use another adapter"
        )
    return read_own_mtp(parts.extra, parts.config)


def _check_fit(draft: str, weights: MtpWeights, target: TargetInfo) -> None:
    """Raise OptionError unless the layer can be run beside the target."""
    config = weights.config
    remedy = "give the layer that belongs to this target"
    for what, found, wanted in (
        ("hidden size", config.d_model, target.d_model),
        ("vocabulary size", config.vocab_size, target.vocab_size),
    ):
        if found != wanted:
            raise OptionError(
                f"adapter 'mtp': draft {draft!r} has the {what} {found}, the target {wanted}; "
                f"{remedy}"
            )
    check_vocabulary("mtp", draft, config.vocabulary, target, remedy)
