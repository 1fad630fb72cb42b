"""The DFlash backbone with DSpark heads, for training: many anchors share one context pass.

Parameter names are those of published checkpoints, so that ``state_dict()`` is the checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn


@dataclass(frozen=True)
class DrafterConfig:
    """Shape of a drafter; ``target_layer_ids`` i means the output of the target's layer i."""

    target_layer_ids: tuple[int, ...]
    num_hidden_layers: int = 1
    hidden_size: int = 256
    intermediate_size: int = 640
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    markov_rank: int = 64
    block_size: int = 8
    causal: bool = True
    vocab_size: int = 2048
    mask_token_id: int = 2047
    num_target_layers: int = 8
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6

    def to_json(self) -> dict[str, Any]:
        """The ``config.json`` of a published DSpark checkpoint, with a nested DFlash part."""
        flat = asdict(self)
        nested = ("block_size", "mask_token_id", "target_layer_ids", "causal")
        return {
            "architectures": ["Qwen3DSparkModel"],
            "model_type": "qwen3",
            **{k: v for k, v in flat.items() if k == "block_size" or k not in nested},
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "hidden_act": "silu",
            "attention_bias": False,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": False,
            "sample_from_anchor": True,
            "markov_head_type": "vanilla",
            "enable_confidence_head": True,
            "dtype": "float32",
            "dflash_config": {k: flat[k] for k in nested},
        }

    @classmethod
    def from_json(cls, config: dict[str, Any]) -> DrafterConfig:
        """Inverse of ``to_json``."""
        known = {**config, **config["dflash_config"]}
        known["target_layer_ids"] = tuple(known["target_layer_ids"])
        return cls(**{k: known[k] for k in cls.__dataclass_fields__})


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)


def rope(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """Half-split rotation of [..., heads, head_dim] by ``positions`` [...]."""
    half = x.shape[-1] // 2
    rates = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions[..., None, None] * rates
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Attention(nn.Module):
    """Queries of the block over the keys of the context (up to the root) and of the own block.

    With ``causal`` a slot sees the slots before it and itself, so that a shorter block gives the
    same first slots.
    """

    def __init__(self, c: DrafterConfig) -> None:
        super().__init__()
        self.c = c
        queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, c.hidden_size, bias=False)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps)
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps)

    def keys_values(
        self, x: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[..., kv_heads, head_dim] each, from [..., hidden] at ``positions`` [...]."""
        shape = (*x.shape[:-1], self.c.num_key_value_heads, self.c.head_dim)
        k = rope(self.k_norm(self.k_proj(x).view(shape)), positions, self.c.rope_theta)
        return k, self.v_proj(x).view(shape)

    def forward(
        self, h: torch.Tensor, slots: torch.Tensor, context: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        """Block ``h`` [w, anchors, block, hidden] at positions ``slots`` [w, anchors, block].

        ``context`` [w, length, hidden]; ``hidden`` [w, anchors, length] is minus infinity where an
        anchor may not look.
        """
        w, a, b, _ = h.shape
        n_kv, d = self.c.num_key_value_heads, self.c.head_dim
        group = self.c.num_attention_heads // n_kv
        length = context.shape[1]
        q = self.q_proj(h).view(w, a, b, n_kv * group, d)
        q = rope(self.q_norm(q), slots, self.c.rope_theta) * d**-0.5
        # [w, kv, anchors, group * block, d]
        q = q.view(w, a, b, n_kv, group, d).permute(0, 3, 1, 4, 2, 5).reshape(w, n_kv, a, -1, d)
        kc, vc = self.keys_values(context, torch.arange(length).expand(w, length))
        kc, vc = kc.permute(0, 2, 3, 1), vc.transpose(1, 2)
        kb, vb = (t.permute(0, 3, 1, 2, 4) for t in self.keys_values(h, slots))
        far = (q.flatten(2, 3) @ kc).view(w, n_kv, a, -1, length) + hidden[:, None, :, None]
        near = q @ kb.transpose(-1, -2)
        if self.c.causal:
            later = torch.full((b, b), -torch.inf).triu(1)
            near = near + later.repeat(group, 1)
        weights = torch.cat((far, near), -1).softmax(-1)
        far, near = weights[..., :length], weights[..., length:]
        out = (far.flatten(2, 3) @ vc).view(w, n_kv, a, -1, d) + near @ vb
        out = out.view(w, n_kv, a, group, b, d).permute(0, 2, 4, 1, 3, 5).flatten(3)
        return self.o_proj(out)


class MLP(nn.Module):
    def __init__(self, c: DrafterConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c: DrafterConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MLP(c)

    def forward(self, x: torch.Tensor, *where: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), *where)
        return x + self.mlp(self.post_attention_layernorm(x))


class MarkovHead(nn.Module):
    """Low-rank correction of the logits by the token before: ``markov_w2 @ markov_w1[prev]``."""

    def __init__(self, c: DrafterConfig) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(c.vocab_size, c.markov_rank)
        self.markov_w2 = nn.Linear(c.markov_rank, c.vocab_size, bias=False)


class ConfidenceHead(nn.Module):
    def __init__(self, c: DrafterConfig) -> None:
        super().__init__()
        self.proj = nn.Linear(c.hidden_size + c.markov_rank, 1)


class Drafter(nn.Module):
    """Slot i of a block whose root is at position n predicts the token at n + i + 1."""

    def __init__(self, c: DrafterConfig, embedding: torch.Tensor) -> None:
        """``embedding`` [vocab, hidden] is the target's, tied to its head; it stays frozen."""
        super().__init__()
        self.c = c
        self.fc = nn.Linear(len(c.target_layer_ids) * c.hidden_size, c.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.markov_head = MarkovHead(c)
        self.confidence_head = ConfidenceHead(c)
        self.register_buffer("embedding", embedding.detach().clone(), persistent=False)

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Random weights; blocks begin as the identity and the heads without a say."""
        generator = torch.Generator().manual_seed(seed)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                p.normal_(std=p.shape[1] ** -0.5, generator=generator)
            if name.endswith(("o_proj.weight", "down_proj.weight", "markov_w2.weight")) or (
                name.startswith("confidence_head")
            ):
                p.zero_()
        # logits of random directions would be far too sure of themselves
        self.norm.weight.fill_(0.3)

    def forward(
        self, features: torch.Tensor, roots: torch.Tensor, anchors: torch.Tensor
    ) -> torch.Tensor:
        """Hidden states after the final norm, [w, anchors, block, hidden].

        ``features`` [w, length, n_features * hidden] of the target; ``roots`` [w, anchors] the
        tokens at the positions ``anchors`` [w, anchors]; a block sees the features before its root.
        """
        block = torch.full((*roots.shape, self.c.block_size), self.c.mask_token_id)
        block[..., 0] = roots
        slots = anchors[..., None] + torch.arange(self.c.block_size)
        later = torch.arange(features.shape[1]) >= anchors[..., None]
        hidden = torch.zeros(later.shape).masked_fill_(later, -torch.inf)
        context = self.hidden_norm(self.fc(features))
        x = self.embedding[block]
        for layer in self.layers:
            x = layer(x, slots, context, hidden)
        return self.norm(x)

    def save(self, out: Path) -> None:
        """``config.json`` and ``model.safetensors`` (float32)."""
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text(json.dumps(self.c.to_json(), indent=2) + "\n")
        tensors = {k: v.detach().contiguous() for k, v in self.state_dict().items()}
        save_file(tensors, out / "model.safetensors", {"format": "pt"})

    @classmethod
    def load(cls, path: Path, embedding: torch.Tensor) -> Drafter:
        config = DrafterConfig.from_json(json.loads((path / "config.json").read_text()))
        model = cls(config, embedding)
        model.load_state_dict(load_file(path / "model.safetensors"))
        return model.eval()
