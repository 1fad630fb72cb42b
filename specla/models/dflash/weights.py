"""The tensors of a DFlash drafter, checked for presence and shape, matrices left encoded.

Norm weights are plain factors. A tensor that nobody here knows is an error: it would have changed
the drafts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from specla.backends.weights import WeightSource
from specla.models.dflash.config import DraftConfig
from specla.models.dflash.reader import DraftReader
from specla.models.gguf import GgufFile
from specla.models.gguf.text import fail
from specla.models.qwen35.weights import FfnWeights

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class ConvWeights:
    """DFlash2's convolution before and after a mixer: base float32 [2, taps, d_model]; projection
    [2 * taps * groups, d_model]."""

    base: Float32
    projection: WeightSource


@dataclass(frozen=True)
class DraftLayerWeights:
    """attn_norm, ffn_norm: float32 [d_model].  q: [n_heads * head_dim, d_model].  k, v:
    [n_kv_heads * head_dim, d_model].  out: [d_model, n_heads * head_dim].  q_norm, k_norm: float32
    [head_dim]."""

    attn_norm: Float32
    ffn_norm: Float32
    q: WeightSource
    k: WeightSource
    v: WeightSource
    out: WeightSource
    q_norm: Float32
    k_norm: Float32
    ffn: FfnWeights
    attn_conv: ConvWeights | None
    ffn_conv: ConvWeights | None


@dataclass(frozen=True)
class SelectorWeights:
    """before, after: [vocab, rank].  hidden: [rank, d_model]."""

    before: WeightSource
    after: WeightSource
    hidden: WeightSource


@dataclass(frozen=True)
class MarkovWeights:
    """before: W1 [vocab, rank].  after: W2 [draft vocab, rank]."""

    before: WeightSource
    after: WeightSource


@dataclass(frozen=True)
class ConfidenceWeights:
    """hidden: float32 [d_model].  before: float32 [rank] or None (the hidden alone)."""

    hidden: Float32
    before: Float32 | None
    bias: float


@dataclass(frozen=True)
class DraftWeights:
    """A whole drafter.

    fc: [d_model, features].  hidden_norm, output_norm: float32 [d_model].  embedding [vocab,
    d_model], output [draft vocab, d_model]: None where the target's is used; one object where a
    drafter's own are tied.  ids: int32 [draft
    vocab], target ids of a reduced draft vocabulary, ascending; None where it is the target's.
    """

    config: DraftConfig
    fc: WeightSource
    hidden_norm: Float32
    output_norm: Float32
    embedding: WeightSource | None
    output: WeightSource | None
    ids: Int32 | None
    layers: tuple[DraftLayerWeights, ...]
    markov: MarkovWeights | None
    confidence: ConfidenceWeights | None
    selector: SelectorWeights | None

    @property
    def feature_width(self) -> int:
        """d_model of the target that it was made for."""
        return self.fc.cols // len(self.config.target_layers)


def read_weights(gguf: GgufFile, config: DraftConfig) -> DraftWeights:
    """All weights, still in the file.

    Raises FileFormatError for a tensor that is missing, has the wrong shape or holds a NaN where a
    vector is needed; UnsupportedModelError for one that specla doesn't know or can't convert.
    """
    reader = DraftReader(gguf)
    width = config.d_model
    weights = DraftWeights(
        config,
        fc=_fc(reader, config),
        hidden_norm=reader.vector(
            reader.name(
                "enc.output_norm.weight", "dflash.hidden_norm.weight", "dflash_hidden_norm.weight"
            ),
            width,
        ),
        output_norm=reader.vector("output_norm.weight", width),
        embedding=reader.optional("token_embd.weight", width),
        output=reader.optional("output.weight", width),
        ids=None,
        layers=tuple(_layer(reader, config, layer) for layer in range(config.n_layers)),
        markov=_markov(reader),
        confidence=None,
        selector=_selector(reader, config),
    )
    weights = _with_confidence(reader, weights)
    weights = _reduced(reader, weights)
    reader.refuse_rest()
    return weights


def _fc(reader: DraftReader, config: DraftConfig) -> WeightSource:
    name = reader.name("fc.weight", "dflash.fc.weight", "dflash_fc.weight")
    source = reader.gguf.tensor(name)
    count = len(config.target_layers)
    if source.cols % count:
        fail(source.path, f"tensor {name} has {source.cols} columns for features of {count} layers")
    return reader.matrix(name, config.d_model, source.cols)


def _layer(reader: DraftReader, config: DraftConfig, layer: int) -> DraftLayerWeights:
    block, width, dim = f"blk.{layer}", config.d_model, config.head_dim
    query, kv = config.n_heads * dim, config.n_kv_heads * dim
    ffn_norm = reader.name(f"{block}.ffn_norm.weight", f"{block}.post_attention_norm.weight")
    return DraftLayerWeights(
        attn_norm=reader.vector(f"{block}.attn_norm.weight", width),
        ffn_norm=reader.vector(ffn_norm, width),
        q=reader.matrix(f"{block}.attn_q.weight", query, width),
        k=reader.matrix(f"{block}.attn_k.weight", kv, width),
        v=reader.matrix(f"{block}.attn_v.weight", kv, width),
        out=reader.matrix(f"{block}.attn_output.weight", width, query),
        q_norm=reader.vector(f"{block}.attn_q_norm.weight", dim),
        k_norm=reader.vector(f"{block}.attn_k_norm.weight", dim),
        ffn=FfnWeights(
            gate=reader.matrix(f"{block}.ffn_gate.weight", config.d_ff, width),
            up=reader.matrix(f"{block}.ffn_up.weight", config.d_ff, width),
            down=reader.matrix(f"{block}.ffn_down.weight", width, config.d_ff),
        ),
        attn_conv=_conv(reader, config, f"{block}.attn_conv"),
        ffn_conv=_conv(reader, config, f"{block}.ffn_conv"),
    )


def _conv(reader: DraftReader, config: DraftConfig, name: str) -> ConvWeights | None:
    if config.dflash2 is None:
        return None
    taps, width = config.dflash2.conv_taps, config.d_model
    rows = 2 * taps * (width // config.dflash2.conv_group)
    return ConvWeights(
        reader.cube(f"{name}_base", (2, taps, width)),
        reader.matrix(f"{name}_proj.weight", rows, width),
    )


def _selector(reader: DraftReader, config: DraftConfig) -> SelectorWeights | None:
    if config.dflash2 is None:
        return None
    rank = config.dflash2.rank
    tables = []
    for name in ("selector_predecessor.weight", "selector_successor.weight"):
        tables.append(reader.matrix(name, reader.gguf.tensor(name).to_weight().rows, rank))
    hidden = reader.matrix("selector_hidden.weight", rank, config.d_model)
    return SelectorWeights(tables[0], tables[1], hidden)


def _markov(reader: DraftReader) -> MarkovWeights | None:
    before = reader.optional("markov_w1.weight")
    after = reader.optional("markov_w2.weight", None if before is None else before.cols)
    if (before is None) != (after is None):
        there, missing = ("w1", "w2") if after is None else ("w2", "w1")
        fail(reader.gguf.path, f"tensor markov_{there}.weight is there, markov_{missing} is not")
    return None if before is None or after is None else MarkovWeights(before, after)


def _with_confidence(reader: DraftReader, weights: DraftWeights) -> DraftWeights:
    name, bias_name = "conf_proj.weight", "conf_proj.bias"
    said = weights.config.confidence
    if name not in reader.gguf.tensors and not said:
        return weights
    width = weights.config.d_model
    rank = weights.markov.before.cols if weights.markov is not None else 0
    source = reader.gguf.tensor(name)
    length = width if source.n_elements == width else width + rank
    values = reader.vector(name, length)
    bias = float(reader.vector(bias_name, 1)[0]) if bias_name in reader.gguf.tensors else 0.0
    if said is False:
        return weights
    before = values[width:] if length > width else None
    return replace(weights, confidence=ConfidenceWeights(values[:width], before, bias))


def _reduced(reader: DraftReader, weights: DraftWeights) -> DraftWeights:
    """With the draft vocabulary in ascending order of target ids, so that ties break by them."""
    ids = reader.integers("d2t")
    path = reader.gguf.path
    sizes = {
        m.name: m.rows
        for m in (weights.output, weights.markov.after if weights.markov else None)
        if m is not None
    }
    if ids is None:
        # a drafter with a table of its own and no head uses it for both
        own = weights.output if weights.output is not None else weights.embedding
        return replace(weights, output=own)
    if weights.output is None or not len(ids):
        fail(path, "tensor d2t maps a reduced draft vocabulary, but there is no output.weight")
    for name, rows in sizes.items():
        if rows != len(ids):
            fail(path, f"tensor {name} has {rows} rows, d2t lists {len(ids)} tokens")
    order = np.argsort(ids, kind="stable")
    ascending = ids[order]
    if ascending[0] < 0 or ascending[-1] > np.iinfo(np.int32).max:
        fail(path, f"tensor d2t maps to tokens {ascending[0]}..{ascending[-1]}")
    if not (np.diff(ascending) > 0).all():
        fail(path, "tensor d2t maps two entries to one token")
    markov = weights.markov
    if (order != np.arange(len(order))).any():
        weights = replace(weights, output=_permuted(weights.output, order))
        if markov is not None:
            markov = replace(markov, after=_permuted(markov.after, order))
    return replace(weights, ids=ascending.astype(np.int32), markov=markov)


def _permuted(source: WeightSource, order: npt.NDArray[np.int64]) -> WeightSource:
    return WeightSource(source.name, source.kind, source.rows, source.cols, source.data[order])
