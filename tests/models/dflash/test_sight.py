"""What the slots of a block see, as the attention kernels read it, against the definition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drafters import LUCEBOX, write_drafter

from specla.models.dflash.config import DraftConfig
from specla.models.dflash.load import open_drafter
from specla.models.dflash.sight import Sight, SightPair


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DraftConfig]:
    folder: Path = tmp_path_factory.mktemp("draft")
    options = {"window": 4, "sliding": (True, False)}
    return {
        arch: open_drafter(write_drafter(folder / f"{arch}.gguf", arch=arch, **options)).config
        for arch in ("dflash", LUCEBOX)
    }


def _seen(sight: Sight, row: int) -> list[int]:
    """Cache rows in the order of StepPlan's rule."""
    count = int(sight.position[row]) - sight.committed + 1
    start = int(sight.path_start[row])
    return [*range(sight.committed), *sight.paths[start : start + max(count, 0)].tolist()]


@settings(max_examples=200)
@given(
    length=st.integers(0, 200),
    slots=st.integers(1, 32),
    window=st.integers(1, 220),
    causal=st.booleans(),
    arch=st.sampled_from(["dflash", LUCEBOX]),
    is_sliding=st.booleans(),
)
def test_sight(
    configs: dict[str, DraftConfig],
    length: int,
    slots: int,
    window: int,
    causal: bool,
    arch: str,
    is_sliding: bool,
) -> None:
    config = replace(configs[arch], window=window, causal=causal)
    pair = SightPair(config, slots)
    sight = pair.of(is_sliding, length)
    for row in range(slots):
        query = length + row

        def visible(key: int, query: int = query) -> bool:
            if causal and key > query:
                return False
            if not is_sliding:
                return True
            if arch == "dflash":
                return query - key < window
            return length - window <= key <= query

        assert _seen(sight, row) == [key for key in range(length + slots) if visible(key)]
    assert len(sight.paths) <= pair.longest_path(length)
    if pair.chains(is_sliding) == 1:
        # rows of one chain see prefixes of one path, the last row the longest
        assert len(set(sight.path_start.tolist())) == 1
        assert (np.diff(sight.position) >= 0).all()
