"""Draft models whose steps are graphs: the reference's drafts, in bytes.

Their plans are of their own kind, or padded like a target's; the target itself stands still, its
features are random numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models.mtp import mtp_build
from support.arrays import equal
from support.drafters import bound, write_drafter

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

from interpreted.recording import RecordingCapture  # noqa: E402
from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.backends.triton import plans  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.backends.triton.launch import Launch, launches_to  # noqa: E402
from specla.core.proposal import SequenceView  # noqa: E402
from specla.fuzz.tiny import tiny_target  # noqa: E402
from specla.models.load import open_model  # noqa: E402
from specla.models.mtp.drafter import MtpDrafter  # noqa: E402
from specla.models.mtp.weights import read_own_mtp  # noqa: E402
from specla.models.qwen35.target import TargetOptions  # noqa: E402

pytestmark = MARKS

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


def backends(capture: RecordingCapture) -> list[Any]:
    return [TritonBackend(graphs=True, capture=capture), NumpyBackend()]


class Features:
    """Random hidden states [position, layer, d_model] of a text, on each backend."""

    def __init__(self, layers: int, width: int) -> None:
        shape = (len(TOKENS), layers, width)
        self._host = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)

    def view(self, backend: Any, length: int) -> SequenceView:
        def features(start: int, stop: int) -> Any:
            return backend.upload(self._host[start:stop])

        return SequenceView(0, TOKENS[:length], 1, 64, 64, features)


def test_blocks(tmp_path: Path) -> None:
    """Contexts that grow by one and by two positions, blocks of one size."""
    path = write_drafter(
        tmp_path / "draft.gguf", n_layers=1, block=3, target_layers=(0,), kind="Q8_0"
    )
    capture = RecordingCapture()
    targets = [
        tiny_target(b, kind="Q8_0", pattern="g", features=(0,), chunk=2, slots=1)
        for b in backends(capture)
    ]
    drafters = [bound(path, target) for target in targets]
    features = Features(1, 32)
    for length in (2, 4, 5, 7):
        drafts = [
            drafter.draft(features.view(target.backend, length), 2, 4)
            for drafter, target in zip(drafters, targets, strict=True)
        ]
        for name in ("ids", "values", "log_total"):
            assert equal(*(getattr(draft, name) for draft in drafts)), (length, name)
        downloads = [t.backend.download for t in targets]
        for name in ("hidden", "logits"):
            found = [get(getattr(d, name)) for get, d in zip(downloads, drafts, strict=True)]
            assert equal(*found), (length, name)
    # blocks, one position, two positions
    assert capture.graphs == 3


def test_attention_is_launched_for_the_positions_there_are(tmp_path: Path) -> None:
    """Not for the whole context, of which a block after a short text sees little."""
    path = write_drafter(
        tmp_path / "draft.gguf", n_layers=1, block=3, target_layers=(0,), kind="Q8_0"
    )
    features = Features(1, 32)
    for backend, blocks in (
        (TritonBackend(graphs=True, capture=RecordingCapture()), plans.LEAST_KEYS // 64),
        (TritonBackend(graphs=False), 1),
    ):
        target = tiny_target(
            backend, kind="Q8_0", pattern="g", features=(0,), chunk=2, slots=1, context=4096
        )
        drafter = bound(path, target)
        grids: list[tuple[int, ...]] = []

        def noting(asked: Launch, grids: list[tuple[int, ...]] = grids) -> None:
            if asked.kernel.__name__ == "_score":
                grids.append(asked.grid)

        with launches_to(noting):
            drafter.draft(features.view(backend, 4), 2, 4)
        assert [grid[2] for grid in grids] == [blocks]


def test_a_prediction_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the text are taken up in padded steps; guesses follow each other."""
    monkeypatch.setattr(plans, "SIZES", (1, 3))
    path = mtp_build.write(tmp_path / "mtp.gguf", mtp_build.arrays())
    options = TargetOptions(context=32, chunk=4, kv="f16", max_nodes=1, poison=True)
    capture = RecordingCapture()
    drafters = []
    for backend in backends(capture):
        parts = open_model(path).target(backend, options).parts
        weights = read_own_mtp(parts.extra, parts.config)
        drafters.append(MtpDrafter(weights, parts, backend, column=0))
    features = Features(1, mtp_build.build.WIDTH)
    for length in (3, 6, 8):
        guesses = [list(d.draft(features.view(d.backend, length), 2)) for d in drafters]
        assert guesses[0] == guesses[1] and len(guesses[0]) == 2, length
    # rows taken up; a guess from the target's hidden state, and from the layer's own
    assert capture.graphs == 3
