"""Everything with memory: averages, plateaus, early ends, spikes and short memory, each resumed to the same bits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqwright.core.batch import Batch
from seqwright.core.config import UserError
from seqwright.core.protocols import Feed
from seqwright.training import accumulation as accumulate
from seqwright.training.averaging import average_weights
from seqwright.training.config import TrainingConfig
from seqwright.training.spikes import MIN_LOSSES, Trend
from seqwright.training.trainer import Trainer
from seqwright.training.trainer_state import TrainerState, final_checkpoints, record_evaluation
from seqwright.training.weights import weights

from .test_trainer import fresh, gpt, lstm, options, plain, shuffled, slices
from .tiny import Kept


class Poisoned:
    """A feed with one batch that no model learns from: random rows among rows that repeat one id."""

    carried = False
    steps_per_epoch = 60

    def __init__(self, *bad: int):
        self.bad = bad
        self.asked: list[int] = []

    def batch(self, step: int) -> Batch:
        self.asked.append(step)
        ids = torch.arange(9).expand(5, 9) % 3
        if step in self.bad:
            ids = 10 - torch.arange(9).expand(5, 9) % 2
        return Batch.of_text(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())


def falling_then_flat() -> Callable[[Trainer], float]:
    """Validation that gets better for four evaluations and never after, as a function of the step."""
    return lambda trainer: max(4, 10 - trainer.progress.step / 2)


def trainer_of(config: object, feed: Feed, settings: TrainingConfig, kept: Kept, seed: int = 0) -> Trainer:
    made = Trainer(fresh(config, seed), feed, settings, kept)
    nll = falling_then_flat()
    made.evaluate = lambda: {"nll": nll(made)}
    return made


REMEMBERING: dict[str, tuple[dict[str, Any], Callable[[], Feed], object]] = {
    "ema_decay": ({"ema_decay": 0.9}, shuffled, gpt(dropout=0.2)),
    "ema carried": ({"ema_decay": 0.9}, slices, lstm(dropout=0.2)),
    "plateau": ({"schedule": "plateau", "plateau_patience": 1}, shuffled, gpt()),
    "early": ({"patience": 6}, shuffled, gpt()),
    "best few": ({"keep_best": 3, "weights": "average-best"}, shuffled, gpt()),
    "spike_threshold": ({"spike_threshold": 4.0, "checkpoint_every": 7, "steps": 40}, lambda: Poisoned(29), gpt()),
    "spike ema": (
        {"spike_threshold": 4.0, "checkpoint_every": 7, "steps": 40, "ema_decay": 0.9},
        lambda: Poisoned(29),
        gpt(),
    ),
}


@pytest.mark.parametrize("name", REMEMBERING)
@pytest.mark.parametrize("at", [0.1, 0.45, 0.8])
def test_resumed_is_uninterrupted_to_the_bit(name: str, at: float) -> None:
    changes, feed, config = REMEMBERING[name]
    settings = options(**({"steps": 21, "evaluate_every": 2, "checkpoint_every": 3} | changes))
    whole, resumed = Kept(), Kept()
    uninterrupted = trainer_of(config, feed(), settings, whole)
    uninterrupted.fit()
    saved = sorted(whole.saved)
    chosen = saved[int(at * len(saved))]
    resumed.saved = {step: copy.deepcopy(kept) for step, kept in whole.saved.items() if step <= chosen}
    trainer = trainer_of(config, feed(), settings, resumed, seed=9)
    trainer.restore(*resumed.saved[chosen])
    trainer.fit()
    assert trainer.finished
    assert resumed.saved.keys() == whole.saved.keys()
    groups, progress = resumed.saved[saved[-1]]
    expected, uninterrupted_progress = whole.saved[saved[-1]]
    timed = {"seconds": 0, "interval_seconds": 0}
    assert progress | timed == uninterrupted_progress | timed
    assert groups.keys() == expected.keys()
    for group, tensors in expected.items():
        assert all(torch.equal(groups[group][key], value) for key, value in tensors.items()), group
    for kind in ("evaluation", "early", "spike"):
        after = [record for record in whole.of_kind(kind) if record["step"] > chosen]
        assert [r | timed for r in resumed.of_kind(kind) if r["step"] > chosen] == [r | timed for r in after]


def test_a_running_average_is_the_recurrence_by_hand() -> None:
    kept = Kept()
    made = Trainer(fresh(gpt()), shuffled(), options(steps=30, ema_decay=0.5, checkpoint_every=1), kept)
    average = {name: tensor.clone() for name, tensor in weights(made.model).items()}
    made.fit()
    for step in range(1, 31):
        decay = min(0.5, step / (step + 10))
        for name, tensor in kept.saved[step][0]["model"].items():
            average[name] = decay * average[name] + (1 - decay) * tensor
            assert_close(kept.saved[step][0]["ema"][name], average[name])


def test_what_is_evaluated_is_the_average_and_what_is_trained_is_not() -> None:
    seen: list[dict[str, torch.Tensor]] = []
    kept = Kept()
    made = Trainer(
        fresh(gpt()), shuffled(), options(steps=4, ema_decay=0.9, evaluate_every=2, checkpoint_every=2), kept
    )

    def evaluate() -> dict[str, float]:
        seen.append({name: tensor.detach().clone() for name, tensor in weights(made.model).items()})
        return {"nll": 1.0}

    made.evaluate = evaluate
    made.fit()
    without = Kept()
    Trainer(fresh(gpt()), shuffled(), options(steps=4, checkpoint_every=2), without).fit()
    for step, weighed in zip((2, 4), seen, strict=True):
        groups, _ = kept.saved[step]
        for name, tensor in weighed.items():
            assert torch.equal(tensor, groups["ema"][name])
            assert torch.equal(groups["model"][name], without.saved[step][0]["model"][name])


def test_the_mean_of_weights() -> None:
    several = [{"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([2.0, 4.0])}, {"a": torch.tensor([6.0, 0.0])}]
    assert average_weights(several)["a"].tolist() == [3.0, 2.0]
    assert torch.equal(average_weights(several[:1])["a"], several[0]["a"])


def judged(nlls: list[float], **changes: Any) -> Iterator[TrainerState]:
    progress = TrainerState()
    for number, nll in enumerate(nlls, 1):
        progress.step = 10 * number
        record_evaluation(progress, nll, TrainingConfig(**changes), steps=1000)
        yield progress


def test_a_plateau_lowers_the_rate_and_waits_again() -> None:
    nlls = [5.0, 4.0, 4.0, 4.5, 4.1, 4.2, 3.0, 3.1, 3.2]
    lowered = [p.lowered for p in judged(nlls, schedule="plateau", plateau_patience=2)]
    assert lowered == [0, 0, 0, 1, 1, 2, 2, 2, 3]
    assert all(p.lowered == 0 for p in judged(nlls, plateau_patience=2))
    kept = Kept()
    settings = plain(
        steps=12, learning_rate=0.1, schedule="plateau", plateau_factor=0.5, plateau_patience=1, evaluate_every=3
    )
    made = Trainer(fresh(gpt()), shuffled(), settings, kept, evaluate=lambda: {"nll": 1.0})
    made.fit()
    assert [r["learning_rate"] for r in kept.of_kind("train")] == pytest.approx([0.1] * 6 + [0.05] * 3 + [0.025] * 3)


def test_patience_ends_a_training() -> None:
    assert [p.early for p in judged([3, 2, 2.5, 2, 2.1], patience=3)] == [None, None, None, None, 1000]
    kept = Kept()
    made = trainer_of(gpt(), shuffled(), options(steps=100, evaluate_every=2, patience=3), kept)
    assert made.fit() is None
    assert (made.progress.step, made.progress.best_step) == (18, 12)
    assert made.finished
    assert 18 in kept.saved
    (said,) = kept.of_kind("early")
    assert said["best_step"] == 12


def test_asked_for_more_steps_an_early_end_is_forgiven() -> None:
    kept = Kept()
    settings = options(steps=100, evaluate_every=2, patience=3)
    trainer_of(gpt(), shuffled(), settings, kept).fit()
    again = trainer_of(gpt(), shuffled(), settings, Kept())
    again.restore(*kept.saved[18])
    assert again.finished
    more = trainer_of(gpt(), shuffled(), options(steps=120, evaluate_every=2, patience=3), Kept())
    more.restore(*kept.saved[18])
    assert not more.finished
    more.fit()
    assert more.progress.step == 24


def test_which_weights_a_training_ends_with() -> None:
    *_, progress = judged([5.0, 2.0, 3.0, 2.5], keep_best=2)
    progress.step, progress.recent = 45, [40, 45]
    chosen = {kind: final_checkpoints(progress, TrainingConfig(weights=kind)) for kind in ("best", "last")}  # type: ignore[arg-type]
    assert chosen == {"best": [20], "last": [45]}
    assert final_checkpoints(progress, TrainingConfig(weights="average-last")) == [40, 45]
    assert final_checkpoints(progress, TrainingConfig(weights="average-best")) == [20, 40]
    assert final_checkpoints(TrainerState(step=7), TrainingConfig(weights="average-best")) == [7]
    assert progress.kept_steps == [20, 40, 45]


def test_a_trend_is_a_mean_and_a_variance() -> None:
    trend = Trend()
    losses = [2.0, 4.0, 3.0, 3.0]
    for loss in losses:
        trend = trend.updated(loss)
    assert trend == (pytest.approx(3.0), pytest.approx(0.5), 4)
    assert not trend.is_spike(100.0, 3)  # too early to tell
    assert trend.is_spike(math.nan, 3)
    long = Trend(3.0, 0.25, MIN_LOSSES)
    assert not long.is_spike(4.4, 3)
    assert long.is_spike(4.6, 3)


def test_after_a_spike_training_is_as_if_the_batches_had_not_been_there() -> None:
    """The steps of the spike and before it take no update; everything else is as in a feed without the bad batch."""
    feed, kept = Poisoned(29), Kept()
    settings = options(steps=40, spike_threshold=4.0, checkpoint_every=7)
    made = Trainer(fresh(gpt()), feed, settings, kept)
    made.fit()
    assert made.progress.skipped == [28, 29]
    (spike,) = kept.of_kind("spike")
    assert (spike["step"], spike["at"]) == (28, 30)
    assert spike["loss"] > 2
    steps = [record["step"] for record in kept.of_kind("train")]
    assert steps == [step for step in range(1, 41) if step not in (29, 30)]
    assert feed.asked.count(29) == 1
    healthy = Kept()
    calm = Trainer(fresh(gpt()), Poisoned(), settings, healthy)
    calm.progress.skipped = [28, 29]
    calm.fit()
    for name, tensor in weights(calm.model).items():
        assert torch.equal(weights(made.model)[name], tensor)


def test_a_loss_that_is_not_finite_is_a_spike() -> None:
    feed = Poisoned(3)
    model = fresh(gpt())
    with torch.no_grad():
        model.embedding.weight[9] = torch.nan  # read only by the bad batch; untied, else every loss would be NaN
        model.head.readout.weight = nn.Parameter(model.head.readout.weight.nan_to_num().clone())
    made = Trainer(model, feed, options(steps=6, spike_threshold=4.0, checkpoint_every=2), Kept())
    made.fit()
    assert made.progress.skipped == [2, 3]


def test_spikes_without_end_are_an_error() -> None:
    made = Trainer(
        fresh(gpt()), Poisoned(*range(25, 400)), options(steps=400, spike_threshold=4.0, checkpoint_every=1000), Kept()
    )
    made.progress.trend = [0.0, 0.0, 100.0]
    with pytest.raises(UserError, match=r"keeps spiking.*Lower training\.learning_rate"):
        made.fit()


class Small:
    """An objective on a device where only so many rows fit."""

    def __init__(self, objective: Any, rows: int):
        self.objective, self.rows = objective, rows
        self.given: list[int] = []

    def __call__(self, batch: Batch, state: Any = None) -> Any:
        self.given.append(batch.rows)
        result = self.objective(batch, state)
        if batch.rows > self.rows:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return result


def test_a_batch_that_does_not_fit_is_halved_until_it_does() -> None:
    """Batches have 5, 5 and 4 rows; 5 → 3 → 2 fit."""
    kept, expected = Kept(), Kept()
    made = Trainer(fresh(gpt()).double(), shuffled(), plain(steps=4, learning_rate=0.5, micro_batch_size="auto"), kept)
    made.objective = small = Small(made.objective, rows=2)  # type: ignore[assignment]
    made.fit()
    assert small.given == [5, 3, 2, 2, 1, 2, 2, 1, 2, 2, 2, 2, 1]
    assert [r["micro_batch_size"] for r in kept.of_kind("memory")] == [3, 2]
    whole = fresh(gpt()).double()
    Trainer(whole, shuffled(), plain(steps=4, learning_rate=0.5), expected).fit()
    for ours, theirs in zip(made.model.parameters(), whole.parameters(), strict=True):
        assert_close(ours, theirs, rtol=0, atol=1e-12)
    again = Trainer(fresh(gpt()).double(), shuffled(), plain(steps=6, micro_batch_size="auto"), Kept())
    again.restore(*kept.saved[4])
    again.objective = small = Small(again.objective, rows=2)  # type: ignore[assignment]
    again.fit()
    assert max(small.given) == 2  # what was found is remembered


@pytest.mark.parametrize(
    ("setting", "fits", "advice"),
    [
        (None, 2, 'out of memory with 5 of the batch\'s 5 rows.*Set training.micro_batch_size to 2 or to "auto"'),
        (4, 2, "out of memory with 4 of the batch's 5 rows at a time, 8 tokens each"),
        ("auto", 0, "One row alone does not fit: set training.precision"),
    ],
)
def test_out_of_memory_says_what_to_change(setting: Any, fits: int, advice: str) -> None:
    made = Trainer(fresh(gpt()), shuffled(), options(steps=4, micro_batch_size=setting), Kept())
    made.objective = Small(made.objective, rows=fits)  # type: ignore[assignment]
    with pytest.raises(UserError, match=advice):
        made.fit()


def test_an_optimizer_that_does_not_fit_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Trainer(fresh(gpt()), shuffled(), options(steps=4, micro_batch_size="auto"), Kept())

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(made.optimizer, "step", full)
    with pytest.raises(UserError, match=r"the optimizer state; set training\.optimizer to"):
        made.fit()


def test_other_errors_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(accumulate, "select_rows", broken)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        Trainer(fresh(gpt()), shuffled(), options(steps=4, micro_batch_size="auto"), Kept()).fit()
