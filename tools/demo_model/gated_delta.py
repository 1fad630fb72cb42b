"""A faster CPU version of the chunked gated delta rule that transformers falls back to.

``install()`` puts these functions into transformers' Qwen3.5 module for the training run. They
compute the same values; the saved checkpoint does not depend on them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from transformers.models.qwen3_5 import modeling_qwen3_5


def _inverse(strict: torch.Tensor) -> torch.Tensor:
    """(I + strict)^-1 for strictly lower triangular matrices whose width is 16 times 2^n.

    Blocks of 16 come from the finite Neumann series, which is still accurate in float32 at that
    size; pairs of blocks are then joined.
    """
    width = strict.shape[-1]
    if width == 16:
        inv = torch.eye(16) - strict
        power = strict
        for _ in range(3):
            power = power @ power
            inv = inv + inv @ power
        return inv
    half = width // 2
    first = _inverse(strict[..., :half, :half].contiguous())
    second = _inverse(strict[..., half:, half:].contiguous())
    corner = -(second @ (strict[..., half:, :half] @ first))
    top = torch.cat((first, torch.zeros_like(corner)), -1)
    return torch.cat((top, torch.cat((corner, second), -1)), -2)


class _UnitLowerInverse(torch.autograd.Function):
    """``_inverse`` with the closed form of its gradient."""

    @staticmethod
    def forward(ctx: Any, strict: torch.Tensor) -> torch.Tensor:
        inv = _inverse(strict)
        ctx.save_for_backward(inv)
        return inv

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (inv,) = ctx.saved_tensors
        inv_t = inv.transpose(-1, -2)
        return -(inv_t @ grad @ inv_t).tril(-1)


def _l2norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def chunk_gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    chunk_size: int = 32,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Same contract as transformers' function, from a zero state and without a final state.

    Queries and keys are L2-normalised. The sequence length must be a multiple of the chunk size.
    """
    batch, seq, n_k, dim = key.shape
    n_v, dim_v = value.shape[-2:]
    n_chunk = seq // chunk_size

    def chunked(x: torch.Tensor) -> torch.Tensor:
        """[batch, seq, heads, d] -> [chunks, batch, heads, chunk, d], contiguous."""
        return x.unflatten(1, (n_chunk, chunk_size)).permute(1, 0, 3, 2, 4).contiguous()

    query = chunked(_l2norm(query) * dim**-0.5)
    key = chunked(_l2norm(key))
    # products of query and key are shared by the value heads of a key head
    keys_t = key.transpose(-1, -2)
    kk = (key @ keys_t).repeat_interleave(n_v // n_k, dim=2)
    qk = (query @ keys_t).repeat_interleave(n_v // n_k, dim=2)
    query = query.repeat_interleave(n_v // n_k, dim=2)
    key = key.repeat_interleave(n_v // n_k, dim=2)
    value = chunked(value)
    beta = chunked(beta.unsqueeze(-1))
    cum = chunked(g.unsqueeze(-1)).cumsum(-2)

    decay = (cum - cum.transpose(-1, -2)).tril().exp().tril()
    from_start = cum.exp()
    to_end = (cum[..., -1:, :] - cum).exp()
    inverse = _UnitLowerInverse.apply((kk * decay * beta).tril(-1))
    solved = inverse @ torch.cat((value * beta, key * (beta * from_start)), -1)
    new_values, old_keys = solved.split((dim_v, dim), -1)
    per_chunk = zip(
        new_values.unbind(),
        old_keys.unbind(),
        (query * from_start).unbind(),
        (qk * decay).unbind(),
        (key * to_end).transpose(-1, -2).unbind(),
        from_start[..., -1:, :].unbind(),
        strict=True,
    )
    state = torch.zeros(batch, n_v, dim, dim_v)
    out = []
    for new_v, old_k, q, attn, k_end, whole in per_chunk:
        v = new_v - old_k @ state
        out.append(q @ state + attn @ v)
        state = state * whole + k_end @ v
    # [batch, heads, chunks, chunk, d] -> [batch, seq, heads, d]
    return torch.stack(out, 2).flatten(2, 3).transpose(1, 2), None


def causal_conv1d(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    **_: Any,
) -> torch.Tensor:
    """Depthwise causal convolution of [batch, channels, seq] with SiLU, as shifted products."""
    if bias is not None or activation != "silu":
        raise ValueError("only a convolution without bias and with SiLU is supported")
    x = hidden_states.transpose(1, 2)
    width = weight.shape[-1]
    padded = F.pad(x, (0, 0, width - 1, 0))
    out = sum(padded[:, i : i + x.shape[1]] * weight[:, i] for i in range(width))
    return F.silu(out).transpose(1, 2)


def _rms_norm(self: modeling_qwen3_5.Qwen3_5RMSNorm, x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], 1.0 + self.weight, self.eps)


def install() -> None:
    """Let transformers' Qwen3.5 use the functions of this module."""
    modeling_qwen3_5.Qwen3_5RMSNorm.forward = _rms_norm
    modeling_qwen3_5.torch_chunk_gated_delta_rule = chunk_gated_delta_rule
    modeling_qwen3_5.causal_conv1d_fn = causal_conv1d
