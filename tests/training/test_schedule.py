"""Schedules: shares of the rate at the steps where they can be said by heart."""

from __future__ import annotations

import pytest
import torch

from seqwright.training.schedule import DECAYS, ENDLESS, KINDS, schedule


@pytest.mark.parametrize("kind", DECAYS)
def test_the_rate_rises_in_a_straight_line(kind: str) -> None:
    share = schedule(kind, steps=100, warmup=4, final=0.1)
    assert [share(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "shares"),
    [
        ("wsd", [1, 1, 1, 0.1]),
        ("plateau", [1, 1, 1, 1]),
        ("constant", [1, 1, 1, 1]),
        ("linear", [1, 0.775, 0.55, 0.1]),
        ("cosine", [1, 0.8681980515, 0.55, 0.1]),
    ],
)
def test_then_it_falls(kind: str, shares: list[float]) -> None:
    share = schedule(kind, steps=110, warmup=10, final=0.1)
    assert [share(step) for step in (10, 35, 60, 110)] == pytest.approx(shares)
    assert share(1000) == share(110)


@pytest.mark.parametrize("kind", ["linear", "cosine", "wsd"])
def test_it_never_rises_again(kind: str) -> None:
    share = schedule(kind, steps=50, warmup=0, final=0.0)
    shares = [share(step) for step in range(51)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1
    assert shares[-1] == pytest.approx(0)


def test_training_of_one_step_has_its_full_rate() -> None:
    assert schedule("cosine", steps=1, warmup=0, final=0.1)(0) == 1


def test_the_stable_part_is_four_fifths_long() -> None:
    share = schedule("wsd", steps=110, warmup=10, final=0.0)
    assert [share(step) for step in (10, 89, 90, 100, 110)] == pytest.approx([1, 1, 1, 0.5, 0])


def test_the_inverse_root_is_that_of_the_transformer_paper() -> None:
    width, warmup = 512, 4000
    share = schedule("inverse-root", steps=100_000, warmup=warmup, final=0.0)
    top = width**-0.5 * warmup**-0.5
    for number in (1, 100, 4000, 4001, 16_000, 99_999):  # the paper counts steps from 1
        paper = width**-0.5 * min(number**-0.5, number * warmup**-1.5)
        assert top * share(number - 1) == pytest.approx(paper)


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_one_cycle_is_pytorchs(final: float) -> None:
    parameter = torch.zeros(1, requires_grad=True)
    descent = torch.optim.SGD([parameter], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        descent, max_lr=1.0, total_steps=101, pct_start=31 / 101, final_div_factor=1 / (25 * max(final, 1e-12))
    )
    share = schedule("one-cycle", steps=100, warmup=7, final=final)
    for step in range(101):  # theirs is at its top at step 30 and at its end at step 100, as ours
        assert share(step) == pytest.approx(theirs.get_last_lr()[0], abs=1e-6)
        descent.step()
        if step < 100:
            theirs.step()


@pytest.mark.parametrize("kind", KINDS)
def test_endless_schedules_do_not_look_at_the_end(kind: str) -> None:
    short, long = (schedule(kind, steps=steps, warmup=5, final=0.1) for steps in (50, 200))
    assert (short(49) == long(49)) == (kind in ENDLESS)
