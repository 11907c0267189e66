"""EMA, plateau schedule, early stopping, loss spikes and out-of-memory handling, each resumed bit for bit."""

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
from seqwright.training import accumulation
from seqwright.training.averaging import average_weights
from seqwright.training.config import TrainingConfig
from seqwright.training.parallel import SingleProcess
from seqwright.training.spikes import MIN_LOSSES, Trend
from seqwright.training.trainer import Trainer
from seqwright.training.trainer_state import TrainerState, final_checkpoints, record_evaluation
from seqwright.training.weights import weights

from .test_trainer import fresh, gpt, lstm, options, plain, shuffled, slices
from .tiny import MemoryStore


class Poisoned:
    """A feed with bad batches, which cause a loss spike: other ids than the repeating pattern of all others."""

    carried = False
    steps_per_epoch = 60

    def __init__(self, *bad: int):
        self.bad = bad
        self.requested: list[int] = []

    def batch(self, step: int) -> Batch:
        self.requested.append(step)
        ids = torch.arange(9).expand(5, 9) % 3
        if step in self.bad:
            ids = 10 - torch.arange(9).expand(5, 9) % 2
        return Batch.of_text(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())


def falling_then_flat() -> Callable[[Trainer], float]:
    """A validation nll that falls until step 12 and is constant afterwards."""
    return lambda trainer: max(4, 10 - trainer.progress.step / 2)


def trainer_of(config: object, feed: Feed, settings: TrainingConfig, store: MemoryStore, seed: int = 0) -> Trainer:
    trainer = Trainer(fresh(config, seed), feed, settings, store)
    nll = falling_then_flat()
    trainer.evaluate = lambda: {"nll": nll(trainer)}
    return trainer


STATEFUL: dict[str, tuple[dict[str, Any], Callable[[], Feed], object]] = {
    "ema_decay": ({"ema_decay": 0.9}, shuffled, gpt(dropout=0.2)),
    "ema carried": ({"ema_decay": 0.9}, slices, lstm(dropout=0.2)),
    "asgd_trigger": ({"asgd_trigger": 1}, slices, lstm(weight_dropout=0.5, locked_dropout=True)),
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


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("at", [0.1, 0.45, 0.8])
def test_resume_is_uninterrupted_bit_for_bit(name: str, at: float) -> None:
    changes, feed, config = STATEFUL[name]
    settings = options(**({"steps": 21, "evaluate_every": 2, "checkpoint_every": 3} | changes))
    whole, resumed = MemoryStore(), MemoryStore()
    uninterrupted = trainer_of(config, feed(), settings, whole)
    uninterrupted.fit()
    saved = sorted(whole.saved)
    chosen = saved[int(at * len(saved))]
    resumed.saved = {step: copy.deepcopy(checkpoint) for step, checkpoint in whole.saved.items() if step <= chosen}
    trainer = trainer_of(config, feed(), settings, resumed, seed=9)
    trainer.restore(*resumed.saved[chosen])
    trainer.fit()
    assert trainer.finished
    assert resumed.saved.keys() == whole.saved.keys()
    groups, progress = resumed.saved[saved[-1]]
    expected, uninterrupted_progress = whole.saved[saved[-1]]
    timed = {"seconds": 0, "interval_seconds": 0, "saving_seconds": 0}
    assert progress | timed == uninterrupted_progress | timed
    assert groups.keys() == expected.keys()
    for group, tensors in expected.items():
        assert all(torch.equal(groups[group][key], value) for key, value in tensors.items()), group
    for kind in ("evaluation", "early", "spike"):
        after = [record for record in whole.of_kind(kind) if record["step"] > chosen]
        assert [r | timed for r in resumed.of_kind(kind) if r["step"] > chosen] == [r | timed for r in after]


def test_ema_equals_the_recurrence_by_hand() -> None:
    store = MemoryStore()
    trainer = Trainer(fresh(gpt()), shuffled(), options(steps=30, ema_decay=0.5, checkpoint_every=1), store)
    average = {name: tensor.clone() for name, tensor in weights(trainer.model).items()}
    trainer.fit()
    for step in range(1, 31):
        decay = min(0.5, step / (step + 10))
        for name, tensor in store.saved[step][0]["model"].items():
            average[name] = decay * average[name] + (1 - decay) * tensor
            assert_close(store.saved[step][0]["ema"][name], average[name])


def test_ema_weights_are_evaluated_and_not_trained() -> None:
    seen: list[dict[str, torch.Tensor]] = []
    store = MemoryStore()
    trainer = Trainer(
        fresh(gpt()), shuffled(), options(steps=4, ema_decay=0.9, evaluate_every=2, checkpoint_every=2), store
    )

    def evaluate() -> dict[str, float]:
        seen.append({name: tensor.detach().clone() for name, tensor in weights(trainer.model).items()})
        return {"nll": 1.0}

    trainer.evaluate = evaluate
    trainer.fit()
    without = MemoryStore()
    Trainer(fresh(gpt()), shuffled(), options(steps=4, checkpoint_every=2), without).fit()
    for step, evaluated in zip((2, 4), seen, strict=True):
        groups, _ = store.saved[step]
        for name, tensor in evaluated.items():
            assert torch.equal(tensor, groups["ema"][name])
            assert torch.equal(groups["model"][name], without.saved[step][0]["model"][name])


def test_nt_asgd_averages_from_the_first_evaluation_worse_than_older_ones() -> None:
    nlls = {2: 5.0, 4: 4.0, 6: 4.5, 8: 4.2, 10: 3.0}
    store = MemoryStore()
    trainer = Trainer(
        fresh(lstm()), slices(), plain(steps=10, asgd_trigger=1, evaluate_every=2, checkpoint_every=1), store
    )
    trainer.evaluate = lambda: {"nll": nlls[trainer.progress.step]}
    trainer.fit()
    (record,) = store.of_kind("averaging")
    assert record["step"] == 8  # 4.5 is better than the 5.0 before the last; 4.2 is worse than 4.0
    assert all(("ema" in groups) == (step >= 8) for step, (groups, _) in store.saved.items())
    for name, average in store.saved[10][0]["ema"].items():
        assert_close(average, torch.stack([store.saved[step][0]["model"][name] for step in (8, 9, 10)]).mean(0))


def test_average_weights_is_the_mean() -> None:
    several = [{"a": torch.tensor([1.0, 2.0])}, {"a": torch.tensor([2.0, 4.0])}, {"a": torch.tensor([6.0, 0.0])}]
    assert average_weights(several)["a"].tolist() == [3.0, 2.0]
    assert torch.equal(average_weights(several[:1])["a"], several[0]["a"])


def judged(nlls: list[float], **changes: Any) -> Iterator[TrainerState]:
    progress = TrainerState()
    for number, nll in enumerate(nlls, 1):
        progress.step = 10 * number
        record_evaluation(progress, nll, TrainingConfig(**changes), steps=1000)
        yield progress


def test_plateau_schedule_reduces_the_learning_rate() -> None:
    nlls = [5.0, 4.0, 4.0, 4.5, 4.1, 4.2, 3.0, 3.1, 3.2]
    lowered = [p.lowered for p in judged(nlls, schedule="plateau", plateau_patience=2)]
    assert lowered == [0, 0, 0, 1, 1, 2, 2, 2, 3]
    assert all(p.lowered == 0 for p in judged(nlls, plateau_patience=2))
    store = MemoryStore()
    settings = plain(
        steps=12, learning_rate=0.1, schedule="plateau", plateau_factor=0.5, plateau_patience=1, evaluate_every=3
    )
    trainer = Trainer(fresh(gpt()), shuffled(), settings, store, evaluate=lambda: {"nll": 1.0})
    trainer.fit()
    assert [r["learning_rate"] for r in store.of_kind("train")] == pytest.approx([0.1] * 6 + [0.05] * 3 + [0.025] * 3)


def test_early_stopping_after_patience() -> None:
    assert [p.early for p in judged([3, 2, 2.5, 2, 2.1], patience=3)] == [None, None, None, None, 1000]
    store = MemoryStore()
    trainer = trainer_of(gpt(), shuffled(), options(steps=100, evaluate_every=2, patience=3), store)
    assert trainer.fit() is None
    assert (trainer.progress.step, trainer.progress.best_step) == (18, 12)
    assert trainer.finished
    assert 18 in store.saved
    (record,) = store.of_kind("early")
    assert record["best_step"] == 12


def test_early_stopping_is_lifted_by_more_steps() -> None:
    store = MemoryStore()
    settings = options(steps=100, evaluate_every=2, patience=3)
    trainer_of(gpt(), shuffled(), settings, store).fit()
    again = trainer_of(gpt(), shuffled(), settings, MemoryStore())
    again.restore(*store.saved[18])
    assert again.finished
    more = trainer_of(gpt(), shuffled(), options(steps=120, evaluate_every=2, patience=3), MemoryStore())
    more.restore(*store.saved[18])
    assert not more.finished
    more.fit()
    assert more.progress.step == 24


def test_final_checkpoints_by_weights_option() -> None:
    *_, progress = judged([5.0, 2.0, 3.0, 2.5], keep_best=2)
    progress.step, progress.recent = 45, [40, 45]
    chosen = {kind: final_checkpoints(progress, TrainingConfig(weights=kind)) for kind in ("best", "last")}  # type: ignore[arg-type]
    assert chosen == {"best": [20], "last": [45]}
    assert final_checkpoints(progress, TrainingConfig(weights="average-last")) == [40, 45]
    assert final_checkpoints(progress, TrainingConfig(weights="average-best")) == [20, 40]
    assert final_checkpoints(TrainerState(step=7), TrainingConfig(weights="average-best")) == [7]
    assert progress.kept_steps == [20, 40, 45]


def test_loss_trend_is_a_moving_mean_and_variance() -> None:
    trend = Trend()
    losses = [2.0, 4.0, 3.0, 3.0]
    for loss in losses:
        trend = trend.updated(loss)
    assert trend == (pytest.approx(3.0), pytest.approx(0.5), 4)
    assert not trend.is_spike(100.0, 3)  # too few losses
    assert trend.is_spike(math.nan, 3)
    long = Trend(3.0, 0.25, MIN_LOSSES)
    assert not long.is_spike(4.4, 3)
    assert long.is_spike(4.6, 3)


def test_loss_spike_rolls_back_and_skips_batches() -> None:
    """The step of the spike and the one before it are skipped; all else equals a feed without the bad batch."""
    feed, store = Poisoned(29), MemoryStore()
    settings = options(steps=40, spike_threshold=4.0, checkpoint_every=7)
    trainer = Trainer(fresh(gpt()), feed, settings, store)
    trainer.fit()
    assert trainer.progress.skipped == [28, 29]
    (spike,) = store.of_kind("spike")
    assert (spike["step"], spike["at"]) == (28, 30)
    assert spike["loss"] > 2
    steps = [record["step"] for record in store.of_kind("train")]
    assert steps == [step for step in range(1, 41) if step not in (29, 30)]
    assert feed.requested.count(29) == 1
    healthy = MemoryStore()
    reference = Trainer(fresh(gpt()), Poisoned(), settings, healthy)
    reference.progress.skipped = [28, 29]
    reference.fit()
    for name, tensor in weights(reference.model).items():
        assert torch.equal(weights(trainer.model)[name], tensor)


def test_non_finite_loss_is_a_spike() -> None:
    feed = Poisoned(3)
    model = fresh(gpt())
    with torch.no_grad():
        model.embedding.weight[9] = torch.nan  # read only by the bad batch; untied, else every loss would be NaN
        model.head.readout.weight = nn.Parameter(model.head.readout.weight.nan_to_num().clone())
    trainer = Trainer(model, feed, options(steps=6, spike_threshold=4.0, checkpoint_every=2), MemoryStore())
    trainer.fit()
    assert trainer.progress.skipped == [2, 3]


def test_repeated_loss_spikes_are_an_error() -> None:
    trainer = Trainer(
        fresh(gpt()),
        Poisoned(*range(25, 400)),
        options(steps=400, spike_threshold=4.0, checkpoint_every=1000),
        MemoryStore(),
    )
    trainer.progress.trend = [0.0, 0.0, 100.0]
    with pytest.raises(UserError, match=r"keeps spiking.*Lower training\.learning_rate"):
        trainer.fit()


class LimitedMemory(SingleProcess):
    """An objective that runs out of memory above a number of rows."""

    def __init__(self, objective: SingleProcess, rows: int):
        super().__init__(objective.module)
        self.rows = rows
        self.batch_sizes: list[int] = []

    def __call__(self, batch: Batch, state: Any = None) -> Any:
        self.batch_sizes.append(batch.rows)
        result = super().__call__(batch, state)
        if batch.rows > self.rows:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return result


def test_out_of_memory_halves_the_micro_batch_until_it_fits() -> None:
    """Batches have 5, 5 and 4 rows; 5 → 3 → 2 fit."""
    store, expected = MemoryStore(), MemoryStore()
    trainer = Trainer(
        fresh(gpt()).double(), shuffled(), plain(steps=4, learning_rate=0.5, micro_batch_size="auto"), store
    )
    trainer.update.objective = limited = LimitedMemory(trainer.update.objective, rows=2)
    trainer.fit()
    assert limited.batch_sizes == [5, 3, 2, 2, 1, 2, 2, 1, 2, 2, 2, 2, 1]
    assert [r["micro_batch_size"] for r in store.of_kind("memory")] == [3, 2]
    whole = fresh(gpt()).double()
    Trainer(whole, shuffled(), plain(steps=4, learning_rate=0.5), expected).fit()
    for ours, theirs in zip(trainer.model.parameters(), whole.parameters(), strict=True):
        assert_close(ours, theirs, rtol=0, atol=1e-12)
    again = Trainer(fresh(gpt()).double(), shuffled(), plain(steps=6, micro_batch_size="auto"), MemoryStore())
    again.restore(*store.saved[4])
    again.update.objective = limited = LimitedMemory(again.update.objective, rows=2)
    again.fit()
    assert max(limited.batch_sizes) == 2  # the micro-batch size is in the checkpoint


@pytest.mark.parametrize(
    ("setting", "fits", "advice"),
    [
        (None, 2, 'out of memory with 5 of the batch\'s 5 rows.*Set training.micro_batch_size to 2 or to "auto"'),
        (4, 2, "out of memory with 4 of the batch's 5 rows at a time, 8 tokens each"),
        ("auto", 0, "One row alone does not fit: set training.precision"),
    ],
)
def test_out_of_memory_error_names_what_to_change(setting: Any, fits: int, advice: str) -> None:
    trainer = Trainer(fresh(gpt()), shuffled(), options(steps=4, micro_batch_size=setting), MemoryStore())
    trainer.update.objective = LimitedMemory(trainer.update.objective, rows=fits)
    with pytest.raises(UserError, match=advice):
        trainer.fit()


def test_out_of_memory_of_the_optimizer_names_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(fresh(gpt()), shuffled(), options(steps=4, micro_batch_size="auto"), MemoryStore())

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trainer.optimizer, "step", full)
    with pytest.raises(UserError, match=r"the optimizer state; set training\.optimizer to"):
        trainer.fit()


def test_other_runtime_errors_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(accumulation, "split_rows", broken)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        Trainer(fresh(gpt()), shuffled(), options(steps=4, micro_batch_size="auto"), MemoryStore()).fit()
