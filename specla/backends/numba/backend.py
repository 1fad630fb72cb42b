"""The compiled CPU backend as a class: NumPy arrays, Numba kernels, the reference's bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from specla.backends.base import QuantisedRows, RotaryTable, Weight
from specla.backends.numba import choices, elementwise, embed, norms, products
from specla.backends.numba import quantise as quantisation
from specla.backends.numba.arena import Arena
from specla.backends.numba.block_conv import block_conv
from specla.backends.numba.features import choose_level
from specla.backends.numba.launcher import large, three, units
from specla.backends.numba.pool_kernels import PoolKernels
from specla.backends.numba.soft_sums import soft_sums
from specla.backends.numba.steps import RecordedSteps
from specla.backends.numba.warmup import warm_up
from specla.backends.numpy.backend import NumpyBackend
from specla.backends.options import BackendOptions
from specla.backends.steps import StepRunner
from specla.backends.weights import WeightSource


class NumbaBackend(PoolKernels, NumpyBackend):
    """Arrays and copies of the host (upload, download, clear) are those of the reference;
    everything else is compiled.

    level: integer dot product to use (features.LEVELS); None is the best this machine has, or
    what SPECLA_CPU_LEVEL names. threads: how many; None is one, or what SPECLA_THREADS says.
    Neither shows in any bit. Raises OptionError for a bad one.
    """

    name = "numba"
    compiles = True

    def __init__(self, level: str | None = None, threads: int | None = None) -> None:
        self.level = choose_level(level)
        super().__init__(BackendOptions.resolve(threads).threads)
        self._arena = Arena()

    def step_runner(self) -> StepRunner:
        return RecordedSteps(self)

    def poison(self, array: Any, index: Any = ...) -> None:
        self._call(super().poison, array, index)

    def embed(self, tokens: Any, weight: Weight, out: Any) -> None:
        code = embed.COMPILED.get(weight.source.kind)
        if code is None:
            self._call(super().embed, tokens, weight, out)
            return
        self._rows(embed.embedding(code), out.shape, tokens, weight.source.data, out)

    def prepare(
        self,
        kinds: Iterable[str] | None = None,
        report: Callable[[int, int, str], None] | None = None,
        caches: Iterable[str] | None = None,
    ) -> int:
        return warm_up(self.level, kinds, report, caches)

    def load(self, source: WeightSource) -> Weight:
        weight = products.load(source, self._launch, self._arena)
        source.release()
        return weight

    def _quantised_pairs(self, n: int, blocks: int, room: Callable[..., Any]) -> Any:
        if not products.wants_pairs(self.level):
            return None
        return room("quantised pairs", n, 32 * blocks, dtype="int16")

    def quantise(self, x: Any, out: QuantisedRows) -> None:
        quantisation.run(x, out, self._launch)

    def linear_quantised(self, x: QuantisedRows, weight: Weight, out: Any) -> None:
        products.linear_quantised(x, weight, out, self.level, self._launch)

    def linear_float(self, x: Any, weight: Weight, out: Any) -> None:
        products.linear_float(x, weight, out, self.level, self._launch)

    def rms_norm(self, x: Any, weight: Any, eps: float, out: Any) -> None:
        x, out = three(x), three(out)
        self._launch(norms.rms_norm, units(x), x, weight, np.float32(eps), out, share=large(x))

    def gated_rms_norm(self, x: Any, gate: Any, weight: Any, eps: float, out: Any) -> None:
        arguments = (x, gate, weight, np.float32(eps), out)
        self._launch(norms.gated_rms_norm, units(x), *arguments, share=large(x))

    def l2_norm(self, x: Any, eps: float, scale: float, out: Any) -> None:
        arguments = (x, np.float32(eps), np.float32(scale), out)
        self._launch(norms.l2_norm, units(x), *arguments, share=large(x))

    def rotary(self, x: Any, position: Any, table: RotaryTable) -> None:
        self._rows(elementwise.rotary, x.shape, x, position, table.cos, table.sin)

    def swiglu(self, gate: Any, up: Any, out: Any) -> None:
        self._rows(elementwise.swiglu, out.shape, three(gate), three(up), three(out))

    def sigmoid_gate(self, x: Any, gate: Any, out: Any) -> None:
        self._rows(elementwise.sigmoid_gate, out.shape, three(x), three(gate), three(out))

    def add(self, x: Any, y: Any, out: Any) -> None:
        self._rows(elementwise.add, out.shape, three(x), three(y), three(out))

    def gdn_gates(
        self, alpha: Any, beta: Any, a: Any, dt_bias: Any, decay_out: Any, beta_out: Any
    ) -> None:
        self._rows(elementwise.gdn_gates, alpha.shape, alpha, beta, a, dt_bias, decay_out, beta_out)

    def block_conv(self, x: Any, dynamic: Any, base: Any, side: int, out: Any) -> None:
        self._rows(block_conv, out.shape, x, dynamic, base, side, out)

    def argmax(self, logits: Any, out: Any) -> None:
        self._rows(choices.argmax, logits.shape, logits, out)

    def top_k(self, logits: Any, k: int, values_out: Any, ids_out: Any) -> None:
        if k > choices.INSERTION_LIMIT:
            self._call(super().top_k, logits, k, values_out, ids_out)
            return
        self._rows(choices.top_k, logits.shape, logits, k, values_out, ids_out)

    def soft_sums(self, logits: Any, top_out: Any, sum_out: Any) -> None:
        self._rows(soft_sums, logits.shape, logits, top_out, sum_out)
