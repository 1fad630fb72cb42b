"""The kernel protocol: what a backend must compute, argument by argument.

Model code is written once, against this class. Arrays are the backend's own and opaque to it.
Rules that hold for every kernel:

* ``out`` arguments are contiguous, are written in full, and nothing else is, unless the docstring
  says so. They don't overlap the inputs, except where it is allowed.
* Every value is a function of its own row (and, where named, of its sequence's state): never of
  the other rows of the batch, of tiles, threads or launch shape. docs/arithmetic.md fixes each
  operation and its order, so all backends produce the same bits.
* Inputs are contiguous, but for these, which may be views with strided leading axes: ``x`` of
  ``rms_norm``, ``l2_norm`` and ``quantise``, ``v`` of ``gdn_verify`` and ``gdn_prefill``,
  ``gate`` of ``sigmoid_gate``; and what the compositions name.
* Nothing inside a step needs the host. What crosses to the device is the uploaded plan of a step
  or commit and changed page tables; what comes back is the token ids of ``argmax`` and the few
  logits that a sampler asks for.
* Kernels and uploads of one backend take effect in the order of the calls. An ``upload`` has read
  its host array when it returns. Where kernels run asynchronously, a failure may surface in a
  later call; such a backend must not report a step as done before it is (``download`` waits).

Shapes use N rows, H heads, and the names of :class:`~specla.backends.pools.RecurrentShape`.
All arrays are float32 unless said otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from specla.backends.arrays import Arrays
from specla.backends.compositions import Compositions
from specla.backends.plans import PlanBuffers, PlanUpload
from specla.backends.pools import FeaturePool, KvPool, RecurrentPool
from specla.backends.steps import StepRunner
from specla.backends.weights import WeightSource
from specla.core.plan import CommitPlan, StepPlan
from specla.errors import CapacityError


@dataclass(frozen=True)
class QuantisedRows:
    """Activations in int8 blocks of 32: values int8 [N, 32 * blocks], scale [N, blocks].

    A last, short block is padded with zeros. sums: int16 [N, blocks, 2], of the values of both
    halves of a block. pairs: a backend's own second form of the values; None if it has none.
    Backend.quantised_rows makes one, and only Backend.quantise fills it.
    """

    values: Any
    scale: Any
    sums: Any
    pairs: Any = None


@dataclass(frozen=True)
class RotaryTable:
    """cos, sin [context, rotary_dim / 2], made on the host in float64 and rounded once."""

    cos: Any
    sin: Any


@dataclass(frozen=True)
class Weight:
    """A loaded matrix. quantised: takes QuantisedRows (``linear_quantised``) rather than floats.

    handle: the backend's own representation.
    """

    source: WeightSource
    quantised: bool
    handle: Any


class Backend(Arrays, Compositions, ABC):
    """Base class of all backends. Instances hold no per-sequence data.

    What is abstract must be written, that of Arrays included; the methods of Compositions may be
    replaced, to fuse kernels.
    """

    name: str
    compiles: bool = False
    """Whether :meth:`prepare` has something to do, so that a user should be told."""
    interpreted: bool = False
    """Whether kernels are interpreted, a thousand times slower: good for proofs, not for use."""
    verifies_trees: bool = True
    """Whether ``verify`` steps may have more than one row per sequence; without that, decoding is
    plain."""
    most_positions: int | None = None
    """Positions that a sequence may have at most; None: as many as there is memory for."""
    out_of_memory: tuple[type[BaseException], ...] = (MemoryError,)
    """What is raised where memory doesn't suffice."""

    def notes(self) -> tuple[str, ...]:
        """Lines that a user of this instance should read once."""
        return ()

    def describe(self) -> dict[str, Any]:
        """What it computes on, if that isn't the host's processor: JSON-able facts, such as
        device, name, architecture, memory (bytes), runtime, driver; absent or None: unknown."""
        return {}

    def memory(self) -> tuple[int, int] | None:
        """Bytes (free, in all) where arrays are made; None: in the host's memory."""
        return None

    def kept_bytes(self, source: WeightSource) -> int:
        """Bytes of a matrix once it is loaded; only asked where :meth:`memory` has an answer."""
        return source.data.nbytes

    def prepare(
        self,
        kinds: Iterable[str] | None = None,
        report: Callable[[int, int, str], None] | None = None,
        caches: Iterable[str] | None = None,
    ) -> int:
        """Do now what first use would do: compile kernels. Never needed for a right result.

        kinds: GGML types of the matrices that will be loaded.  caches: types of the KV cache.  None
        is all.  report: told (done, in all, name of the next).  Returns how many kernels there are.
        """
        return 0

    def step_runner(self) -> StepRunner:
        """A new runner for the steps of one model."""
        return StepRunner()

    def plan_buffers(self, context: int) -> PlanUpload:
        """New buffers for the plans of a model's steps. context: positions a sequence may have."""
        return PlanBuffers(self)

    def padded_rows(self, n: int) -> int:
        """Rows that a step of n rows is laid out for (``StepPlan.n_rows``), n at least. Scratch of
        a step must have room for so many."""
        return n

    def padded_keys(self, n: int, context: int) -> int:
        """Positions for which a step that sees n of ``context`` positions launches attention
        (``StepPlan.n_keys``), n at least; 0 where that is all the same."""
        return 0

    # -- weights and products ---------------------------------------------------------------

    @abstractmethod
    def load(self, source: WeightSource) -> Weight:
        """Take over a matrix. Kinds of ``blocks.NATIVE`` stay quantised; F32, F16 and BF16 are
        widened exactly; every other kind is dequantised exactly to float32."""

    @abstractmethod
    def embed(self, tokens: Any, weight: Weight, out: Any) -> None:
        """out [N, cols] = exactly dequantised row ``tokens[n]`` (int32 [N]) of the matrix."""

    def quantised_rows(
        self, n: int, cols: int, room: Callable[..., Any] | None = None
    ) -> QuantisedRows:
        """Room for n quantised rows of ``cols`` activations.

        room(name, n, *shape, dtype=): allocates [n, *shape]; None takes new arrays.
        """

        def fresh(name: str, n: int, *shape: int, dtype: str = "float32") -> Any:
            return self.empty((n, *shape), dtype)

        room, blocks = room or fresh, -(-cols // 32)
        return QuantisedRows(
            room("quantised values", n, 32 * blocks, dtype="int8"),
            room("quantised scale", n, blocks),
            room("quantised sums", n, blocks, 2, dtype="int16"),
            self._quantised_pairs(n, blocks, room),
        )

    def _quantised_pairs(self, n: int, blocks: int, room: Callable[..., Any]) -> Any:
        """Room for QuantisedRows.pairs."""
        return None

    @abstractmethod
    def quantise(self, x: Any, out: QuantisedRows) -> None:
        """x [N, K] to int8 blocks of 32: scale = absmax / 127, values = round-half-even(x / scale).
        A block of zeros has scale +0.0 and values 0. The rows of x may be strided."""

    @abstractmethod
    def linear_quantised(self, x: QuantisedRows, weight: Weight, out: Any) -> None:
        """out [N, rows] = x W^T for a quantised weight: exact integer block products, 8 segments,
        halving tree (docs/arithmetic.md, section 5)."""

    @abstractmethod
    def linear_float(self, x: Any, weight: Weight, out: Any) -> None:
        """out [N, rows] = x W^T for a float weight; x [N, cols]: halving tree of products in each
        block of 32, then as above."""

    # -- norms and elementwise ----------------------------------------------------------------

    @abstractmethod
    def rms_norm(self, x: Any, weight: Any, eps: float, out: Any) -> None:
        """out = (x * rsqrt(mean(x^2) + eps)) * weight over the last axis; x, out [..., D]."""

    @abstractmethod
    def gated_rms_norm(self, x: Any, gate: Any, weight: Any, eps: float, out: Any) -> None:
        """out = rms_norm(x) * silu(gate): norm before gate. x, gate, out [N, H, D], weight [D]."""

    @abstractmethod
    def l2_norm(self, x: Any, eps: float, scale: float, out: Any) -> None:
        """out = (x * rsqrt(sum(x^2) + eps)) * scale over the last axis; x, out [N, H, D].
        scale 1.0 multiplies nothing away: it is exact."""

    @abstractmethod
    def rotary(self, x: Any, position: Any, table: RotaryTable) -> None:
        """Rotate pairs (i, i + r/2) of the first r = rotary_dim entries of each head, in place.
        x [N, H, D], position int32 [N]."""

    @abstractmethod
    def swiglu(self, gate: Any, up: Any, out: Any) -> None:
        """out = silu(gate) * up."""

    @abstractmethod
    def sigmoid_gate(self, x: Any, gate: Any, out: Any) -> None:
        """out = x * sigmoid(gate)."""

    @abstractmethod
    def add(self, x: Any, y: Any, out: Any) -> None:
        """out = x + y; ``out`` may be ``x``."""

    @abstractmethod
    def gdn_gates(
        self, alpha: Any, beta: Any, a: Any, dt_bias: Any, decay_out: Any, beta_out: Any
    ) -> None:
        """decay_out = exp(g), g = softplus(alpha + dt_bias) * a; beta_out = sigmoid(beta).
        alpha, beta, outs [N, value_heads]; a (= -exp(A_log)), dt_bias [value_heads]."""

    # -- convolution and recurrence over a forest ---------------------------------------------

    @abstractmethod
    def conv_verify(
        self, x: Any, weight: Any, pool: RecurrentPool, layer: int, plan: StepPlan, out: Any
    ) -> None:
        """Causal depthwise convolution and SiLU over each row's own ancestors.

        x, out [N, channels]; weight [conv_width, channels], row 0 the oldest tap. First the
        ``plan.pending_window[layer]`` inputs of the pending bank are folded into the sequence's
        window, which is written; ancestors beyond the root are read from it. The raw inputs of
        all rows go to the current bank. Taps are added from the youngest to the oldest.
        The window is read by all rows after it is written: row-parallel kernels need two phases.
        """

    @abstractmethod
    def conv_prefill(
        self, x: Any, weight: Any, pool: RecurrentPool, layer: int, plan: StepPlan, out: Any
    ) -> None:
        """The same for committed chains with nothing pending: the window moves on, no bank."""

    @abstractmethod
    def gdn_verify(
        self,
        q: Any,
        k: Any,
        v: Any,
        decay: Any,
        beta: Any,
        pool: RecurrentPool,
        layer: int,
        plan: StepPlan,
        out: Any,
    ) -> None:
        """Gated delta rule over a forest, state resident along each chain of the schedule.

        q, k [N, key_heads, key_dim], both normalised, q scaled; v, out [N, value_heads, value_dim];
        decay, beta [N, value_heads]. First the ``plan.pending_state[layer]`` factors of the pending
        bank are folded into the sequence's state, which is written once. Then each chain walks from
        its source: ``S = S * decay; d = beta * (v - tree(S * k)); S = S + k * d; o = tree(S * q)``.
        Factors (k, d, decay) of all rows go to the current bank, boundary states to
        ``pool.boundary``, where there is room for any (:meth:`boundaries`). The durable state does
        not see the rows of this step.
        """

    @abstractmethod
    def gdn_prefill(
        self,
        q: Any,
        k: Any,
        v: Any,
        decay: Any,
        beta: Any,
        pool: RecurrentPool,
        layer: int,
        plan: StepPlan,
        out: Any,
    ) -> None:
        """The same recurrence for committed chains with nothing pending: the durable state moves
        on past the last row; no factors are kept."""

    @abstractmethod
    def fold_state(self, pool: RecurrentPool, layer: int, plan: StepPlan) -> None:
        """Only the fold of ``gdn_verify``: S = S * decay + k * d for each pending factor."""

    @abstractmethod
    def fold_window(self, pool: RecurrentPool, layer: int, plan: StepPlan) -> None:
        """Only the fold of ``conv_verify``."""

    @abstractmethod
    def gather(self, pool: RecurrentPool, commit: CommitPlan) -> None:
        """Copy the factors of each sequence's accepted nodes, all layers, from its source bank to
        entries 0, 1, ... of the other bank."""

    @abstractmethod
    def block_conv(self, x: Any, dynamic: Any, base: Any, side: int, out: Any) -> None:
        """Convolution over the rows of one block, with coefficients of each row's own (DFlash2).

        x, out [N, D]; dynamic [N, 2 * taps * groups], which is [2, taps, groups] per row; base
        [2, taps, D]; side 0 or 1 of the leading axes. Channel c is of group ``c // (D / groups)``.
        out[n, c] = sum over taps t of x[n - t, c] * (dynamic + base), rows before the first being
        zero; the youngest tap first, each product added to the sum so far.
        """

    # -- attention ---------------------------------------------------------------------------

    @abstractmethod
    def kv_write(self, k: Any, v: Any, kv: KvPool, layer: int, plan: StepPlan) -> None:
        """Round k, v [N, heads, head_dim] to the cache's type (ties to even) and store them at
        ``plan.kv_row``. The pages are private to the sequence."""

    @abstractmethod
    def attention(
        self, q: Any, kv: KvPool, layer: int, plan: StepPlan, scale: float, out: Any
    ) -> None:
        """Softmax attention of q, out [N, query_heads, head_dim] over each row's committed
        positions, then its ancestors by depth, itself last. Query head h reads KV head
        ``h // (query_heads / heads)``. Two passes; blocks of 64 logical positions
        (docs/arithmetic.md, section 6)."""

    @abstractmethod
    def kv_move(self, kv: KvPool, commit: CommitPlan) -> None:
        """Move cache rows ``move_from`` to ``move_to`` of each sequence in all layers, as if all
        were read before any write."""

    # -- features ------------------------------------------------------------------------------

    @abstractmethod
    def feature_write(self, x: Any, features: FeaturePool, index: int, plan: StepPlan) -> None:
        """Store x [N, d_model] as feature ``index`` of each row, at ``plan.kv_row``."""

    @abstractmethod
    def feature_move(self, features: FeaturePool, commit: CommitPlan) -> None:
        """As ``kv_move``, for captured features."""

    # -- choices ------------------------------------------------------------------------------

    @abstractmethod
    def argmax(self, logits: Any, out: Any) -> None:
        """out int32 [N] = index of the largest entry of logits [N, vocab]; ties to the lowest
        index, NaN never wins; -1 where no entry is above -inf, i.e. no token is possible."""

    @abstractmethod
    def top_k(self, logits: Any, k: int, values_out: Any, ids_out: Any) -> None:
        """values_out, ids_out (int32) [N, k] = the k largest entries, descending, ties by
        ascending index, NaN counted as -inf."""

    @abstractmethod
    def soft_sums(self, logits: Any, top_out: Any, sum_out: Any) -> None:
        """top_out [N] = largest entry of each row of logits [N, vocab]; sum_out [N] = the sum of
        exp(logit - largest) over it, so that ``top + ln(sum)`` is ln of the sum of exp(logit). In
        the order of attention's softmax, blocks of 64 entries; with a NaN in a row both are NaN."""


def check_positions(context: int, backend: Backend) -> None:
    """Raise CapacityError for a context that is longer than the backend's kernels can serve."""
    most = backend.most_positions
    if most is not None and context > most:
        raise CapacityError(
            f"a context of {context} positions; backend {backend.name} has kernels for {most} at "
            f"most; lower --ctx"
        )
