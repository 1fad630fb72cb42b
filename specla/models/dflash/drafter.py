"""A DFlash drafter bound to a target: the block, and the context that it is drafted from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.adapters.base import TargetInfo
from specla.backends.base import RotaryTable
from specla.backends.pools import KvPool, KvShape
from specla.core.paging import pages_for
from specla.core.plan import StepPlan
from specla.core.proposal import SequenceView
from specla.errors import CapacityError, OptionError, SpeclaError
from specla.models.dflash.block import BlockDraft, ConfidenceHead, MarkovHead, Selector
from specla.models.dflash.confidence import DsparkConfidence
from specla.models.dflash.contexts import Context, Contexts
from specla.models.dflash.layers import DraftLayer, DraftStep
from specla.models.dflash.markov import DsparkMarkov
from specla.models.dflash.plans import AppendPlans, BlockPlans
from specla.models.dflash.rope import draft_table
from specla.models.dflash.selector import PathSelector
from specla.models.dflash.sight import SightPair
from specla.models.dflash.weights import DraftWeights
from specla.models.workspace import Workspace

Int32 = npt.NDArray[np.int32]

_RUN = 32
"""Positions that are taken up at once when there are many, but less than a chunk."""
_NOBODY = -1
"""A key that no sequence has."""


class DflashDrafter:
    """Implements BlockDrafter (block.py).

    A block has ``slots`` slots, as it was trained: the root, then masks; fewer where no slot sees
    later ones, so that those make no difference. ``draft`` returns the rows that were asked for.
    first: slot of the first row, 0 where the root's slot drafts.
    """

    def __init__(self, weights: DraftWeights, target: TargetInfo, slots: int) -> None:
        if target.parts is None:
            raise OptionError("a draft model needs the target's parts; declare Needs(parts=True)")
        config, parts, backend = weights.config, target.parts, target.backend
        self.config, self.slots = config, slots
        self.first = 0 if config.anchor_first else 1
        self.depth = slots - self.first
        self._causal = SightPair(config, slots).causal
        self._backend, self._target = backend, target
        self._features = [target.features.index(layer) for layer in config.target_layers]
        self._load(weights)
        self.markov: MarkovHead | None = None
        self.confidence: ConfidenceHead | None = None
        self.selector: Selector | None = None
        if weights.markov is not None:
            head = DsparkMarkov(backend, weights.markov, weights.ids, target.vocab_size)
            self.markov = head
        if weights.confidence is not None:
            self.confidence = DsparkConfidence(backend, weights.confidence, weights.markov)
        if weights.selector is not None and config.dflash2 is not None:
            self.selector = PathSelector(backend, weights.selector, config.dflash2.top_k)
        rows = target.context + slots
        cos, sin = draft_table(rows, config.rope, parts.config.rope_base)
        self._table = RotaryTable(backend.upload(cos), backend.upload(sin))
        shape = KvShape(
            slots=parts.options.slots,
            layers=config.n_layers,
            pages=parts.options.slots * pages_for(rows),
            heads=config.n_kv_heads,
            head_dim=config.head_dim,
            context=rows,
            dtype=parts.options.kv,
        )
        poison = parts.options.poison
        self._contexts = Contexts(backend, shape, poison=poison)
        self._chunk = min(parts.options.chunk, target.context)
        runs = {min(size, self._chunk) for size in (self.depth + 1, _RUN, self._chunk)}
        self._runs = sorted(runs, reverse=True)
        self._workspace = Workspace(backend, max(self._chunk, slots), poison=poison)
        self._gathered = backend.empty((self._chunk, weights.fc.cols))
        self._append_plans = AppendPlans(backend, self._chunk)
        self._block_plans: dict[int, BlockPlans] = {}
        self._runner = backend.step_runner()
        self._last: tuple[Context, int] | None = None

    def _load(self, weights: DraftWeights) -> None:
        backend, parts = self._backend, self._target.parts
        assert parts is not None  # checked before
        self._fc = backend.load(weights.fc)
        self._hidden_norm = backend.upload(weights.hidden_norm)
        self._output_norm = backend.upload(weights.output_norm)
        own, head = weights.embedding, weights.output
        self._embedding = parts.embedding if own is None else backend.load(own)
        self._output = parts.output
        if head is not None:
            self._output = self._embedding if head is own else backend.load(head)
        self._ids = weights.ids
        self._layers = [DraftLayer(backend, i, layer) for i, layer in enumerate(weights.layers)]

    # -- what an adapter calls -------------------------------------------------------------------

    def prepare(self, k: int) -> None:
        """Be ready for blocks of every depth with ``k`` best tokens, and for what follows them:
        nothing but time depends on it."""
        context = self._contexts.of(_NOBODY)
        try:
            for count in {*range(1, self._runs[-1]), *self._runs}:
                self._runner.prepare(*self._append_calls(context, 0, count))
            for depth in range(1, self.depth + 1):
                self._runner.prepare(*self._block_calls(context, depth, k)[1:])
        finally:
            self._contexts.close(_NOBODY)

    def take_up(self, view: SequenceView) -> None:
        """Take up what is committed, as ``draft`` does at first: of a long prompt, say."""
        if len(view.tokens) > self._target.context + 1:
            raise CapacityError(
                f"a text of {len(view.tokens)} tokens; the drafter has room for the target's "
                f"context of {self._target.context}"
            )
        context = self._contexts.of(view.key)
        context.agree(view)
        self._take_up(context, view)

    def draft(self, view: SequenceView, depth: int, k: int) -> BlockDraft:
        """Take up what was committed since the last call, then draft ``depth`` rows, at most
        ``self.depth``, with their ``k`` best tokens each."""
        self._last = None
        self.take_up(view)
        context = self._contexts.of(view.key)
        depth = max(min(depth, self.depth), 1)
        draft = self._run_block(context, view, (), depth, k)
        self._last = context, depth
        return draft

    def redraft(self, view: SequenceView, prefix: Sequence[int], k: int) -> BlockDraft:
        """The last block again with the tokens ``prefix`` after the root in place of masks; row
        ``len(prefix)`` predicts what follows them."""
        context = self._contexts.of(view.key)
        last, depth = self._last or (None, 0)
        if last is not context or context.length != len(view.tokens) - 1:
            raise SpeclaError("redraft without a draft of the same sequence and root before it")
        if len(prefix) >= depth:
            raise SpeclaError(f"a prefix of {len(prefix)} tokens in a block that drafts {depth}")
        return self._run_block(context, view, prefix, depth, k)

    def serves(self, target: TargetInfo) -> bool:
        """Whether this is the loaded target that the drafter was made for."""
        mine, parts = self._target, target.parts
        return (
            parts is not None
            and mine.parts is not None
            and parts.embedding is mine.parts.embedding
            and parts.options == mine.parts.options
            and target.backend is mine.backend
        )

    def close(self, key: int) -> None:
        """Drop a sequence's context."""
        self._last = None
        self._contexts.close(key)

    # -- the context -----------------------------------------------------------------------------

    def _take_up(self, context: Context, view: SequenceView) -> None:
        """Keys and values of the positions that were committed since: all but the root."""
        committed = len(view.tokens) - 1
        while context.length < committed:
            start = context.length
            left = committed - start
            # in few sizes: each is recorded when it first comes
            count = left if left < self._runs[-1] else next(n for n in self._runs if n <= left)
            self._append(context, view.features(start, start + count), start, count)
            # only now: whatever failed above is done again
            context.advance(view, start + count)

    def _append(self, context: Context, features: Any, start: int, count: int) -> None:
        backend, width = self._backend, self._target.d_model
        for i, index in enumerate(self._features):
            columns = slice(i * width, (i + 1) * width)
            source = (slice(None), index)
            backend.copy(self._gathered, (slice(count), columns), features, source)
        self._runner.run(*self._append_calls(context, start, count))

    def _append_calls(
        self, context: Context, start: int, count: int
    ) -> tuple[tuple[str, int], StepPlan, Callable[[], None]]:
        backend = self._backend
        plan, shape = self._append_plans.fill(context.slot, start, count)

        def calls() -> None:
            step = self._step(context.pool, plan)
            (mixed,) = step.project(backend.rows(self._gathered, count), (self._fc,), ("mixed",))
            fused = step.rows("normed", self.config.d_model)
            backend.rms_norm(mixed, self._hidden_norm, self.config.rms_eps, fused)
            for layer in self._layers:
                layer.append(step, fused, plan)

        return ("append", context.pool_index), shape, calls

    def _step(self, pool: KvPool, plan: StepPlan) -> DraftStep:
        return DraftStep(
            self._backend,
            self._workspace,
            self.config,
            self._table,
            pool,
            plan.n_rows,
            plan.position,
        )

    # -- the block -------------------------------------------------------------------------------

    def _run_block(
        self, context: Context, view: SequenceView, prefix: Sequence[int], depth: int, k: int
    ) -> BlockDraft:
        plans, *step = self._block_calls(context, depth, k)
        tokens = np.full(plans.shape.n_rows, self.config.mask_token, dtype=np.int32)
        tokens[0] = view.root
        tokens[1 : 1 + len(prefix)] = prefix
        plans.fill(context.slot, context.length, tokens)
        hidden, logits, *best = self._runner.run(*step)
        values, ids, top, total = self._backend.download_all(*best)
        if self._ids is not None:
            ids = self._ids[ids]
        with np.errstate(all="ignore"):
            log_total = top.astype(np.float64) + np.log(total, dtype=np.float64)
        return BlockDraft(view.root, ids, values, log_total, hidden, logits)

    def _block_calls(
        self, context: Context, depth: int, k: int
    ) -> tuple[BlockPlans, tuple[str, int, int, int], StepPlan, Callable[[], tuple[Any, ...]]]:
        slots = self.first + depth if self._causal else self.slots
        plans, rows = self._plans(slots), self._target.context + self.slots
        n_keys = self._backend.padded_keys(context.length + slots, rows)
        shape, of_layer = plans.launched_for(n_keys)
        k = max(min(k, self._output.source.rows), 1)

        def calls() -> tuple[Any, ...]:
            step = self._step(context.pool, plans.block)
            return self._block(step, plans.block, of_layer, depth, k)

        return plans, ("block", context.pool_index, depth, k), shape, calls

    def _plans(self, slots: int) -> BlockPlans:
        if slots not in self._block_plans:
            sights = SightPair(self.config, slots)
            self._block_plans[slots] = BlockPlans(self._backend, sights, self._target.context)
        return self._block_plans[slots]

    def _block(
        self, step: DraftStep, plan: StepPlan, of_layer: list[StepPlan], depth: int, k: int
    ) -> tuple[Any, ...]:
        """All kernels of a block: hidden rows, logits, best values and ids, maxima and sums."""
        backend, config = self._backend, self.config
        x = step.rows("x", config.d_model)
        backend.embed(plan.tokens, self._embedding, x)
        for layer, sight in zip(self._layers, of_layer, strict=True):
            layer.forward(step, x, plan, sight)
        normed = step.rows("final", config.d_model)
        backend.rms_norm(x, self._output_norm, config.rms_eps, normed)
        hidden = backend.view(normed, slice(self.first, self.first + depth))
        (logits,) = step.project(hidden, (self._output,), ("logits",), self.slots)
        values = step.rows("values", k, n=depth, capacity=self.slots)
        ids = self._workspace.rows("ids", depth, k, dtype="int32", capacity=self.slots)
        backend.top_k(logits, k, values, ids)
        top = step.rows("top", n=depth, capacity=self.slots)
        total = step.rows("total", n=depth, capacity=self.slots)
        backend.soft_sums(logits, top, total)
        return hidden, logits, values, ids, top, total
