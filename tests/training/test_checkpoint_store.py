"""Checkpoints that a thread writes: in order, complete before they are read, and with the errors of the writer."""

from __future__ import annotations

import signal
import threading

import pytest
import torch

from seqwright.core.config import UserError
from seqwright.core.ranks import TensorGroups
from seqwright.training.checkpoint_store import BackgroundStore, Gather
from seqwright.training.trainer import Trainer

from .rank_cases import adamw, small_gpt
from .test_trainer import shuffled
from .tiny import MemoryStore


class SlowStore(MemoryStore):
    """Writes no checkpoint before it may; keeps the very tensors that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = threading.Event()
        self.kept: list[TensorGroups] = []

    def save(self, step: int, gather: Gather, progress: dict[str, object], kept: list[int]) -> None:
        assert self.may_write.wait(30)
        if step == 0:
            raise UserError("no room to write.")
        self.kept.append(gather())
        super().save(step, gather, progress, kept)


def test_steps_continue_while_a_checkpoint_is_written() -> None:
    slow = SlowStore()
    store = BackgroundStore(slow)
    trainer = Trainer(small_gpt(), shuffled(), adamw(), store)
    trainer.timed_step()
    expected = {name: tensor.detach().clone() for name, tensor in trainer.model.named_parameters()}
    trainer.save()
    trainer.timed_step()  # changes the weights while those of step 1 wait to be written
    assert not slow.saved
    threading.Timer(0.05, slow.may_write.set).start()
    groups, progress = store.load(1)
    assert groups is not None
    assert progress["step"] == 1
    assert groups is slow.saved[1][0]
    for name, tensor in expected.items():
        torch.testing.assert_close(slow.kept[0]["model"][name], tensor, rtol=0, atol=0)
    moment = next(name for name in groups["optimizer"] if name.endswith("/exp_avg"))
    assert not torch.equal(
        groups["optimizer"][moment],
        trainer.optimizer.state[dict(trainer.model.named_parameters())[moment.split("/")[0]]]["exp_avg"],
    )
    assert trainer.progress.saving_seconds > 0


def test_an_error_of_the_writer_is_raised_by_the_next_checkpoint_or_the_end() -> None:
    slow = SlowStore()
    slow.may_write.set()
    store = BackgroundStore(slow)
    store.save(0, dict, {}, [])
    with pytest.raises(UserError, match="no room"):
        store.save(1, dict, {}, [])
    store.save(0, dict, {}, [])
    with pytest.raises(UserError, match="no room"):
        store.wait()
    assert store.wait() < 1


def test_an_error_of_the_writer_does_not_hide_the_one_that_ends_the_training() -> None:
    slow = SlowStore()
    slow.may_write.set()
    store = BackgroundStore(slow)
    store.save(0, dict, {}, [])

    def diverge() -> None:
        try:
            raise UserError("diverged")
        finally:
            store.wait()

    with pytest.raises(UserError, match="diverged") as caught:
        diverge()
    assert "the last checkpoint was not written: no room" in caught.value.__notes__[0]


def test_tensors_are_gathered_once_the_checkpoint_before_is_written() -> None:
    slow = SlowStore()
    store = BackgroundStore(slow)
    store.save(1, dict, {}, [])
    threading.Timer(0.05, slow.may_write.set).start()
    written: list[int] = []
    store.save(2, lambda: written.extend(slow.saved) or {}, {}, [])
    store.wait()
    assert written == [1]


def test_an_interrupted_wait_leaves_the_checkpoint_pending() -> None:
    slow = SlowStore()
    store = BackgroundStore(slow)
    store.save(1, dict, {}, [])
    threading.Timer(0.05, signal.pthread_kill, [threading.get_ident(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        store.wait()
    threading.Timer(0.05, slow.may_write.set).start()
    store.wait()
    assert list(slow.saved) == [1]
