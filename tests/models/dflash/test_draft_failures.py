"""A drafter that fails in mid-append or mid-block goes on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.arrays import equal
from support.chosen import chosen_backend
from support.drafters import bound, prefilled, write_drafter
from support.tiny import VOCAB, tiny_target

from specla.fuzz.failing import KERNELS, TRANSFERS, FailingBackend, InjectedError
from specla.models.dflash.block import BlockDraft

TEXT = [i * 7 % (VOCAB - 1) for i in range(60)]


def _bytes(draft: BlockDraft) -> bytes:
    return draft.ids.tobytes() + draft.values.tobytes() + draft.log_total.tobytes()


@pytest.mark.parametrize("when", ["before", "after"])
def test_any_call_may_fail(tmp_path: Path, when: str) -> None:
    path = write_drafter(tmp_path / "draft.gguf", window=5, sliding=(True, False), n_layers=2)
    backend = FailingBackend(chosen_backend())
    target = tiny_target(backend=backend, features=(0, 2), chunk=16)
    drafter = bound(path, target)
    # three chunks, so that a failure can fall between two of them
    view = prefilled(target, TEXT[:40])
    wanted = drafter.draft(view, 5, 3)
    names = (*KERNELS, *TRANSFERS)
    for n in range(200):
        drafter.close(view.key)
        # or rows that are not written again would hold what they should
        for pool in drafter._contexts._pools:
            backend.poison(pool.key)
            backend.poison(pool.value)
        backend.arm(n, when, names)
        try:
            drafter.draft(view, 5, 3)
        except InjectedError:
            assert backend.failed is not None
        else:
            break
        backend.disarm()
        assert _bytes(drafter.draft(view, 5, 3)) == _bytes(wanted), backend.failed
    else:
        pytest.fail("never came to an end")
    assert n > 50


def test_features_may_fail(tmp_path: Path) -> None:
    """What the engine raises passes through; the next draft is whole."""
    path = write_drafter(tmp_path / "draft.gguf")
    target = tiny_target(features=(0, 2), chunk=16)
    drafter = bound(path, target)
    view = prefilled(target, TEXT[:40])
    wanted = drafter.draft(view, 5, 3)
    drafter.close(view.key)
    starts: list[int] = []

    def failing(start: int, stop: int) -> object:
        starts.append(start)
        if len(starts) == 2:
            raise KeyboardInterrupt
        return view.features(start, stop)

    broken = type(view)(**{**view.__dict__, "features": failing})
    with pytest.raises(KeyboardInterrupt):
        drafter.draft(broken, 5, 3)
    again = drafter.draft(broken, 5, 3)
    assert starts[:3] == [0, 16, 16]  # the chunk before the failure was kept
    assert equal(again.values, wanted.values) and equal(again.ids, wanted.ids)
