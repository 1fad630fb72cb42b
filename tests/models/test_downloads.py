"""A model's results come to the host at once: for each transfer of its own it waits for a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.drafters import bound, write_drafter

from specla.backends.numpy.backend import NumpyBackend
from specla.core.proposal import SequenceView
from specla.core.topology import Tree
from specla.fuzz.tiny import tiny_target


class OneDownload(NumpyBackend):
    """Counts how often the host asks for arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def download(self, array: Any) -> Any:
        self.asked.append(1)
        return super().download(array)

    def download_all(self, *arrays: Any) -> Any:
        self.asked.append(len(arrays))
        return [super(OneDownload, self).download(array) for array in arrays]


def test_one_wait_for_the_best_logits() -> None:
    backend = OneDownload()
    target = tiny_target(backend, kind="F32", chunk=4)
    text = target.open()
    verified = target.verify([(text, Tree.build([1, 2, 3], [-1, 0, 0]))])
    backend.asked.clear()
    values, ids = target.top_k(verified, 3)
    assert values.shape == ids.shape == (3, 3) and backend.asked == [2]


def test_one_wait_for_a_drafted_block(tmp_path: Path) -> None:
    path = write_drafter(tmp_path / "draft.gguf", n_layers=1, block=3, target_layers=(0,))
    backend = OneDownload()
    target = tiny_target(backend, kind="F32", pattern="g", features=(0,), chunk=4)
    drafter = bound(path, target)
    tokens = [3, 1, 4]
    features = np.zeros((len(tokens), 1, target.config.d_model), np.float32)
    view = SequenceView(0, tokens, 1, 64, 64, lambda start, stop: features[start:stop])
    backend.asked.clear()
    assert drafter.draft(view, 2, 4).ids.shape == (2, 4)
    assert backend.asked == [4]
