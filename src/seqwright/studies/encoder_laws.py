"""The laws that every reader keeps: what it answers of a text has nothing to do with what stands beside the text."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch

from seqwright.core.batch import Batch, Source
from seqwright.studies.laws import Law, gap


def padding_changes_nothing(model: Any, batch: Batch) -> float:
    """Whatever ids, features or segments stand where the mask says no, the answers are the same."""
    source, mask = batch.source, batch.source.mask
    other: dict[str, Any] = {}
    for name in ("ids", "features", "segments"):
        value = getattr(source, name)
        if value is not None:
            shown = mask if value.dim() == 2 else mask.unsqueeze(-1)
            other[name] = torch.where(shown, value, value.flip(0))
    answers = [model(replace(batch, source=replace(source, **other))), model(batch)]
    if batch.target.shape == mask.shape:  # an answer for each position, those that are no text among them
        answers = [answer[mask] for answer in answers]
    return gap(*answers)


def a_padded_row_is_alone(model: Any, batch: Batch) -> float:
    """Rows of different lengths in one padded batch = each by itself, without padding."""
    whole, worst = model(batch), 0.0
    for row in range(batch.rows):
        alone = model(replace(batch, source=_alone(batch.source, row), input=batch.input[row : row + 1]))[0]
        worst = max(worst, gap(whole[row][tuple(slice(size) for size in alone.shape)], alone))
    return worst


def _alone(source: Source, row: int) -> Source:
    real = int(source.mask[row].sum())
    given = {field.name: getattr(source, field.name) for field in fields(source)}
    return replace(source, **{name: value[row : row + 1, :real] for name, value in given.items() if value is not None})


ENCODER_LAWS: dict[str, Law] = {
    "padding changes nothing": padding_changes_nothing,
    "a padded row = alone": a_padded_row_is_alone,
}
