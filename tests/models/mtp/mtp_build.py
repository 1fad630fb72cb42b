"""Small random `qwen35` files with an extra prediction layer, and what belongs to one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from models.gguf.gguf_build import gguf_bytes, tensor
from models.qwen35 import qwen35_build as build

BLOCK = f"blk.{build.LAYERS}"
NEXTN = ("eh_proj", "enorm", "hnorm", "shared_head_norm")


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """All tensors of a target with its layer: values stay near 1, recurrences decay."""
    rng = np.random.default_rng(seed)
    width, block = build.WIDTH, BLOCK
    shapes = build.shapes(build.LAYERS + 1, attention=(3, build.LAYERS))
    shapes |= {"output.weight": (build.VOCAB, width), f"{block}.nextn.eh_proj.weight": (width, 48)}
    shapes |= {f"{block}.nextn.{name}.weight": (width,) for name in NEXTN[1:]}
    made: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape)
        if name.endswith("ssm_a"):
            values = -np.exp(values)
        elif "norm" in name:
            values = 1 + 0.2 * values
        elif len(shape) == 2 and "conv1d" not in name and name != "token_embd.weight":
            values = values / np.sqrt(shape[1])
        if name == "output.weight":
            values = 4 * values
        made[name] = values.astype(np.float32)
    return made


def metadata(**changes: Any) -> dict[str, Any]:
    """changes: `block_count=...` sets `qwen35.block_count`; a key with a dot is taken as it is."""
    keys = build.metadata() | {
        "qwen35.block_count": build.LAYERS + 1,
        "qwen35.nextn_predict_layers": 1,
    }
    for key, value in changes.items():
        keys[key if "." in key else f"qwen35.{key}"] = value
    return keys


def layer_only(held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a file for the layer alone holds."""
    shared = ("token_embd.weight", "output.weight", "output_norm.weight")
    return {n: a for n, a in held.items() if n in shared or n.startswith(BLOCK)}


def trunk_only(held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A target without the layer."""
    return {name: array for name, array in held.items() if not name.startswith(BLOCK)}


def write(path: Path, held: dict[str, np.ndarray], **changes: Any) -> Path:
    tensors = {name: tensor(array) for name, array in held.items()}
    path.write_bytes(gguf_bytes(metadata(**changes), tensors))
    return path
