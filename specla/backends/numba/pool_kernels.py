"""The kernels of the pools: convolution, recurrence, caches, features and attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba import attention, cache, conv, copies, gdn, launcher
from specla.backends.numba.gdn_tile import COLUMNS
from specla.backends.numba.launcher import Launcher, large
from specla.backends.pools import FeaturePool, KvPool, RecurrentPool
from specla.core.plan import CommitPlan, StepPlan


class PoolKernels(Launcher):
    """The methods of a backend that read or write a pool: see Backend."""

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
            share=large(x),
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
            share=large(x),
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
            share=plan.n_rows * q.shape[1] * q.shape[2] >= launcher.SHARED_QUERIES,
        )


def _worth_sharing(pool: RecurrentPool, plan: StepPlan) -> bool:
    """Whether a recurrence is worth waking threads for."""
    shape = pool.shape
    state = shape.value_heads * shape.key_dim * shape.value_dim
    return state * (plan.n_rows + plan.n_sequences) >= launcher.SHARED_STATE


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
