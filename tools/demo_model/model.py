"""The demo model's shape and initialisation (transformers' ``Qwen3_5ForCausalLM``)."""

from __future__ import annotations

import math

import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig


def build_config(vocab_size: int, end_of_text: int) -> Qwen3_5TextConfig:
    """About 6.6 million parameters; every row width is a multiple of 32."""
    n_layer, interval = 8, 4
    return Qwen3_5TextConfig(
        vocab_size=vocab_size,
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=n_layer,
        layer_types=[
            "linear_attention" if (i + 1) % interval else "full_attention" for i in range(n_layer)
        ],
        full_attention_interval=interval,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=64,
        linear_conv_kernel_dim=4,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        hidden_act="silu",
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
        partial_rotary_factor=0.5,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1_000_000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
        bos_token_id=None,
        eos_token_id=end_of_text,
        pad_token_id=end_of_text,
        dtype="float32",
    )


def build_model(config: Qwen3_5TextConfig, seed: int) -> Qwen3_5ForCausalLM:
    """A model with random weights: small residual outputs, decay times from short to long."""
    torch.manual_seed(seed)
    model = Qwen3_5ForCausalLM(config).float()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                p.mul_(1 / math.sqrt(2 * config.num_hidden_layers))
            elif name.endswith("A_log"):
                p.uniform_(1, 16).log_()
            elif name.endswith("dt_bias"):  # softplus(dt_bias) log-uniform in [0.001, 0.1]
                dt = torch.empty_like(p).uniform_(math.log(1e-3), math.log(1e-1)).exp()
                p.copy_(dt + torch.log(-torch.expm1(-dt)))
            elif name.endswith("conv1d.weight"):
                p.uniform_(-0.5, 0.5)
    return model
