"""Segment memory: segments that fit into it equal one forward pass; older tokens are forgotten."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqwright.core.state import Rewindable
from seqwright.models.encoders.gpt import GPTConfig, GPTEncoder, gpt_encoder


def encoder(**changes: Any) -> GPTEncoder:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"layers": 3, "width": 8, "heads": 2, "context": 12}
    return gpt_encoder(GPTConfig(**(sizes | changes))).double().eval()


def in_segments(model: GPTEncoder, x: Tensor, length: int) -> Tensor:
    """Hidden states of x (B, T, D), of which `length` positions are read at a time."""
    state: Any = model.segment_memory(len(x), length, x)
    outputs = []
    for segment in x.split(length, 1):
        hidden, state = model(segment, state)
        outputs.append(hidden)
    return torch.cat(outputs, 1)


@pytest.mark.parametrize("positions", ["rope", "alibi", "t5", "none"])
@pytest.mark.parametrize("length", [1, 3, 4, 6])
def test_segments_that_fit_equal_one_forward_pass(positions: str, length: int) -> None:
    model, x = encoder(positions=positions, kv_heads=1), torch.randn(2, 12, 8, dtype=torch.float64)
    assert_close(in_segments(model, x, length), model(x)[0])


def test_older_tokens_are_forgotten() -> None:
    """With one layer, hidden states depend on the segment and the memory before it alone."""
    model, x = encoder(positions="rope", layers=1), torch.randn(1, 24, 8, dtype=torch.float64)
    last = in_segments(model, x, 4)[:, -4:]
    assert_close(last, model(x[:, -12:])[0][:, -4:])
    changed = x.clone()
    changed[:, :12] = 0
    assert_close(in_segments(model, changed, 4)[:, -4:], last)
    changed[:, 12] = 0
    assert not torch.allclose(in_segments(model, changed, 4)[:, -4:], last)


def test_memory_has_no_gradient() -> None:
    model, x = encoder(positions="rope"), torch.randn(1, 8, 8, dtype=torch.float64)
    first, second = (x[:, part].clone().requires_grad_() for part in (slice(4), slice(4, 8)))
    _, state = model(first, model.segment_memory(1, 4, x))
    hidden, _ = model(second, state)
    ours = torch.autograd.grad(hidden.sum(), [first, second], allow_unused=True)
    assert ours[0] is None
    assert ours[1] is not None


def test_a_memory_cannot_be_rewound() -> None:
    memory = encoder(positions="rope").segment_memory(1, 4, torch.zeros(1))
    assert not isinstance(memory, Rewindable)
