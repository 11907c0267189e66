"""Gradient clipping over shards; that steps of shards are those of one process is in test_ranks.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seqwright.core.ranks import SINGLE, Ranks
from seqwright.training.sharded_tensors import GradientClipping, Shards


class MatrixShards(Shards):
    """Of a model whose matrices are sharded over two ranks."""

    def __init__(self, matrix: nn.Parameter):
        super().__init__()
        self.sharded = {matrix: matrix}

    def copies(self, mine: Tensor, ranks: Ranks) -> int:
        return 1 if mine in self.sharded else 2


def test_parameters_without_gradients_bring_no_norm_from_another_device() -> None:
    """As where LoRA freezes all biases: of no gradients PyTorch returns a norm on the CPU, here beside the meta device
    as on a GPU."""
    matrix, frozen = (nn.Parameter(torch.empty(shape, device="meta")) for shape in ((3, 2), (4,)))
    matrix.grad = torch.empty_like(matrix)
    norm = GradientClipping([matrix, frozen], 1.0, SINGLE, MatrixShards(matrix))()
    assert norm.shape == ()
    assert norm.device == matrix.device


def test_every_number_of_whole_parameters_counts_once() -> None:
    matrix, bias = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2))
    matrix.grad, bias.grad = torch.full_like(matrix, 3.0), torch.full_like(bias, 4.0)
    norm = GradientClipping([matrix, bias], 1.0, SINGLE, MatrixShards(matrix))()
    # This is the part of one rank of two: half of the matrix's numbers, and half of the squares of the bias.
    assert norm.item() ** 2 == pytest.approx(4 * 9 + 2 * 16 / 2)
    assert torch.allclose(bias.grad, 4 / norm)
