"""What texts are labeled with: the names a run knows, and labels as targets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE, Batch, OutputSpec
from seqwright.core.config import UserError, did_you_mean
from seqwright.data.bucketing import Ints
from seqwright.data.labeled.rows import Row, Rows, counts_of
from seqwright.data.labeled.sources import Sources

Unknown = Literal["few", "refuse", "wrong"]

MOST_UNKNOWN = 0.5
"""Share of rows that may have unknown labels before a file is taken for a misread one."""

UNLIKELY = 0.5
"""Share of rows with labels of their own at which these are no classes."""
MOST_REPEATED = 20
"""How often, at most, an epoch visits a text of a rare class."""


@dataclass(frozen=True, kw_only=True)
class Labels:
    """What a run can answer; kept in its folder, so that every later file means the same by a label."""

    kind: Literal["single", "multi", "regression"]
    names: tuple[str, ...] = ()
    """Classes or labels in the order of their numbers; none for a value."""
    mean: float = 0.0
    """Of the training values, which are learned as deviations from it, in units of their standard deviation."""
    deviation: float = 1.0
    parts: int = 1
    """Texts of a row: 2 for pairs."""

    @classmethod
    def of(cls, rows: Rows, kind: Literal["single", "multi", "regression"]) -> Self:
        """Those of the training rows, sorted; refused where there is nothing to tell apart."""
        if kind == "regression":
            values = np.array([_number(row) for row in rows.rows])
            if len(set(values.tolist())) < 2:
                raise UserError(f"every label is {values[0]:g}; there is nothing to be learned from equal values.")
            return cls(kind=kind, mean=float(values.mean()), deviation=float(values.std()), parts=rows.parts)
        found = {row.label for row in rows.rows}
        if kind == "multi":
            found = {name for label in found for name in several(label)}
        if kind == "single" and len(found) < 2:
            only = rows.rows[0]
            raise UserError(
                f"every row has the label {only.label!r} ({only.place} …); a classifier needs at least two classes."
            )
        if kind == "single" and len(found) > max(20, UNLIKELY * len(rows.rows)):
            raise UserError(
                f"{len(found):,} of {len(rows.rows):,} rows have a label of their own, as in {rows.rows[0].place}:"
                f' {rows.rows[0].label[:40]!r}. Name the right column in data.columns, or set data.labels = "regression" for'
                ' numbers or "multi" for lists.'
            )
        if not found:
            raise UserError('no row has any label; data.labels = "multi" needs some.')
        return cls(kind=kind, names=tuple(sorted(found)), parts=rows.parts)

    @classmethod
    def read(cls, table: dict[str, Any]) -> Self:
        """What `table` wrote."""
        return cls(**table | {"names": tuple(table["names"])})

    def table(self) -> dict[str, Any]:
        return asdict(self) | {"names": list(self.names)}

    @property
    def answers(self) -> OutputSpec:
        kinds: dict[str, Literal["class", "multilabel", "regression"]] = {
            "single": "class",
            "multi": "multilabel",
            "regression": "regression",
        }
        return OutputSpec(kind=kinds[self.kind], count=1 if self.kind == "regression" else len(self.names))

    def targets(self, rows: Sequence[Row], unknown: Unknown = "refuse") -> NDArray[Any]:
        """(N,) classes, (N, C) 0 and 1, or (N, 1) values in standard deviations."""
        if self.kind == "regression":
            return np.array([[(_number(row) - self.mean) / self.deviation] for row in rows], np.float32)
        self._check(rows, unknown)
        numbers = {name: number for number, name in enumerate(self.names)}
        if self.kind == "single":
            return np.array([numbers.get(row.label, IGNORE) for row in rows], np.int64)
        targets = np.zeros((len(rows), len(self.names)), np.float32)
        for n, row in enumerate(rows):
            targets[n, [numbers[name] for name in several(row.label) if name in numbers]] = 1
        return targets

    @property
    def fate(self) -> str:
        """What becomes of labels that were not learned, in words."""
        return "passed over" if self.kind == "multi" else "counted as wrong"

    def unlearned(self, rows: Sequence[Row]) -> dict[str, int]:
        """Labels that were not learned, and how many rows have each, the commonest first."""
        return dict(Counter(name for _, name in self._strange(rows)).most_common())

    def _strange(self, rows: Sequence[Row]) -> list[tuple[Row, str]]:
        known = set(self.names)
        named = [(row, name) for row in rows for name in ([row.label] if self.kind == "single" else several(row.label))]
        return [(row, name) for row, name in named if name not in known and self.kind != "regression"]

    def _check(self, rows: Sequence[Row], unknown: Unknown) -> None:
        strange = self._strange(rows)
        many = len({row for row, _ in strange})  # a row may have several
        if not many or many <= {"refuse": 0.0, "few": MOST_UNKNOWN, "wrong": math.inf}[unknown] * len(rows):
            return
        row, name = strange[0]
        raise UserError(
            f"{row.place}: the label {name!r} was not learned.{did_you_mean(name, self.names)} Of {len(rows):,} rows,"
            f" {many:,} have unknown labels: mend them, name the right columns in data.columns, or count such"
            ' texts as wrong with evaluation.unknown = "wrong".'
        )


@dataclass(frozen=True, kw_only=True)
class LabeledTexts:
    """Texts with what is to be answered: the examples of a classifier."""

    sources: Sources
    targets: NDArray[Any]
    """Of each text."""

    @property
    def lengths(self) -> Ints:
        return self.sources.lengths

    def batch(self, rows: Ints) -> Batch:
        return Batch.of_source(self.sources.padded(rows), torch.from_numpy(self.targets[self.sources.origin[rows]]))

    def evening(self) -> Ints:
        """How often to visit each row so that classes are about as frequent."""
        classes = self.targets[self.sources.origin]
        counts = np.bincount(classes)
        times = np.minimum(MOST_REPEATED, np.round(counts.max() / np.maximum(counts, 1))).astype(np.int64)
        return times[classes]


def several(label: str) -> list[str]:
    """The labels between commas; none of nothing."""
    return [name for name in (part.strip() for part in label.split(",")) if name]


def balance_notes(rows: Sequence[Row], *, evened: bool) -> str:
    """How classes are distributed, and what that means."""
    counts = counts_of(rows).most_common()
    (most, first), (least, last) = counts[0], counts[-1]
    said = f"{len(counts):,} classes: {most!r} has {first / len(rows):.1%} of the texts"
    if first <= 2 * last:
        return f"{said}, {least!r} {last / len(rows):.1%}."
    uneven = f"{said}, {least!r} {last:,} of them: classes are uneven; always saying {most!r} would be right that often"
    return uneven + (
        "; rarer ones are visited more often." if evened else ' (data.balance = "oversample" evens them out).'
    )


def _number(row: Row) -> float:
    try:
        value = float(row.label)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(
            f'{row.place}: the label {row.label[:40]!r} is no number, which data.labels = "regression" needs.'
        )
    return value
