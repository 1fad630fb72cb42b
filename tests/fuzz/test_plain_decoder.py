"""The oracle's memory: bounded, and without a trace in what it says."""

from __future__ import annotations

from support.tiny import tiny_target

from specla.fuzz.plain import PlainDecoder, difference


def test_a_trimmed_oracle_says_the_same() -> None:
    oracle = PlainDecoder(tiny_target(slots=1, features=(0,)))
    tokens = (3, 1, 4, 1)
    first = oracle.after(tokens)
    # five lists with the empty one
    oracle.trim(5)
    assert oracle.after(tokens) is first
    oracle.trim(4)
    again = oracle.after(tokens)
    assert again is not first
    assert difference(again.arrays, first.arrays) == ""
    assert again.logits is not None and first.logits is not None
    assert again.logits.tobytes() == first.logits.tobytes()
