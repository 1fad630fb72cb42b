"""The Qwen3.5 target: prefill, verify over a forest, commit; on any backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.backends.base import Backend
from specla.core.lifecycle import OPEN_PHASES, Phase
from specla.core.plan import StepPlan, build_plan
from specla.core.topology import Forest, Tree
from specla.errors import CapacityError, OptionError
from specla.models.qwen35.config import Qwen35Config
from specla.models.qwen35.layers import Step
from specla.models.qwen35.options import (
    TargetOptions,
    check_features,
    kv_shape,
    recurrent_shape,
)
from specla.models.qwen35.parts import TargetParts
from specla.models.qwen35.trunk import Trunk
from specla.models.qwen35.weights import Qwen35Weights
from specla.models.sequence import Sequence
from specla.models.store import SequenceStore, Snapshot
from specla.models.workspace import Workspace

__all__ = ["Qwen35Target", "TargetOptions", "Verified"]

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Verified:
    """The outcome of one forward pass, valid until the next one.

    logits: backend array [N, vocab].  offsets: first row of each sequence's tree, then N.
    """

    logits: Any
    offsets: tuple[int, ...]


class Qwen35Target:
    """A loaded model (``trunk``) and its sequences.

    All operations of a sequence's life (docs/architecture.md) go through here; which of them is
    legal when is the ledger's business, and a refused one changes nothing.
    """

    def __init__(self, weights: Qwen35Weights, backend: Backend, options: TargetOptions) -> None:
        config = weights.config
        self.config: Qwen35Config = config
        self.backend = backend
        self.options = options
        check_features(options.features, config)
        self.trunk = Trunk(weights, backend, options)
        self.store = SequenceStore(
            backend,
            recurrent_shape(config, options),
            kv_shape(config, options),
            (options.features, config.d_model),
            poison=options.poison,
        )
        self._verify_rows = backend.padded_rows(options.max_nodes * options.slots)
        capacity = max(backend.padded_rows(options.chunk), self._verify_rows)
        self._workspace = Workspace(backend, capacity, poison=options.poison)
        self._runner = backend.step_runner()

    @property
    def parts(self) -> TargetParts:
        """The loaded matrices that a draft model may share."""
        return self.trunk.parts

    # -- sequences: see SequenceStore ----------------------------------------------------------

    def open(self) -> Sequence:
        """A fresh, empty sequence."""
        return self.store.open()

    def close(self, sequence: Sequence) -> None:
        """Give its slot and pages back."""
        self.store.close(sequence)

    def commit(self, sequence: Sequence, path: object) -> None:
        """Accept nodes of the last verify, root first."""
        self.store.commit(sequence, path)

    def discard(self, sequence: Sequence) -> None:
        """Drop the last verify."""
        self.store.discard(sequence)

    def flush(self, sequence: Sequence) -> None:
        """Fold what is pending."""
        self.store.flush(sequence)

    def fork(self, sequence: Sequence) -> Sequence:
        """An independent copy."""
        return self.store.fork(sequence)

    def snapshot(self, sequence: Sequence) -> Snapshot:
        """A copy to come back to."""
        return self.store.snapshot(sequence)

    def restore(self, sequence: Sequence, snapshot: Snapshot) -> None:
        """Come back to a snapshot."""
        self.store.restore(sequence, snapshot)

    # -- forward passes ------------------------------------------------------------------------

    def prefill(
        self, items: Seq[tuple[Sequence, Seq[int]]], *, logits: bool = False
    ) -> Verified | None:
        """Move sequences on by committed tokens, a run for each; any chunking gives the same bits.

        The runs of one call may not be longer than ``options.chunk`` together. Pending factors are
        folded first. logits: also return those of every row. Raises CapacityError, LifecycleError,
        TopologyError with nothing changed; any other failure leaves the sequences BROKEN.
        """
        sequences = [sequence for sequence, _ in items]
        trees = [self._run_of(tokens) for _, tokens in items]
        self._check(sequences, trees, "prefill", (Phase.EMPTY, Phase.CLEAN, Phase.PENDING))
        total = sum(map(len, trees))
        if total > self.options.chunk:
            raise CapacityError(
                f"{total} tokens in one prefill step; the chunk is {self.options.chunk}"
            )
        for sequence, tree in zip(sequences, trees, strict=True):
            self.store.pages.reserve(sequence, len(tree))
        for sequence in sequences:
            self.store.flush(sequence)
        step, forest = self._lay_out(sequences, trees, verify=False)
        with ExitStack() as stack:
            for sequence in sequences:
                stack.enter_context(sequence.ledger.writing("a prefill"))
            # logits before the length moves on: a caller must be able to trust a failure
            rows = self._forward(step, logits)
            for sequence, tree in zip(sequences, trees, strict=True):
                sequence.ledger.end_prefill(len(tree))
        return self._outcome(rows, forest) if logits else None

    def _run_of(self, tokens: Seq[int]) -> Tree:
        """Committed tokens as a chain, validated."""
        return Tree.build(tokens, range(-1, len(tokens) - 1), vocab_size=self.config.vocab_size)

    def verify(self, items: Seq[tuple[Sequence, Tree]]) -> Verified:
        """Run a tree per sequence and return the logits of all nodes; nothing is decided yet.

        Pending factors are folded on the way. May be repeated. Raises CapacityError,
        LifecycleError, TopologyError with nothing changed; after any other failure a sequence can
        be verified or flushed again, unless its phase says BROKEN.
        """
        sequences, trees = [sequence for sequence, _ in items], [tree for _, tree in items]
        for tree in trees:
            if len(tree) > self.options.max_nodes:
                raise CapacityError(
                    f"a tree of {len(tree)} nodes; the factor banks hold {self.options.max_nodes}"
                )
            if max(tree.tokens) >= self.config.vocab_size:
                raise CapacityError(
                    f"token {max(tree.tokens)} is not in the vocabulary of {self.config.vocab_size}"
                )
        self._check(sequences, trees, "verify", OPEN_PHASES)
        for sequence, tree in items:
            self.store.pages.reserve(sequence, len(tree))
        step, forest = self._lay_out(sequences, trees, verify=True)
        for sequence in sequences:
            sequence.ledger.begin_verify()
        self._runner.forget()
        with ExitStack() as stack:
            for ledger in step.ledgers if step.whole else ():
                stack.enter_context(ledger.folding_all(lambda: self._runner.progress))
            logits = self._forward(step, logits=True)
        for sequence, tree in items:
            sequence.ledger.end_verify(tree)
        return self._outcome(logits, forest)

    def _outcome(self, logits: Any, forest: Forest) -> Verified:
        """Without the rows that pad a step."""
        return Verified(self.backend.rows(logits, forest.rows), forest.offsets)

    def prepare_rows(self, counts: Iterable[int]) -> None:
        """Be ready for trees of so many nodes, of one sequence: nothing but time depends on it.

        Does nothing while all slots are in use.
        """
        if not self.store.has_room:
            return
        sequence = self.open()
        try:
            # one of each size
            for count in {self.backend.padded_rows(n): n for n in counts}.values():
                tree = Tree.chain([0] * count)
                self.store.pages.reserve(sequence, count)
                step, _ = self._lay_out([sequence], [tree], verify=True)
                self._runner.prepare(*self._forward_calls(step, logits=True))
                for _ in range(self._runner.rehearsals):
                    self.verify([(sequence, tree)])
            # the very first step is slow for reasons of the machine: memory that was never touched
            self.verify([(sequence, Tree.lone(0))])
        finally:
            self.close(sequence)

    def _check(
        self,
        sequences: list[Sequence],
        trees: list[Tree],
        operation: str,
        legal: tuple[Phase, ...],
    ) -> None:
        """Everything that can be refused, before anything changes."""
        if len({id(s) for s in sequences}) != len(sequences):
            raise CapacityError("a sequence is named twice in one step; name each once")
        for sequence, tree in zip(sequences, trees, strict=True):
            sequence.ledger.require(operation, *legal)
            deepest = sequence.length + max(tree.depths) + 1
            if deepest > self.options.context:
                raise CapacityError(
                    f"{deepest} positions don't fit the context of {self.options.context}; "
                    f"raise the context size"
                )

    def _lay_out(
        self, sequences: list[Sequence], trees: list[Tree], *, verify: bool
    ) -> tuple[Step, Forest]:
        forest = Forest(tuple(trees))
        ledgers = tuple(sequence.ledger for sequence in sequences)
        plan = build_plan(forest, [ledger.place() for ledger in ledgers])
        step = Step(
            backend=self.backend,
            workspace=self._workspace,
            config=self.config,
            recurrent=self.store.recurrent,
            kv=self.store.kv,
            table=self.trunk.table,
            plan=self.store.upload_plan(plan),
            ledgers=ledgers,
            verify=verify,
            whole=self._runner.whole,
        )
        return step, forest

    def _forward(self, step: Step, logits: bool) -> Any:
        """One pass over all layers: the logits of the plan's rows, or None if nobody wants them."""
        return self._runner.run(*self._forward_calls(step, logits))

    def _forward_calls(
        self, step: Step, logits: bool
    ) -> tuple[tuple[bool, bool], StepPlan, Callable[[], Any]]:
        def calls() -> Any:
            x = self.trunk.forward(step, self.store.features)
            return self.trunk.head(step, x, self._verify_rows) if logits else None

        return (step.verify, logits), step.plan, calls

    # -- what the sampler wants ------------------------------------------------------------------

    def argmax(self, verified: Verified) -> npt.NDArray[np.int32]:
        """Greedy token of every row, int32 [N] on the host."""
        n = verified.offsets[-1]
        out = self._workspace.rows("argmax", n, dtype="int32", capacity=self._verify_rows)
        self.backend.argmax(verified.logits, out)
        return self.backend.download(out)

    def top_k(self, verified: Verified, k: int) -> tuple[Float32, npt.NDArray[np.int32]]:
        """The k best logits of every row and their ids, [N, k] each on the host."""
        if not 1 <= k <= self.config.vocab_size:
            raise OptionError(f"top {k} of {self.config.vocab_size} logits; ask for 1 to all")
        n = verified.offsets[-1]
        rows = self._verify_rows
        values = self._workspace.rows("top values", n, k, capacity=rows)
        ids = self._workspace.rows("top ids", n, k, dtype="int32", capacity=rows)
        self.backend.top_k(verified.logits, k, values, ids)
        best, tokens = self.backend.download_all(values, ids)
        return best, tokens

    def logits(self, verified: Verified, row: int) -> Float32:
        """All logits of one row, float32 [vocab] on the host."""
        one: Float32 = self.backend.download(self.backend.row(verified.logits, row))[0]
        return one

    def features(self, sequence: Sequence, start: int, stop: int) -> Any:
        """Captured hidden states of committed positions: a view
        [stop - start, len(options.features), d_model] of the backend's array."""
        if self.store.features is None:
            raise OptionError("no features are captured; name layers in TargetOptions.features")
        # a closed sequence's slot may hold another sequence's features by now
        sequence.ledger.require_open("features")
        if not 0 <= start <= stop <= sequence.length:
            raise OptionError(
                f"features of positions {start}..{stop} asked for; 0..{sequence.length} exist"
            )
        index = (sequence.slot, slice(start, stop))
        return self.backend.view(self.store.features.rows, index)

    def state_arrays(self, sequence: Sequence) -> dict[str, npt.NDArray[Any]]:
        """Host copies of all committed state, flushed first: what two decodings must share.

        state [layers, H, K, V], window [layers, width - 1, channels], key and value
        [attention layers, length, heads, head_dim] in logical order.
        """
        self.flush(sequence)
        store, download, view = self.store, self.backend.download, self.backend.view
        result = {
            "state": download(view(store.recurrent.state, sequence.slot)),
            "window": download(view(store.recurrent.window, sequence.slot)),
        }
        dtype = np.float16 if store.kv.shape.dtype == "f16" else np.float32
        for name, cache in (("key", store.kv.key), ("value", store.kv.value)):
            pages = [download(view(cache, (slice(None), page))) for page in sequence.pages]
            empty = np.empty((store.kv.shape.layers, 0, *cache.shape[-2:]), dtype=dtype)
            rows = np.concatenate(pages, axis=1) if pages else empty
            result[name] = rows[:, : sequence.length]
        return result
