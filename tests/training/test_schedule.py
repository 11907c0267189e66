"""Learning-rate schedules: known ratios of the peak, and PyTorch's and the Transformer paper's formulas."""

from __future__ import annotations

import pytest
import torch

from seqwright.training.schedule import DECAYS, ENDLESS, KINDS, schedule


@pytest.mark.parametrize("kind", DECAYS)
def test_warmup_is_linear(kind: str) -> None:
    ratio = schedule(kind, steps=100, warmup=4, final=0.1)
    assert [ratio(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "ratios"),
    [
        ("wsd", [1, 1, 1, 0.1]),
        ("plateau", [1, 1, 1, 1]),
        ("constant", [1, 1, 1, 1]),
        ("linear", [1, 0.775, 0.55, 0.1]),
        ("cosine", [1, 0.8681980515, 0.55, 0.1]),
    ],
)
def test_decay_after_warmup(kind: str, ratios: list[float]) -> None:
    ratio = schedule(kind, steps=110, warmup=10, final=0.1)
    assert [ratio(step) for step in (10, 35, 60, 110)] == pytest.approx(ratios)
    assert ratio(1000) == ratio(110)


@pytest.mark.parametrize("kind", ["linear", "cosine", "wsd"])
def test_decay_is_monotonic(kind: str) -> None:
    ratio = schedule(kind, steps=50, warmup=0, final=0.0)
    ratios = [ratio(step) for step in range(51)]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] == 1
    assert ratios[-1] == pytest.approx(0)


def test_training_of_one_step_has_the_peak_learning_rate() -> None:
    assert schedule("cosine", steps=1, warmup=0, final=0.1)(0) == 1


def test_wsd_is_stable_for_four_fifths() -> None:
    ratio = schedule("wsd", steps=110, warmup=10, final=0.0)
    assert [ratio(step) for step in (10, 89, 90, 100, 110)] == pytest.approx([1, 1, 1, 0.5, 0])


def test_inverse_root_equals_the_transformer_paper() -> None:
    width, warmup = 512, 4000
    ratio = schedule("inverse-root", steps=100_000, warmup=warmup, final=0.0)
    peak = width**-0.5 * warmup**-0.5
    for number in (1, 100, 4000, 4001, 16_000, 99_999):  # the paper counts steps from 1
        paper = width**-0.5 * min(number**-0.5, number * warmup**-1.5)
        assert peak * ratio(number - 1) == pytest.approx(paper)


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_one_cycle_equals_pytorch(final: float) -> None:
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1.0, total_steps=101, pct_start=31 / 101, final_div_factor=1 / (25 * max(final, 1e-12))
    )
    ratio = schedule("one-cycle", steps=100, warmup=7, final=final)
    for step in range(101):  # both peak at step 30 and end at step 100
        assert ratio(step) == pytest.approx(theirs.get_last_lr()[0], abs=1e-6)
        optimizer.step()
        if step < 100:
            theirs.step()


@pytest.mark.parametrize("kind", KINDS)
def test_endless_schedules_do_not_depend_on_the_number_of_steps(kind: str) -> None:
    short, long = (schedule(kind, steps=steps, warmup=5, final=0.1) for steps in (50, 200))
    assert (short(49) == long(49)) == (kind in ENDLESS)
