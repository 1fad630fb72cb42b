"""A backend with a device of its own: named, shown, and refused where the model is too large."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli.cli_draft import write_draft
from cli.cli_expected import PROMPT, PROMPT_IDS, plainly, report, token_text
from cli.cli_process import environment
from cli.fake_gpu import WORDS, GpuBackend
from cli.test_cli_bad_input import assert_refused

from specla.backends import backends, create_backend
from specla.backends.numpy.backend import NumpyBackend
from specla.cli.memory import kept_bytes, node_bytes
from specla.models.load import open_model
from specla.models.qwen35.options import TargetOptions, recurrent_shape

DECODE = ("-p", PROMPT, "-n", 3, "--backend", "gpu")


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends._factories, "gpu", lambda: GpuBackend)
    monkeypatch.delenv("SPECLA_DEVICE", raising=False)


def test_the_summary_names_gpu_and_driver(run, model: Path) -> None:
    result = run("decode", model, *DECODE)
    assert (result.code, result.out) == (0, token_text(plainly(model, PROMPT_IDS, 3)))
    (line,) = [line for line in result.err.splitlines() if line.startswith("backend: ")]
    assert line == f"backend: gpu on {WORDS}, context 256, KV f16"


def test_the_report_has_the_facts(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = report(run, model, *DECODE, "--device", "cuda:1")["settings"]["device"]
    assert (facts["device"], facts["driver"]) == ("cuda:1", "570.86.15")
    monkeypatch.setenv("SPECLA_DEVICE", "cuda:2")
    assert report(run, model, *DECODE)["settings"]["device"]["device"] == "cuda:2"
    assert report(run, model, "-p", PROMPT, "-n", 1)["settings"]["device"] is None


def test_a_device_for_a_backend_that_has_none(run, model: Path) -> None:
    for backend, name in (("auto", "numba"), ("numpy", "numpy")):
        argv = ("-p", PROMPT, "--backend", backend, "--device", "cuda:0")
        assert_refused(
            run("decode", model, *argv),
            f"error: backend {name!r} takes no device; leave --device out or choose a GPU backend: "
            f"--backend triton (device is 'cuda:0')",
        )
    assert_refused(run("decode", model, *DECODE, "--device", ""), "--device is empty")


def test_it_is_listed(run) -> None:
    found = {entry["name"]: entry for entry in json.loads(run("backends", "--json").out)}
    assert found["gpu"]["device"]["name"] == "NVIDIA H200" and not found["gpu"]["auto"]
    (line,) = [line for line in run("backends").out.splitlines() if line.startswith("gpu ")]
    assert line.endswith(f"usable, if named: --backend gpu, on {WORDS}")


def test_warmup_has_nothing_to_do(run) -> None:
    assert run("warmup", "--backend", "gpu").err == "backend: gpu, which compiles at first use\n"


def test_weights_that_do_not_fit(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = open_model(model)
    weights = kept_bytes(loaded.weights, create_backend("gpu"))
    assert weights == loaded.weight_bytes, "all are float32"
    monkeypatch.setattr(GpuBackend, "free", weights - 1)
    said = run("decode", model, *DECODE)
    assert_refused(said, "use a smaller model or quantisation, or another device")
    assert f"{model} needs 0.0 GiB: 0.0 GiB of weights and " in said.err
    assert "cuda:0, NVIDIA H200, has 0.0 GiB free of 140.0 GiB" in said.err


def test_a_context_or_trees_that_do_not_fit(
    run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GpuBackend, "free", 64 << 20)
    # the host's memory has no say
    monkeypatch.setattr("specla.cli.memory.physical_memory", lambda: 1)
    assert_refused(run("decode", model, *DECODE, "--ctx", 2000000), "lower --ctx")
    monkeypatch.setattr(GpuBackend, "free", 4 << 20)
    assert_refused(run("decode", model, *DECODE, "--budget", 4000), "lower --budget or --chunk")
    assert run("decode", model, *DECODE, "--chunk", 16, "--quiet").code == 0


def test_a_context_for_which_there_are_no_kernels(
    run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before any weight is loaded."""
    monkeypatch.setattr(GpuBackend, "most_positions", 128)
    monkeypatch.setattr(GpuBackend, "load", lambda *_: 1 / 0)
    assert_refused(
        run("decode", model, *DECODE, "--ctx", 129),
        "a context of 129 positions; backend gpu has kernels for 128 at most; lower --ctx",
    )


def test_states_that_a_backend_does_not_keep_need_no_room(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, options = open_model(model).config, TargetOptions(max_nodes=65)
    kept = node_bytes(config, options, GpuBackend(None))
    monkeypatch.setattr(GpuBackend, "boundaries", lambda self, shape: 0)
    backend, shape = GpuBackend(None), recurrent_shape(config, options)
    state = 4 * config.n_value_heads * config.key_dim * config.value_dim
    assert kept - node_bytes(config, options, backend) == 32 * state
    assert backend.recurrent_pool(shape).boundary.shape[0] == 0
    assert NumpyBackend().recurrent_pool(shape).boundary.shape[0] == 32


def test_the_draft_counts(
    run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = write_draft(tmp_path / "draft.gguf")
    argv = (*DECODE, "--chunk", 16, "--budget", 4)
    lowest = _least(run, model, argv, monkeypatch)
    assert_refused(run("decode", model, *argv, "--draft", draft), "of the draft")
    monkeypatch.setattr(GpuBackend, "free", lowest + draft.stat().st_size + (1 << 20))
    assert run("decode", model, *argv, "--draft", draft, "--quiet").code == 0


def _least(run, model: Path, argv: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    """The free memory with which a run just begins, left in place."""
    refused, enough = 0, 1 << 30
    while enough - refused > 1:
        middle = (refused + enough) // 2
        monkeypatch.setattr(GpuBackend, "free", middle)
        monkeypatch.setattr("specla.cli.run_decode.prepare_backend", lambda *_: 1 / 0)
        # 70: it got as far as to prepare the backend
        if run("decode", model, *argv).code == 70:
            enough = middle
        else:
            refused = middle
    monkeypatch.undo()
    monkeypatch.setitem(backends._factories, "gpu", lambda: GpuBackend)
    monkeypatch.setattr(GpuBackend, "free", enough)
    return enough


def test_a_matrix_that_is_there_twice_counts_once(model: Path) -> None:
    weights = open_model(model).weights
    backend = create_backend("gpu")
    assert kept_bytes((weights, weights), backend) == kept_bytes(weights, backend)
    assert kept_bytes((weights.embedding, [1], 2), backend) == weights.embedding.data.nbytes


def test_a_gpu_that_is_full_while_loading(
    run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GpuBackend, "dies_in", "load")
    result = run("decode", model, *DECODE)
    assert result.code == 2 and result.out == ""
    assert result.err.splitlines()[-1].startswith(
        f"specla: error: {model}: there is no memory on cuda:0 for 1 sequences of 256 positions"
    )


def test_a_gpu_that_is_full_while_decoding(
    run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GpuBackend, "dies_in", "argmax")
    result = run("decode", model, *DECODE)
    assert result.code == 2
    assert result.err.splitlines()[-1] == (
        f"specla: error: not enough memory (on {WORDS}); use a smaller --ctx, --budget or model"
    )


@pytest.mark.parametrize("argv", [("adapters",), ("decode", "-p", "x", "-n", "1", "--quiet")])
def test_torch_is_left_alone(argv: tuple[str, ...]) -> None:
    code = (
        "import sys; from specla.cli import main; code = main(sys.argv[1:]); "
        "print([m for m in ('torch', 'triton') if m in sys.modules], file=sys.stderr); "
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")
