"""The demo target for draft training: loading it, and running it fast on a CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers import Qwen3_5ForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.qwen3_5 import modeling_qwen3_5

sys.path.append(str(Path(__file__).resolve().parents[1] / "demo_model"))

import gated_delta
from system import keep_freed_memory

__all__ = ["install_step", "keep_freed_memory", "layer_outputs", "load_target"]


def load_target(path: Path) -> Qwen3_5ForCausalLM:
    """The target in float32 without gradients, with the fast functions of ``demo_model``."""
    gated_delta.install()
    model = Qwen3_5ForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    return model.requires_grad_(False)


def layer_outputs(outputs: Any) -> torch.Tensor:
    """[batch, seq, n_layers, hidden]: outputs of all layers but the last one, then the final norm.

    ``outputs`` come from the text model with ``output_hidden_states=True``. Transformers' list
    holds the embedding first and has the final norm applied to its last entry.
    """
    return torch.stack(outputs.hidden_states[1:], 2)


def _delta_step(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token of the gated delta rule; changes the state in place (from zero without one)."""
    batch, _, n_k, dim = key.shape
    n_v, dim_v = value.shape[-2:]
    key = gated_delta._l2norm(key[:, 0]).repeat_interleave(n_v // n_k, dim=1)
    if initial_state is None:
        initial_state = key.new_zeros(batch, n_v, dim, dim_v)
    query = gated_delta._l2norm(query[:, 0]).repeat_interleave(n_v // n_k, dim=1) * dim**-0.5
    state = initial_state.flatten(0, 1)
    state.mul_(g.exp().view(-1, 1, 1))
    key, query = key.reshape(-1, 1, dim), query.reshape(-1, 1, dim)
    delta = (value.reshape(-1, 1, dim_v) - key @ state) * beta.reshape(-1, 1, 1)
    state.baddbmm_(key.transpose(1, 2), delta)
    return (query @ state).view(batch, 1, n_v, dim_v), initial_state


def _conv_step(
    x: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, *_: Any
) -> torch.Tensor:
    """One token of the depthwise causal convolution with SiLU; updates the state in place."""
    full = torch.cat((conv_state[..., 1 - weight.shape[-1] :], x), -1)
    conv_state.copy_(torch.cat((conv_state, x), -1)[..., 1:])
    return F.silu((full * weight).sum(-1, keepdim=True))


def _grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one new token per sequence, without repeating the shared keys and values."""
    batch, heads, seq, dim = query.shape
    if seq != 1:
        raise ValueError("one token at a time")
    grouped = query.view(batch, key.shape[1], -1, dim)
    weights = (grouped @ key.transpose(2, 3) * scaling).softmax(-1)
    return (weights @ value).view(batch, 1, heads, dim), None


def install_step(model: Qwen3_5ForCausalLM) -> None:
    """Let ``model`` decode token by token with the functions above (equal lengths, no padding)."""
    modeling_qwen3_5.torch_recurrent_gated_delta_rule = _delta_step
    modeling_qwen3_5.torch_chunk_gated_delta_rule = _delta_step
    modeling_qwen3_5.causal_conv1d_update = _conv_step
    ALL_ATTENTION_FUNCTIONS.register("grouped_step", _grouped_attention)
    model.config._attn_implementation = "grouped_step"
