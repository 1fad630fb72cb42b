"""Argmax and top-k, ties to the lowest token id; what turns logits into log-probabilities."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from specla.backends.triton.elementary import exp
from specla.backends.triton.launch import launch
from specla.backends.triton.scratch import Scratch
from specla.backends.triton.sums import BLOCK, LOG_BLOCK, halves

PART = 4096
"""Logits of a program."""


@triton.jit
def _best_of_part(logits, tops, ids, vocab, parts, PART: tl.constexpr, KEEP_NAN: tl.constexpr):
    """Largest logit of a part and its lowest id. KEEP_NAN: one NaN makes the maximum NaN."""
    row, part = tl.program_id(0), tl.program_id(1)
    i = part * PART + tl.arange(0, PART)
    x = tl.load(logits + row.to(tl.int64) * vocab + i, i < vocab, float("-inf"))
    clean = tl.where(x == x, x, float("-inf"))
    top = tl.max(clean, 0)
    at = tl.min(tl.where(clean == top, i, 2147483647), 0)
    if KEEP_NAN:
        broken = tl.max((x != x).to(tl.int32), 0)
        top = tl.where(broken > 0, float("nan"), top)
    tl.store(tops + row * parts + part, top)
    tl.store(ids + row * parts + part, at)


@triton.jit
def _best(tops, ids, out, parts, SIZE: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, SIZE)
    x = tl.load(tops + row * parts + i, i < parts, float("-inf"))
    at = tl.load(ids + row * parts + i, i < parts, 2147483647)
    top = tl.max(x, 0)
    found = tl.min(tl.where(x == top, at, 2147483647), 0)
    tl.store(out + row, tl.where(top == float("-inf"), -1, found))


@triton.jit
def _largest(tops, top_out, parts, SIZE: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, SIZE)
    x = tl.load(tops + row * parts + i, i < parts, float("-inf"))
    broken = tl.max((x != x).to(tl.int32), 0)
    top = tl.max(tl.where(x == x, x, float("-inf")), 0)
    # -0.0 and +0.0 are one maximum
    tl.store(top_out + row, tl.where(broken > 0, float("nan"), top + 0.0))


@triton.jit
def _block_sums(logits, top, sums, vocab, blocks, LOG_BLOCK: tl.constexpr, MANY: tl.constexpr):
    BLOCK: tl.constexpr = 2**LOG_BLOCK
    row, j = tl.program_id(0), tl.program_id(1) * MANY + tl.arange(0, MANY)
    i = j[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = tl.load(logits + row.to(tl.int64) * vocab + i, i < vocab, 0.0)
    p = tl.where(i < vocab, exp(x - tl.load(top + row)), 0.0)
    tl.store(sums + row * blocks + j, halves(p, LOG_BLOCK, MANY), j < blocks)


@triton.jit
def _add_blocks(sums, sum_out, blocks):
    row = tl.program_id(0)
    total = 0.0
    for j in range(blocks):
        total = total + tl.load(sums + row * blocks + j)
    tl.store(sum_out + row, total)


class Choices:
    """These kernels as methods of the protocol."""

    _scratch: Scratch

    def argmax(self, logits: Any, out: Any) -> None:
        tops, ids, parts = self._parts(logits, keep_nan=False)
        size = int(triton.next_power_of_2(parts))
        launch(_best, (logits.shape[0],), tops, ids, out, parts, SIZE=size)

    def top_k(self, logits: Any, k: int, values_out: Any, ids_out: Any) -> None:
        clean = torch.where(torch.isnan(logits), float("-inf"), logits)
        # both zeros are one value to every sort
        keys = torch.where(clean == 0, torch.zeros_like(clean), clean)
        _, order = torch.sort(keys, dim=-1, descending=True, stable=True)
        ids_out.copy_(order[:, :k])
        values_out.copy_(torch.gather(clean, -1, order[:, :k]))

    def soft_sums(self, logits: Any, top_out: Any, sum_out: Any) -> None:
        n, vocab = logits.shape
        tops, _, parts = self._parts(logits, keep_nan=True)
        launch(_largest, (n,), tops, top_out, parts, SIZE=int(triton.next_power_of_2(parts)))
        blocks, many = -(-vocab // BLOCK), 32
        sums = self._scratch.floats("soft sums", n, blocks)
        meta = {"LOG_BLOCK": LOG_BLOCK, "MANY": many}
        grid = (n, triton.cdiv(blocks, many))
        launch(_block_sums, grid, logits, top_out, sums, vocab, blocks, **meta)
        launch(_add_blocks, (n,), sums, sum_out, blocks, warps=1)

    def _parts(self, logits: Any, *, keep_nan: bool) -> tuple[Any, Any, int]:
        n, vocab = logits.shape
        parts = int(triton.cdiv(vocab, PART))
        tops = self._scratch.floats("part tops", n, parts)
        ids = self._scratch.floats("part ids", n, parts).view(torch.int32)
        meta = {"PART": PART, "KEEP_NAN": keep_nan}
        launch(_best_of_part, (n, parts), logits, tops, ids, vocab, parts, **meta)
        return tops, ids, parts
