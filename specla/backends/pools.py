"""The arrays that outlive a step: recurrent state, factor banks, KV cache, captured features.

Fields typed ``Any`` hold a backend's own arrays. All float arrays are float32 unless said
otherwise. Value heads are in the file's order: value head ``h`` uses key head ``h % n_key_heads``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specla.core.paging import PAGE, pages_for


@dataclass(frozen=True)
class RecurrentShape:
    """Sizes of the Gated-DeltaNet part of a model, and of the pools made for it.

    nodes: capacity of one factor bank, i.e. the largest tree with its root.
    """

    slots: int
    layers: int
    nodes: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_width: int

    @property
    def channels(self) -> int:
        """Convolution channels: queries, keys and values of all heads, in this order."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def boundaries(self) -> int:
        """Most boundary states of one step: a parent of a light child has two children at least."""
        return max(self.slots * self.nodes // 2, 1)

    @property
    def recurrent_bytes(self) -> int:
        """Bytes of one sequence's recurrent state."""
        return 4 * self.layers * self.value_heads * self.key_dim * self.value_dim

    @property
    def window_bytes(self) -> int:
        """Bytes of one sequence's convolution windows."""
        return 4 * self.layers * (self.conv_width - 1) * self.channels

    @property
    def state_bytes(self) -> int:
        """Durable bytes of one sequence: recurrent state and convolution window."""
        return self.recurrent_bytes + self.window_bytes

    @property
    def node_bytes(self) -> int:
        """Bytes of one node's factors in one bank: key, delta, decay and conv input."""
        key = self.key_heads * self.key_dim
        delta = self.value_heads * self.value_dim
        return 4 * self.layers * (key + delta + self.value_heads + self.channels)


@dataclass(frozen=True)
class RecurrentPool:
    """Durable state and factor banks of all slots.

    state     [slots, layers, value_heads, key_dim, value_dim]   S
    window    [slots, layers, conv_width - 1, channels]          raw inputs, oldest first
    key       [slots, 2, layers, nodes, key_heads, key_dim]      normalised k
    delta     [slots, 2, layers, nodes, value_heads, value_dim]  beta (v - S^T k)
    decay     [slots, 2, layers, nodes, value_heads]             exp(g): what the fold multiplies by
    inputs    [slots, 2, layers, nodes, channels]                raw convolution input
    boundary  [boundaries, value_heads, key_dim, value_dim]      states below which chains branch;
                                                                 scratch of one layer's verify, of
                                                                 backends that keep such states
    """

    shape: RecurrentShape
    state: Any
    window: Any
    key: Any
    delta: Any
    decay: Any
    inputs: Any
    boundary: Any


@dataclass(frozen=True)
class KvShape:
    """Sizes of the KV cache. dtype: "f16" or "f32"."""

    slots: int
    layers: int
    pages: int
    heads: int
    head_dim: int
    context: int
    dtype: str

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all layers, keys and values."""
        size = 2 if self.dtype == "f16" else 4
        return 2 * self.layers * PAGE * self.heads * self.head_dim * size

    @property
    def pages_per_slot(self) -> int:
        """Length of a page table."""
        return pages_for(self.context)


@dataclass(frozen=True)
class KvPool:
    """Paged keys and values.

    key, value   [layers, pages, 64, heads, head_dim]   float16 or float32
    page_table   [slots, pages_per_slot] int32; row ``r`` of a slot lies in page
                 ``page_table[slot, r // 64]`` at ``r % 64``; unused entries are -1
    """

    shape: KvShape
    key: Any
    value: Any
    page_table: Any


@dataclass(frozen=True)
class FeaturePool:
    """Hidden states after chosen layers, by cache row, for draft models.

    layers: 0-based layer ids whose output (residual stream) is kept, in this order.
    rows   [slots, context, len(layers), d_model]
    """

    layers: tuple[int, ...]
    rows: Any
