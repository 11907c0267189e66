"""Positions: what is added is what the table says, rotations keep lengths, and odd sizes are refused."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqwright.layers.positions import Learned, NoPositions, Rotary, Sinusoidal, sinusoids


def test_tokens_are_scaled_to_stand_beside_their_sinusoids() -> None:
    x = torch.randn(2, 3, 4)
    positions = torch.tensor([[0, 1, 2], [5, 6, 7]])
    assert_close(Sinusoidal(4, 8)(x, positions), 2 * x + sinusoids(positions, 4).float())


def test_learned_positions_are_looked_up() -> None:
    x = torch.randn(1, 2, 4)
    learned = Learned(4, 8)
    assert_close(learned(x, torch.tensor([[3, 1]])), x + learned.table.weight[[3, 1]])


def test_no_positions_change_nothing() -> None:
    x = torch.randn(1, 2, 4)
    assert torch.equal(NoPositions()(x, torch.tensor([[0, 1]])), x)


def test_turning_keeps_lengths_and_leaves_the_first_position_alone() -> None:
    x = torch.randn(2, 4, 3, 6)  # (B, T, H, E)
    turned = Rotary(6, 16)(x, torch.tensor([[0, 1, 2, 3], [0, 9, 10, 15]]))
    assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert_close(turned[:, 0], x[:, 0])
    assert not torch.allclose(turned[:, 1], x[:, 1])


def test_odd_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="width 3 is odd"):
        sinusoids(torch.arange(2), 3)
    with pytest.raises(ValueError, match="head size 5 is odd"):
        Rotary(5, 8)
