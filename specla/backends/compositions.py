"""Kernels that always follow one another, as one call each, so that a backend may fuse them.

Model code calls these. What each does here is its definition: the kernels of the protocol, one
after another. A backend that replaces one must write the same bytes, except to what is named a
room, which it may leave alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from specla.backends.base import Backend, QuantisedRows, RotaryTable, Weight
    from specla.backends.pools import KvPool
    from specla.core.plan import StepPlan


@dataclass(frozen=True)
class Operand:
    """Activations [N, K] as products take them: floats, int8 blocks, or both.

    floats: float32 [N, K].  quantised: the same in blocks; None where no product takes them.
    exact: whether anybody reads the floats; else they are a room.
    """

    floats: Any
    quantised: QuantisedRows | None
    exact: bool


class Compositions:
    """Part of :class:`~specla.backends.base.Backend`; shapes are those of the kernels."""

    # -- operands of products ---------------------------------------------------------------

    def rms_norm_operand(self, x: Any, weight: Any, eps: float, out: Operand) -> None:
        """out = rms_norm(x), x [N, K]; the rows of x may be strided."""
        kernels = _kernels(self)
        kernels.rms_norm(x, weight, eps, out.floats)
        _quantise(kernels, out)

    def gated_rms_norm_operand(
        self, x: Any, gate: Any, weight: Any, eps: float, out: Operand
    ) -> None:
        """out = gated_rms_norm(x, gate), x and gate [N, H, D], with K = H * D."""
        kernels = _kernels(self)
        heads = kernels.heads(out.floats, x.shape[1])
        kernels.gated_rms_norm(x, gate, weight, eps, heads)
        _quantise(kernels, out)

    def sigmoid_gate_operand(self, x: Any, gate: Any, out: Operand) -> None:
        """out = x * sigmoid(gate), x and gate [N, H, D], with K = H * D; gate may be strided."""
        kernels = _kernels(self)
        kernels.sigmoid_gate(x, gate, kernels.heads(out.floats, x.shape[1]))
        _quantise(kernels, out)

    # -- products ---------------------------------------------------------------------------

    def linear_group(self, x: Operand, weights: tuple[Weight, ...], outs: tuple[Any, ...]) -> None:
        """outs[i] [N, rows of weights[i]] = x W^T, for any mixture of quantised and float weights.
        x must have what they take."""
        kernels = _kernels(self)
        for weight, out in zip(weights, outs, strict=True):
            if weight.quantised:
                assert x.quantised is not None
                kernels.linear_quantised(x.quantised, weight, out)
            else:
                kernels.linear_float(x.floats, weight, out)

    def linear_add(self, x: Operand, weight: Weight, room: Any, out: Any) -> None:
        """out [N, rows] = out + x W^T.  room: [N, rows]."""
        kernels = _kernels(self)
        kernels.linear_group(x, (weight,), (room,))
        kernels.add(out, room, out)

    def linear_swiglu(
        self, x: Operand, weights: tuple[Weight, Weight], rooms: tuple[Any, Any], out: Operand
    ) -> None:
        """out = swiglu(x G^T, x U^T), weights (G, U).  rooms: two [N, rows]."""
        kernels = _kernels(self)
        kernels.linear_group(x, weights, rooms)
        kernels.swiglu(*rooms, out.floats)
        _quantise(kernels, out)

    # -- what the mixers take ---------------------------------------------------------------

    def gdn_inputs(
        self,
        q: Any,
        k: Any,
        eps: float,
        scale: float,
        alpha: Any,
        beta: Any,
        a: Any,
        dt_bias: Any,
        q_out: Any,
        k_out: Any,
        decay_out: Any,
        beta_out: Any,
    ) -> None:
        """l2_norm of q, scaled, and of k, which are of one shape and may be strided; gdn_gates."""
        kernels = _kernels(self)
        kernels.l2_norm(q, eps, scale, q_out)
        kernels.l2_norm(k, eps, 1.0, k_out)
        kernels.gdn_gates(alpha, beta, a, dt_bias, decay_out, beta_out)

    def rms_norm_rotary(
        self, x: Any, weight: Any, eps: float, position: Any, table: RotaryTable, out: Any
    ) -> None:
        """out = rotary(rms_norm(x)), x [N, H, D]; it may be strided."""
        kernels = _kernels(self)
        kernels.rms_norm(x, weight, eps, out)
        kernels.rotary(out, position, table)

    def kv_append(
        self,
        k: Any,
        weight: Any,
        eps: float,
        table: RotaryTable,
        v: Any,
        kv: KvPool,
        layer: int,
        plan: StepPlan,
        room: Any,
    ) -> None:
        """kv_write of rms_norm_rotary(k) at ``plan.position``, and of v.  k, v, room [N, H, D]; k
        may be strided."""
        kernels = _kernels(self)
        kernels.rms_norm_rotary(k, weight, eps, plan.position, table, room)
        kernels.kv_write(room, v, kv, layer, plan)


COMPOSITIONS = tuple(name for name in vars(Compositions) if not name.startswith("_"))


def _kernels(compositions: Compositions) -> Backend:
    return cast("Backend", compositions)


def _quantise(kernels: Backend, operand: Operand) -> None:
    if operand.quantised is not None:
        kernels.quantise(operand.floats, operand.quantised)
