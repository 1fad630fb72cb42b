"""Independent oracles: the recurrence and the convolution for ONE sequence, token by token.

No trees, no banks, no code of the backends: the number contract written a second time, as plainly
as float32 NumPy allows.
"""

from __future__ import annotations

import numpy as np

from specla.core import elementary

F32 = np.float32


def tree_sum(values: np.ndarray) -> np.ndarray:
    """Halving-tree sum over the leading axis, by the recursion even entries + odd entries."""
    n = len(values)
    if n & (n - 1):
        size = 1 << n.bit_length()
        zeros = np.zeros((size - n, *values.shape[1:]), dtype=F32)
        return tree_sum(np.concatenate([values, zeros]))
    if n == 1:
        return values[0]
    return tree_sum(values[0::2]) + tree_sum(values[1::2])


def blocked_sum(terms: list[np.floating]) -> np.floating:
    """8 contiguous segments of ceil(n / 8) terms, left to right, then the halving tree."""
    run = -(-len(terms) // 8)
    partial = []
    for segment in range(8):
        acc = F32(0)
        for term in terms[segment * run : (segment + 1) * run]:
            acc = F32(acc + term)
        partial.append(acc)
    return tree_sum(np.array(partial, dtype=F32))


class SequentialGdn:
    """One layer's durable state and window, moved on by one token at a time.

    state [H, K, V] float32.  window [width - 1, channels], oldest first.
    """

    def __init__(self, state: np.ndarray, window: np.ndarray) -> None:
        self.state = np.array(state, dtype=F32)
        self.window = [row.copy() for row in window]

    def copy(self) -> SequentialGdn:
        return SequentialGdn(self.state, np.array(self.window, dtype=F32))

    def conv(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """silu of the causal convolution at this token; x [C], weight [width, C]."""
        taps = [*self.window, x.copy()]
        total = taps[-1] * weight[-1]
        for age in range(1, len(taps)):
            total = total + taps[-1 - age] * weight[-1 - age]
        self.window = taps[1:]
        return elementary.silu(total)

    def step(
        self, q: np.ndarray, k: np.ndarray, v: np.ndarray, decay: np.ndarray, beta: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Output and delta [H, V] of one token; q, k [key_heads, K], v [H, V], decay, beta [H]."""
        out, deltas = np.empty_like(v), np.empty_like(v)
        for head in range(len(v)):
            key, query = k[head % len(k)], q[head % len(q)]
            for column in range(v.shape[1]):
                s = self.state[head, :, column] * decay[head]
                delta = F32(beta[head] * F32(v[head, column] - tree_sum(s * key)))
                s = s + key * delta
                self.state[head, :, column] = s
                out[head, column] = tree_sum(s * query)
                deltas[head, column] = delta
        return out, deltas

    def fold(self, k: np.ndarray, delta: np.ndarray, decay: np.ndarray) -> None:
        """Take in one factor that a step computed elsewhere."""
        for head in range(len(delta)):
            for row in range(k.shape[1]):
                s = self.state[head, row] * decay[head]
                self.state[head, row] = s + k[head % len(k), row] * delta[head]
