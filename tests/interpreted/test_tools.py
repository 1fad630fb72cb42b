"""The tools that take a backend by its name take this one: the kit and the fuzzer."""

from __future__ import annotations

import pytest

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

from specla.fuzz import campaign  # noqa: E402
from specla.fuzz.computing import computing, pace  # noqa: E402
from specla.fuzz.lifecycle.machine import KernelLifecycle  # noqa: E402
from specla.fuzz.log import Log  # noqa: E402
from specla.testing import check_backend  # noqa: E402

pytestmark = MARKS


def test_the_kit() -> None:
    report = check_backend("triton", only=["rms_norm", "gather", "argmax", "add"], examples=3)
    assert report.name == "triton" and len(report.results) == 4


def test_the_fuzzer(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    monkeypatch.setattr(campaign, "STEPS", 8)
    # the first example is a trivial one
    campaign.play_examples(KernelLifecycle, "triton", 5, log=log, count=2)
    assert log.examples == 2 and log.operations > 8


def test_the_fuzzer_plays_fewer_rounds_here() -> None:
    assert computing("triton").interpreted and not computing("numpy").interpreted
    assert pace("triton").share > pace("numpy").share == 1
    assert pace("triton").examples < pace("numpy").examples
