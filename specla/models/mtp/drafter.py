"""Drafting with an extra prediction layer: token by token, from the target's last hidden state.

The row of the token x at position p joins the embedding of x and the hidden state at p - 1, runs
one full-attention layer of the target's kind and predicts the token at p + 1. Keys and values of
decided tokens, the root included, are made from the target's hidden states and stay; those of
drafted tokens, whose hidden states are the layer's own, lie behind them until they are overwritten.
Architecture: DeepSeek-V3 (arXiv 2412.19437), section 2.2, as Qwen3.5 has it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specla.backends.base import Backend, RotaryTable, Weight
from specla.backends.pools import KvShape, RecurrentShape
from specla.backends.weights import WeightSource
from specla.core.paging import pages_for
from specla.core.plan import Place, build_plan
from specla.core.proposal import SequenceView
from specla.core.topology import Forest, Tree
from specla.models.draft_scores import LEADERS, leading_share, log_probability
from specla.models.mtp.weights import MtpWeights
from specla.models.qwen35.layers import AttentionLayer, Step
from specla.models.qwen35.parts import TargetParts
from specla.models.qwen35.rotary import rotary_table
from specla.models.sequence import Sequence as Cached
from specla.models.store import SequenceStore
from specla.models.workspace import Workspace


@dataclass(frozen=True)
class MtpGuess:
    """A drafted token. log_prob: over the vocabulary.  confidence: share among the LEADERS best."""

    token: int
    log_prob: float
    confidence: float


@dataclass(eq=False)
class _Context:
    """What is kept of a text: its keys and values, as many as ``cached.length`` says.

    last: the token of the newest of them.
    """

    cached: Cached
    last: int = -1


class MtpDrafter:
    """An extra prediction layer bound to a target.

    column: index of the target's last layer among its captured features.
    """

    def __init__(
        self, weights: MtpWeights, parts: TargetParts, backend: Backend, column: int
    ) -> None:
        self.config, self.backend = weights.config, backend
        self._parts, self._column = parts, column
        self._embedding = _loaded(backend, weights.embedding, parts.embedding)
        tied = weights.output is not None and weights.output is weights.embedding
        self._output = self._embedding if tied else _loaded(backend, weights.output, parts.output)
        self._fc = backend.load(weights.fc)
        self._embedding_norm = backend.upload(weights.embedding_norm)
        self._hidden_norm = backend.upload(weights.hidden_norm)
        self._output_norm = backend.upload(weights.output_norm)
        self._layer = AttentionLayer(backend, 0, weights.layer)
        options, config = parts.options, weights.config
        cos, sin = rotary_table(options.context, config.rotary_dim, config.rope_base)
        self._table = RotaryTable(backend.upload(cos), backend.upload(sin))
        self._store = _store(weights, parts, backend)
        capacity = backend.padded_rows(options.chunk)
        self._workspace = Workspace(backend, capacity, poison=options.poison)
        self._runner = backend.step_runner()
        self._contexts: dict[int, _Context] = {}

    def open(self, key: int) -> None:
        """Make room for a sequence, which starts from nothing. Raises CapacityError when as many
        are open as the target has slots."""
        self.close(key)
        self._contexts[key] = _Context(self._store.open())

    def close(self, key: int) -> None:
        """Drop what is kept of a sequence, if anything."""
        context = self._contexts.pop(key, None)
        if context is not None:
            self._store.close(context.cached)

    def draft(self, view: SequenceView, depth: int) -> Generator[MtpGuess, None, None]:
        """Take up what was decided since the last call, then guess up to ``depth`` tokens after the
        root, each when it is asked for. Ends early at the end of the context, and where no token is
        possible."""
        context = self._caught_up(view)
        root = len(view.tokens) - 1
        depth = min(depth, self._parts.options.context - root)
        if depth <= 0:
            return
        self._store.pages.reserve(context.cached, depth)
        token, hidden = view.root, self._target_hidden(view, root, root + 1)
        for position in range(root, root + depth):
            first = position == root
            guess, hidden = self._guess(context.cached, token, position, hidden, first)
            if first:
                # made of the target's hidden state: it stays
                context.cached.ledger.length, context.last = root + 1, token
            if guess is None:
                return
            yield guess
            token = guess.token

    # -- context -------------------------------------------------------------------------------

    def _caught_up(self, view: SequenceView) -> _Context:
        """The sequence's context with the rows of all tokens but the root.

        The length moves on after each chunk, so whatever fails costs no more than to do it again.
        """
        if view.key not in self._contexts:
            self.open(view.key)
        context, tokens = self._contexts[view.key], view.tokens
        ledger, root = context.cached.ledger, len(tokens) - 1
        if ledger.length > len(tokens) or (
            ledger.length and tokens[ledger.length - 1] != context.last
        ):
            ledger.length = 0  # another text
        ledger.length = min(ledger.length, root)
        chunk = self._parts.options.chunk
        for start in range(ledger.length, root, chunk):
            stop = min(start + chunk, root)
            self._remember(context.cached, view, start, stop)
            ledger.length, context.last = stop, tokens[stop - 1]
        return context

    def _remember(self, cached: Cached, view: SequenceView, start: int, stop: int) -> None:
        """Keys and values of positions start..stop - 1."""
        self._store.pages.reserve(cached, stop - start)
        step = self._step(cached, view.tokens[start:stop], start)
        joined = self._joined(step, self._target_hidden(view, start, stop))
        self._runner.run(
            "remember", step.plan, lambda: self._layer.remember(step, self._fused(step, joined))
        )

    def _target_hidden(self, view: SequenceView, start: int, stop: int) -> Any:
        """What goes with the tokens at start..stop - 1 [N, d_model]: the target's normed hidden
        state one position earlier, zeros for the first token."""
        backend = self.backend
        hidden = self._workspace.rows("target hidden", stop - start, self.config.d_model)
        first = max(start, 1)
        if start == 0:
            backend.clear(hidden, slice(0, 1))
        if first < stop:
            features = view.features(first - 1, stop - 1)
            backend.rms_norm(
                backend.view(features, (slice(None), self._column)),
                self._parts.output_norm,
                self._parts.config.rms_eps,
                backend.view(hidden, slice(first - start, stop - start)),
            )
        return hidden

    # -- steps ------------------------------------------------------------------------------------

    def _step(self, cached: Cached, tokens: Sequence[int], start: int) -> Step:
        """A pass over a run of tokens that see the cache rows before ``start``."""
        tree = Tree.build(tokens, range(-1, len(tokens) - 1), vocab_size=self.config.vocab_size)
        plan = build_plan(Forest((tree,)), [Place(cached.slot, start, 0, (), ())])
        return Step(
            backend=self.backend,
            workspace=self._workspace,
            config=self.config,
            recurrent=self._store.recurrent,
            kv=self._store.kv,
            table=self._table,
            plan=self._store.upload_plan(plan),
            ledgers=(),
            verify=False,
            whole=self._runner.whole,
        )

    def _joined(self, step: Step, hidden: Any) -> Any:
        """Normed embedding and normed hidden state side by side [N, 2 * d_model].

        Of several rows only outside of the recorded part of a step: copies can't be recorded.
        """
        backend, width, eps = self.backend, self.config.d_model, self.config.rms_eps
        joined, embedded = step.rows("joined", 2 * width), step.rows("embedded", width)
        backend.embed(step.plan.tokens, self._embedding, embedded)
        halves = ((embedded, self._embedding_norm), (hidden, self._hidden_norm))
        for i, (half, norm) in enumerate(halves):
            columns = backend.columns(joined, i * width, (i + 1) * width)
            if step.plan.n_rows == 1:
                backend.rms_norm(half, norm, eps, columns)  # contiguous, being one row
            else:
                normed = step.rows("normed", width)
                backend.rms_norm(half, norm, eps, normed)
                backend.copy(columns, ..., normed, ...)
        return joined

    def _fused(self, step: Step, joined: Any) -> Any:
        (x,) = step.workspace.project(joined, (self._fc,), ("x",))
        return x

    def _guess(
        self, cached: Cached, token: int, position: int, hidden: Any, first: bool
    ) -> tuple[MtpGuess | None, Any]:
        """What follows ``token`` at ``position``, and the layer's hidden state for the step after.

        hidden: [1, d_model], of the position before.  first: it is the target's.
        """
        step = self._step(cached, [token], position)
        # two programs: the hidden state lies in one of two places
        out, logits, values, ids = self._runner.run(
            ("guess", first), step.plan, lambda: self._predict(step, hidden)
        )
        (best,), (leaders,), (row,) = self.backend.download_all(values, ids, logits)
        chosen = int(leaders[0])
        log_prob = log_probability(row, chosen)
        if not np.isfinite(best[0]) or not np.isfinite(log_prob):
            return None, out
        return MtpGuess(chosen, log_prob, leading_share(best)), out

    def _predict(self, step: Step, hidden: Any) -> tuple[Any, Any, Any, Any]:
        """One row through the layer: its hidden state, its logits, the best of them, their ids."""
        backend, config, workspace = self.backend, self.config, self._workspace
        x = self._fused(step, self._joined(step, hidden))
        self._layer.forward(step, x)
        out = step.rows("out", config.d_model)
        backend.rms_norm(x, self._output_norm, config.rms_eps, out)
        (logits,) = step.workspace.project(out, (self._output,), ("logits",), 1)
        k = min(LEADERS, config.vocab_size)
        values = workspace.rows("top values", 1, k, capacity=1)
        ids = workspace.rows("top ids", 1, k, dtype="int32", capacity=1)
        backend.top_k(logits, k, values, ids)
        return out, logits, values, ids


def _loaded(backend: Backend, own: WeightSource | None, shared: Weight) -> Weight:
    """A matrix of the drafter's file, or the target's where that is the same."""
    if own is None:
        return shared
    theirs = shared.source
    alike = (own.kind, own.rows, own.cols) == (theirs.kind, theirs.rows, theirs.cols)
    return shared if alike and np.array_equal(own.data, theirs.data) else backend.load(own)


def _store(weights: MtpWeights, parts: TargetParts, backend: Backend) -> SequenceStore:
    """Keys and values of one layer, with room for as many sequences as the target has."""
    config, options = weights.config, parts.options
    recurrent = RecurrentShape(
        slots=options.slots,
        layers=0,
        nodes=1,
        key_heads=1,
        value_heads=1,
        key_dim=1,
        value_dim=1,
        conv_width=2,
    )
    kv = KvShape(
        slots=options.slots,
        layers=1,
        pages=options.slots * pages_for(options.context),
        heads=config.n_kv_heads,
        head_dim=config.head_dim,
        context=options.context,
        dtype=options.kv,
    )
    return SequenceStore(backend, recurrent, kv, poison=options.poison)
