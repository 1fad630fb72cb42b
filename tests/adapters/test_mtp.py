"""The mtp adapter: llama.cpp's drafts token by token, options, refusals, whole runs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapters.drafted_runs import Corrupting, lossless_run
from models.mtp import mtp_build as build
from support.chosen import chosen_backend
from support.texts import Text

from specla.adapters.base import create_adapter
from specla.adapters.mtp import MtpAdapter, MtpOptions
from specla.binding import bind
from specla.cli import main
from specla.core.proposal import Proposal
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.errors import LifecycleError, OptionError
from specla.models.load import open_model
from specla.models.qwen35.target import Qwen35Target, TargetOptions

pytestmark = pytest.mark.usefixtures("backend_name")


def load(path: Path, **options: Any) -> Qwen35Target:
    model = open_model(path)
    settings = {"context": 96, "chunk": 16, "kv": "f32", "max_nodes": 9, "poison": True}
    settings |= {"features": (model.config.n_layers - 1,), **options}
    return model.target(chosen_backend(), TargetOptions(**settings))


def bound(target: Qwen35Target, **options: Any) -> MtpAdapter:
    adapter = MtpAdapter(MtpOptions(**options))
    bind(adapter, "mtp", target)
    return adapter


# -- golden cases ----------------------------------------------------------------------------------


class Golden:
    """A case on the running backend."""

    def __init__(self, folder: Path, case: str) -> None:
        self.case = json.loads((folder / "golden_draft" / f"{case}.json").read_text())
        self.draft = str(folder / "golden_draft" / f"{case}.gguf")
        self.target = load(folder / "golden" / "b-f32.gguf", context=128, chunk=64)

    def replay(
        self, check: Callable[[dict[str, Any], Proposal], None], prompts: slice, **options: Any
    ) -> int:
        """Show each round's text to the adapter; returns how many proposals were checked."""
        adapter, checked = bound(self.target, draft=self.draft, **options), 0
        for key, prompt in enumerate(self.case["prompts"][prompts]):
            text = Text(self.target, prompt["tokens"][: len(prompt["prompt"])], key)
            adapter.open(text.view())
            for entry in prompt["rounds"]:
                text.tokens = prompt["tokens"][: entry["pos"] + 1]
                assert text.tokens[-1] == entry["root"]
                check(entry, adapter.propose([text.view()])[0])
                checked += 1
            adapter.close(text.view())
            text.close()
        return checked


@pytest.mark.parametrize("case", ["b-mtp", "b-mtp-fit"])
def test_every_drafted_token_of_every_round(
    shared_data: Path, case: str, backend_name: str
) -> None:
    golden = Golden(shared_data, case)

    def check(entry: dict[str, Any], found: Proposal) -> None:
        assert list(found.tokens) == entry["draft"]
        np.testing.assert_allclose(np.exp(found.log_probs), entry["row_top1_p"], atol=1e-5)

    # the reference is slow: a few prompts, of both modes
    prompts = slice(None) if backend_name == "numba" else slice(0, None, 3)
    found = golden.replay(check, prompts, depth=golden.case["n_max"])
    assert found == sum(len(p["rounds"]) for p in golden.case["prompts"][prompts]) > 20


def test_a_session_accepts_what_llama_cpp_accepts(shared_data: Path) -> None:
    golden = Golden(shared_data, "b-mtp-fit")
    recorded = next(p for p in golden.case["prompts"] if p["mode"] == "greedy")
    adapter = MtpAdapter(MtpOptions(draft=golden.draft, depth=golden.case["n_max"]))
    lengths = Counter(entry["n_accepted"] + 1 for entry in recorded["rounds"])
    count = sum(length * rounds for length, rounds in lengths.items())
    with Session(golden.target, adapter, recorded["prompt"]) as session:
        list(session.generate(Request(count, Sampler(SamplingParams()), budget=8)))
        assert list(session.tokens) == recorded["tokens"]
        assert session.stats.accept_lengths == lengths
        assert session.stats.mean_accept_length > 4


def test_the_command_line(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It captures the last layer, which only the target knows."""
    path = str(shared_data / "golden_draft" / "a-with-mtp.gguf")
    words = ["decode", path, "-p", "abc", "-n", "9", "--adapter", "mtp", "--check", "--json"]
    monkeypatch.setattr(sys, "argv", ["specla", *words, "--backend", "numpy"])
    assert main() == 0
    found = json.loads(capsys.readouterr().out)
    assert found["check"]["identical"] and found["stats"]["verified_rows"] > 9
    assert found["stats"]["refused_proposals"] == found["stats"]["adapter_errors"] == 0


@pytest.mark.parametrize("n_min", [0, 2])
def test_a_draft_ends_before_the_first_token_below_p_min(
    shared_data: Path, n_min: int, backend_name: str
) -> None:
    golden = Golden(shared_data, "b-mtp-fit")
    shares = sorted(
        share
        for prompt in golden.case["prompts"]
        for entry in prompt["rounds"]
        for share in entry["row_top1_p_top10"]
    )
    # in the middle of the widest gap around the median: no rounding error decides
    middle = range(len(shares) // 3, 2 * len(shares) // 3)
    gap = max(middle, key=lambda i: shares[i + 1] - shares[i])
    p_min = (shares[gap] + shares[gap + 1]) / 2
    lengths = set()

    def check(entry: dict[str, Any], found: Proposal) -> None:
        below = [i for i, share in enumerate(entry["row_top1_p_top10"]) if share < p_min]
        wanted = entry["draft"][: below[0]] if below else entry["draft"]
        assert list(found.tokens) == (wanted if len(wanted) >= n_min else [])
        lengths.add(len(found.tokens))

    prompts = slice(1, 4) if backend_name == "numba" else slice(1, 2)
    golden.replay(check, prompts, depth=golden.case["n_max"], p_min=p_min, n_min=n_min)
    assert len(lengths) > 1 and not lengths & set(range(1, n_min))
    if backend_name == "numba":
        assert lengths == ({0, 1, 2, 3, 4} if n_min == 0 else {0, 2, 3, 4})


def test_the_layer_in_a_whole_targets_file(shared_data: Path) -> None:
    """The same layer is the same draft, wherever it is read from, and llama.cpp's hidden states
    are what it gets."""
    path = shared_data / "golden_draft" / "a-with-mtp.gguf"
    target = load(path, slots=2)
    recorded = np.load(shared_data / "golden_draft" / "a-features.npz")
    tokens = recorded["h_nextn_g16_greedy_tokens"].tolist()
    own, file = bound(target), bound(target, draft=str(path))
    proposals = []
    for adapter in (own, file):
        text = Text(target, tokens)
        view = text.view()
        proposals.append(adapter.propose([view])[0])
        hidden = target.backend.empty((len(tokens) - 1, target.config.d_model))
        features = view.features(0, len(tokens) - 1)[:, 0]
        target.backend.rms_norm(features, target.parts.output_norm, 1e-6, hidden)
        np.testing.assert_allclose(hidden, recorded["h_nextn_g16_greedy"][:-1], atol=2e-4)
        text.close()
    assert len(proposals[0].tokens) == 3
    assert proposals[0] == proposals[1]


# -- whole runs ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.write(tmp_path_factory.mktemp("mtp") / "m.gguf", build.arrays())


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_runs_are_lossless(path: Path, temperature: float) -> None:
    target, prompt = load(path), [3, 14, 15, 9, 26, 5]
    params = SamplingParams(temperature=temperature, seed=7)
    plain = MtpAdapter(MtpOptions(depth=4))
    tokens, stats = lossless_run(target, plain, prompt, 20, params)
    assert stats.refused == stats.adapter_errors == 0 and stats.rows > stats.rounds
    forced = Corrupting(MtpAdapter(MtpOptions(depth=4)), target.config.vocab_size)
    assert lossless_run(target, forced, prompt, 20, params)[0] == tokens
    request = Request(20, Sampler(params), budget=16)
    with Session(target, plain, prompt) as session:
        list(session.generate(request))
        assert session.stats.rows == stats.rows, "the same again"


def test_to_the_end_of_the_context(path: Path) -> None:
    target = load(path, context=24)
    tokens, stats = lossless_run(target, MtpAdapter(), [3, 14, 15], 99)
    assert len(tokens) == 22 and stats.refused == 0


def test_sessions_in_turns_share_an_adapter(path: Path) -> None:
    target, adapter = load(path, slots=3), MtpAdapter()
    texts = [[1, 2, 3], [4, 5, 6, 7]]
    sessions = [Session(target, adapter, prompt) for prompt in texts]
    drafter = adapter._draft
    assert drafter is not None
    for length in range(5, 13):
        for session, tokens in zip(sessions, texts, strict=True):
            (proposal,) = adapter.propose([session._view(8, 8)])
            alone = MtpAdapter()
            bind(alone, "mtp", target)
            text = Text(target, session.tokens)
            assert alone.propose([text.view()]) == [proposal]
            text.close()
            session.extend([length, len(tokens)])
    for session in sessions:
        session.close()
    assert adapter._draft is drafter and not drafter._contexts
    pages = drafter._store.pages.pool
    assert pages.free == pages.n_pages


# -- options and refusals --------------------------------------------------------------------------


def test_options() -> None:
    options = create_adapter("mtp", {"depth": "5", "p_min": "0.25", "n_min": "2"}).options
    assert options == MtpOptions("", 5, 0.25, 2)
    for name, value in (("depth", "0"), ("n_min", "4"), ("p_min", "1.5"), ("p_min", "nan")):
        with pytest.raises(OptionError, match=f"option {name} is"):
            create_adapter("mtp", {name: value})


def test_limits_of_a_round(path: Path) -> None:
    target = load(path)
    adapter, text = bound(target, depth=4), Text(target, [1, 2, 3, 4])
    for budget, max_depth, wanted in ((8, 8, 4), (2, 8, 2), (8, 3, 3), (8, 0, 0)):
        (found,) = adapter.propose([text.view(budget, max_depth)])
        assert len(found.tokens) == wanted
    both = adapter.propose([text.view(8, 4), text.view(8, 2)])
    assert both[0].tokens[:2] == both[1].tokens and len(both[0].tokens) == 4


def test_it_must_be_bound_first(path: Path) -> None:
    text = Text(load(path), [1, 2])
    for call in (MtpAdapter().open, lambda view: MtpAdapter().propose([view])):
        with pytest.raises(LifecycleError, match="drafts only after bind"):
            call(text.view())
    MtpAdapter().close(text.view())


def test_a_target_without_a_layer_of_its_own(tmp_path: Path) -> None:
    held = build.trunk_only(build.arrays())
    path = build.write(
        tmp_path / "m.gguf", held, block_count=build.build.LAYERS, nextn_predict_layers=0
    )
    with pytest.raises(OptionError, match=r"holds no extra prediction layer.*draft=PATH"):
        bound(load(path))


def test_a_target_that_does_not_capture_its_last_layer(path: Path) -> None:
    with pytest.raises(OptionError, match=r"TargetOptions\(features=\(4,\)\)"):
        bound(load(path, features=()))


def test_a_layer_of_another_model(path: Path, tmp_path: Path, shared_data: Path) -> None:
    with pytest.raises(OptionError, match="has the hidden size 256, the target 24; give the layer"):
        bound(load(path), draft=str(shared_data / "golden_draft" / "b-mtp.gguf"))
    tokens = [str(i) for i in range(build.build.VOCAB)]
    listed = {"tokenizer.ggml.tokens": tokens}
    target = load(build.write(tmp_path / "t.gguf", build.arrays(), **listed))
    listed["tokenizer.ggml.tokens"] = tokens[::-1]
    other = build.write(tmp_path / "o.gguf", build.arrays(), **listed)
    with pytest.raises(OptionError, match="has another token list than the target"):
        bound(target, draft=str(other))
    # a file without a list can only be believed
    assert bound(target, draft=str(path))._draft is not None


def test_files_that_are_no_draft(tmp_path: Path) -> None:
    held = build.trunk_only(build.arrays())
    changes = {"block_count": build.build.LAYERS, "nextn_predict_layers": 0}
    other = build.write(tmp_path / "o.gguf", held, **{"general.architecture": "llama"})
    (tmp_path / "text").write_text("no model")
    for file, reason in (
        (build.write(tmp_path / "m.gguf", held, **changes), "holds no extra prediction layer"),
        (other, "'llama'"),
        (tmp_path / "text", "GGUF"),
        (tmp_path / "missing", "can't open"),
    ):
        with pytest.raises(OptionError, match=reason) as caught:
            create_adapter("mtp", {"draft": str(file)})
        assert str(caught.value).startswith("adapter 'mtp': draft ")
        assert "\n" not in str(caught.value)
