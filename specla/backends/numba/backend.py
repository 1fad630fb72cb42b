"""The compiled CPU backend as a class: NumPy arrays, Numba kernels, the reference's bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from specla.backends.base import QuantisedRows, RotaryTable, Weight
from specla.backends.numba import (
    attention,
    cache,
    choices,
    conv,
    copies,
    elementwise,
    embed,
    gdn,
    norms,
    products,
)
from specla.backends.numba import quantise as quantisation
from specla.backends.numba.arena import Arena
from specla.backends.numba.features import choose_level
from specla.backends.numba.gdn_tile import COLUMNS
from specla.backends.numba.jit import Kernel
from specla.backends.numba.program import CallList, Program
from specla.backends.numba.steps import RecordedSteps
from specla.backends.numba.threads import Team
from specla.backends.numba.warmup import warm_up
from specla.backends.numpy.backend import NumpyBackend
from specla.backends.options import BackendOptions
from specla.backends.pools import FeaturePool, KvPool, RecurrentPool
from specla.backends.steps import StepRunner
from specla.backends.weights import WeightSource
from specla.core.plan import CommitPlan, StepPlan

SHARED_STATE = 1 << 16
"""Entries of state walked, from which the recurrence is cut over threads."""
SHARED_ENTRIES = 1 << 14
"""Entries from which a norm, a convolution or an elementwise kernel is cut over threads."""
SHARED_QUERIES = 1 << 11
"""Entries of all queries, from which attention is cut over threads."""


def _three(x: Any) -> Any:
    """[N, D] as [N, 1, D]."""
    return x if x.ndim == 3 else x[:, None, :]


def _units(x: Any) -> int:
    """Rows by heads of x [N, H, D]."""
    return int(x.shape[0] * x.shape[1])


def _large(x: Any) -> bool:
    """Whether a kernel that passes over x is worth more than one thread."""
    return int(x.size) >= SHARED_ENTRIES


class NumbaBackend(NumpyBackend):
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
        self.team = Team(BackendOptions.resolve(threads).threads)
        self._recorder = threading.local()
        self._arena = Arena()

    @property
    def threads(self) -> int:
        """Threads that share the large kernels."""
        return self.team.threads

    def step_runner(self) -> StepRunner:
        return RecordedSteps(self)

    @contextmanager
    def recording(self, program: Program) -> Iterator[None]:
        """Within it, this thread's kernel calls go to ``program`` and don't run."""
        self._recorder.program = program
        try:
            yield
        finally:
            self._recorder.program = None

    def _launch(self, kernel: Kernel, units: int, *arguments: Any, share: bool = False) -> None:
        """Run a kernel or record it. share: worth more than one thread."""
        program: Program | None = getattr(self._recorder, "program", None)
        if program is not None:
            program.add(kernel, units, arguments, share)
            return
        calls = CallList()
        calls.add(kernel, units, arguments, share)
        calls.build()
        calls.run(self.team, at_once=1)

    def _rows(self, kernel: Kernel, shape: tuple[int, ...], *arguments: Any) -> None:
        """Launch a kernel whose units are the rows of arrays of a shape."""
        self._launch(kernel, shape[0], *arguments, share=prod(shape) >= SHARED_ENTRIES)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a Python function or record it."""
        program: Program | None = getattr(self._recorder, "program", None)
        if program is None:
            function(*arguments)
        else:
            program.add_function(function, arguments)

    def poison(self, array: Any, index: Any = ...) -> None:
        self._call(super().poison, array, index)

    def embed(self, tokens: Any, weight: Weight, out: Any) -> None:
        code = embed.COMPILED.get(weight.source.kind)
        if code is None:
            self._call(super().embed, tokens, weight, out)
            return
        self._rows(embed.embedding(code), out.shape, tokens, weight.source.data, out)

    def warm_up(
        self,
        kinds: Iterable[str] | None = None,
        report: Callable[[int, int, str], None] | None = None,
    ) -> int:
        """Compile all kernels now: see :func:`~specla.backends.numba.warmup.warm_up`."""
        return warm_up(self.level, kinds, report)

    def prepare(
        self, kinds: Iterable[str], report: Callable[[int, int], None] | None = None
    ) -> None:
        self.warm_up(
            kinds, None if report is None else lambda done, total, _name: report(done, total)
        )

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
        x, out = _three(x), _three(out)
        self._launch(norms.rms_norm, _units(x), x, weight, np.float32(eps), out, share=_large(x))

    def gated_rms_norm(self, x: Any, gate: Any, weight: Any, eps: float, out: Any) -> None:
        arguments = (x, gate, weight, np.float32(eps), out)
        self._launch(norms.gated_rms_norm, _units(x), *arguments, share=_large(x))

    def l2_norm(self, x: Any, eps: float, scale: float, out: Any) -> None:
        arguments = (x, np.float32(eps), np.float32(scale), out)
        self._launch(norms.l2_norm, _units(x), *arguments, share=_large(x))

    def rotary(self, x: Any, position: Any, table: RotaryTable) -> None:
        self._rows(elementwise.rotary, x.shape, x, position, table.cos, table.sin)

    def swiglu(self, gate: Any, up: Any, out: Any) -> None:
        self._rows(elementwise.swiglu, out.shape, _three(gate), _three(up), _three(out))

    def sigmoid_gate(self, x: Any, gate: Any, out: Any) -> None:
        self._rows(elementwise.sigmoid_gate, out.shape, _three(x), _three(gate), _three(out))

    def add(self, x: Any, y: Any, out: Any) -> None:
        self._rows(elementwise.add, out.shape, _three(x), _three(y), _three(out))

    def gdn_gates(
        self, alpha: Any, beta: Any, a: Any, dt_bias: Any, decay_out: Any, beta_out: Any
    ) -> None:
        self._rows(elementwise.gdn_gates, alpha.shape, alpha, beta, a, dt_bias, decay_out, beta_out)

    def conv_verify(
        self, x: Any, weight: Any, pool: RecurrentPool, layer: int, plan: StepPlan, out: Any
    ) -> None:
        self._launch(
            conv.conv_verify,
            _channel_blocks(pool),
            x,
            weight,
            pool.window,
            pool.inputs,
            layer,
            plan.slot,
            plan.pending_bank,
            plan.row_offset,
            plan.parent,
            plan.pending_window,
            out,
            share=_large(x),
        )

    def conv_prefill(
        self, x: Any, weight: Any, pool: RecurrentPool, layer: int, plan: StepPlan, out: Any
    ) -> None:
        self._launch(
            conv.conv_prefill,
            _channel_blocks(pool),
            x,
            weight,
            pool.window,
            layer,
            plan.slot,
            plan.row_offset,
            plan.parent,
            out,
            share=_large(x),
        )

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
        self._launch(
            gdn.gdn_verify,
            _state_strips(pool),
            q,
            k,
            v,
            decay,
            beta,
            pool.state,
            pool.key,
            pool.delta,
            pool.decay,
            pool.boundary,
            layer,
            plan.slot,
            plan.pending_bank,
            plan.row_offset,
            plan.chain_rows,
            plan.chain_offset,
            plan.chain_sequence,
            plan.chain_source,
            plan.boundary_of_row,
            plan.pending_state,
            out,
            share=_worth_sharing(pool, plan),
        )

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
        self._launch(
            gdn.gdn_prefill,
            _state_strips(pool),
            q,
            k,
            v,
            decay,
            beta,
            pool.state,
            layer,
            plan.slot,
            plan.row_offset,
            out,
            share=_worth_sharing(pool, plan),
        )

    def fold_state(self, pool: RecurrentPool, layer: int, plan: StepPlan) -> None:
        self._launch(
            gdn.fold_state,
            _state_strips(pool),
            pool.state,
            pool.key,
            pool.delta,
            pool.decay,
            layer,
            plan.slot,
            plan.pending_bank,
            plan.pending_state,
            share=_worth_sharing(pool, plan),
        )

    def fold_window(self, pool: RecurrentPool, layer: int, plan: StepPlan) -> None:
        self._launch(
            conv.fold_window,
            _channel_blocks(pool),
            pool.window,
            pool.inputs,
            layer,
            plan.slot,
            plan.pending_bank,
            plan.pending_window,
            share=False,
        )

    def gather(self, pool: RecurrentPool, commit: CommitPlan) -> None:
        self._rows(
            copies.gather,
            (pool.shape.layers, len(commit.nodes), pool.shape.node_bytes // 4),
            pool.key,
            pool.delta,
            pool.decay,
            pool.inputs,
            commit.slot,
            commit.source_bank,
            commit.node_offset,
            commit.nodes,
        )

    def kv_write(self, k: Any, v: Any, kv: KvPool, layer: int, plan: StepPlan) -> None:
        key, value = _cache_words(kv)
        self._rows(
            cache.kv_write[kv.shape.dtype],
            k.shape,
            k,
            v,
            key,
            value,
            layer,
            kv.page_table,
            plan.slot,
            plan.sequence,
            plan.kv_row,
        )

    def kv_move(self, kv: KvPool, commit: CommitPlan) -> None:
        key, value = _cache_words(kv)
        self._launch(
            copies.kv_move[kv.shape.dtype],
            kv.shape.layers,
            key,
            value,
            kv.page_table,
            commit.slot,
            commit.move_offset,
            commit.move_from,
            commit.move_to,
        )

    def feature_write(self, x: Any, features: FeaturePool, index: int, plan: StepPlan) -> None:
        self._rows(
            copies.feature_write,
            x.shape,
            x,
            features.rows,
            index,
            plan.sequence,
            plan.slot,
            plan.kv_row,
        )

    def feature_move(self, features: FeaturePool, commit: CommitPlan) -> None:
        self._launch(
            copies.feature_move,
            commit.n_sequences,
            features.rows,
            commit.slot,
            commit.move_offset,
            commit.move_from,
            commit.move_to,
        )

    def attention(
        self, q: Any, kv: KvPool, layer: int, plan: StepPlan, scale: float, out: Any
    ) -> None:
        key, value = _cache_words(kv)
        self._launch(
            attention.attention[kv.shape.dtype],
            attention.units(plan.n_rows, plan.n_sequences, q.shape[1], kv.shape.heads),
            q,
            key,
            value,
            layer,
            kv.page_table,
            plan.slot,
            plan.committed,
            plan.row_offset,
            plan.position,
            plan.path_start,
            plan.paths,
            plan.chain_rows,
            plan.chain_offset,
            plan.chain_sequence,
            np.float32(scale),
            out,
            share=plan.n_rows * q.shape[1] * q.shape[2] >= SHARED_QUERIES,
        )

    def argmax(self, logits: Any, out: Any) -> None:
        self._rows(choices.argmax, logits.shape, logits, out)

    def top_k(self, logits: Any, k: int, values_out: Any, ids_out: Any) -> None:
        if k > choices.INSERTION_LIMIT:
            super().top_k(logits, k, values_out, ids_out)
            return
        self._rows(choices.top_k, logits.shape, logits, k, values_out, ids_out)


def _worth_sharing(pool: RecurrentPool, plan: StepPlan) -> bool:
    """Whether a recurrence is worth waking threads for."""
    shape = pool.shape
    state = shape.value_heads * shape.key_dim * shape.value_dim
    return state * (plan.n_rows + plan.n_sequences) >= SHARED_STATE


def _state_strips(pool: RecurrentPool) -> int:
    """Units of the recurrence: strips of columns of all heads' states."""
    return pool.shape.value_heads * -(-pool.shape.value_dim // COLUMNS)


def _channel_blocks(pool: RecurrentPool) -> int:
    """Units of the convolution."""
    return -(-pool.shape.channels // conv.BLOCK)


def _cache_words(kv: KvPool) -> tuple[Any, Any]:
    """Keys and values; Numba knows no float16 on a CPU, so those go as their bits."""
    if kv.shape.dtype == "f16":
        return kv.key.view(np.uint16), kv.value.view(np.uint16)
    return kv.key, kv.value
