"""Laws of encoder models: predictions depend neither on padding nor on the other rows of a batch."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch

from seqwright.core.batch import Batch, Source
from seqwright.studies.laws import Law, max_difference


def padding_has_no_effect(model: Any, batch: Batch) -> float:
    """Values of ids, features and segments at padding positions (mask False) do not change the logits."""
    source, mask = batch.source, batch.source.mask
    changed: dict[str, Any] = {}
    for name in ("ids", "features", "segments"):
        value = getattr(source, name)
        if value is not None:
            real = mask if value.dim() == 2 else mask.unsqueeze(-1)
            changed[name] = torch.where(real, value, value.flip(0))
    outputs = [model(replace(batch, source=replace(source, **changed))), model(batch)]
    if batch.target.shape == mask.shape:  # one output per position: compare the real ones
        outputs = [output[mask] for output in outputs]
    return max_difference(*outputs)


def padded_batch_equals_single_rows(model: Any, batch: Batch) -> float:
    """Rows of different lengths in one padded batch = each row alone, without padding."""
    batched, worst = model(batch), 0.0
    for row in range(batch.rows):
        single = model(replace(batch, source=_single_row(batch.source, row), input=batch.input[row : row + 1]))[0]
        worst = max(worst, max_difference(batched[row][tuple(slice(size) for size in single.shape)], single))
    return worst


def _single_row(source: Source, row: int) -> Source:
    """One row of a source, without padding."""
    real = int(source.mask[row].sum())
    tensors = {field.name: getattr(source, field.name) for field in fields(source)}
    return replace(
        source, **{name: value[row : row + 1, :real] for name, value in tensors.items() if value is not None}
    )


ENCODER_LAWS: dict[str, Law] = {
    "padding changes nothing": padding_has_no_effect,
    "a padded row = alone": padded_batch_equals_single_rows,
}
