"""The oracle: a plain sequential recurrence. No trees, no banks, no kernels, no pages.

One token after another moves one sequence on, in the orders of docs/arithmetic.md (sections 5 and
6), written as loops over Python values. It shares with the backends only the elementary functions
and the order of a sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.core.elementary import exp, rsqrt, sigmoid, silu, softplus
from specla.fuzz.demand import demand
from specla.fuzz.kernels.tables import AttentionTables, GdnTables
from specla.fuzz.plain import Record
from specla.models.qwen35.config import Qwen35Config
from specla.models.qwen35.options import TargetOptions
from specla.models.qwen35.rotary import rotary_table

Float32 = npt.NDArray[np.float32]
Tokens = tuple[int, ...]


def halving_sum(values: Float32) -> Float32:
    """Sum over the first axis: pad with +0.0 to a power of two, add halves until one is left."""
    while len(values) & (len(values) - 1):
        size = 1 << len(values).bit_length()
        values = np.concatenate([values, np.zeros((size - len(values), *values.shape[1:]), "f4")])
    while len(values) > 1:
        half = len(values) // 2
        values = values[:half] + values[half:]
    total: Float32 = values[0]
    return total


def block_sum(values: Float32) -> Float32:
    """Sum over the first axis: a halving sum of each block of 64, added from the first on."""
    total = np.zeros(values.shape[1:], np.float32)
    for start in range(0, len(values), 64):
        block = values[start : start + 64]
        padding = np.zeros((64 - len(block), *values.shape[1:]), np.float32)
        total = total + halving_sum(np.concatenate([block, padding]))
    return total


@dataclass(frozen=True)
class GdnState:
    """S [value_heads, key_dim, value_dim] and the last inputs [conv_width - 1, channels]."""

    state: Float32
    window: Float32


@dataclass(frozen=True)
class KvState:
    """Keys and values of all positions [T, kv_heads, head_dim], as the cache rounds them."""

    key: npt.NDArray[Any]
    value: npt.NDArray[Any]


@dataclass(frozen=True)
class _After:
    layers: tuple[GdnState | KvState, ...]
    record: Record


class PlainRecurrence:
    """What plain decoding over tables leads to, by token list. It remembers what it has met."""

    def __init__(
        self,
        config: Qwen35Config,
        tables: list[GdnTables | AttentionTables],
        options: TargetOptions,
    ) -> None:
        self.config, self.tables, self.options = config, tables, options
        self.kv_type = np.float16 if options.kv == "f16" else np.float32
        self.cos, self.sin = rotary_table(options.context, config.rotary_dim, config.rope_base)
        start = tuple(self._empty(table) for table in tables)
        self._known: dict[Tokens, _After] = {(): _After(start, self._record(start, None, None))}

    def after(self, tokens: Tokens) -> Record:
        """State arrays, outputs of the last token and features of all."""
        return self._after(tokens).record

    def forget(self, keep: list[Tokens]) -> None:
        """Drop all records but those of ``keep``."""
        wanted = {(), *keep}
        self._known = {tokens: after for tokens, after in self._known.items() if tokens in wanted}

    def _after(self, tokens: Tokens) -> _After:
        known = len(tokens)
        while tokens[:known] not in self._known:
            known -= 1
        for n in range(known, len(tokens)):
            self._known[tokens[: n + 1]] = self._next(self._known[tokens[:n]], tokens[n], n)
        return self._known[tokens]

    @np.errstate(all="ignore")
    def _next(self, before: _After, token: int, position: int) -> _After:
        layers: list[GdnState | KvState] = []
        outputs = []
        for table, state in zip(self.tables, before.layers, strict=True):
            if isinstance(table, GdnTables):
                assert isinstance(state, GdnState)
                moved, output = self._gdn(table, state, token)
                layers.append(moved)
            else:
                assert isinstance(state, KvState)
                grown, output = self._attention(table, state, token, position)
                layers.append(grown)
            outputs.append(output.reshape(-1))
        after = tuple(layers)
        return _After(after, self._record(after, outputs, before.record.features))

    def _gdn(self, table: GdnTables, old: GdnState, token: int) -> tuple[GdnState, Float32]:
        c = self.config
        x, past = table.qkv[token], [*old.window]
        mixed = x * table.conv[-1]
        for age in range(1, c.conv_width):
            mixed = mixed + past[-age] * table.conv[-1 - age]
        mixed = silu(mixed)
        width = c.n_key_heads * c.key_dim
        q = self._unit(mixed[:width], c.key_dim**-0.5)
        k = self._unit(mixed[width : 2 * width], 1.0)
        v = mixed[2 * width :].reshape(c.n_value_heads, c.value_dim)
        decay = exp(softplus(table.alpha[token] + table.dt_bias) * table.a)
        beta = sigmoid(table.beta[token])
        states, outputs = [], []
        for head in range(c.n_value_heads):
            key = k[head % c.n_key_heads][:, None]
            S = old.state[head] * decay[head]
            delta = beta[head] * (v[head] - halving_sum(S * key))
            S = S + key * delta
            states.append(S)
            outputs.append(halving_sum(S * q[head % c.n_key_heads][:, None]))
        window = np.stack([*past, x][1:]) if past else old.window
        return GdnState(np.stack(states), window), np.stack(outputs)

    def _unit(self, flat: Float32, scale: float) -> Float32:
        heads = flat.reshape(-1, self.config.key_dim)
        eps = np.float32(self.config.rms_eps)
        inverse = [rsqrt(halving_sum(h * h) + eps) for h in heads]
        return np.stack([(h * i) * np.float32(scale) for h, i in zip(heads, inverse, strict=True)])

    def _attention(
        self, table: AttentionTables, old: KvState, token: int, position: int
    ) -> tuple[KvState, Float32]:
        c = self.config
        heads = table.k[token].reshape(-1, c.head_dim)
        key = np.stack([self._turned(h, table.k_norm, position) for h in heads])
        value = table.v[token].reshape(-1, c.head_dim)
        new = KvState(
            np.concatenate([old.key, key.astype(self.kv_type)[None]]),
            np.concatenate([old.value, value.astype(self.kv_type)[None]]),
        )
        outputs = []
        for i, query in enumerate(table.q[token].reshape(-1, c.head_dim)):
            turned = self._turned(query, table.q_norm, position)
            group = i // (c.n_heads // c.n_kv_heads)
            keys, values = new.key[:, group].astype("f4"), new.value[:, group].astype("f4")
            scores = halving_sum((turned * keys).T) * np.float32(c.head_dim**-0.5)
            weights = exp(scores - scores.max())
            outputs.append(block_sum(weights[:, None] * values) / block_sum(weights))
        return new, np.stack(outputs)

    def _turned(self, head: Float32, norm: Float32, position: int) -> Float32:
        """RMSNorm, then rotary embedding."""
        c = self.config
        mean = halving_sum(head * head) / np.float32(c.head_dim)
        out: Float32 = (head * rsqrt(mean + np.float32(c.rms_eps))) * norm
        half = c.rotary_dim // 2
        a, b, cos, sin = out[:half], out[half : 2 * half], self.cos[position], self.sin[position]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, out[2 * half :]])

    def _empty(self, table: GdnTables | AttentionTables) -> GdnState | KvState:
        c = self.config
        if isinstance(table, AttentionTables):
            nothing = np.zeros((0, c.n_kv_heads, c.head_dim), self.kv_type)
            return KvState(nothing, nothing)
        return GdnState(
            np.zeros((c.n_value_heads, c.key_dim, c.value_dim), np.float32),
            np.zeros((c.conv_width - 1, c.conv_channels), np.float32),
        )

    def _record(
        self,
        layers: tuple[GdnState | KvState, ...],
        outputs: list[Float32] | None,
        features: Float32 | None,
    ) -> Record:
        gdn = [layer for layer in layers if isinstance(layer, GdnState)]
        kv = [layer for layer in layers if isinstance(layer, KvState)]
        length = len(kv[0].key) if kv else 0
        pick = self.options.features
        if pick:
            if features is None:
                features = np.zeros((0, len(pick), self.config.d_model), np.float32)
            if outputs is not None:
                row = np.stack([outputs[layer] for layer in pick])
                features = np.concatenate([features, row[None]])
        shape = (0, length, self.config.n_kv_heads, self.config.head_dim)
        none = np.zeros(shape, self.kv_type)
        record = Record(
            {
                "state": _stacked([g.state for g in gdn]),
                "window": _stacked([g.window for g in gdn]),
                "key": np.stack([k.key for k in kv]) if kv else none,
                "value": np.stack([k.value for k in kv]) if kv else none,
            },
            None if outputs is None else np.concatenate(outputs),
            features if pick else None,
        )
        demand(record.is_finite, "the plain recurrence itself gives NaN or infinity")
        return record


def _stacked(arrays: list[Float32]) -> Float32:
    return np.stack(arrays) if arrays else np.zeros((0,), np.float32)
