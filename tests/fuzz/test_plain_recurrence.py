"""The kernels' oracle, against hand-worked sums and against the formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest

from specla.fuzz.kernels.recurrence import PlainRecurrence, block_sum, halving_sum
from specla.fuzz.kernels.tables import AttentionTables, GdnTables, Shapes, make_tables
from specla.models.qwen35.options import TargetOptions

TOKENS = (3, 1, 4, 1, 5, 9, 2, 6)


def test_halves_are_added() -> None:
    x = np.array([1e8, 1, -1e8, 1], np.float32)
    assert halving_sum(x) == 2  # from left to right it would be 1
    assert halving_sum(np.array([1e8, 1, -1e8], np.float32)) == 1
    assert halving_sum(np.array([7], np.float32)) == 7


def test_blocks_of_64_are_added_from_the_first_on() -> None:
    x = np.zeros(130, np.float32)
    x[0], x[64], x[129] = 1e8, 1, -1e8
    assert block_sum(x) == 0  # 1e8 + 1 rounds to 1e8
    x[0], x[64], x[129] = 1e8, -1e8, 1
    assert block_sum(x) == 1


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def in_float64(shapes: Shapes, tables: list[GdnTables | AttentionTables]) -> np.ndarray:
    """Outputs after TOKENS, from the published formulas: matrices, no loops over heads' sums."""
    c, outputs = shapes.config, []
    for table in tables:
        t = {k: np.asarray(v, np.float64) for k, v in vars(table).items()}
        if isinstance(table, GdnTables):
            inputs = np.concatenate(
                [np.zeros((c.conv_width - 1, c.conv_channels)), t["qkv"][[*TOKENS]]]
            )
            S = np.zeros((c.n_value_heads, c.key_dim, c.value_dim))
            for i, token in enumerate(TOKENS):
                mixed = (inputs[i : i + c.conv_width] * t["conv"]).sum(0)
                mixed = mixed * sigmoid(mixed)
                q, k, v = np.split(
                    mixed, [c.n_key_heads * c.key_dim, 2 * c.n_key_heads * c.key_dim]
                )
                q, k = q.reshape(-1, c.key_dim), k.reshape(-1, c.key_dim)
                q = q / np.sqrt((q**2).sum(-1, keepdims=True) + c.rms_eps) / np.sqrt(c.key_dim)
                k = k / np.sqrt((k**2).sum(-1, keepdims=True) + c.rms_eps)
                heads = np.arange(c.n_value_heads) % c.n_key_heads
                q, k, v = q[heads], k[heads], v.reshape(c.n_value_heads, -1)
                g = np.log1p(np.exp(t["alpha"][token] + t["dt_bias"])) * t["a"]
                beta = sigmoid(t["beta"][token])[:, None]
                S = S * np.exp(g)[:, None, None]
                delta = beta * (v - np.einsum("hkv,hk->hv", S, k))
                S = S + np.einsum("hk,hv->hkv", k, delta)
                out = np.einsum("hkv,hk->hv", S, q)
        else:
            out = _attention_in_float64(c, t)
        outputs.append(out.reshape(-1))
    return np.concatenate(outputs)


def _attention_in_float64(c, t: dict[str, np.ndarray]) -> np.ndarray:
    def turned(x: np.ndarray, norm: np.ndarray) -> np.ndarray:
        x = x.reshape(len(TOKENS), -1, c.head_dim)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + c.rms_eps) * norm
        half = c.rotary_dim // 2
        rate = c.rope_base ** (-np.arange(half) / half)
        turn = np.exp(1j * np.arange(len(TOKENS))[:, None] * rate)[:, None, :]
        pairs = (x[..., :half] + 1j * x[..., half : 2 * half]) * turn
        return np.concatenate([pairs.real, pairs.imag, x[..., 2 * half :]], axis=-1)

    q = turned(t["q"][[*TOKENS]], t["q_norm"])[-1]
    k = turned(t["k"][[*TOKENS]], t["k_norm"])
    v = t["v"][[*TOKENS]].reshape(len(TOKENS), -1, c.head_dim)
    group = np.arange(c.n_heads) // (c.n_heads // c.n_kv_heads)
    scores = np.einsum("hd,thd->ht", q, k[:, group]) / np.sqrt(c.head_dim)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return np.einsum("ht,thd->hd", weights / weights.sum(1, keepdims=True), v[:, group])


@pytest.mark.parametrize(
    "shapes",
    [Shapes(), Shapes("ga", 1, 4, 5, 4, 1, 3), Shapes("gga", 2, 2, 32, 8, 1, 2)],
)
def test_the_formulas(shapes: Shapes) -> None:
    """Close, not equal: float64 rounds elsewhere. What must be equal in bytes is what the fuzzer
    compares with the kernels."""
    tables = make_tables(shapes.config, seed=3)
    oracle = PlainRecurrence(shapes.config, tables, TargetOptions(context=64, kv="f32"))
    found = oracle.after(TOKENS).logits
    np.testing.assert_allclose(found, in_float64(shapes, tables), rtol=2e-4, atol=2e-5)


def test_records_are_those_of_a_fresh_oracle() -> None:
    shapes = Shapes()
    tables = make_tables(shapes.config, seed=1)
    options = TargetOptions(context=64, features=(0, 2))
    used, new = (PlainRecurrence(shapes.config, tables, options) for _ in range(2))
    used.after(TOKENS[:3])
    used.after((7, 7))
    used.forget([TOKENS[:2]])
    one, other = used.after(TOKENS), new.after(TOKENS)
    assert one.features is not None and one.features.shape[0] == len(TOKENS)
    assert one.features.tobytes() == other.features.tobytes()
    assert one.arrays["key"].dtype == np.float16
    for name, array in one.arrays.items():
        assert array.tobytes() == other.arrays[name].tobytes(), name
