"""The watch sees what has gone wrong, says which measure saw it, and leaves good text alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqwright.decoding.degeneration import Typical, longest_repeat, typical, watch


def kinds(text: str, **more: object) -> list[str]:
    return [flag.kind for flag in watch(text, **more)]  # type: ignore[arg-type]


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
def test_what_is_flagged(text: str, source: str | None, expected: list[str]) -> None:
    assert kinds(text, source=source) == expected


def test_a_flag_says_why_and_how_sure_the_model_was() -> None:
    (flag,) = watch("so ag ag ag ag", log_prob=5 * math.log(0.9), tokens=5)
    assert (flag.measure, flag.value) == ("share of words", 0.8)
    assert flag.confidence == pytest.approx(0.9)
    assert flag.text == '"ag" is said 4 times in a row'
    assert flag.as_json()["kind"] == "repetition"
    assert kinds("a few words", source="ein paar Wörter", reason="length") == ["runaway"]


@given(st.lists(st.sampled_from("abc"), max_size=14))
def test_the_longest_repeat_by_brute_force(items: list[str]) -> None:
    best = 0
    for period in range(1, 9):
        for start in range(len(items)):
            times = 1
            while items[start + times * period :][:period] == items[start:][:period] and times < 20:
                times += 1
            if times >= 2 and len(items[start:][:period]) == period and start + times * period <= len(items):
                best = max(best, times * period)
    found = longest_repeat(items)
    assert found.length == best
    assert found.length == len(found.unit) * found.times


def test_what_training_targets_do_is_not_suspicious() -> None:
    turns = " ".join(["I_TURN_LEFT", "I_WALK"] * 4)
    assert kinds(turns, source="walk around left") == ["repetition"]
    learned = typical([("walk around left", turns), ("walk", "I_WALK")])
    assert learned == Typical(times=4, letters=0, copied=0.0, ratio=pytest.approx(8 / 3))
    assert kinds(turns, source="walk around left", typical=learned) == []
    assert kinds(turns + " I_TURN_LEFT I_WALK", source="walk around left", typical=learned) == ["repetition"]
    long = " ".join(f"w{n}" for n in range(40))
    assert kinds(long, source="two words", typical=Typical(ratio=20.0)) == []
    copy = "die Katze saß auf der Matte"
    assert kinds(copy, source=copy, typical=Typical(copied=1.0)) == []
    assert kinds("a" * 12, typical=Typical(letters=12)) == []


def test_one_target_in_a_thousand_is_no_rule() -> None:
    plain = [("a b c", "x y z")] * 1000
    assert typical([*plain, ("a b c", "ag ag ag ag")]).times == 0
    assert typical([*plain[:900], ("a b c", "ag ag ag ag")]).times == 4
    assert typical([]) == Typical()


def test_a_flag_shows_what_raised_it() -> None:
    (flag,) = watch("so ag ag ag ag", log_prob=5 * math.log(0.9), tokens=5)
    assert str(replace(flag, coverage=0.25)).endswith("in a row (confidence 0.90, 25% of the source attended)")
