"""DSpark: chains and trees from a block whose rows a Markov head corrects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specla.adapters.base import TargetInfo
from specla.adapters.block import BlockAdapter
from specla.adapters.block_rows import Confident, MarkovRows, MarkovVocabulary, SpineBias
from specla.adapters.block_tree import (
    TreeOptions,
    check_tree,
    draft_temperature,
    tree_shape,
    usable_rows,
)
from specla.adapters.checks import check_choice, check_integers, check_probability
from specla.core.proposal import Proposal, SequenceView
from specla.core.topology import MAX_TOKEN
from specla.core.trees import Expand, best_first
from specla.errors import OptionError
from specla.models.dflash.block import BlockDraft, MarkovHead
from specla.models.dflash.chain import confident_prefix, markov_chain


@dataclass(frozen=True)
class DsparkOptions(TreeOptions):
    """Options of the dspark adapter, beside those of drafter and tree.

    shape: ``tree`` or ``chain``; a chain takes no notice of the options of a tree.
    p_min: nothing is drafted after a token that leaves the confidence below it.
    shortlist: how many candidates of a row are corrected, the best without correction, at least
    ``top_k``; 0 for the whole vocabulary.  bias: of each branch's own token (``branch``), or that
    of the greedy path for all nodes of a depth (``spine``).  confidence: count a child's confidence
    into its probability.
    """

    shape: str = "tree"
    p_min: float = 0.0
    shortlist: int = 64
    bias: str = "branch"
    confidence: bool = False

    def __post_init__(self) -> None:
        check_tree("dspark", self)
        check_choice("dspark", self, "shape", "tree", "chain")
        check_choice("dspark", self, "bias", "branch", "spine")
        check_probability("dspark", self, "p_min")
        check_integers("dspark", self, shortlist=(0, MAX_TOKEN))


class DsparkAdapter(BlockAdapter):
    """Proposes what a drafter with a Markov head expects: a tree, or the greedy chain.

    The chain is DSpark's: each row corrected over the whole vocabulary by the token drafted before
    it. In the tree, each branch is corrected by its own tokens.
    """

    Options = DsparkOptions

    def bind(self, target: TargetInfo) -> None:
        super().bind(target)
        options, drafter = self.options, self.drafter
        self._vocab_size = target.vocab_size
        if drafter.markov is None:
            raise OptionError(
                f"adapter 'dspark': drafter {options.draft!r} has no Markov head; "
                f"use --adapter ddtree"
            )
        self._markov: MarkovHead = drafter.markov
        wants = "p_min" if options.p_min > 0 else "confidence" if options.confidence else None
        if wants and drafter.confidence is None:
            raise OptionError(
                f"adapter 'dspark': option {wants} needs a confidence head, and drafter "
                f"{options.draft!r} has none; leave the option out"
            )
        wanted = max(options.shortlist, options.top_k) if options.shortlist else 0
        self._shortlist = min(wanted, self._vocab_size)
        drafter.prepare(1 if options.shape == "chain" else max(self._shortlist, 1))

    @np.errstate(all="ignore")  # what a damaged draft says may be no number
    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """One chain or tree per view."""
        return [self._proposal(view) for view in views]

    def _proposal(self, view: SequenceView) -> Proposal:
        rows = usable_rows(self.drafter, view)
        if not rows:
            return Proposal()
        if self.options.shape == "chain":
            return self._chain(view, rows)
        shape = tree_shape(self.options, view, rows)
        return best_first(view.root, self._scoring(view, rows), shape)

    def _chain(self, view: SequenceView, rows: int) -> Proposal:
        draft = self.drafter.draft(view, rows, 1)
        tokens, log_probs = markov_chain(self.drafter, draft, rows)
        count = confident_prefix(self.drafter, draft, tokens, self.options.p_min)
        return Proposal.chain(tokens[:count], log_probs[:count])

    def _scoring(self, view: SequenceView, rows: int) -> Expand:
        options = self.options
        top_k = min(options.top_k, self._vocab_size)
        temperature = draft_temperature(options, view)
        shortlist = self._shortlist
        draft = self.drafter.draft(view, rows, max(shortlist, 1))
        scoring: Expand
        if shortlist:
            scoring = MarkovRows(
                draft, self._markov, top_k, shortlist, self._vocab_size, temperature
            )
        else:
            scoring = MarkovVocabulary(draft, self._markov, top_k, temperature)
        if options.confidence or options.p_min > 0:
            scoring = self._heeding_confidence(scoring, draft)
        return SpineBias(scoring) if options.bias == "spine" else scoring

    def _heeding_confidence(self, scoring: Expand, draft: BlockDraft) -> Expand:
        head = self.drafter.confidence
        if head is None:
            return scoring
        return Confident(scoring, draft, head, self.options.p_min, self.options.confidence)
