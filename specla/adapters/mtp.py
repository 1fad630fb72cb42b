"""The extra prediction (MTP) layer of the target as a draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specla.adapters.base import Adapter, Needs, TargetInfo
from specla.adapters.checks import check_integers, check_probability
from specla.core.proposal import Proposal, SequenceView
from specla.core.topology import MAX_NODES
from specla.errors import LifecycleError, OptionError, SpeclaError

if TYPE_CHECKING:
    from specla.models.mtp.drafter import MtpDrafter
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


class MtpAdapter(Adapter):
    """Proposes a chain, token by token, from the target's last hidden state.

    What is drafted is a function of the text alone: rejected tokens leave nothing behind.
    """

    Options = MtpOptions

    def __init__(self, options: Any = None) -> None:
        """Opens the file of the option ``draft``; loads nothing yet.

        Raises OptionError, one line, when it can't serve as a draft.
        """
        super().__init__(options if options is not None else MtpOptions())
        self._weights = _opened(self.options.draft) if self.options.draft else None
        self._parts: TargetParts | None = None
        self._drafter: MtpDrafter | None = None

    def needs(self) -> Needs:
        """The output of the target's last layer, and its matrices."""
        return Needs(features=(-1,), parts=True)

    def bind(self, target: TargetInfo) -> None:
        """Load the layer. Raises OptionError when the target has none or the draft isn't its own.

        Binding to the same target again changes nothing.
        """
        from specla.models.mtp.drafter import MtpDrafter

        parts = target.parts
        if parts is None:
            raise OptionError("adapter 'mtp' needs the target's parts; bind it through specla")
        if self._parts is not None and self._parts.output_norm is parts.output_norm:
            return
        weights = self._weights if self._weights is not None else _of_target(parts)
        _check_fit(self.options.draft, weights, target)
        column = target.features.index(target.n_layers - 1)
        self._drafter = MtpDrafter(weights, parts, target.backend, column)
        self._parts = parts

    def open(self, view: SequenceView) -> None:
        """Make room for the sequence; a sequence opened again starts from scratch."""
        self._bound.open(view.key)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """One chain per view."""
        return [self._propose(view) for view in views]

    def close(self, view: SequenceView) -> None:
        """Give the sequence's room back."""
        if self._drafter is not None:
            self._drafter.close(view.key)

    @property
    def _bound(self) -> MtpDrafter:
        if self._drafter is None:
            raise LifecycleError("adapter 'mtp' drafts only after bind(); bind a target")
        return self._drafter

    def _propose(self, view: SequenceView) -> Proposal:
        depth = min(self.options.depth, view.budget, view.max_depth)
        tokens: list[int] = []
        log_probs: list[float] = []
        for guess in self._bound.draft(view, depth):
            if guess.confidence < self.options.p_min:
                break
            tokens.append(guess.token)
            log_probs.append(guess.log_prob)
        if len(tokens) < self.options.n_min:
            return Proposal()
        return Proposal.chain(tokens, log_probs)


def _opened(path: str) -> MtpWeights:
    from specla.models.mtp.weights import open_mtp

    try:
        return open_mtp(path)
    except SpeclaError as error:
        raise OptionError(f"adapter 'mtp': draft {error}") from error


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
    for what, found, wanted in (
        ("hidden size", config.d_model, target.d_model),
        ("vocabulary size", config.vocab_size, target.vocab_size),
    ):
        if found != wanted:
            raise OptionError(
                f"adapter 'mtp': draft {draft!r} has the {what} {found}, the target {wanted}; "
                f"give the layer that belongs to this target"
            )
    known = None not in (config.vocabulary, target.vocabulary)
    if known and config.vocabulary != target.vocabulary:
        raise OptionError(
            f"adapter 'mtp': draft {draft!r} has another token list than the target; "
            f"give the layer that belongs to this target"
        )
