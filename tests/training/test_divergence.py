"""Divergence: what counts as worse than chance, and when it ends a training."""

from __future__ import annotations

import math

import pytest

from seqwright.training.divergence import HOPELESS, MARGIN, MAX_WORSE, MIN_STEPS, DivergenceCheck, DivergenceError
from seqwright.training.trainer import Trainer
from tests.training.test_trainer import fresh, gpt, options, shuffled
from tests.training.tiny import VOCABULARY, MemoryStore

CHECK = DivergenceCheck(chance=2.0, warmup=5, rate=10.0)


@pytest.mark.parametrize(
    ("step", "factor", "worse"),
    [
        (1, HOPELESS + 1, True),
        (1, HOPELESS - 1, False),
        (5 + MIN_STEPS, HOPELESS - 1, False),
        (6 + MIN_STEPS, MARGIN + 0.1, True),
        (6 + MIN_STEPS, MARGIN - 0.1, False),
    ],
)
def test_first_steps_may_be_worse_than_chance_but_not_far(step: int, factor: float, worse: bool) -> None:
    assert CHECK.is_worse(factor * 2.0, step=step, initial=1.0) == worse
    assert not CHECK.is_worse(factor * 2.0, step=step, initial=100.0)  # the first step was no better
    assert not DivergenceCheck(chance=None, warmup=5, rate=1.0).is_worse(1e9, step=step, initial=1.0)


def test_both_losses_must_be_worse() -> None:
    CHECK.refuse(step=100, loss=1.0, nll=50.0, initial=1.0)  # overfitted
    CHECK.refuse(step=100, loss=50.0, nll=1.0, initial=1.0)
    with pytest.raises(DivergenceError, match=r"training loss is 50 nats and the validation loss 40, worse than"):
        CHECK.refuse(step=100, loss=50.0, nll=40.0, initial=1.0)


@pytest.mark.parametrize(("every", "stopped"), [(1, MAX_WORSE), (2, 2 * MAX_WORSE)])
def test_log_lines_end_a_training_before_its_evaluation(every: int, stopped: int) -> None:
    store = MemoryStore()
    config = options(steps=60, learning_rate=10.0, log_every=every, evaluate_every=50, warmup_steps=0)
    trainer = Trainer(fresh(gpt()), shuffled(), config, store, chance=math.log(VOCABULARY))
    with pytest.raises(DivergenceError, match="worse than chance"):
        trainer.fit()
    assert trainer.progress.step <= stopped + every  # the loss of the first step is from before its update
    assert not store.of_kind("evaluation")
