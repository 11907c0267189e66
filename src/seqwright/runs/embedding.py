"""Embeddings: one vector for each text, from any model with an encoder."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.core.notebook import NotebookTable
from seqwright.core.protocols import EncodesSource

Pooled = Literal["mean", "first", "last", "max"]
READ_AHEAD = 512
"""Texts read ahead, so that texts of similar length share a batch."""
BATCH = 64


@dataclass(frozen=True, kw_only=True, eq=False)  # arrays have no one truth value
class Embedded(NotebookTable):
    """The vector of a text."""

    vector: NDArray[np.float32]
    unread: int
    """Tokens that did not fit the model."""


def embed(
    model: EncodesSource,
    texts: Iterable[str],
    ids_of: Callable[[str], list[int]],
    *,
    pooling: Pooled = "mean",
    read_ahead: int = READ_AHEAD,
    device: torch.device | str = "cpu",
) -> Iterator[Embedded]:
    """A vector for each text, in order: of its first or last token, or mean or max over all, special ones included."""
    lines = iter(texts)
    while ids := [ids_of(text) for text in itertools.islice(lines, read_ahead)]:
        yield from _embed_chunk(model, ids, pooling, device)


@torch.inference_mode()
def _embed_chunk(
    model: EncodesSource, texts: list[list[int]], pooling: Pooled, device: torch.device | str
) -> Iterator[Embedded]:
    limit = model.context or max(map(len, texts))
    vectors: dict[int, Tensor] = {}
    order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    for start in range(0, len(order), BATCH):
        indices = order[start : start + BATCH]
        rows = [torch.tensor(texts[n][:limit]) for n in indices]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (B, S)
        mask = torch.arange(ids.size(1)) < torch.tensor([len(row) for row in rows]).unsqueeze(1)
        source = Source(mask=mask, ids=ids).to(device)
        pooled_states = pooled(model.encode(source).float(), source.mask, pooling)  # (B, D)
        vectors |= zip(indices, pooled_states.cpu(), strict=True)
    for n, text in enumerate(texts):
        yield Embedded(vector=vectors[n].numpy(), unread=max(0, len(text) - limit))


def pooled(vectors: Tensor, mask: Tensor, pooling: Pooled) -> Tensor:
    """(B, D) of (B, S, D); padding is ignored."""
    if pooling == "first":
        return vectors[:, 0]
    if pooling == "last":
        return vectors[torch.arange(len(vectors), device=mask.device), mask.sum(1) - 1]
    real = mask.unsqueeze(-1)
    if pooling == "max":
        return vectors.masked_fill(~real, -torch.inf).amax(1)
    if pooling == "mean":
        return (vectors * real).sum(1) / real.sum(1)
    raise UserError(f"no pooling '{pooling}'; choose mean, first, last or max.")
