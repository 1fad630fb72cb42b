"""The trunk of a Qwen3.5 model as loaded: embedding, layers, final norm and output.

It computes and keeps nothing between two passes: what a sequence leaves behind lies in the pools
that a pass is given.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from specla.backends.base import Backend, RotaryTable
from specla.backends.pools import FeaturePool
from specla.errors import CapacityError
from specla.models.qwen35.config import Qwen35Config
from specla.models.qwen35.layers import AttentionLayer, GdnLayer, Step
from specla.models.qwen35.options import TargetOptions
from specla.models.qwen35.parts import TargetParts
from specla.models.qwen35.rotary import rotary_table
from specla.models.qwen35.weights import GdnWeights, Qwen35Weights


class Trunk:
    """All layers that plain decoding runs, on a backend.

    embedding, output: [vocab, d_model], one object when tied.  output_norm: weight [d_model] of the
    norm before ``output``.
    """

    def __init__(self, weights: Qwen35Weights, backend: Backend, options: TargetOptions) -> None:
        self.config: Qwen35Config = weights.config
        self.backend = backend
        self.options = options
        self.embedding = backend.load(weights.embedding)
        # a tied output is the same matrix: load it once
        tied = weights.output is weights.embedding
        self.output = self.embedding if tied else backend.load(weights.output)
        self.output_norm = backend.upload(weights.output_norm)
        self._extra = weights.extra
        self._layers = _load_layers(weights, backend)

    @cached_property
    def table(self) -> RotaryTable:
        """Of every position that a node may have; made when it is first asked for."""
        positions = self.options.context + self.options.max_nodes
        cos, sin = rotary_table(positions, self.config.rotary_dim, self.config.rope_base)
        return RotaryTable(self.backend.upload(cos), self.backend.upload(sin))

    # -- a forward pass ------------------------------------------------------------------------

    def forward(self, step: Step, features: FeaturePool | None) -> Any:
        """All layers: the residual stream float32 [N, d_model], scratch of the step.

        features: takes what comes out of its layers; None if nothing is captured.
        """
        x = step.rows("x", self.config.d_model)
        self.backend.embed(step.plan.tokens, self.embedding, x)
        for i, layer in enumerate(self._layers):
            layer.forward(step, x)
            if features is not None and i in features.layers:
                self.backend.feature_write(x, features, features.layers.index(i), step.plan)
        return x

    def head(self, step: Step, x: Any, capacity: int) -> Any:
        """Final norm and output: logits float32 [N, vocab] of what :meth:`forward` returned.

        They are scratch of the step. capacity: rows to make room for, see Workspace.rows.
        """
        normed = step.normed(x, self.output_norm, self.output)
        (logits,) = step.products(normed, (self.output,), ("logits",), capacity)
        return logits

    # -- what a draft model may ask for ----------------------------------------------------------

    @property
    def parts(self) -> TargetParts:
        """The loaded matrices that a draft model may share."""
        return TargetParts(
            self.config, self.options, self.embedding, self.output, self.output_norm, self._extra
        )

    def embed(self, tokens: Any) -> Any:
        """Embeddings float32 [N, d_model] of backend int32 [N]; a new array.

        Raises CapacityError for an id outside the vocabulary.
        """
        ids = self.backend.download(tokens)
        wrong = ids[(ids < 0) | (ids >= self.config.vocab_size)]
        if len(wrong):
            raise CapacityError(
                f"token {wrong[0]} is not in the vocabulary of {self.config.vocab_size}"
            )
        out = self.backend.empty((tokens.shape[0], self.config.d_model))
        self.backend.embed(tokens, self.embedding, out)
        return out

    def lm_head(self, x: Any) -> Any:
        """Logits float32 [N, vocab] of final (already normed) hidden states float32 [N, d_model];
        a new array."""
        backend, weight = self.backend, self.output
        out = backend.empty((x.shape[0], weight.source.rows))
        if not weight.quantised:
            backend.linear_float(x, weight, out)
            return out
        quantised = backend.quantised_rows(x.shape[0], self.config.d_model)
        backend.quantise(x, quantised)
        backend.linear_quantised(quantised, weight, out)
        return out


def _load_layers(weights: Qwen35Weights, backend: Backend) -> list[GdnLayer | AttentionLayer]:
    layers: list[GdnLayer | AttentionLayer] = []
    n_gdn = 0
    for layer in weights.layers:
        if isinstance(layer, GdnWeights):
            layers.append(GdnLayer(backend, n_gdn, layer))
            n_gdn += 1
        else:
            layers.append(AttentionLayer(backend, len(layers) - n_gdn, layer))
    return layers
