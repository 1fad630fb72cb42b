"""Stop strings: any split of the text gives what a search of the whole text gives."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specla.errors import OptionError
from specla.models.tokenizer import StopMatcher, StopStep


def naive(stops: list[str], text: str) -> tuple[str, str | None]:
    """Text before the stop string that is complete first; of several, the longest."""
    for end in range(len(text) + 1):
        done = [stop for stop in stops if text[:end].endswith(stop)]
        if done:
            longest = max(done, key=len)
            return text[: end - len(longest)], longest
    return text, None


def split(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(places)]


STOPS = st.lists(st.text("ab", min_size=1, max_size=6), max_size=5)


@given(STOPS, st.text("abc", max_size=60), st.lists(st.integers(0, 1000), max_size=60))
@example(["abcd", "bc"], "xabcd", [])
@example(["aab"], "aaab", [1, 2, 3])
@example(["ab", "abab", "bab"], "ababab", [3])
def test_any_split_equals_a_search(stops: list[str], text: str, cuts: list[int]) -> None:
    expected, stop = naive(stops, text)
    matcher = StopMatcher(stops)
    shown = ""
    for piece in split(text, cuts):
        step = matcher.feed(piece)
        shown += step.text
        if step.hit:
            assert matcher.matched == stop and matcher.held == ""
            break
        assert matcher.matched is None
    else:
        assert stop is None
        shown += matcher.finish()
    assert shown == expected


@given(STOPS, st.text("ab", max_size=30))
def test_no_more_is_held_than_needed(stops: list[str], text: str) -> None:
    matcher = StopMatcher(stops)
    if matcher.feed(text).hit:
        return
    beginnings = [stop[:n] for stop in stops for n in range(len(stop)) if text.endswith(stop[:n])]
    assert matcher.held == max(beginnings, key=len, default="")


def test_steps() -> None:
    matcher = StopMatcher(["\nUser:", "###"])
    assert matcher.feed("Hi\nUs") == StopStep("Hi", False)
    assert matcher.held == "\nUs"
    assert matcher.feed("ually ##") == StopStep("\nUsually ", False)
    assert matcher.feed("# more") == StopStep("", True)
    assert matcher.matched == "###"
    assert matcher.feed("dropped") == StopStep("", True)


def test_finish_releases_and_starts_afresh() -> None:
    matcher = StopMatcher(["stop"])
    assert matcher.feed("a sto") == StopStep("a ", False)
    assert matcher.finish() == "sto"
    assert matcher.feed("p") == StopStep("p", False)
    assert matcher.feed("stop").hit
    assert matcher.finish() == "" and matcher.matched is None
    assert matcher.feed("stop") == StopStep("", True)


def test_no_stop_strings_pass_everything() -> None:
    matcher = StopMatcher([])
    assert matcher.feed("abc") == StopStep("abc", False)
    assert matcher.feed("") == StopStep("", False)
    assert matcher.finish() == ""


def test_long_stop_strings_take_linear_time() -> None:
    stop = "a" * 5000 + "b"
    matcher = StopMatcher([stop, "a" * 3000 + "c", stop[1:] + "x"])
    start = time.perf_counter()
    shown = "".join(matcher.feed("aaa").text for _ in range(100_000))
    assert len(shown) == 300_000 - 5000
    assert matcher.feed("b") == StopStep("", True) and matcher.matched == stop
    # A second or so; quadratic work would take minutes.
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize(
    ("stops", "words"),
    [
        ([""], "stop string 0 is empty"),
        (["a", ""], "stop string 1 is empty"),
        (["a", 7], "stop string 1 is a int"),
        ("abc", "give a list"),
    ],
)
def test_bad_stop_strings(stops: list[str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        StopMatcher(stops)
