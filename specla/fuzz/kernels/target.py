"""A target without matrices: its layers take their inputs from tables, and all else is real.

Lifecycle, plans, pools and the stateful kernels are those of every target. There is no residual
stream, no projection and no feed-forward network, so that thousands of rounds a minute can be
played.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from specla.backends.base import Backend
from specla.backends.pools import FeaturePool
from specla.backends.weights import WeightSource
from specla.core.topology import Forest
from specla.fuzz.kernels.tables import AttentionTables, GdnTables
from specla.fuzz.tiny import VOCAB, source
from specla.models.qwen35.config import Qwen35Config
from specla.models.qwen35.layers import AttentionLayer, GdnLayer, Step
from specla.models.qwen35.target import Qwen35Target, TargetOptions, Verified
from specla.models.qwen35.trunk import Trunk
from specla.models.qwen35.weights import Qwen35Weights


class _TableGdn(GdnLayer):
    def __init__(self, backend: Backend, index: int, tables: GdnTables) -> None:
        self.index = index
        self.inputs = {
            name: backend.load(source(name, getattr(tables, name)))
            for name in ("qkv", "alpha", "beta")
        }
        self.conv = backend.upload(tables.conv)
        self.a = backend.upload(tables.a)
        self.dt_bias = backend.upload(tables.dt_bias)

    def output(self, step: Step) -> Any:
        qkv, alpha, beta = (_rows_of(step, name, m) for name, m in self.inputs.items())
        return self._mix(step, qkv, alpha, beta)


class _TableAttention(AttentionLayer):
    def __init__(self, backend: Backend, index: int, tables: AttentionTables) -> None:
        self.index = index
        self.inputs = {
            name: backend.load(source(name, getattr(tables, name))) for name in ("q", "k", "v")
        }
        self.q_norm = backend.upload(tables.q_norm)
        self.k_norm = backend.upload(tables.k_norm)

    def output(self, step: Step) -> Any:
        backend, config = step.backend, step.config
        q, k, v = (_rows_of(step, name, m) for name, m in self.inputs.items())
        q = self._rotated(step, backend.heads(q, config.n_heads))
        self._write(step, k, v)
        mixed = step.rows("attn out", config.n_heads, config.head_dim)
        backend.attention(q, step.kv, self.index, step.plan, config.head_dim**-0.5, mixed)
        return mixed


def _rows_of(step: Step, name: str, matrix: Any) -> Any:
    """The step's tokens' rows of a table."""
    out = step.rows(f"table {name}", matrix.source.cols)
    step.backend.embed(step.plan.tokens, matrix, out)
    return out


class _TableTrunk(Trunk):
    """Layers side by side, with nothing before, between and after them.

    capacity: most rows of a step.
    """

    def __init__(
        self,
        config: Qwen35Config,
        tables: list[GdnTables | AttentionTables],
        backend: Backend,
        options: TargetOptions,
        capacity: int,
    ) -> None:
        self.config = config
        self.backend = backend
        self.options = options
        self._tables = _load(tables, backend)
        # x + -0.0 is x in every bit, whatever x is
        self._nothing = backend.upload(
            np.full((capacity, config.n_heads, config.head_dim), -0.0, dtype=np.float32)
        )

    def forward(self, step: Step, features: FeaturePool | None) -> Any:
        """What each layer gives out, for itself: [N, d_model] each."""
        outputs = []
        for i, layer in enumerate(self._tables):
            config, backend = step.config, step.backend
            kept = step.rows(f"output {i}", config.d_model)
            nothing = backend.rows(self._nothing, step.plan.n_rows)
            backend.add(layer.output(step), nothing, backend.heads(kept, config.n_heads))
            if features is not None and i in features.layers:
                backend.feature_write(kept, features, features.layers.index(i), step.plan)
            outputs.append(kept)
        return outputs

    def head(self, step: Step, x: Any, capacity: int) -> Any:
        """The same."""
        return x


class KernelTarget(Qwen35Target):
    """Its "logits" are the outputs of all layers, side by side; :meth:`outputs` brings them."""

    def __init__(
        self,
        config: Qwen35Config,
        tables: list[GdnTables | AttentionTables],
        backend: Backend,
        options: TargetOptions,
    ) -> None:
        super().__init__(_no_weights(config), backend, options)
        self.trunk = _TableTrunk(config, tables, backend, options, self._workspace.capacity)

    def _outcome(self, logits: Any, forest: Forest) -> Verified:
        return Verified([self.backend.rows(x, forest.rows) for x in logits], forest.offsets)

    def outputs(self, verified: Verified) -> npt.NDArray[np.float32]:
        """All layers' outputs on the host [N, n_layers * d_model]."""
        return np.concatenate([self.backend.download(x) for x in verified.logits], axis=1)


def _no_weights(config: Qwen35Config) -> Qwen35Weights:
    nothing: WeightSource = source("embedding", np.zeros((VOCAB, config.d_model), np.float32))
    return Qwen35Weights(config, nothing, nothing, np.ones(config.d_model, np.float32), ())


def _load(
    tables: list[GdnTables | AttentionTables], backend: Backend
) -> list[_TableGdn | _TableAttention]:
    layers: list[_TableGdn | _TableAttention] = []
    n_gdn = 0
    for table in tables:
        if isinstance(table, GdnTables):
            layers.append(_TableGdn(backend, n_gdn, table))
            n_gdn += 1
        else:
            layers.append(_TableAttention(backend, len(layers) - n_gdn, table))
    return layers
