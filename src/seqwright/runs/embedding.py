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
from seqwright.core.protocols import EncodesSource

Pooled = Literal["mean", "first", "last", "max"]
AT_ONCE = 512
"""Texts read ahead, so that texts of like length can share a batch."""
BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Embedded:
    vector: NDArray[np.float32]
    unread: int
    """Tokens that did not fit the model."""


def embed(
    model: EncodesSource,
    texts: Iterable[str],
    ids_of: Callable[[str], list[int]],
    *,
    pooling: Pooled = "mean",
    at_once: int = AT_ONCE,
    device: torch.device | str = "cpu",
) -> Iterator[Embedded]:
    """A vector for each text, in order: of its first or last token, or the mean or largest of all, framing included."""
    lines = iter(texts)
    while chunk := [ids_of(text) for text in itertools.islice(lines, at_once)]:
        yield from _chunk(model, chunk, pooling, device)


@torch.inference_mode()
def _chunk(
    model: EncodesSource, texts: list[list[int]], pooling: Pooled, device: torch.device | str
) -> Iterator[Embedded]:
    most = model.context or max(map(len, texts))
    found: dict[int, Tensor] = {}
    order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    for start in range(0, len(order), BATCH):
        some = order[start : start + BATCH]
        rows = [torch.tensor(texts[n][:most]) for n in some]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (B, S)
        mask = torch.arange(ids.size(1)) < torch.tensor([len(row) for row in rows]).unsqueeze(1)
        source = Source(mask=mask, ids=ids).to(device)
        vectors = pooled(model.encode(source).float(), source.mask, pooling)  # (B, D)
        found |= zip(some, vectors.cpu(), strict=True)
    for n, text in enumerate(texts):
        yield Embedded(vector=found[n].numpy(), unread=max(0, len(text) - most))


def pooled(vectors: Tensor, mask: Tensor, pooling: Pooled) -> Tensor:
    """(B, D) of (B, S, D); what is not real never counts."""
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
