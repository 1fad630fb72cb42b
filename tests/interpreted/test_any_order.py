"""Random orders of operations on graphs and packed plans, with the reference's kernels.

Sequences, sessions and adapters are as hostile as they are on the CPU, and few graphs are kept, so
that they are dropped and made again. Where failures are injected, kernels are called one by one and
plans are not packed (FailingBackend): what a failure leaves of a graph is test_graphs.py's.
"""

from __future__ import annotations

import pytest

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

import torch  # noqa: E402

from interpreted.recording import RecordingCapture  # noqa: E402
from interpreted.reference_kernels import ReferenceKernels  # noqa: E402
from specla.backends import backends  # noqa: E402
from specla.backends.triton import graphs  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.fuzz.campaign import Campaign, run  # noqa: E402

pytestmark = MARKS

CAPTURE = RecordingCapture()


class Graphs(ReferenceKernels):
    interpreted = False  # its steps take no longer than the reference's

    def __init__(self) -> None:
        super().__init__(graphs=True, capture=CAPTURE)


@pytest.mark.parametrize(("level", "rounds"), [("kernels", 800), ("engine", 500), ("model", 80)])
def test_any_order_of_operations(level: str, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends._factories, "graphs", lambda: Graphs)
    monkeypatch.setattr(graphs, "KEPT", 6)
    made = CAPTURE.graphs
    campaign = Campaign(level, "graphs", 1, None, rounds, False)
    outcome = run(campaign, lambda *_: None, lambda: False)
    assert outcome.error is None, outcome.case
    assert outcome.log.rounds >= rounds and CAPTURE.graphs > made


def test_adapters_get_copies_of_features() -> None:
    """There are no views of a GPU's memory that can't be written."""
    backend = TritonBackend()
    rows = torch.arange(24.0).reshape(4, 2, 3)
    shown = backend.read_only(backend.view(rows, (slice(1, 3),)))
    assert shown.tolist() == rows[1:3].tolist()
    shown.zero_()
    assert rows.flatten().tolist() == list(range(24))
