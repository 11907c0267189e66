"""Several documents in one row: where each token stands in its own, and which of the row's tokens are of the same."""

from __future__ import annotations

import torch
from torch import Tensor


def places_inside(documents: Tensor) -> Tensor:
    """(B, T): 0, 1, 2, … in each stretch of one document."""
    places = torch.arange(documents.size(1), device=documents.device)  # (T,)
    begins = documents != documents.roll(1, 1)
    begins[:, 0] = True
    return places - torch.where(begins, places, 0).cummax(1).values


def same_document(documents: Tensor) -> Tensor:
    """(B, 1, T, T): True where two positions of a row are of one document."""
    return (documents.unsqueeze(-1) == documents.unsqueeze(-2)).unsqueeze(1)
