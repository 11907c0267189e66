"""The training loop: gradient accumulation, resume, stop signals, gradient clipping, epochs, logs and checkpoints."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from seqwright import build
from seqwright.core.batch import IGNORE, Batch, Vocabulary
from seqwright.core.config import UserError
from seqwright.core.progress import Progress
from seqwright.core.protocols import Feed
from seqwright.models.config import ModelConfig
from seqwright.training.config import TrainingConfig
from seqwright.training.trainer import Trainer, total_steps
from tests.contract.kinds import configured

from .tiny import VOCABULARY, MemoryStore, Same, Shuffled, Slices, random_ids


def fresh(config: object, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build.model(config, Vocabulary(size=VOCABULARY))


def gpt(dropout: float = 0.0, **changes: object) -> ModelConfig:
    return configured("gpt", layers=2, width=8, heads=2, context=8, dropout=dropout, **changes)


def lstm(dropout: float = 0.0, **regularization: object) -> ModelConfig:
    return configured("lstm", layers=2, width=6, dropout=dropout, **regularization)


def shuffled() -> Shuffled:
    """Three batches per epoch; the last has fewer rows, and rows differ in length."""
    return Shuffled(random_ids(14, 9), rows=5)


def slices() -> Slices:
    """Six windows per epoch with carried state (truncated BPTT)."""
    return Slices(random_ids(5, 25), window=4)


def options(**changes: Any) -> TrainingConfig:
    defaults = {
        "device": "cpu",
        "warmup_steps": 2,
        "learning_rate": 0.02,
        "log_every": 1,
        "evaluate_every": 0,
        "checkpoint_every": 0,
    }
    return TrainingConfig(**(defaults | changes))


def plain(**changes: Any) -> TrainingConfig:
    """Plain SGD: constant learning rate, no weight decay, no clipping."""
    base = {"optimizer": "sgd", "schedule": "constant", "warmup_steps": 0, "weight_decay": 0.0, "max_grad_norm": 0.0}
    return options(**(base | changes))


def train(model: nn.Module, feed: Feed, config: TrainingConfig) -> MemoryStore:
    store = MemoryStore()
    assert Trainer(model, feed, config, store).fit() is None
    return store


@pytest.mark.parametrize(
    ("config", "feed"),
    [(gpt(), shuffled()), (gpt(positions="rope"), slices()), (lstm(), shuffled()), (lstm(), slices())],
)
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_gradient_accumulation_equals_one_batch(config: object, feed: Feed, rows: int) -> None:
    plain_model, accumulated_model = fresh(config).double(), fresh(config).double()
    one = train(plain_model, feed, plain(steps=7, learning_rate=0.5))
    accumulated = train(accumulated_model, feed, plain(steps=7, learning_rate=0.5, micro_batch_size=rows))
    for ours, theirs in zip(accumulated_model.parameters(), plain_model.parameters(), strict=True):
        assert_close(ours, theirs, rtol=0, atol=1e-12)
    for ours, theirs in zip(accumulated.of_kind("train"), one.of_kind("train"), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-12)
        assert ours["tokens"] == theirs["tokens"]
    if feed.carried:
        assert_close(accumulated.saved[7][0]["carry"], one.saved[7][0]["carry"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "schedule-free"])
@pytest.mark.parametrize(
    ("config", "make"),
    [(gpt(dropout=0.2), shuffled), (gpt(dropout=0.2, positions="rope"), slices), (lstm(dropout=0.2), slices)],
    ids=["gpt", "gpt carried", "lstm carried"],
)
@pytest.mark.parametrize("at", [1, 4, 6])
def test_resume_is_uninterrupted_bit_for_bit(config: object, make: Callable[[], Feed], optimizer: str, at: int) -> None:
    schedule = "constant" if optimizer == "schedule-free" else "cosine"
    settings = options(steps=11, optimizer=optimizer, schedule=schedule, checkpoint_every=1, micro_batch_size=3)
    whole = train(fresh(config), make(), settings)
    resumed = MemoryStore()
    trainer = Trainer(fresh(config, seed=99), make(), settings, resumed)
    trainer.restore(*whole.saved[at])
    torch.rand(7)  # the global random state must not matter
    trainer.fit()
    (groups, progress), (expected, uninterrupted) = resumed.saved[11], whole.saved[11]
    assert groups.keys() == expected.keys()
    for name, group in expected.items():
        assert groups[name].keys() == group.keys()
        for key, value in group.items():
            assert torch.equal(groups[name][key], value), f"{name} {key}"
    timed = {"seconds": 0, "saving_seconds": 0}
    assert progress | timed == uninterrupted | timed
    after = [record for record in whole.of_kind("epoch") if record["step"] > at]
    assert resumed.of_kind("epoch") == after


def test_accumulated_activation_regularization_equals_one_batch() -> None:
    changes = {"steps": 5, "learning_rate": 0.5, "activation_l2": 2.0, "temporal_activation_l2": 1.0}
    models = [fresh(lstm()).double() for _ in range(3)]
    train(models[0], slices(), plain(**changes))
    train(models[1], slices(), plain(**changes, micro_batch_size=2))
    train(models[2], slices(), plain(**changes | {"activation_l2": 0.0, "temporal_activation_l2": 0.0}))
    for one, accumulated in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert_close(accumulated, one, rtol=0, atol=1e-12)
    assert not torch.equal(models[0].head.readout.weight, models[2].head.readout.weight)  # type: ignore[union-attr]


def test_learning_rate_is_scaled_by_the_random_length() -> None:
    before, short = fresh(lstm()).double(), fresh(lstm()).double()
    full = fresh(lstm()).double()
    length = slices().batch(0).input.size(1)
    train(full, slices(), plain(steps=1))
    train(short, slices(), plain(steps=1, bptt_jitter=5.0, sequence_length=2 * length))
    for start, one, half in zip(before.parameters(), full.parameters(), short.parameters(), strict=True):
        assert_close(half - start, (one - start) / 2)
    with pytest.raises(UserError, match="bptt_jitter varies the length of rows with carried state"):
        train(fresh(lstm()), shuffled(), plain(steps=1, bptt_jitter=5.0, sequence_length=8))


def test_carried_state_is_reset_with_each_epoch() -> None:
    feed = slices()
    model = fresh(lstm())
    store = train(model, feed, plain(epochs=2, learning_rate=0.0, log_every=1))
    losses = [record["loss"] for record in store.of_kind("train")]
    assert losses[6:] == losses[:6]
    ids = feed.ids
    with torch.no_grad():
        log_probs, _ = model.eval().score(Batch.of_text(ids[:, :-1], ids[:, 1:].contiguous()))
    assert losses[:6] == pytest.approx((-log_probs).view(5, 6, 4).mean((0, 2)).tolist(), abs=1e-5)


def test_batch_size_1_equals_sgd_by_hand() -> None:
    feed = Shuffled(random_ids(4, 9), rows=1)
    model = fresh(configured("neural-bigram", width=5)).double()
    by_hand = copy.deepcopy(model)
    train(model, feed, plain(epochs=2, learning_rate=0.3))
    for step in range(8):
        batch = feed.batch(step)
        logits = by_hand(batch)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.target.flatten(), ignore_index=IGNORE)
        parameters = list(by_hand.parameters())
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter -= 0.3 * gradient
    for ours, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert_close(ours, theirs, rtol=0, atol=1e-12)


def update_norm(clip: float) -> tuple[float, float]:
    """Norm of one update at learning rate 1, and the gradient norm in the log."""
    model = fresh(gpt()).double()
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    store = train(model, shuffled(), plain(steps=1, learning_rate=1.0, max_grad_norm=clip))
    update = nn.utils.parameters_to_vector(model.parameters()).detach() - before
    return update.norm().item(), store.of_kind("train")[0]["gradient_norm"]


def test_gradient_clipping_of_large_norms_only() -> None:
    update, norm = update_norm(0)  # no clipping
    assert update == pytest.approx(norm)
    assert update_norm(2 * norm) == (update, norm)
    clipped, logged = update_norm(norm / 4)
    assert clipped == pytest.approx(norm / 4, rel=1e-4)
    assert logged == norm  # the log has the norm before clipping


def test_epoch_loss_is_the_mean_over_its_tokens() -> None:
    feed = shuffled()
    model = fresh(gpt())
    store = train(model, feed, plain(epochs=2, learning_rate=0.0, log_every=2))
    epochs = store.of_kind("epoch")
    assert [(record["epoch"], record["step"]) for record in epochs] == [(1, 3), (2, 6)]
    with torch.no_grad():
        batches = [feed.batch(step) for step in range(3)]
        total = -sum(model.eval().score(batch)[0].sum().item() for batch in batches)
    for record in epochs:
        assert record["loss"] == pytest.approx(total / sum(batch.count for batch in batches), rel=1e-6)


def test_log_lines_average_over_the_steps_since_the_last() -> None:
    every = train(fresh(gpt()), shuffled(), options(steps=7)).of_kind("train")
    third = train(fresh(gpt()), shuffled(), options(steps=7, log_every=3)).of_kind("train")
    assert [record["step"] for record in third] == [3, 6, 7]
    counts = [shuffled().batch(step).count for step in range(7)]
    mean = sum(record["loss"] * count for record, count in zip(every[:3], counts, strict=False)) / sum(counts[:3])
    assert third[0]["loss"] == pytest.approx(mean)
    assert third[0]["tokens"] == sum(counts[:3])
    assert [record["learning_rate"] for record in every[:3]] == pytest.approx([0.01, 0.02, 0.02])


def test_resume_among_skipped_steps_logs_the_last_gradient_norm() -> None:
    config = options(steps=6, log_every=3, checkpoint_every=4)
    whole, resumed = MemoryStore(), MemoryStore()
    trainer = Trainer(fresh(gpt()), shuffled(), config, whole)
    trainer.progress.skipped = [4, 5]
    trainer.fit()
    trainer = Trainer(fresh(gpt(), seed=9), shuffled(), config, resumed)
    trainer.restore(*whole.saved[4])
    trainer.fit()
    [line] = [record for record in whole.of_kind("train") if record["step"] == 6]
    assert line["gradient_norm"] > 0
    assert resumed.of_kind("train")[-1]["gradient_norm"] == line["gradient_norm"]


def test_non_finite_loss_names_the_step_and_the_batch() -> None:
    feed = Shuffled(random_ids(8, 9).clamp(max=9), rows=2)
    feed.ids[3] = 10
    bad = next(step for step in range(4) if (feed.batch(step).input == 10).any())
    model = fresh(lstm())
    with torch.no_grad():
        model.embedding.weight[10] = torch.nan  # only one row has this token
    store = MemoryStore()
    trainer = Trainer(
        model, feed, options(steps=20, log_every=20), store, format_batch=lambda batch: f"{batch.input.tolist()}"
    )
    with pytest.raises(UserError) as caught:
        trainer.fit()
    assert f"at step {bad + 1}," in str(caught.value)
    assert str(feed.batch(bad).input.tolist()) in str(caught.value)
    assert store.saved == {}


def test_diverging_learning_rate_is_refused_before_anything_is_saved() -> None:
    store = MemoryStore()
    trainer = Trainer(fresh(gpt()), shuffled(), plain(steps=30, learning_rate=1e30, checkpoint_every=10), store)
    with pytest.raises(UserError, match=r"not finite at step \d.*(\n.*)*Lower training.learning_rate"):
        trainer.fit()
    for groups, _ in store.saved.values():
        assert all(tensor.isfinite().all() for tensor in groups["model"].values())


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_stop_signal_finishes_the_step_saves_and_returns_the_reason(number: signal.Signals, reason: str) -> None:
    class SendSignal(Progress):
        def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None:
            if step == 4:
                os.kill(os.getpid(), number)

    whole = train(fresh(gpt(dropout=0.2)), shuffled(), options(steps=9))
    store = MemoryStore()
    assert Trainer(fresh(gpt(dropout=0.2)), shuffled(), options(steps=9), store, reporter=SendSignal()).fit() == reason
    assert list(store.saved) == [4]
    resumed = MemoryStore()
    trainer = Trainer(fresh(gpt(dropout=0.2), seed=9), shuffled(), options(steps=9), resumed)
    trainer.restore(*store.saved[4])
    assert trainer.fit() is None
    for name, value in whole.saved[9][0]["model"].items():
        assert torch.equal(resumed.saved[9][0]["model"][name], value)


def test_evaluations_samples_and_checkpoints_at_their_intervals() -> None:
    scores = iter([3.0, 2.0, 2.5])
    store = MemoryStore()
    trainer = Trainer(
        fresh(gpt()),
        shuffled(),
        options(steps=10, evaluate_every=4, sample_every=5, checkpoint_every=3),
        store,
        evaluate=lambda: {"nll": next(scores)},
        sample=lambda: [{"text": "once"}],
    )
    trainer.fit()
    assert [record["step"] for record in store.of_kind("evaluation")] == [4, 8, 10]
    assert [record["step"] for record in store.of_kind("sample")] == [5, 10]
    assert list(store.saved) == [3, 4, 6, 8, 9, 10]  # the best so far is always saved
    assert (trainer.progress.best, trainer.progress.best_step) == (2.0, 8)


def test_resume_of_a_finished_training_does_nothing() -> None:
    store = train(fresh(gpt()), shuffled(), options(steps=3))
    again = MemoryStore()
    trainer = Trainer(fresh(gpt()), shuffled(), options(steps=3), again)
    trainer.restore(*store.saved[3])
    assert trainer.fit() is None
    assert again.records == []


def test_bf16_training_keeps_fp32_weights() -> None:
    model = fresh(gpt())
    store = train(model, Same(shuffled().batch(0)), options(steps=40, learning_rate=0.01, precision="bf16"))
    losses = [record["loss"] for record in store.of_kind("train")]
    assert losses[-1] < 0.8 * losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.parametrize(
    ("config", "steps"),
    [({"steps": 7}, 7), ({"epochs": 2.0}, 6), ({"epochs": 0.5}, 2), ({"epochs": 0.01}, 1), ({}, 2000)],
)
def test_total_steps_of_a_recipe(config: dict[str, Any], steps: int) -> None:
    assert total_steps(TrainingConfig(**config), shuffled()) == steps


def test_loss_of_the_progress_is_that_of_the_steps_since_the_last_log_line() -> None:
    shown: list[float | None] = []

    class Shown(Progress):
        def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None:
            shown.append(loss)

    Trainer(fresh(gpt()), shuffled(), options(steps=7, log_every=4), MemoryStore(), reporter=Shown()).fit()
    assert len(set(shown)) == 7
