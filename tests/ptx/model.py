"""What a large model launches, recorded without its memory: the model's own code on empty tensors.

Of arrays a compilation knows types and alignment alone, so torch's ``meta`` tensors, which have
shapes and no content, stand in for 27 billion weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from ptx.cases import Recorder
from ptx.compile import Launch
from ptx.run import emulated
from specla.backends.base import Weight
from specla.backends.triton.backend import TritonBackend
from specla.backends.weights import WeightSource
from specla.core.topology import Tree
from specla.models.qwen35.config import Qwen35Config
from specla.models.qwen35.target import Qwen35Target, TargetOptions
from specla.models.qwen35.weights import (
    AttentionWeights,
    FfnWeights,
    GdnWeights,
    Qwen35Weights,
)

FORMATS = ("Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16")
ROWS = (1, 9, 22, 64)
"""Nodes of a tree: token tiles of 16, 32 and 64."""

SHAPE = Qwen35Config(
    name="27B", n_layers=4, n_mtp_layers=0, d_model=5120, d_ff=17408, vocab_size=248_320,
    context_length=262_144, n_heads=24, n_kv_heads=4, head_dim=256, rotary_dim=64, rope_base=1e7,
    n_key_heads=16, n_value_heads=48, key_dim=128, value_dim=128, conv_width=4,
    attention_layers=(False, False, False, True), rms_eps=1e-6, tied_output=False, eos_ids=(),
)  # fmt: skip
"""Widths of Qwen3.5-27B; one group of its layers stands for all."""
OPTIONS = TargetOptions(context=4096, max_nodes=65, chunk=512, features=(1, 2))


def model_launches() -> list[Launch]:
    """Distinct launches of every format: trees, a prefill, and commits of both kinds."""
    distinct: dict[str, Launch] = {}
    for kind in FORMATS:
        # what is no product is the same for all formats
        for launch in _launches(kind):
            distinct.setdefault(launch.key, launch)
    return list(distinct.values())


def _launches(kind: str) -> Iterator[Launch]:
    recorder = Recorder()
    with emulated(recorder):
        target = Qwen35Target(_weights(SHAPE, kind), _ShapesOnly(torch.device("meta")), OPTIONS)
        sequence = target.open()
        target.prefill([(sequence, [0] * 300)])
        for nodes in ROWS:
            tree = Tree.build(range(nodes), [-1, *(max(0, i - 2) for i in range(1, nodes))])
            verified = target.verify([(sequence, tree)])
            target.argmax(verified)
            top, total = (target.backend.empty((nodes,)) for _ in range(2))
            target.backend.soft_sums(verified.logits, top, total)
            target.commit(sequence, tree.path_to(nodes - 1))
        target.flush(sequence)
    yield from recorder.launches


def _weights(config: Qwen35Config, kind: str) -> Qwen35Weights:
    width, inner = config.d_model, config.n_value_heads * config.value_dim
    query, kv = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim

    def matrix(rows: int, cols: int) -> WeightSource:
        return WeightSource("w", kind, rows, cols, np.zeros(0, np.uint8))

    def vector(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)

    ffn = FfnWeights(
        matrix(config.d_ff, width), matrix(config.d_ff, width), matrix(width, config.d_ff)
    )
    gdn = GdnWeights(
        attn_norm=vector(width),
        ffn_norm=vector(width),
        qkv=matrix(config.conv_channels, width),
        z=matrix(inner, width),
        # files keep these small ones in float32
        alpha=replace(matrix(config.n_value_heads, width), kind="F32"),
        beta=replace(matrix(config.n_value_heads, width), kind="F32"),
        out=matrix(width, inner),
        conv=vector(config.conv_width, config.conv_channels),
        a=vector(config.n_value_heads),
        dt_bias=vector(config.n_value_heads),
        norm=vector(config.value_dim),
        ffn=ffn,
    )
    attention = AttentionWeights(
        attn_norm=vector(width),
        ffn_norm=vector(width),
        q=matrix(2 * query, width),
        k=matrix(kv, width),
        v=matrix(kv, width),
        out=matrix(width, query),
        q_norm=vector(config.head_dim),
        k_norm=vector(config.head_dim),
        ffn=ffn,
    )
    layers = tuple(attention if full else gdn for full in config.attention_layers)
    vocab = matrix(config.vocab_size, width)
    return Qwen35Weights(config, vocab, replace(vocab), vector(width), layers)


class _ShapesOnly(TritonBackend):
    """Arrays without content; weights of the right type and any size."""

    def download(self, array: Any) -> np.ndarray:
        return np.zeros(array.shape, np.dtype(str(array.dtype).removeprefix("torch.")))

    def load(self, source: WeightSource) -> Weight:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType[source.kind]]
        rows, cols = 64, 256
        data = np.zeros((rows, cols // block * size), np.uint8)
        small = super().load(WeightSource("w", source.kind, rows, cols, data))
        return Weight(source, small.quantised, small.handle)
