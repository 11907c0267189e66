"""Positional encodings: sinusoidal, learned and none are added as defined, RoPE keeps norms and refuses odd sizes."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqwright.layers.positions import Learned, NoPositions, Rotary, Sinusoidal, sinusoids


def test_sinusoidal_positions_are_added_to_scaled_embeddings() -> None:
    x = torch.randn(2, 3, 4)
    positions = torch.tensor([[0, 1, 2], [5, 6, 7]])
    assert_close(Sinusoidal(4, 8)(x, positions), 2 * x + sinusoids(positions, 4).float())


def test_learned_positions_are_added() -> None:
    x = torch.randn(1, 2, 4)
    learned = Learned(4, 8)
    assert_close(learned(x, torch.tensor([[3, 1]])), x + learned.table.weight[[3, 1]])


def test_no_positions_is_the_identity() -> None:
    x = torch.randn(1, 2, 4)
    assert torch.equal(NoPositions()(x, torch.tensor([[0, 1]])), x)


def test_sinusoidal_takes_an_odd_width() -> None:
    assert Sinusoidal(3, 4)(torch.zeros(1, 4, 3), torch.arange(4).unsqueeze(0)).shape == (1, 4, 3)


def test_rope_keeps_norms_and_position_zero() -> None:
    x = torch.randn(2, 4, 3, 6)  # (B, T, H, E)
    rotated = Rotary(6, 16)(x, torch.tensor([[0, 1, 2, 3], [0, 9, 10, 15]]))
    assert_close(rotated.norm(dim=-1), x.norm(dim=-1))
    assert_close(rotated[:, 0], x[:, 0])
    assert not torch.allclose(rotated[:, 1], x[:, 1])


def test_odd_sizes_are_refused_by_rope() -> None:
    with pytest.raises(ValueError, match="head size 5 is odd"):
        Rotary(5, 8)
