"""Plain PyTorch loops: the LSTM language model of Zaremba et al. (2014), and the CNN classifier of Kim (2014)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from peers.loop import Options, Step, adamw, plain_step


class LSTM(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.network = nn.LSTM(width, width, layers, dropout=dropout)
        self.readout = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Logits (T, B, V) of ids (T, B), and the state after."""
        output, state = self.network(self.dropout(self.embedding(ids)), state)
        return self.readout(self.dropout(output)), state


def lstm(
    ids: NDArray[np.integer],
    *,
    vocabulary: int,
    width: int,
    layers: int,
    rows: int,
    length: int,
    dropout: float,
    options: Options,
) -> tuple[nn.Module, Step]:
    """Truncated BPTT as in PyTorch's word_language_model: the text in one column per row, the state carried over."""
    model = LSTM(vocabulary, width, layers, dropout).to(options.device).train()
    optimizer = adamw(model, options, learning_rate=1e-3, betas=(0.9, 0.99))
    columns = torch.from_numpy(ids[: len(ids) // rows * rows].astype(np.int64)).view(rows, -1).T.contiguous()
    columns = columns.to(options.device)
    starts = itertools.cycle(range(0, len(columns) - length - 1, length))
    zeros = torch.zeros(layers, rows, width, device=options.device)
    state = zeros, zeros.clone()

    def next_loss() -> Tensor:
        nonlocal state
        start = next(starts)
        state = state[0].detach(), state[1].detach()
        logits, state = model(columns[start : start + length], state)
        return F.cross_entropy(logits.flatten(0, 1).float(), columns[start + 1 : start + 1 + length].flatten())

    return model, plain_step(model, optimizer, next_loss, options)


class CNN(nn.Module):
    def __init__(self, vocabulary: int, width: int, channels: int, kernels: Sequence[int], classes: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, channels, kernel, padding="same") for kernel in kernels)
        self.readout = nn.Linear(channels * len(kernels), classes)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = (self.embedding(ids) * mask.unsqueeze(-1)).transpose(1, 2)  # (B, D, S)
        pooled = [
            torch.relu(layer(x)).masked_fill(~mask.unsqueeze(1), -torch.inf).amax(2) for layer in self.convolutions
        ]
        return self.readout(torch.cat(pooled, 1))


class MLP(nn.Module):
    def __init__(self, vocabulary: int, width: int, length: int, hidden: int, classes: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.hidden, self.readout = nn.Linear(width * length, hidden), nn.Linear(hidden, classes)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.readout(torch.relu(self.hidden((self.embedding(ids) * mask.unsqueeze(-1)).flatten(1))))


def classifier(
    model: nn.Module, batches: Sequence[tuple[Tensor, Tensor, Tensor]], options: Options
) -> tuple[nn.Module, Step]:
    """A classifier of padded ids; batches are (ids, mask, classes)."""
    model = model.to(options.device).train()
    optimizer = adamw(model, options, learning_rate=1e-3, betas=(0.9, 0.99))
    source = itertools.cycle(batches)

    def next_loss() -> Tensor:
        ids, mask, classes = options.move(*next(source))
        return F.cross_entropy(model(ids, mask).float(), classes)

    return model, plain_step(model, optimizer, next_loss, options)
