"""Inputs for comparing the compiled backend with the reference: ordinary and hostile floats."""

from __future__ import annotations

from hypothesis import strategies as st

from specla.testing.arrays import MOODS, SPECIAL, strided, values

__all__ = ["MOODS", "SPECIAL", "moods", "seeds", "strided", "values"]

moods = st.sampled_from(MOODS)
seeds = st.integers(0, 2**32 - 1)
