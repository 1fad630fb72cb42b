"""The reference backend as a class: each kernel delegates to the module that explains it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from specla.backends.base import Backend, QuantisedRows, RotaryTable, Weight
from specla.backends.numpy import attention, choices, conv, elementwise, gdn, norms, products
from specla.backends.numpy import quantise as quantisation
from specla.backends.pools import FeaturePool, KvPool, RecurrentPool
from specla.backends.weights import WeightSource
from specla.core.plan import CommitPlan, StepPlan

Array = npt.NDArray[Any]


class NumpyBackend(Backend):
    """NumPy arrays, one thread of Python: slow, and the measure of every other backend."""

    name = "numpy"

    def empty(self, shape: tuple[int, ...], dtype: str = "float32") -> Array:
        return np.empty(shape, dtype=dtype)

    def zeros(self, shape: tuple[int, ...], dtype: str = "float32") -> Array:
        return np.zeros(shape, dtype=dtype)

    def upload(self, host: Array, into: Any = None) -> Array:
        if into is None:
            return np.array(host, copy=True)
        view: Array = into[: len(host)]
        view[...] = host
        return view

    def download(self, array: Any) -> Array:
        return np.array(array, copy=True)

    def clear(self, array: Any, index: Any = ...) -> None:
        array[index] = 0

    def poison(self, array: Any, index: Any = ...) -> None:
        floating = np.issubdtype(array.dtype, np.floating)
        array[index] = np.nan if floating else np.iinfo(array.dtype).min

    def copy(self, target: Any, target_index: Any, source: Any, source_index: Any) -> None:
        target[target_index] = source[source_index]

    def load(self, source: WeightSource) -> Weight:
        return products.load(source)

    def embed(self, tokens: Any, weight: Weight, out: Any) -> None:
        products.embed(tokens, weight, out)

    def quantise(self, x: Any, out: QuantisedRows) -> None:
        quantisation.quantise(x, out.values, out.scale, out.sums)

    def linear_quantised(self, x: QuantisedRows, weight: Weight, out: Any) -> None:
        products.linear_quantised(x, weight, out)

    def linear_float(self, x: Any, weight: Weight, out: Any) -> None:
        products.linear_float(x, weight, out)

    def rms_norm(self, x: Any, weight: Any, eps: float, out: Any) -> None:
        norms.rms_norm(x, weight, eps, out)

    def gated_rms_norm(self, x: Any, gate: Any, weight: Any, eps: float, out: Any) -> None:
        norms.gated_rms_norm(x, gate, weight, eps, out)

    def l2_norm(self, x: Any, eps: float, scale: float, out: Any) -> None:
        norms.l2_norm(x, eps, scale, out)

    def rotary(self, x: Any, position: Any, table: RotaryTable) -> None:
        elementwise.rotary(x, position, table)

    def swiglu(self, gate: Any, up: Any, out: Any) -> None:
        elementwise.swiglu(gate, up, out)

    def sigmoid_gate(self, x: Any, gate: Any, out: Any) -> None:
        elementwise.sigmoid_gate(x, gate, out)

    def add(self, x: Any, y: Any, out: Any) -> None:
        elementwise.add(x, y, out)

    def gdn_gates(
        self, alpha: Any, beta: Any, a: Any, dt_bias: Any, decay_out: Any, beta_out: Any
    ) -> None:
        elementwise.gdn_gates(alpha, beta, a, dt_bias, decay_out, beta_out)

    def conv_verify(
        self, x: Any, weight: Any, pool: RecurrentPool, layer: int, plan: StepPlan, out: Any
    ) -> None:
        conv.conv_verify(x, weight, pool, layer, plan, out)

    def conv_prefill(
        self, x: Any, weight: Any, pool: RecurrentPool, layer: int, plan: StepPlan, out: Any
    ) -> None:
        conv.conv_prefill(x, weight, pool, layer, plan, out)

    def gdn_verify(
        self,
        q: Any,
        k: Any,
        v: Any,
        decay: Any,
        beta: Any,
        pool: RecurrentPool,
        layer: int,
        plan: StepPlan,
        out: Any,
    ) -> None:
        gdn.gdn_verify(q, k, v, decay, beta, pool, layer, plan, out)

    def gdn_prefill(
        self,
        q: Any,
        k: Any,
        v: Any,
        decay: Any,
        beta: Any,
        pool: RecurrentPool,
        layer: int,
        plan: StepPlan,
        out: Any,
    ) -> None:
        gdn.gdn_prefill(q, k, v, decay, beta, pool, layer, plan, out)

    def fold_state(self, pool: RecurrentPool, layer: int, plan: StepPlan) -> None:
        gdn.fold_state(pool, layer, plan)

    def fold_window(self, pool: RecurrentPool, layer: int, plan: StepPlan) -> None:
        conv.fold_window(pool, layer, plan)

    def gather(self, pool: RecurrentPool, commit: CommitPlan) -> None:
        gdn.gather(pool, commit)

    def block_conv(self, x: Any, dynamic: Any, base: Any, side: int, out: Any) -> None:
        conv.block_conv(x, dynamic, base, side, out)

    def kv_write(self, k: Any, v: Any, kv: KvPool, layer: int, plan: StepPlan) -> None:
        attention.kv_write(k, v, kv, layer, plan)

    def attention(
        self, q: Any, kv: KvPool, layer: int, plan: StepPlan, scale: float, out: Any
    ) -> None:
        attention.attention(q, kv, layer, plan, scale, out)

    def kv_move(self, kv: KvPool, commit: CommitPlan) -> None:
        attention.kv_move(kv, commit)

    def feature_write(self, x: Any, features: FeaturePool, index: int, plan: StepPlan) -> None:
        attention.feature_write(x, features, index, plan)

    def feature_move(self, features: FeaturePool, commit: CommitPlan) -> None:
        attention.feature_move(features, commit)

    def argmax(self, logits: Any, out: Any) -> None:
        choices.argmax(logits, out)

    def top_k(self, logits: Any, k: int, values_out: Any, ids_out: Any) -> None:
        choices.top_k(logits, k, values_out, ids_out)

    def soft_sums(self, logits: Any, top_out: Any, sum_out: Any) -> None:
        choices.soft_sums(logits, top_out, sum_out)
