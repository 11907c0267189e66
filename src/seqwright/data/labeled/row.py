"""A row of labeled text: a label, and one text or a pair."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seqwright.core.config import UserError


@dataclass(frozen=True)
class Row:
    """A label and a text or a pair of texts."""

    label: str
    texts: tuple[str, ...]
    place: str
    """File and line, for messages."""


def is_empty(row: Row) -> bool:
    """Whether no text of the row has more than white space."""
    return not any(text.strip() for text in row.texts)


def label_value(row: Row) -> float:
    """The number that is the label of a regression; raises where it is none, or not finite."""
    try:
        value = float(row.label)
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return value
    raise UserError(f'{row.place}: the label {row.label[:40]!r} is no number, which data.labels = "regression" needs.')


def counts_of(rows: Sequence[Row]) -> Counter[str]:
    """The frequency of each label."""
    return Counter(row.label for row in rows)
