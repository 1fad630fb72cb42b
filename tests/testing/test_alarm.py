"""The drift alarm: when it stops, what it says, and that rising acceptance is said aloud."""

from __future__ import annotations

import pytest

from specla.errors import OptionError
from specla.testing.alarm import Difference, DriftAlarm


def test_rounds_that_agree_say_nothing() -> None:
    alarm = DriftAlarm("engine")
    assert all(alarm.told(length) for length in (1, 4, 2, 9))
    assert (alarm.first, alarm.differing, alarm.report()) == (None, 0, "")
    assert (alarm.before, alarm.after, alarm.rose) == (4.0, None, False)


def test_the_first_difference_stops_and_is_named() -> None:
    alarm = DriftAlarm("numba, random")
    assert alarm.told(2)
    assert not alarm.told(7, ["state", "window"], "sequence 3, position 65")
    assert alarm.first == Difference(2, "sequence 3, position 65", ("state", "window"))
    assert alarm.report() == (
        "ALARM: numba, random: round 2, sequence 3, position 65: differs from plain decoding: "
        "state, window"
    )


def test_it_goes_on_for_as_many_rounds_as_asked() -> None:
    alarm = DriftAlarm("engine", keep_going=2)
    told = [alarm.told(1), alarm.told(1, ["state"]), alarm.told(1, ["state"]), alarm.told(1)]
    assert told == [True, True, True, False]
    assert (alarm.rounds, alarm.differing) == (4, 2)


def test_rising_acceptance_is_said_aloud() -> None:
    alarm = DriftAlarm("engine", keep_going=2)
    for length in (2, 3):
        alarm.told(length)
    # counts neither as before nor as after
    alarm.told(100, ["state"])
    for length in (3, 5):
        alarm.told(length, ["state"])
    assert (alarm.before, alarm.after, alarm.rose) == (2.5, 4.0, True)
    first, loud = alarm.report().splitlines()
    assert first.endswith("round 3: differs from plain decoding: state")
    assert loud == (
        "ALARM: engine: STATE IS CORRUPT AND ACCEPTANCE ROSE: THIS IS NO SPEED-UP: accept length "
        "2.500 in 2 rounds before, 4.000 in 2 rounds after; 3 rounds differed"
    )


@pytest.mark.parametrize("after", [2, 1])
def test_acceptance_that_does_not_rise_is_reported_quietly(after: int) -> None:
    alarm = DriftAlarm("engine", keep_going=1)
    alarm.told(2)
    alarm.told(2, ["state"])
    alarm.told(after)
    assert not alarm.rose
    quiet = alarm.report().splitlines()[1]
    assert quiet == (
        f"ALARM: engine: accept length 2.000 in 1 rounds before, {after}.000 in 1 rounds after; "
        "1 rounds differed"
    )


def test_a_difference_in_the_very_first_round_has_nothing_before_it() -> None:
    alarm = DriftAlarm("engine", keep_going=1)
    alarm.told(1, ["state"])
    alarm.told(9)
    assert alarm.before is None and not alarm.rose
    assert "accept length - in 0 rounds before, 9.000 in 1 rounds after" in alarm.report()


def test_a_negative_number_of_rounds_is_refused() -> None:
    with pytest.raises(OptionError, match="keep_going is -1"):
        DriftAlarm("engine", keep_going=-1)
