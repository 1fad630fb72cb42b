"""The kernels beside the weight products, each as a call through the backend protocol.

Inputs come from a seed, so that two backends get the same ones and their results can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from kernel_inputs import Case, Inputs

from specla.backends.base import RotaryTable
from specla.core.banks import BankMove, Banks
from specla.core.plan import build_commit_plan, map_arrays
from specla.models.qwen35.rotary import rotary_table


class Maker(Inputs):
    """Cases for a backend, a model shape and a number of rows."""

    def cases(self) -> list[Case]:
        """All of them, in the order of a step."""
        s = self.shape
        norm, wide = (self.rows, s.d_model), (self.rows, s.d_ff)
        heads = (self.rows, s.n_value_heads, s.gdn_head_dim)
        return [
            self.map("rms_norm", norm, self.rms_norm),
            self.quantise(s.d_model),
            self.quantise(s.d_ff),
            self.conv_verify(),
            self.map("l2_norm", (self.rows, s.n_key_heads, s.gdn_head_dim), self.l2_norm),
            self.gates(),
            self.gdn_verify(),
            self.map("gated_rms_norm", heads, self.gated_rms_norm, inputs=2),
            self.rotary(),
            self.kv_write(),
            self.attention(),
            self.map("sigmoid_gate", (self.rows, s.n_heads, s.head_dim), self.sigmoid, inputs=2),
            self.map("swiglu", wide, self.swiglu, inputs=2),
            self.map("add", norm, self.add, inputs=2),
            self.gather(),
            self.argmax(),
            self.top_k(50),
        ]

    # -- kernels without state -------------------------------------------------------------------

    def map(
        self,
        name: str,
        shape: tuple[int, ...],
        make: Callable[[list[Any], Any], Callable[[], object]],
        inputs: int = 1,
    ) -> Case:
        """A kernel from arrays of a shape to one of the same."""
        arrays = [self.normal(*shape) for _ in range(inputs)]
        out = self.backend.empty(shape)
        size = int(np.prod(shape))
        described = f"{name} [n, {', '.join(map(str, shape[1:]))}]"
        run = make(arrays, out)
        return Case(described, run, self.host(out), size, 4 * size * (inputs + 1))

    def rms_norm(self, x: list[Any], out: Any) -> Callable[[], object]:
        """See Backend."""
        weight = self.normal(self.shape.d_model)
        return lambda: self.backend.rms_norm(x[0], weight, 1e-6, out)

    def l2_norm(self, x: list[Any], out: Any) -> Callable[[], object]:
        """See Backend."""
        return lambda: self.backend.l2_norm(x[0], 1e-6, self.shape.gdn_head_dim**-0.5, out)

    def gated_rms_norm(self, x: list[Any], out: Any) -> Callable[[], object]:
        """See Backend."""
        weight = self.normal(self.shape.gdn_head_dim)
        return lambda: self.backend.gated_rms_norm(x[0], x[1], weight, 1e-6, out)

    def sigmoid(self, x: list[Any], out: Any) -> Callable[[], object]:
        """See Backend."""
        return lambda: self.backend.sigmoid_gate(x[0], x[1], out)

    def swiglu(self, x: list[Any], out: Any) -> Callable[[], object]:
        """See Backend."""
        return lambda: self.backend.swiglu(x[0], x[1], out)

    def add(self, x: list[Any], out: Any) -> Callable[[], object]:
        """See Backend."""
        return lambda: self.backend.add(x[0], x[1], out)

    def quantise(self, cols: int) -> Case:
        """See Backend."""
        x, out = self.normal(self.rows, cols), self.backend.quantised_rows(self.rows, cols)
        size = self.rows * cols
        results = self.host(out.values, out.scale, out.sums)
        return Case(
            f"quantise [n, {cols}]", lambda: self.backend.quantise(x, out), results, size, 5 * size
        )

    def gates(self) -> Case:
        """See Backend.gdn_gates."""
        size = (self.rows, self.shape.n_value_heads)
        alpha, beta = self.normal(*size), self.normal(*size)
        a, dt_bias = self.uniform(-16, -1, size[1]), self.uniform(-7, -2, size[1])
        decay, rate = self.backend.empty(size), self.backend.empty(size)

        def run() -> None:
            self.backend.gdn_gates(alpha, beta, a, dt_bias, decay, rate)

        elements = 2 * self.rows * size[1]
        return Case(
            f"gdn_gates [n, {size[1]}]", run, self.host(decay, rate), elements, 8 * elements
        )

    def rotary(self) -> Case:
        """See Backend. In place: the values stay of the same size, however often it runs."""
        s = self.shape
        x = self.normal(self.rows, s.n_heads, s.head_dim)
        cos, sin = rotary_table(self.context + self.rows, s.rotary_dim, s.rope_base)
        table = RotaryTable(self.backend.upload(cos), self.backend.upload(sin))
        position = self.plans(0)[0].position
        size = self.rows * s.n_heads * s.rotary_dim
        name = f"rotary [n, {s.n_heads}, {s.head_dim}]"
        return Case(
            name, lambda: self.backend.rotary(x, position, table), self.host(x), size, 8 * size
        )

    # -- kernels on state ------------------------------------------------------------------------

    def conv_verify(self) -> Case:
        """See Backend; as many inputs pending as there are rows."""
        s, plans, pool = self.shape, self.plans(self.rows), self.pool()
        channels = pool.shape.channels
        x, weight = self.normal(self.rows, channels), self.normal(s.conv_width, channels, scale=0.5)
        out = self.backend.empty((self.rows, channels))

        def call(slot: int, layer: int) -> None:
            self.backend.conv_verify(x, weight, pool, layer, plans[slot], out)

        # in, out, bank; window and pending inputs; taps
        touched = 3 * self.rows + 2 * (s.conv_width - 1) + min(self.rows, s.conv_width - 1)
        return Case(
            f"conv_verify [n, {channels}]",
            self.turns(self.layers[0], call),
            self.host(out, pool.window, pool.inputs),
            self.rows * channels,
            4 * channels * (touched + s.conv_width),
        )

    def gdn_verify(self) -> Case:
        """See Backend; as many factors pending as there are rows."""
        s, plans, pool = self.shape, self.plans(self.rows), self.pool()
        key, value = (self.rows, s.n_key_heads), (self.rows, s.n_value_heads)
        scale = s.gdn_head_dim**-0.5
        q = self.normal(*key, s.gdn_head_dim, scale=1 / s.gdn_head_dim)
        k = self.normal(*key, s.gdn_head_dim, scale=scale)
        v = self.normal(*value, s.gdn_head_dim)
        decay, beta = self.uniform(0.8, 1, *value), self.uniform(0, 1, *value)
        out = self.backend.empty((*value, s.gdn_head_dim))

        def call(slot: int, layer: int) -> None:
            self.backend.gdn_verify(q, k, v, decay, beta, pool, layer, plans[slot], out)

        state = s.n_value_heads * s.gdn_head_dim**2
        vectors = self.rows * s.gdn_head_dim * (4 * s.n_key_heads + 4 * s.n_value_heads)
        return Case(
            f"gdn_verify [n, {s.n_value_heads}, {s.gdn_head_dim}]",
            self.turns(self.layers[0], call),
            self.host(out, pool.state, pool.key, pool.delta, pool.decay),
            self.rows * s.n_value_heads * s.gdn_head_dim,
            4 * (2 * state + vectors),
        )

    def gather(self) -> Case:
        """See Backend: all rows but the first, of all layers."""
        pool, nodes = self.pool(), tuple(range(1, self.rows)) or (0,)
        plans = []
        for slot in range(self.sequences):
            move = BankMove(Banks(0, len(nodes)), 1, nodes, ())
            plan = build_commit_plan([(slot, self.context, move)])
            plans.append(map_arrays(plan, lambda _, array: self.backend.upload(array)))
        return Case(
            f"gather, {self.layers[0]} layers",
            self.turns(1, lambda slot, _: self.backend.gather(pool, plans[slot])),
            self.host(pool.key, pool.delta, pool.decay, pool.inputs),
            len(nodes) * pool.shape.node_bytes // 4,
            2 * len(nodes) * pool.shape.node_bytes,
        )

    def kv_write(self) -> Case:
        """See Backend."""
        s, plans, kv = self.shape, self.plans(0), self.kv()
        k, v = (self.normal(self.rows, s.n_kv_heads, s.head_dim) for _ in range(2))

        def call(slot: int, layer: int) -> None:
            self.backend.kv_write(k, v, kv, layer, plans[slot])

        size = 2 * self.rows * s.n_kv_heads * s.head_dim
        return Case(
            f"kv_write [n, {s.n_kv_heads}, {s.head_dim}]",
            self.turns(self.layers[1], call),
            self.host(kv.key, kv.value),
            size,
            6 * size,
        )

    def attention(self) -> Case:
        """See Backend; rows not written before hold the cache's random values."""
        s, plans, kv = self.shape, self.plans(0), self.kv()
        q = self.normal(self.rows, s.n_heads, s.head_dim)
        out = self.backend.empty((self.rows, s.n_heads, s.head_dim))

        def call(slot: int, layer: int) -> None:
            self.backend.attention(q, kv, layer, plans[slot], s.head_dim**-0.5, out)

        cached = 2 * (self.context + self.rows) * s.n_kv_heads * s.head_dim * 2
        size = self.rows * s.n_heads * s.head_dim
        return Case(
            f"attention [n, {s.n_heads}, {s.head_dim}] over {self.context}",
            self.turns(self.layers[1], call),
            self.host(out),
            size,
            cached + 8 * size,
        )

    # -- choices -----------------------------------------------------------------------------------

    def argmax(self) -> Case:
        """See Backend."""
        size = self.rows * self.shape.vocab_size
        logits, out = (
            self.normal(self.rows, self.shape.vocab_size),
            self.backend.empty((self.rows,), "int32"),
        )
        return Case(
            f"argmax [n, {self.shape.vocab_size}]",
            lambda: self.backend.argmax(logits, out),
            self.host(out),
            size,
            4 * size,
        )

    def top_k(self, k: int) -> Case:
        """See Backend."""
        size = self.rows * self.shape.vocab_size
        logits = self.normal(self.rows, self.shape.vocab_size)
        values, ids = (
            self.backend.empty((self.rows, k)),
            self.backend.empty((self.rows, k), "int32"),
        )
        return Case(
            f"top_k {k} [n, {self.shape.vocab_size}]",
            lambda: self.backend.top_k(logits, k, values, ids),
            self.host(values, ids),
            size,
            4 * size,
        )
