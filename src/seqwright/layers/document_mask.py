"""Positions and attention mask of packed rows, in which tokens attend only to their own document (decision 65)."""

from __future__ import annotations

import torch
from torch import Tensor


def document_positions(documents: Tensor) -> Tensor:
    """(B, T): positions that restart at 0 with each document of a row."""
    positions = torch.arange(documents.size(1), device=documents.device)  # (T,)
    starts = documents != documents.roll(1, 1)
    starts[:, 0] = True
    return positions - torch.where(starts, positions, 0).cummax(1).values


def same_document(documents: Tensor) -> Tensor:
    """(B, 1, T, T): block-diagonal mask, True where two positions of a row belong to the same document."""
    return (documents.unsqueeze(-1) == documents.unsqueeze(-2)).unsqueeze(1)
