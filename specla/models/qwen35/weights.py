"""The tensors of a `qwen35` target, checked for presence and shape, matrices left encoded.

Value heads keep the file's tiled order (value head h uses key head h % n_key_heads). Norm
weights are plain factors (the file has the +1 of zero-centred norms baked in).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specla.backends.weights import WeightSource
from specla.errors import UnsupportedModelError
from specla.models.gguf import GgufFile, TensorSource
from specla.models.gguf.text import fail, quoted, shown_path
from specla.models.qwen35.config import Qwen35Config


@dataclass(frozen=True)
class FfnWeights:
    """gate, up: [d_ff, d_model].  down: [d_model, d_ff]."""

    gate: WeightSource
    up: WeightSource
    down: WeightSource


@dataclass(frozen=True)
class GdnWeights:
    """A Gated-DeltaNet layer. Hk, Hv heads of K, V; C = 2*Hk*K + Hv*V channels.

    attn_norm, ffn_norm: float32 [d_model].
    qkv: [C, d_model], rows q | k | v.  z: [Hv*V, d_model].  alpha, beta: [Hv, d_model].
    out: [d_model, Hv*V].  conv: float32 [conv_width, C], row 0 = oldest tap.
    a: float32 [Hv] = -exp(A_log).  dt_bias: float32 [Hv].  norm: float32 [V].
    """

    attn_norm: np.ndarray
    ffn_norm: np.ndarray
    qkv: WeightSource
    z: WeightSource
    alpha: WeightSource
    beta: WeightSource
    out: WeightSource
    conv: np.ndarray
    a: np.ndarray
    dt_bias: np.ndarray
    norm: np.ndarray
    ffn: FfnWeights


@dataclass(frozen=True)
class AttentionWeights:
    """A full-attention layer.

    attn_norm, ffn_norm: float32 [d_model].  q: [2*n_heads*head_dim, d_model], per head the
    query rows, then the gate rows.  k, v: [n_kv_heads*head_dim, d_model].
    out: [d_model, n_heads*head_dim].  q_norm, k_norm: float32 [head_dim].
    """

    attn_norm: np.ndarray
    ffn_norm: np.ndarray
    q: WeightSource
    k: WeightSource
    v: WeightSource
    out: WeightSource
    q_norm: np.ndarray
    k_norm: np.ndarray
    ffn: FfnWeights


@dataclass(frozen=True)
class Qwen35Weights:
    """A whole target.

    embedding, output: [vocab_size, d_model], one object when tied.
    output_norm: float32 [d_model].  layers: n_layers long.
    extra: reads the tensors that were skipped; None for weights that come from no file.
    """

    config: Qwen35Config
    embedding: WeightSource
    output: WeightSource
    output_norm: np.ndarray
    layers: tuple[GdnWeights | AttentionWeights, ...]
    extra: TensorReader | None = None


def read_weights(gguf: GgufFile, config: Qwen35Config) -> Qwen35Weights:
    """All trunk weights; tensors of extra prediction layers and unknown ones are skipped.

    Raises FileFormatError for a tensor that is missing, has the wrong shape or holds a NaN or
    infinity where a vector is needed; UnsupportedModelError for weights that need more than
    the product (a separate scale, a type that can't be converted).
    """
    reader = TensorReader(gguf)
    vocab, width = config.vocab_size, config.d_model
    embedding = reader.matrix("token_embd.weight", vocab, width)
    output = embedding if config.tied_output else reader.matrix("output.weight", vocab, width)
    return Qwen35Weights(
        config,
        embedding,
        output,
        reader.vector("output_norm.weight", width),
        tuple(
            read_attention(reader, config, layer) if attention else read_gdn(reader, config, layer)
            for layer, attention in enumerate(config.attention_layers)
        ),
        reader,
    )


class TensorReader:
    """Tensors of a file by name and expected shape."""

    def __init__(self, gguf: GgufFile) -> None:
        self.gguf = gguf

    def matrix(self, name: str, rows: int, cols: int) -> WeightSource:
        """A product's matrix, still encoded."""
        source = self._checked(name, (rows, cols))
        self._check_usable(source)
        # a matrix of one row may come as a vector: take the shape that the model needs
        return WeightSource(name, source.kind, rows, cols, source.raw.reshape(rows, -1))

    def vector(self, name: str, length: int) -> np.ndarray:
        """A small vector as finite float32 [length]."""
        return self._finite(self._checked(name, (length,))).reshape(length)

    def table(self, name: str, rows: int, cols: int) -> np.ndarray:
        """A small matrix as finite float32 [rows, cols].

        Raises UnsupportedModelError for block types, which nobody uses for these: a small file
        would make a large array.
        """
        source = self._checked(name, (rows, cols))
        check_plain(source)
        return self._finite(source).reshape(rows, cols)

    def _checked(self, name: str, shape: tuple[int, ...]) -> TensorSource:
        source = self.gguf.tensor(name)
        wanted = shape
        while len(wanted) > 1 and wanted[0] == 1:
            wanted = wanted[1:]
        if source.matrix_shape != wanted:
            found = quoted(list(source.shape))
            fail(source.path, f"tensor {name} has the shape {found}, the model needs {list(shape)}")
        return source

    def _check_usable(self, source: TensorSource) -> None:
        base = source.name.removesuffix(".weight")
        for scale in (f"{base}.scale", f"{source.name}.scale"):
            if scale in self.gguf.tensors:
                raise UnsupportedModelError(
                    f"{shown_path(source.path)}: tensor {scale} scales {source.name}, which "
                    f"specla doesn't do; requantise the model to Q8_0 or a K-quant"
                )
        check_convertible(source)

    def _finite(self, source: TensorSource) -> np.ndarray:
        values = source.to_float32()
        if not np.isfinite(values).all():
            fail(source.path, f"damaged: tensor {source.name} holds a NaN or an infinity")
        return np.ascontiguousarray(values, dtype=np.float32)


def check_convertible(source: TensorSource) -> None:
    """Raise UnsupportedModelError when a tensor's type has no exact float32 conversion."""
    # one block: a row may be as long as the file
    block = source.block
    n_bytes = source.n_bytes // (source.n_elements // block)
    first = source.raw[:n_bytes]
    TensorSource(source.name, source.kind, (1, block), first, source.path).to_float32()


def check_plain(source: TensorSource) -> None:
    """Raise UnsupportedModelError for a small table in a block type."""
    if source.block > 1:
        raise UnsupportedModelError(
            f"{shown_path(source.path)}: tensor {source.name} is {source.kind}, but specla reads "
            f"it as F32, F16 or BF16 only; convert the model again"
        )


def _ffn(reader: TensorReader, config: Qwen35Config, block: str) -> FfnWeights:
    return FfnWeights(
        gate=reader.matrix(f"{block}.ffn_gate.weight", config.d_ff, config.d_model),
        up=reader.matrix(f"{block}.ffn_up.weight", config.d_ff, config.d_model),
        down=reader.matrix(f"{block}.ffn_down.weight", config.d_model, config.d_ff),
    )


def read_gdn(reader: TensorReader, config: Qwen35Config, layer: int) -> GdnWeights:
    """Weights of block `layer` as a Gated-DeltaNet layer. Raises as `read_weights`."""
    block, width = f"blk.{layer}", config.d_model
    heads, channels = config.n_value_heads, config.conv_channels
    inner = heads * config.value_dim
    # the file holds the taps of a channel side by side, oldest first
    conv = reader.table(f"{block}.ssm_conv1d.weight", channels, config.conv_width)
    return GdnWeights(
        attn_norm=reader.vector(f"{block}.attn_norm.weight", width),
        ffn_norm=reader.vector(f"{block}.post_attention_norm.weight", width),
        qkv=reader.matrix(f"{block}.attn_qkv.weight", channels, width),
        z=reader.matrix(f"{block}.attn_gate.weight", inner, width),
        alpha=reader.matrix(f"{block}.ssm_alpha.weight", heads, width),
        beta=reader.matrix(f"{block}.ssm_beta.weight", heads, width),
        out=reader.matrix(f"{block}.ssm_out.weight", width, inner),
        conv=np.ascontiguousarray(conv.T),
        a=reader.vector(f"{block}.ssm_a", heads),
        dt_bias=reader.vector(f"{block}.ssm_dt.bias", heads),
        norm=reader.vector(f"{block}.ssm_norm.weight", config.value_dim),
        ffn=_ffn(reader, config, block),
    )


def read_attention(reader: TensorReader, config: Qwen35Config, layer: int) -> AttentionWeights:
    """Weights of block `layer` as a full-attention layer. Raises as `read_weights`."""
    block, width = f"blk.{layer}", config.d_model
    query, kv = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    return AttentionWeights(
        attn_norm=reader.vector(f"{block}.attn_norm.weight", width),
        ffn_norm=reader.vector(f"{block}.post_attention_norm.weight", width),
        q=reader.matrix(f"{block}.attn_q.weight", 2 * query, width),
        k=reader.matrix(f"{block}.attn_k.weight", kv, width),
        v=reader.matrix(f"{block}.attn_v.weight", kv, width),
        out=reader.matrix(f"{block}.attn_output.weight", width, query),
        q_norm=reader.vector(f"{block}.attn_q_norm.weight", config.head_dim),
        k_norm=reader.vector(f"{block}.attn_k_norm.weight", config.head_dim),
        ffn=_ffn(reader, config, block),
    )
