"""transformers' Qwen3.5 with random weights, through our own converter, in odd shapes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from specla.backends import create_backend
from specla.core.topology import Tree
from specla.models.load import open_model
from specla.models.qwen35.target import TargetOptions

pytestmark = pytest.mark.oracle

BASE = {
    "vocab_size": 211,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
}

SHAPES = {
    "value heads three times key heads, untied": {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "tie_word_embeddings": False,
    },
    "five layers, not a multiple of the interval": {"num_hidden_layers": 5},
    "heads of 16, one KV head": {
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "head_dim": 16,
        "num_key_value_heads": 1,
    },
    "heads of 128": {
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "head_dim": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    },
    "key and value dims differ, equal head counts": {
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 32,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 4,
        "tie_word_embeddings": False,
    },
    "widths that are no multiple of 32": {
        "hidden_size": 72,
        "intermediate_size": 100,
        "num_hidden_layers": 7,
        "linear_num_key_heads": 3,
        "linear_num_value_heads": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
    },
    "interval two, wide window": {"interval": 2, "linear_conv_kernel_dim": 5},
}


def _checkpoint(folder: Path, changes: dict[str, object]) -> tuple[np.ndarray, np.ndarray]:
    """Write a random checkpoint; return ids [97] and transformers' float32 logits [97, vocab]."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    settings = {**BASE, **changes}
    interval = settings.pop("interval", 4)
    settings["layer_types"] = [
        "full_attention" if (i + 1) % interval == 0 else "linear_attention"
        for i in range(settings["num_hidden_layers"])
    ]
    half = settings["head_dim"] // 4
    settings["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [half - 2 * (half // 3), half // 3, half // 3],
        "mrope_interleaved": True,
    }
    torch.manual_seed(len(json.dumps(settings, default=str)))
    config = transformers.Qwen3_5TextConfig(**settings)
    model = transformers.Qwen3_5ForCausalLM(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # the usual start values (zeros, ones) would hide a missing or swapped tensor
            scale = 0.3 if parameter.ndim == 1 else 1.5 / parameter.shape[-1] ** 0.5
            noise = torch.randn_like(parameter) * scale
            parameter.copy_(parameter + noise if parameter.ndim == 1 else noise)
            if name.endswith("A_log"):
                parameter.copy_(torch.rand_like(parameter) * 2 - 1)
        ids = torch.randint(0, settings["vocab_size"], (1, 97))
        logits = model(ids).logits[0].float().numpy()
    model.save_pretrained(folder)
    return ids[0].numpy(), logits


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES.keys())
def test_logits_agree_at_every_position(tmp_path: Path, changes: dict[str, object]) -> None:
    from specla.models.convert import convert_qwen35

    ids, theirs = _checkpoint(tmp_path, changes)
    file = tmp_path / "model.gguf"
    convert_qwen35(tmp_path, file, "f32", tokenizer=None)
    options = TargetOptions(context=128, max_nodes=33, kv="f32", poison=True)
    target = open_model(file).target(create_backend("numpy"), options)

    sequence = target.open()
    verified = target.prefill([(sequence, ids[:64].tolist())], logits=True)
    assert verified is not None
    first = target.backend.download(verified.logits)
    # the rest through the other road: a chain to verify
    rest = ids[64:]
    second = target.backend.download(target.verify([(sequence, Tree.chain(rest.tolist()))]).logits)
    ours = np.concatenate([first, second])
    assert np.abs(ours - theirs).max() <= 2e-4 * np.abs(theirs).max()
    assert (ours.argmax(1) == theirs.argmax(1)).all()
