"""The backend kit: the backends that there are pass, and wrong kernels are caught by their name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cli.cli_model import write_model
from support.chosen import CPU_BACKENDS

from specla.backends.base import Backend
from specla.backends.numpy.backend import NumpyBackend
from specla.core import elementary
from specla.errors import OptionError
from specla.models.load import ModelFile, open_model
from specla.testing import ConformanceError, backend_checks, check_backend
from specla.testing.kernels import kernel_cases

MODEL: ModelFile


@pytest.fixture(autouse=True, scope="module")
def _a_tiny_model(tmp_path_factory: pytest.TempPathFactory) -> None:
    global MODEL
    path = tmp_path_factory.mktemp("kit") / "tiny.gguf"
    MODEL = open_model(write_model(path))


def check(backend: Any, **options: Any) -> Any:
    return check_backend(backend, model=MODEL, **options)


def test_every_method_of_the_protocol_has_a_case() -> None:
    missing = kernel_cases.missing()
    assert not missing, f"write cases for {sorted(missing)} in specla/testing/kernels/"


def test_a_method_without_a_case_is_noticed() -> None:
    class Larger(Backend):
        def another(self) -> None: ...

    Larger.__abstractmethods__ = Backend.__abstractmethods__ | {"another"}  # type: ignore[misc]
    assert "another" in kernel_cases.missing(Larger)


@pytest.mark.parametrize("name", CPU_BACKENDS)
def test_the_backends_of_this_machine_pass(name: str) -> None:
    report = check(name, threads=1, examples=5, tokens=8)
    assert [result.name for result in report.results] == backend_checks.names()
    assert not any(result.skipped for result in report.results)
    assert report.text().startswith(f"backend {name}\n") and "engine.trees" in report.text()


def test_arguments() -> None:
    assert check(NumpyBackend, only="add").name == check(NumpyBackend(), only="add").name
    with pytest.raises(OptionError, match="unknown backend 'nmupy'"):
        check("nmupy")
    with pytest.raises(OptionError, match="unknown backend check 'ad'; known: empty"):
        check("numpy", only="ad")


# -- broken ones ---------------------------------------------------------------------------------

Change = Callable[..., None]


def broken(name: str, change: Change) -> Backend:
    """The reference, but that one method is ``change(right method, *arguments)``."""
    right = getattr(NumpyBackend, name)

    def method(self: NumpyBackend, *arguments: Any) -> None:
        change(lambda *given: right(self, *given), *arguments)

    kind: Any = type("Broken", (NumpyBackend,), {name: method})
    backend: Backend = kind()
    return backend


def last_tie(right: Any, logits: Any, out: Any) -> None:
    right(logits[:, ::-1].copy(), out)
    out[out >= 0] = logits.shape[1] - 1 - out[out >= 0]


def nan_wins(right: Any, logits: Any, out: Any) -> None:
    with np.errstate(all="ignore"):
        out[...] = np.argmax(logits, axis=1)


def unstable_top(right: Any, logits: Any, k: int, values: Any, ids: Any) -> None:
    right(logits, k, values, ids)
    for row, ranks in zip(ids, values, strict=True):
        row[...] = row[np.lexsort((-row, -ranks))]


def sum_one_by_one(right: Any, x: Any, weight: Any, eps: float, out: Any) -> None:
    with np.errstate(all="ignore"):
        total = np.cumsum(x * x, axis=-1, dtype=np.float32)[..., -1:]
        mean = total / np.float32(x.shape[-1])
        out[...] = (x * elementary.rsqrt(mean + np.float32(eps))) * weight


def unwritten_row(right: Any, x: Any, y: Any, out: Any) -> None:
    right(x[: len(x) - 1], y[: len(x) - 1], out[: len(x) - 1])


def changes_input(right: Any, gate: Any, up: Any, out: Any) -> None:
    right(gate, up, out)
    up += np.float32(1)


def half_up(right: Any, x: Any, rows: Any) -> None:
    right(x, rows)
    rows.values[rows.values == 2] = 3


def no_sums(right: Any, x: Any, rows: Any) -> None:
    sums = rows.sums.copy()
    right(x, rows)
    rows.sums[...] = sums


def in_file_order(right: Any, x: Any, weight: Any, out: Any) -> None:
    right(x, weight, out)
    out[:, 1::2] = np.nextafter(out[:, 1::2], np.float32(np.inf))


def forgets_to_fold(right: Any, *arguments: Any) -> None:
    *rest, pool, layer, plan, out = arguments
    bank = pool.state.copy()
    right(*rest, pool, layer, plan, out)
    pool.state[...] = bank


def other_layer(right: Any, pool: Any, layer: int, plan: Any) -> None:
    right(pool, 0, plan)


def one_by_one(right: Any, pool: Any, commit: Any) -> None:
    """As if the order of nodes were descending."""
    right(pool, commit)
    pool.delta[commit.slot[0], 1 - commit.source_bank[0], :, 0] *= np.float32(2)


def moves_backwards(right: Any, kv: Any, commit: Any) -> None:
    for b in range(commit.n_sequences):
        first, last = commit.move_offset[b], commit.move_offset[b + 1]
        for i in reversed(range(first, last)):
            rows = (int(commit.move_from[i]), int(commit.move_to[i]))
            (p, r), (q, s) = ((kv.page_table[commit.slot[b], row // 64], row % 64) for row in rows)
            for cache in (kv.key, kv.value):
                cache[:, q, s] = cache[:, p, r]


def sees_siblings(
    right: Any, q: Any, kv: Any, layer: int, plan: Any, scale: float, out: Any
) -> None:
    right(q, kv, layer, plan, scale * (1 + 1e-7), out)


def next_position(right: Any, x: Any, position: Any, table: Any) -> None:
    right(x, np.minimum(position + 1, len(table.cos) - 1), table)


def only_the_first(right: Any, array: Any, index: Any = ...) -> None:
    right(array[:1], ...)


def adds_too_early(right: Any, x: Any, weight: Any, room: Any, out: Any) -> None:
    """As if the residual were a ninth segment."""
    right(x, weight, room, out)
    out[...] = np.nextafter(out, np.float32(0))


def only_floats(right: Any, x: Any, weight: Any, eps: float, out: Any) -> None:
    right(x, weight, eps, replace(out, quantised=None))


def only_blocks(right: Any, x: Any, gate: Any, out: Any) -> None:
    right(x, gate, replace(out, floats=np.empty_like(out.floats)))


WRONG: dict[str, tuple[str, Change, str]] = {
    "a tie goes to the last": ("argmax", last_tie, "reference's bytes in 'out'"),
    "NaN wins": ("argmax", nan_wins, "instead of"),
    "ties in any order": ("top_k", unstable_top, "'ids'"),
    "sum in another order": ("rms_norm", sum_one_by_one, "'out'"),
    "a row is not written": ("add", unwritten_row, "as if it was never written"),
    "an input is changed": ("swiglu", changes_input, "that 'up' changed"),
    "rounding": ("quantise", half_up, "'values'"),
    "sums are missing": ("quantise", no_sums, "as if it was never written"),
    "one bit": ("linear_quantised", in_file_order, "'out'"),
    "one bit in floats": ("linear_float", in_file_order, "'out'"),
    "no fold": ("gdn_verify", forgets_to_fold, "'state'"),
    "another layer": ("fold_window", other_layer, "'window'"),
    "another layer's state": ("fold_state", other_layer, "'state'"),
    "gather": ("gather", one_by_one, "'delta'"),
    "moves in the wrong order": ("kv_move", moves_backwards, "'key'"),
    "a scale in double": ("attention", sees_siblings, "'out'"),
    "a position": ("rotary", next_position, "'x'"),
    "a residual": ("linear_add", adds_too_early, "'out'"),
    "an operand without blocks": ("rms_norm_operand", only_floats, "as if it was never written"),
    "an operand without floats": ("sigmoid_gate_operand", only_blocks, "'floats'"),
    "too little is cleared": ("clear", only_the_first, "'array'"),
    "too little is poisoned": ("poison", only_the_first, "'array'"),
}


@pytest.mark.parametrize(("name", "change", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_kernel_is_caught_by_its_name(name: str, change: Change, message: str) -> None:
    with pytest.raises(ConformanceError) as caught:
        check(broken(name, change), only=name)
    assert caught.value.check == name and message in str(caught.value)
    assert f"Backend.{name}" in caught.value.remedy or "out arguments" in caught.value.remedy


def test_a_kernel_that_raises() -> None:
    def fail(*_: Any) -> None:
        raise NotImplementedError("later")

    with pytest.raises(ConformanceError, match="NotImplementedError: later"):
        check(broken("kv_move", fail), only="kv_move")


@pytest.mark.parametrize("only", ["engine.plain", "engine.trees"])
def test_what_no_kernel_shows_alone_shows_in_the_engine(only: str) -> None:
    """A backend that is right until its hundredth call, as a reused buffer might be."""
    calls = []

    def tired(right: Any, x: Any, y: Any, out: Any) -> None:
        calls.append(1)
        right(x, y, out)
        if len(calls) > 100:
            out[..., 0] += np.float32(1)

    with pytest.raises(ConformanceError, match="All kernels passed alone") as caught:
        check(broken("add", tired), only=only)
    assert caught.value.check == only
