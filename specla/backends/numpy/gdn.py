"""The gated delta rule over a forest (SpecLA, sections 4.1, 4.3 and 5.2).

All value heads of a sequence are walked together: S is [value_heads, key_dim, value_dim].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specla.backends.numpy.sums import halving_tree
from specla.backends.pools import RecurrentPool
from specla.core.plan import CommitPlan, StepPlan

Float32 = npt.NDArray[np.float32]


def spread(k: Float32, value_heads: int) -> Float32:
    """[key_heads, key_dim] to one column per value head, [value_heads, key_dim, 1].

    Value head h uses key head h % key_heads (the file's tiled order).
    """
    columns: Float32 = k[np.arange(value_heads) % k.shape[0]][:, :, None]
    return columns


def fold(state: Float32, k: Float32, delta: Float32, decay: Float32) -> Float32:
    """One factor: S * decay + k * delta, two roundings, as in the step below.

    state [H, K, V], k [key_heads, K], delta [H, V], decay [H].
    """
    return state * decay[:, None, None] + spread(k, len(state)) * delta[:, None, :]


def step(
    state: Float32, q: Float32, k: Float32, v: Float32, decay: Float32, beta: Float32
) -> tuple[Float32, Float32, Float32]:
    """One token: new state, delta [H, V], output [H, V]."""
    key = spread(k, len(state))
    state = state * decay[:, None, None]
    delta = beta[:, None] * (v - halving_tree(state * key, axis=1))
    state = state + key * delta[:, None, :]
    return state, delta, halving_tree(state * spread(q, len(state)), axis=1)


@np.errstate(all="ignore")
def fold_state(pool: RecurrentPool, layer: int, plan: StepPlan) -> None:
    """See Backend.fold_state."""
    for b in range(plan.n_sequences):
        count = int(plan.pending_state[layer, b])
        if not count:
            continue
        slot, bank = plan.slot[b], plan.pending_bank[b]
        state = pool.state[slot, layer]
        for i in range(count):
            factor = (slot, bank, layer, i)
            state = fold(state, pool.key[factor], pool.delta[factor], pool.decay[factor])
        pool.state[slot, layer] = state


@np.errstate(all="ignore")
def gdn_verify(
    q: Float32,
    k: Float32,
    v: Float32,
    decay: Float32,
    beta: Float32,
    pool: RecurrentPool,
    layer: int,
    plan: StepPlan,
    out: Float32,
) -> None:
    """See Backend.gdn_verify. Chains come in wave order, so every source is there when needed."""
    fold_state(pool, layer, plan)
    for chain, b in enumerate(plan.chain_sequence):
        slot, current = plan.slot[b], 1 - plan.pending_bank[b]
        source = plan.chain_source[chain]
        state = pool.state[slot, layer] if source < 0 else pool.boundary[source]
        for row in plan.chain_rows[plan.chain_offset[chain] : plan.chain_offset[chain + 1]]:
            state, delta, out[row] = step(state, q[row], k[row], v[row], decay[row], beta[row])
            factor = (slot, current, layer, row - plan.row_offset[b])
            pool.key[factor] = k[row]
            pool.delta[factor] = delta
            pool.decay[factor] = decay[row]
            if plan.boundary_of_row[row] >= 0:
                pool.boundary[plan.boundary_of_row[row]] = state


@np.errstate(all="ignore")
def gdn_prefill(
    q: Float32,
    k: Float32,
    v: Float32,
    decay: Float32,
    beta: Float32,
    pool: RecurrentPool,
    layer: int,
    plan: StepPlan,
    out: Float32,
) -> None:
    """See Backend.gdn_prefill."""
    for b in range(plan.n_sequences):
        state = pool.state[plan.slot[b], layer]
        for row in range(plan.row_offset[b], plan.row_offset[b + 1]):
            state, _, out[row] = step(state, q[row], k[row], v[row], decay[row], beta[row])
        pool.state[plan.slot[b], layer] = state


def gather(pool: RecurrentPool, commit: CommitPlan) -> None:
    """See Backend.gather."""
    for b in range(commit.n_sequences):
        nodes = commit.nodes[commit.node_offset[b] : commit.node_offset[b + 1]]
        slot, source = commit.slot[b], commit.source_bank[b]
        for bank in (pool.key, pool.delta, pool.decay, pool.inputs):
            bank[slot, 1 - source, :, : len(nodes)] = bank[slot, source][:, nodes]
