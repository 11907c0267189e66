"""One optimizer step: captured steps equal plain ones, and steps that cannot be captured are run anyway."""

from __future__ import annotations

import math
import threading
import weakref
from functools import partial
from typing import Any

import pytest
import torch

from seqwright.pipeline import budget
from seqwright.pipeline.compilation import compile_choice
from seqwright.training import machine, update
from seqwright.training.machine import prepare
from seqwright.training.mfu import flops_per_token, peak_flops
from seqwright.training.objective import Objective
from seqwright.training.prefetch import Prefetched
from seqwright.training.trainer import Trainer
from seqwright.training.weights import weights

from .test_trainer import configured, fresh, gpt, lstm, options, shuffled, slices
from .tiny import MemoryStore


def trained(model: Any, feed: Any, captured: bool, **changes: Any) -> Trainer:
    trainer = Trainer(model, feed, options(steps=8, **changes), MemoryStore())
    trainer.update.capturing = captured
    trainer.fit()
    return trainer


def assert_same_weights(one: Trainer, other: Trainer) -> None:
    for name, tensor in weights(one.model).items():
        assert torch.equal(tensor, weights(other.model)[name]), name


@pytest.mark.parametrize("optimizer", ["sgd", "schedule-free"])
@pytest.mark.parametrize(
    ("config", "make"),
    [
        (gpt(dropout=0.2), shuffled),
        (gpt(dropout=0.2, positions="rope"), slices),
        (lstm(dropout=0.2), slices),
        (lstm(mogrifier_rounds=2), slices),
    ],
)
def test_captured_steps_equal_plain_steps(config: Any, make: Any, optimizer: str) -> None:
    """Batches have two shapes, states are carried, and dropout is a function of (seed, step)."""
    options: dict[str, Any] = {"optimizer": optimizer, "schedule": "constant"}
    plain = trained(fresh(config), make(), captured=False, **options)
    captured = trained(fresh(config), make(), captured=True, **options)
    assert len(captured.update.graphs) == (2 if make is shuffled else 1)
    assert_same_weights(plain, captured)


def test_shapes_beyond_the_limit_are_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "MAX_GRAPHS", 1)
    captured = trained(fresh(gpt()), shuffled(), captured=True)
    assert len(captured.update.graphs) == 1
    assert_same_weights(trained(fresh(gpt()), shuffled(), captured=False), captured)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("out of memory"), RuntimeError("called a synchronizing op")])
def test_a_step_that_cannot_be_captured_is_run_kernel_by_kernel(
    error: RuntimeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any) -> None:
        raise error

    monkeypatch.setattr(update.Captured, "__call__", fail)
    captured = trained(fresh(gpt(dropout=0.2)), shuffled(), captured=True)
    assert not captured.update.capturing
    assert not captured.update.graphs
    assert_same_weights(trained(fresh(gpt(dropout=0.2)), shuffled(), captured=False), captured)


def test_graphs_are_released_when_layers_unfreeze_or_a_checkpoint_is_restored() -> None:
    trainer = trained(fresh(gpt()), shuffled(), captured=True, unfreeze_every=0.5, checkpoint_every=1)
    assert_same_weights(trained(fresh(gpt()), shuffled(), captured=False, unfreeze_every=0.5), trainer)
    graphs = [weakref.ref(graph) for graph in trainer.update.graphs.values()]
    trainer.update.pool = object()
    trainer.restore(*trainer.store.load(4))
    assert graphs
    assert not any(graph() for graph in graphs)
    assert not trainer.update.graphs
    assert trainer.update.pool is None  # a pool ends with its graphs


def test_prefetched_batches_are_those_of_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())  # page-locking needs a GPU
    feed, ahead = shuffled(), Prefetched(shuffled(), 8)
    for step in (0, 1, 2, 7, 3, 4):  # rolling back asks for another step than the next
        assert torch.equal(ahead.batch(step).input, feed.batch(step).input)
        assert torch.equal(ahead.batch(step).target, feed.batch(step).target)


def test_batches_are_prepared_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Feeds keep the order of an epoch without a lock."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    feed, threads = shuffled(), set()
    batch = feed.batch
    monkeypatch.setattr(feed, "batch", lambda step: threads.add(threading.get_ident()) or batch(step))
    ahead = Prefetched(feed, 8)
    for step in (0, 1, 3, 7):
        ahead.batch(step)
    assert ahead.next is None  # nothing after the last step
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_nothing_is_compiled_on_a_cpu() -> None:
    """A run that was compiled on a GPU may be resumed on a CPU."""
    objective = Objective(fresh(gpt()))
    assert prepare(objective, options(compile="inductor"), torch.device("cpu")).module is objective


def test_blocks_share_one_compiled_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """As FSDP2's are compiled, which gathers weights outside of them."""
    torch.compiler.reset()  # other tests compile blocks, too
    graphs = []
    monkeypatch.setattr(
        torch, "compile", partial(torch.compile, backend=lambda graph, _: graphs.append(graph) or graph)
    )
    deep = configured("gpt", layers=5, width=8, heads=2, context=8, dropout=0.0)
    objective, batch = Objective(fresh(deep)), shuffled().batch(0)
    expected, _, _ = objective(batch)
    machine.compile_blocks(objective)
    loss, _, _ = objective(batch)
    assert len(graphs) == 2  # of the first block, whose number 0 is taken for a constant, and of all others
    assert torch.equal(loss, expected)


def test_peak_flops_are_those_of_the_named_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, peak in {"NVIDIA L4": 121e12, "NVIDIA L40": None, "NVIDIA A100-SXM4-80GB": 312e12}.items():
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, name=name: name)
        assert peak_flops(torch.device("cuda")) == peak


def test_long_trainings_of_transformers_are_compiled() -> None:
    assert len(machine.transformer_blocks(fresh(gpt()))) == 2
    assert not machine.transformer_blocks(fresh(lstm()))
    assert compile_choice(12, seconds=3600)[0] == "inductor"
    assert compile_choice(12, seconds=60)[0] == "cudagraphs"
    assert compile_choice(0, seconds=1e6)[0] == "cudagraphs"
    assert "about 41 s" in compile_choice(12, seconds=3600)[1]
    assert compile_choice(8, seconds=400)[0] == "inductor"
    assert compile_choice(8, seconds=400, varying=True)[0] == "cudagraphs"  # compiled for any length


def test_measuring_a_training_takes_few_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MEASURED_SECONDS", math.inf)
    taken: list[int] = []
    step = Trainer.timed_step
    monkeypatch.setattr(Trainer, "timed_step", lambda self: taken.append(self.progress.step) or step(self))
    assert budget.seconds_of_steps(fresh(gpt()), shuffled(), options(steps=100)) > 0
    assert len(taken) == budget.WARM_UP_STEPS + 5


@pytest.mark.parametrize(("make", "seconds"), [(shuffled, 3.0), (slices, 1.0)])
def test_batches_of_many_lengths_are_timed_by_their_mean(
    monkeypatch: pytest.MonkeyPatch, make: Any, seconds: float
) -> None:
    """Of one shape by the median, which a busy moment does not change."""
    timed = iter([1.0, 1.0, 7.0])
    monkeypatch.setattr(budget, "_seconds", lambda work, device: next(timed))
    speed = budget.measure(fresh(lstm()), make(), options(steps=100), evaluations=(), max_steps=3)
    assert speed.step == seconds


def test_flops_of_a_token_are_six_for_each_weight_of_a_matrix_product() -> None:
    model = fresh(gpt())
    matrices = {id(p): p.numel() for n, p in model.named_parameters() if p.dim() == 2 and "positions" not in n}
    assert flops_per_token(model) == 6 * sum(matrices.values())  # the tied embedding counts, as the output layer
