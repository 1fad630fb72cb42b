"""Layers that an adapter needs features of, counted from either end."""

from __future__ import annotations

import pytest
from support.tiny import tiny_target

from specla.adapters.base import Needs
from specla.binding import target_info
from specla.errors import OptionError


@pytest.mark.parametrize(
    ("features", "wanted"),
    [((), ()), ((-1,), (7,)), ((1, -2, 3), (1, 6, 3)), ((7, -1, 0), (7, 0)), ((8, -9), (8, -1))],
)
def test_negative_layers_count_from_the_end(
    features: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    assert Needs(features=features).layers(8) == wanted


def test_binding_resolves_them() -> None:
    target = tiny_target(features=(0, 2))
    assert target_info(target, Needs(features=(-1, 0))).features == (0, 2)
    with pytest.raises(OptionError, match=r"layers \[1\].*TargetOptions\(features=\(1, 2\)\)"):
        target_info(target, Needs(features=(1, -1)))
    for outside in (3, -4):
        with pytest.raises(OptionError, match="does not capture"):
            target_info(target, Needs(features=(outside,)))
