"""Every setting of the end-to-end benchmark commits what its row of the table says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replay import ACCEPT, NODES, Setting, Text, measure, settings
from support.tiny import tiny_target

from specla.check import MismatchError, plain_decode
from specla.core.sampling import Sampler, SamplingParams

PROMPT = [1, 2, 3]


def test_all_that_fits_is_measured() -> None:
    found = settings(list(ACCEPT), list(NODES))
    assert len(set(found)) == len(found)
    for branch in (1, 2):
        pairs = {(s.accept, s.nodes) for s in found if min(s.branch, 2) == branch}
        wanted = {(a, n) for a in ACCEPT for n in NODES if a <= n}
        # no room beside the path, or none but for the last sibling
        assert pairs == (wanted if branch == 1 else wanted - {(8, 8)})


@pytest.mark.parametrize("setting", settings(list(ACCEPT), list(NODES)), ids=str)
def test_every_round_is_full_and_commits_the_accept_length(setting: Setting) -> None:
    target = tiny_target(max_nodes=max(NODES))
    count = 3 * setting.accept
    plain, _ = plain_decode(target, PROMPT, count + max(NODES), Sampler(SamplingParams()))
    text = Text(PROMPT, plain.tokens, count)
    stats, times = measure(target, setting, text, None, 2)
    assert stats.accept_lengths == {setting.accept: 3}
    assert stats.rows == 3 * setting.nodes
    assert all(len(runs) == 2 and min(runs) > 0 for runs in times.values())


def test_a_difference_prints_no_speed() -> None:
    target = tiny_target(max_nodes=4)
    plain, _ = plain_decode(target, PROMPT, 20, Sampler(SamplingParams()))
    right = target.verify

    def wrong(items: Any) -> Any:
        verified = right(items)
        verified.logits[...] *= np.float32(1 + 1e-6)
        return verified

    target.verify = wrong  # type: ignore[method-assign]
    with pytest.raises(MismatchError, match="logits differ"):
        measure(target, Setting(2, 4, 1), Text(PROMPT, plain.tokens, 6), None, 1)
