"""Worked example 7: sinusoidal and rotary positions and layer normalization by hand."""

from __future__ import annotations

import math

import pytest
import torch

from seqwright.layers.positions import Rotary, sinusoids
from seqwright.layers.transformer_block import Block, BlockConfig

from .golden import near


def test_sinusoidal_positions() -> None:
    near(
        sinusoids(torch.arange(5), 4),
        [
            [0, 1, 0, 1],
            [0.8415, 0.5403, 0.0100, 1.0000],
            [0.9093, -0.4161, 0.0200, 0.9998],
            [0.1411, -0.9900, 0.0300, 0.9996],
            [-0.7568, -0.6536, 0.0400, 0.9992],
        ],
    )


def test_sinusoidal_positions_of_odd_width_end_in_a_sine() -> None:
    near(
        sinusoids(torch.arange(5), 5),
        [
            [0, 1, 0, 1, 0],
            [0.841, 0.540, 0.025, 1.000, 0.001],
            [0.909, -0.416, 0.050, 0.999, 0.001],
            [0.141, -0.990, 0.075, 0.997, 0.002],
            [-0.757, -0.654, 0.100, 0.995, 0.003],
        ],
        3,
    )


def test_dot_products_of_sinusoids_depend_on_distance_only() -> None:
    table = sinusoids(torch.arange(5), 4)
    by_distance = torch.tensor([2, 1.5403, 0.5837, 0.0096, 0.3456])  # not monotone
    distance = (torch.arange(5).unsqueeze(1) - torch.arange(5)).abs()
    near(table @ table.T, by_distance[distance])


@pytest.mark.parametrize("shift", [1, 3, 17])
def test_shift_of_sinusoidal_positions_is_a_rotation(shift: int) -> None:
    width = 8
    positions = torch.arange(40)
    angles = [shift / 10000 ** (2 * i / width) for i in range(width // 2)]
    # Interleaved (sin, cos): sin(a + c) = cos c · sin a + sin c · cos a, cos(a + c) = -sin c · sin a + cos c · cos a.
    blocks = [
        torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]], dtype=torch.float64) for a in angles
    ]
    rotation = torch.block_diag(*blocks)
    near(rotation @ rotation.T, torch.eye(width), 12)
    near(sinusoids(positions, width) @ rotation.T, sinusoids(positions + shift, width), 12)


@pytest.mark.parametrize(
    ("first", "second", "product"),
    [(0, 0, 1.0), (7, 7, 1.0), (1, 0, -5.35), (3, 2, -5.35), (10, 9, -5.35), (2, 0, -6.7812), (5, 3, -6.7812)],
)
def test_rotary_dot_products_depend_on_distance_only(first: int, second: int, product: float) -> None:
    rotary = Rotary(2, 16)
    query = rotary(torch.tensor([[[[1.0, 2.0]]]], dtype=torch.float64), torch.tensor([[first]]))
    key = rotary(torch.tensor([[[[3.0, -1.0]]]], dtype=torch.float64), torch.tensor([[second]]))
    near((query * key).sum(), product, 2 if product == -5.35 else 4)


def test_layer_norm_divides_by_the_population_standard_deviation() -> None:
    norm = Block(BlockConfig(width=4, heads=1)).attention_norm
    near(norm(torch.tensor([1.0, 2, 3, 4])), [-1.3416, -0.4472, 0.4472, 1.3416])
