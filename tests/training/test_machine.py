"""Device, precision, determinism and seeding; global settings are restored afterwards."""

from __future__ import annotations

import platform
import resource
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqwright.core.config import UserError
from seqwright.training import machine
from seqwright.training.trainer import Trainer

from .test_trainer import fresh, gpt, options, shuffled
from .tiny import MemoryStore


def test_auto_device_takes_what_is_available() -> None:
    assert machine.device("cpu") == torch.device("cpu")
    expected = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert machine.device("auto").type == expected


def test_missing_device_error_names_the_next_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"no 'cuda' device; training.device can be auto or cpu"):
        machine.device("cuda")


def test_tf32_is_allowed_on_a_gpu_only_and_restored() -> None:
    before = torch.get_float32_matmul_precision()
    for name, precision, inside in [("cuda", "tf32", "high"), ("cpu", "tf32", before), ("cuda", "fp32", before)]:
        with machine.allow_tf32(torch.device(name), precision):
            assert torch.get_float32_matmul_precision() == inside
        assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_precision_is_the_dtype_of_matrix_products(precision: str, dtype: torch.dtype) -> None:
    with machine.autocast(torch.device("cpu"), precision):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


def test_determinism_is_restored_after_its_block() -> None:
    before = torch.are_deterministic_algorithms_enabled()
    with machine.determinism(True):
        assert torch.are_deterministic_algorithms_enabled()
    assert torch.are_deterministic_algorithms_enabled() == before


def test_random_numbers_are_a_function_of_seed_and_step() -> None:
    def noise(seed: int, step: int) -> float:
        machine.seed_step(seed, step)
        return torch.rand(()).item()

    assert noise(1, 5) == noise(1, 5)
    assert len({noise(seed, step) for seed in range(3) for step in range(3)}) == 9
    noise(1 << 62, 1)


def test_seed_step_equals_manual_seed_and_queues_no_calls() -> None:
    torch.manual_seed(1_000_003 * 2 + 7)
    expected = torch.rand(3)
    before = len(torch.cuda._queued_calls)
    machine.seed_step(2, 7)
    assert torch.equal(torch.rand(3), expected)
    assert len(torch.cuda._queued_calls) == before


def test_activation_checkpointing_saves_memory_and_changes_nothing() -> None:
    models, kept = [fresh(gpt(dropout=0.2)).double() for _ in range(2)], [0, 0]

    def pack(number: int, tensor: Tensor) -> Tensor:
        kept[number] += tensor.numel()
        return tensor

    for number, model in enumerate(models):
        trainer = Trainer(model, shuffled(), options(steps=3, activation_checkpointing=number == 1), MemoryStore())
        with torch.autograd.graph.saved_tensors_hooks(partial(pack, number), lambda tensor: tensor):
            trainer.fit()
    for recomputed, plain in zip(models[1].parameters(), models[0].parameters(), strict=True):
        assert_close(recomputed, plain, rtol=0, atol=1e-12)
    assert kept[1] < kept[0] / 2


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")
def test_training_keeps_freed_memory() -> None:
    """A buffer of 16 MB that was freed costs no page faults again."""
    assert machine.keep_freed_memory()
    faults = []
    for _ in range(8):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(1 << 22)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert min(faults) < 100  # of 4,096 pages


def test_other_allocators_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", "1.2"))
    assert not machine.keep_freed_memory()
