"""The bug zoo: convolution windows (docs/bug-zoo.md)."""

from __future__ import annotations

import pytest
from support.setup import make_driver
from zoo.zoo_driver import play, started

from specla.core.topology import Tree

pytestmark = pytest.mark.usefixtures("backend_name")

CHAIN = Tree.chain([9, 8, 7, 6, 5])


@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("accepted", [1, 2, 4])
def test_vllm_50272_a_window_keeps_no_rejected_input(accepted: int, width: int) -> None:
    """vllm#50272: LFM2's output was wrong from the first rejection on, for the convolution window
    kept rejected inputs and had no room to roll back. No attention, and windows of every size."""
    driver = make_driver(4, pattern="g", config={"conv_width": width})
    text = started(driver)
    for _ in range(3):
        play(driver, text, CHAIN, range(accepted))
        driver.check_state(text)
    driver.close_all()


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_vllm_55504_windows_of_a_mixed_batch_with_counts_of_one(order: tuple[int, ...]) -> None:
    """vllm#55504: in mixed batches the accepted counts of plain rows, all 1, were dropped, and
    the speculative rows' counts were used to restore their windows."""
    driver = make_driver(4, pattern="gag")
    texts = [started(driver, prompt) for prompt in ((1, 2, 3), (4, 5), (6, 7, 8, 9))]
    drafts = (CHAIN, Tree.lone(11), Tree.lone(12))
    paths: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3), (0,), (0,))
    for _ in range(2):
        assert driver.verify([(texts[i], drafts[i]) for i in order])
        assert driver.commit_all([(texts[i], paths[i]) for i in order])
    for text in texts:
        driver.check_state(text)
    driver.close_all()
