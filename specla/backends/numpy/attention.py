"""Attention over the paged KV cache: committed positions, then each row's own ancestors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from specla.backends.numpy.sums import blockwise_sum, halving_tree
from specla.backends.pools import FeaturePool, KvPool
from specla.core.elementary import exp
from specla.core.paging import PAGE
from specla.core.plan import CommitPlan, StepPlan

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]


def _locate(kv: KvPool, slot: int, rows: Int32) -> tuple[Int32, Int32]:
    """Page and offset in the page of cache rows of one slot."""
    return kv.page_table[slot, rows // PAGE], rows % PAGE


@np.errstate(over="ignore")
def kv_write(k: Float32, v: Float32, kv: KvPool, layer: int, plan: StepPlan) -> None:
    """See Backend.kv_write."""
    for b in range(plan.n_sequences):
        rows = slice(plan.row_offset[b], plan.row_offset[b + 1])
        page, offset = _locate(kv, plan.slot[b], plan.kv_row[rows])
        kv.key[layer, page, offset] = k[rows].astype(kv.key.dtype)
        kv.value[layer, page, offset] = v[rows].astype(kv.value.dtype)


def attention(
    q: Float32, kv: KvPool, layer: int, plan: StepPlan, scale: float, out: Float32
) -> None:
    """See Backend.attention."""
    for row in range(plan.n_rows):
        b = plan.sequence[row]
        rows = _logical_rows(plan, row)
        page, offset = _locate(kv, plan.slot[b], rows)
        out[row] = _attend(
            q[row], kv.key[layer, page, offset], kv.value[layer, page, offset], scale
        )


def _logical_rows(plan: StepPlan, row: int) -> Int32:
    """Cache rows that ``row`` sees, in logical order: committed ones, then ancestors by depth."""
    committed = plan.committed[plan.sequence[row]]
    start = plan.path_start[row]
    depth = plan.position[row] - committed
    ancestors = plan.paths[start : start + depth + 1]
    rows: Int32 = np.concatenate([np.arange(committed, dtype=np.int32), ancestors])
    return rows


@np.errstate(all="ignore")
def _attend(
    q: Float32, keys: npt.NDArray[np.floating], values: npt.NDArray[np.floating], scale: float
) -> Float32:
    """One query row: q [query_heads, D], keys and values [n, heads, D] in logical order."""
    _, heads, dim = keys.shape
    grouped = q.reshape(heads, -1, dim)
    products = grouped * keys.astype(np.float32)[:, :, None, :]
    scores = halving_tree(products) * np.float32(scale)
    weights = exp(scores - scores.max(axis=0))
    total = blockwise_sum(weights)
    mixed = blockwise_sum(weights[..., None] * values.astype(np.float32)[:, :, None, :])
    return (mixed / total[..., None]).reshape(q.shape)


def kv_move(kv: KvPool, commit: CommitPlan) -> None:
    """See Backend.kv_move. Indexing on the right copies before anything is written."""
    for slot, source, target in _moves(commit):
        from_page, from_offset = _locate(kv, slot, source)
        to_page, to_offset = _locate(kv, slot, target)
        for cache in (kv.key, kv.value):
            cache[:, to_page, to_offset] = cache[:, from_page, from_offset]


def _moves(commit: CommitPlan) -> Iterator[tuple[int, Int32, Int32]]:
    """Slot, source rows and target rows of each sequence."""
    for b in range(commit.n_sequences):
        part = slice(commit.move_offset[b], commit.move_offset[b + 1])
        yield commit.slot[b], commit.move_from[part], commit.move_to[part]


def feature_write(x: Float32, features: FeaturePool, index: int, plan: StepPlan) -> None:
    """See Backend.feature_write."""
    features.rows[plan.slot[plan.sequence], plan.kv_row, index] = x


def feature_move(features: FeaturePool, commit: CommitPlan) -> None:
    """See Backend.feature_move."""
    for slot, source, target in _moves(commit):
        features.rows[slot, target] = features.rows[slot, source]
