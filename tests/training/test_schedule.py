"""Schedules: shares of the rate at the steps where they can be said by heart."""

from __future__ import annotations

import pytest

from seqwright.training.schedule import DECAYS, schedule


@pytest.mark.parametrize("kind", DECAYS)
def test_the_rate_rises_in_a_straight_line(kind: str) -> None:
    share = schedule(kind, steps=100, warmup=4, final=0.1)
    assert [share(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "shares"),
    [("constant", [1, 1, 1, 1]), ("linear", [1, 0.775, 0.55, 0.1]), ("cosine", [1, 0.8681980515, 0.55, 0.1])],
)
def test_then_it_falls(kind: str, shares: list[float]) -> None:
    share = schedule(kind, steps=110, warmup=10, final=0.1)
    assert [share(step) for step in (10, 35, 60, 110)] == pytest.approx(shares)
    assert share(1000) == share(110)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_it_never_rises_again(kind: str) -> None:
    share = schedule(kind, steps=50, warmup=0, final=0.0)
    shares = [share(step) for step in range(51)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1
    assert shares[-1] == pytest.approx(0)


def test_training_of_one_step_has_its_full_rate() -> None:
    assert schedule("cosine", steps=1, warmup=0, final=0.1)(0) == 1
