"""flash-linear-attention's fused recurrent kernel on the same inputs, where it is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu.verify_inputs import VerifyInputs

NOT_INSTALLED = "not installed"


def fused_recurrent() -> Any:
    """The function, or in words why there is none."""
    try:
        from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule
    except ImportError as error:
        return NOT_INSTALLED if (error.name or "fla") == "fla" else f"can't be imported: {error}"
    return fused_recurrent_gated_delta_rule


@dataclass(frozen=True)
class LinearAttention:
    """Chains only. It counts value heads by key head (h // ratio), where specla's file order is
    h % key_heads: ``places`` [value_heads] are the heads in its order.

    states: [layers, B, value_heads, K, V], copies of the durable state in its order.
    """

    function: Any
    inputs: VerifyInputs
    places: Any
    states: Any
    arguments: dict[str, Any]

    @classmethod
    def of(cls, function: Any, inputs: VerifyInputs) -> LinearAttention:
        """States are copied: what is timed reads no others."""
        import torch

        s, batch = inputs.pool.shape, inputs.plan.n_sequences
        ratio = s.value_heads // s.key_heads
        heads = torch.arange(s.value_heads, device=inputs.out.device)
        places = heads.view(ratio, s.key_heads).T.reshape(-1)
        q, k, v, decay, beta = (x.unflatten(0, (batch, -1)) for x in inputs.vectors)
        arguments = {
            "q": q.contiguous(),
            "k": k.contiguous(),
            "v": v[:, :, places].contiguous(),
            "g": decay.log()[:, :, places].contiguous(),
            "beta": beta[:, :, places].contiguous(),
        }
        states = inputs.pool.state.transpose(0, 1)[:, :, places].contiguous()
        return cls(function, inputs, places, states, arguments)

    def verify(self, layer: int) -> Any:
        """Outputs in specla's order [N, value_heads, V]; the last state is kept, as decoding must.
        q is scaled already."""
        import torch

        out, _ = self._call(layer)
        flat = out.flatten(0, 1)
        restored = torch.empty_like(flat)
        restored[:, self.places] = flat
        return restored

    def verify_all(self) -> None:
        """All layers, one after the other, without the reordering."""
        for layer in range(self.inputs.layers):
            self._call(layer)

    def _call(self, layer: int) -> Any:
        return self.function(
            **self.arguments,
            scale=1.0,
            initial_state=self.states[layer],
            output_final_state=True,
        )
