"""The paper's fully factorised tree verification (SpecLA, section 4.2), as a cross-check.

Instead of walking the tree, solve one triangular system per head. The result is the same in exact
arithmetic, but sums are re-associated, so it agrees with the walk only within a tolerance; it is
never used for decoding. float64 throughout, to measure the walk's own rounding.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


def verify_factorised(
    state: npt.NDArray[np.float32],
    q: npt.NDArray[np.float32],
    k: npt.NDArray[np.float32],
    v: npt.NDArray[np.float32],
    g: npt.NDArray[np.float64],
    beta: npt.NDArray[np.float32],
    parents: tuple[int, ...],
) -> tuple[Float64, Float64]:
    """Outputs and deltas of all nodes of one tree, one head at a time.

    state [H, K, V], q and k [N, key_heads, K], v [N, H, V], g (log-decay) and beta [N, H].
    With G the sum of g along a node's path and D[t, u] = exp(G_t - G_u) for u an ancestor of t:

        (I + A) delta = beta v - beta e^G (k S),    A[t, u] = beta_t (k_t . k_u) D[t, u], u < t
        out_t = e^(G_t) (q_t S) + sum over u, t included, of (q_t . k_u) D[t, u] delta_u

    Returns out, delta [N, H, V].
    """
    n, heads = len(parents), state.shape[0]
    ancestor = np.eye(n, dtype=bool)
    total = np.array(g, dtype=np.float64)
    for t in range(1, n):
        ancestor[t] |= ancestor[parents[t]]
        total[t] += total[parents[t]]
    out = np.empty((n, heads, state.shape[2]))
    delta = np.empty_like(out)
    for h in range(heads):
        queries, keys = (x[:, h % k.shape[1]].astype(np.float64) for x in (q, k))
        s, gain, b = state[h].astype(np.float64), total[:, h, None], beta[:, h, None]
        gap = np.where(ancestor, gain - gain.T, -np.inf)
        within = np.exp(gap)
        system = np.eye(n) + np.tril(b * (keys @ keys.T) * within, -1)
        right = b * (v[:, h] - np.exp(gain) * (keys @ s))
        delta[:, h] = np.linalg.solve(system, right)
        mixed = (queries @ keys.T) * within
        out[:, h] = np.exp(gain) * (queries @ s) + mixed @ delta[:, h]
    return out, delta
