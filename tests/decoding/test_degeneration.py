"""Degeneration flags: repeating, copied, empty and runaway outputs are flagged with a measure, good text is not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqwright.decoding.degeneration import TargetStatistics, degeneration_flags, longest_repeat, target_statistics


def kinds(text: str, **more: object) -> list[str]:
    return [flag.kind for flag in degeneration_flags(text, **more)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("ag ag ag", None, ["repetition"]),
        ("ag ag ag", "a quite different sentence", ["repetition"]),
        ("he said that he said that he said that he said that", None, ["repetition"]),
        ("aaaaaaaaaaaa", None, ["repetition"]),
        ("no no no !", "non non non !", []),
        ("a very very good day for all of us here", None, []),
        ("the cat sat on the mat", "die Katze saß auf der Matte", []),
        ("die Katze saß auf der Matte", "die Katze saß auf der Matte", ["copy"]),
        ("New York", "New York", []),
        ("", "die Katze", ["empty"]),
        ("", "", []),
        ("", None, ["empty"]),
        (" ".join(f"w{n}" for n in range(40)), "zwei Wörter", ["runaway"]),
        ("-" * 40, None, []),
    ],
)
def test_degeneration_flags_by_kind(text: str, source: str | None, expected: list[str]) -> None:
    assert kinds(text, source=source) == expected


def test_flag_has_its_measure_and_the_confidence() -> None:
    (flag,) = degeneration_flags("so ag ag ag ag", log_prob=5 * math.log(0.9), tokens=5)
    assert (flag.measure, flag.value) == ("share of words", 0.8)
    assert flag.confidence == pytest.approx(0.9)
    assert flag.text == '"ag" occurs 4 times in a row'
    assert flag.as_json()["kind"] == "repetition"
    assert kinds("a few words", source="ein paar Wörter", reason="length") == ["runaway"]


@given(st.lists(st.sampled_from("abc"), max_size=14))
def test_longest_repeat_equals_brute_force(items: list[str]) -> None:
    best = 0
    for period in range(1, 9):
        for start in range(len(items)):
            times = 1
            while items[start + times * period :][:period] == items[start:][:period] and times < 20:
                times += 1
            if times >= 2 and len(items[start:][:period]) == period and start + times * period <= len(items):
                best = max(best, times * period)
    repeat = longest_repeat(items)
    assert repeat.length == best
    assert repeat.length == len(repeat.unit) * repeat.times


def test_measures_up_to_those_of_training_targets_are_not_flagged() -> None:
    turns = " ".join(["I_TURN_LEFT", "I_WALK"] * 4)
    assert kinds(turns, source="walk around left") == ["repetition"]
    baseline = target_statistics([("walk around left", turns), ("walk", "I_WALK")])
    assert baseline == TargetStatistics(times=4, letters=0, copied=0.0, ratio=pytest.approx(8 / 3))
    assert kinds(turns, source="walk around left", baseline=baseline) == []
    assert kinds(turns + " I_TURN_LEFT I_WALK", source="walk around left", baseline=baseline) == ["repetition"]
    long = " ".join(f"w{n}" for n in range(40))
    assert kinds(long, source="two words", baseline=TargetStatistics(ratio=20.0)) == []
    copy = "die Katze saß auf der Matte"
    assert kinds(copy, source=copy, baseline=TargetStatistics(copied=1.0)) == []
    assert kinds("a" * 12, baseline=TargetStatistics(letters=12)) == []


def test_target_statistics_ignore_one_target_in_a_thousand() -> None:
    plain = [("a b c", "x y z")] * 1000
    assert target_statistics([*plain, ("a b c", "ag ag ag ag")]).times == 0
    assert target_statistics([*plain[:900], ("a b c", "ag ag ag ag")]).times == 4
    assert target_statistics([]) == TargetStatistics()


def test_flag_message_has_confidence_and_coverage() -> None:
    (flag,) = degeneration_flags("so ag ag ag ag", log_prob=5 * math.log(0.9), tokens=5)
    assert str(replace(flag, coverage=0.25)).endswith("in a row (confidence 0.90, 25% of the source attended)")
