"""The extra prediction layer a second time: float64, whole text at once, no cache.

Conventions: those of llama.cpp, as its golden cases settle them.
"""

from __future__ import annotations

import numpy as np
from models.mtp.mtp_build import BLOCK
from models.qwen35 import qwen35_build as build

EPS, ROTARY, THETA = 1e-6, 4, 1e7


def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _rope(x: np.ndarray) -> np.ndarray:
    """x [T, heads, dim] at positions 0, 1, ...: the first dimensions as half-split pairs."""
    half = ROTARY // 2
    angle = np.arange(len(x))[:, None, None] / THETA ** (np.arange(half) * 2 / ROTARY)
    a, b, rest = x[..., :half], x[..., half:ROTARY], x[..., ROTARY:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def _block(held: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    def w(name: str) -> np.ndarray:
        return held[f"{BLOCK}.{name}.weight"].astype(np.float64)

    rows, dim = len(x), build.HEAD
    n = norm(x, w("attn_norm"))
    query, gate = np.moveaxis((n @ w("attn_q").T).reshape(rows, build.HEADS, 2, dim), 2, 0)
    key = (n @ w("attn_k").T).reshape(rows, build.KV_HEADS, dim)
    value = (n @ w("attn_v").T).reshape(rows, build.KV_HEADS, dim)
    query, key = _rope(norm(query, w("attn_q_norm"))), _rope(norm(key, w("attn_k_norm")))
    groups = build.HEADS // build.KV_HEADS
    key, value = np.repeat(key, groups, 1), np.repeat(value, groups, 1)
    scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(dim)
    scores = np.where(np.tril(np.ones((rows, rows), bool)), scores, -np.inf)
    share = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = np.einsum("hqk,khd->qhd", share / share.sum(-1, keepdims=True), value)
    x = x + (mixed * _sigmoid(gate)).reshape(rows, -1) @ w("attn_output").T
    n = norm(x, w("post_attention_norm"))
    inner = n @ w("ffn_gate").T
    return x + (inner * _sigmoid(inner) * (n @ w("ffn_up").T)) @ w("ffn_down").T


def drafted(
    held: dict[str, np.ndarray], tokens: list[int], hidden: np.ndarray, depth: int
) -> tuple[list[int], list[float], list[float]]:
    """Drafted tokens, their log-probabilities, and their share among the ten best.

    tokens: the text, root last.  hidden: the target's normed hidden states of all but the root.
    """
    weights = {name: array.astype(np.float64) for name, array in held.items()}
    nextn = f"{BLOCK}.nextn"
    states = [np.zeros(build.WIDTH), *hidden.astype(np.float64)]
    tokens = list(tokens)
    log_probs, shares = [], []
    for _ in range(depth):
        embedded = norm(weights["token_embd.weight"][tokens], weights[f"{nextn}.enorm.weight"])
        before = norm(np.stack(states), weights[f"{nextn}.hnorm.weight"])
        x = np.concatenate([embedded, before], 1) @ weights[f"{nextn}.eh_proj.weight"].T
        out = norm(_block(held, x)[-1], weights[f"{nextn}.shared_head_norm.weight"])
        logits = weights["output.weight"] @ out
        token = int(logits.argmax())
        log_probs.append(-np.log(np.exp(logits - logits[token]).sum()))
        shares.append(1 / np.exp(np.sort(logits)[-10:] - logits[token]).sum())
        tokens.append(token)
        states.append(out)
    return tokens[-depth:], log_probs, shares
