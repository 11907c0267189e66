"""The label set of a run, and labels as targets of a classifier."""

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
from seqwright.core.config import UserError, check_sizes, did_you_mean
from seqwright.data.bucketing import Ints
from seqwright.data.labeled.row import Row, counts_of, label_value
from seqwright.data.labeled.rows import Rows
from seqwright.data.labeled.sources import Sources

Unknown = Literal["few", "refuse", "wrong"]

MAX_UNKNOWN = 0.5
"""Share of rows with unknown labels above which a file is refused: a column was probably misread (decision 130)."""

MAX_DISTINCT = 0.5
"""Share of distinct labels among the rows above which they are no classes."""
FEW_EXAMPLES, MAX_NAMED = 5, 8
"""Texts of a class below which a note names it, and the number of classes that it names."""
MAX_REPEATS = 20
"""Visits per epoch of a text of a rare class, at most."""


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The label set of a run, saved with it, so that label ids stay the same for later files."""

    kind: Literal["single", "multi", "regression"]
    names: tuple[str, ...] = ()
    """Classes or labels in the order of their ids; empty for regression."""
    mean: float = 0.0
    """Mean of the training values; regression targets are standardized."""
    deviation: float = 1.0
    """Standard deviation of the training values."""
    parts: int = 1
    """Texts per row: 2 for pairs."""

    def __post_init__(self) -> None:
        check_sizes(self, "parts")
        if not self.deviation > 0:
            raise UserError(f"deviation must be above 0, not {self.deviation}.")

    @classmethod
    def of(cls, rows: Rows, kind: Literal["single", "multi", "regression"]) -> Self:
        """The labels of the training rows, sorted; refused where there are fewer than two."""
        if kind == "regression":
            values = np.array([label_value(row) for row in rows.rows])
            if len(set(values.tolist())) < 2:
                raise UserError(f"every label is {values[0]:g}; a regression needs different values.")
            return cls(kind=kind, mean=float(values.mean()), deviation=float(values.std()), parts=rows.parts)
        names = {row.label for row in rows.rows}
        if kind == "multi":
            names = {name for label in names for name in split_labels(label)}
        if kind == "single" and len(names) < 2:
            first = rows.rows[0]
            raise UserError(
                f"every row has the label {first.label!r} ({first.place} …); a classifier needs at least two classes."
            )
        if kind == "single" and len(names) > max(20, MAX_DISTINCT * len(rows.rows)):
            raise UserError(
                f"{len(names):,} distinct labels in {len(rows.rows):,} rows are no classes, as in {rows.rows[0].place}:"
                f" {rows.rows[0].label[:40]!r}. Name the label column in data.columns, or set data.labels ="
                ' "regression" for numbers or "multi" for lists.'
            )
        if not names:
            raise UserError('no row has any label; data.labels = "multi" needs some.')
        return cls(kind=kind, names=tuple(sorted(names)), parts=rows.parts)

    def table(self) -> dict[str, Any]:
        """The labels as JSON values."""
        return asdict(self) | {"names": list(self.names)}

    @property
    def output_spec(self) -> OutputSpec:
        """The output of a classifier with these labels."""
        kinds: dict[str, Literal["class", "multilabel", "regression"]] = {
            "single": "class",
            "multi": "multilabel",
            "regression": "regression",
        }
        return OutputSpec(kind=kinds[self.kind], count=1 if self.kind == "regression" else len(self.names))

    def targets(self, rows: Sequence[Row], unknown: Unknown = "refuse") -> NDArray[Any]:
        """Class ids (N,), a multi-hot matrix (N, C), or standardized values (N, 1). Unknown classes are IGNORE; unknown
        labels of multi-label rows are one more column, their number in each row."""
        if self.kind == "regression":
            return np.array([[(label_value(row) - self.mean) / self.deviation] for row in rows], np.float32)
        self._check(rows, unknown)
        ids = {name: id for id, name in enumerate(self.names)}
        if self.kind == "single":
            return np.array([ids.get(row.label, IGNORE) for row in rows], np.int64)
        targets = np.zeros((len(rows), len(self.names)), np.float32)
        for n, row in enumerate(rows):
            targets[n, [ids[name] for name in split_labels(row.label) if name in ids]] = 1
        unlearned = np.array([len({*split_labels(row.label)} - ids.keys()) for row in rows], np.float32)
        return np.column_stack([targets, unlearned]) if unlearned.any() else targets

    def unknown_counts(self, rows: Sequence[Row]) -> dict[str, int]:
        """Labels that are not in training, with their number of rows, by decreasing frequency."""
        return dict(Counter(name for _, name in self.unknown(rows)).most_common())

    def unknown(self, rows: Sequence[Row]) -> list[tuple[Row, str]]:
        """Labels that are not in training, each with its row."""
        known = set(self.names)
        named = [
            (row, name) for row in rows for name in ([row.label] if self.kind == "single" else split_labels(row.label))
        ]
        return [(row, name) for row, name in named if name not in known and self.kind != "regression"]

    def _check(self, rows: Sequence[Row], unknown: Unknown) -> None:
        labels = self.unknown(rows)
        count = len({row for row, _ in labels})  # a row may have several
        if not count or count <= {"refuse": 0.0, "few": MAX_UNKNOWN, "wrong": math.inf}[unknown] * len(rows):
            return
        row, name = labels[0]
        raise UserError(
            f"{row.place}: the label {name!r} was not in training.{did_you_mean(name, self.names)} Of {len(rows):,}"
            f" rows, {count:,} have unknown labels: correct them, name the right columns with --columns"
            " label=NAME,text=NAME, or count such texts as wrong with --set evaluation.unknown=wrong."
        )


@dataclass(frozen=True, kw_only=True)
class LabeledTexts:
    """Labeled texts: the examples of a classifier."""

    sources: Sources
    targets: NDArray[Any]
    """Targets of each text."""

    @property
    def lengths(self) -> Ints:
        return self.sources.lengths

    def batch(self, rows: Ints) -> Batch:
        return Batch.of_source(self.sources.padded(rows), torch.from_numpy(self.targets[self.sources.origin[rows]]))

    @property
    def row_targets(self) -> torch.Tensor:
        """Targets of each row of the sources."""
        return torch.from_numpy(self.targets[self.sources.origin])

    def oversampling(self) -> Ints:
        """(rows,): visits per epoch of each row that make the classes about equally frequent."""
        classes = self.targets[self.sources.origin]
        counts = np.bincount(classes)
        repeats = np.minimum(MAX_REPEATS, np.round(counts.max() / np.maximum(counts, 1))).astype(np.int64)
        return repeats[classes]


def split_labels(label: str) -> list[str]:
    """The comma-separated labels of a row, stripped; empty ones are dropped."""
    return [name for name in (part.strip() for part in label.split(",")) if name]


def balance_notes(rows: Sequence[Row], *, oversampled: bool) -> str:
    """A note about the class distribution, with the accuracy of the majority class where it is imbalanced."""
    counts = counts_of(rows).most_common()
    (majority, most), (minority, fewest) = counts[0], counts[-1]
    summary = f"{len(counts):,} classes: {majority!r} has {most / len(rows):.1%} of the texts"
    if most <= 2 * fewest:
        return f"{summary}, {minority!r} {fewest / len(rows):.1%}."
    imbalance = (
        f"{summary}, {minority!r} {fewest:,} of them: classes are imbalanced; always predicting {majority!r} would have"
        " that accuracy"
    )
    return imbalance + (
        "; rarer classes are oversampled." if oversampled else ' (data.balance = "oversample" balances them).'
    )


def rare_labels(rows: Sequence[Row]) -> list[str]:
    """A note that names the classes with fewer than FEW_EXAMPLES texts, the rarest first."""
    rare = [(count, label) for label, count in counts_of(rows).items() if count < FEW_EXAMPLES]
    if not rare:
        return []
    names = ", ".join(f"{label!r} ({count})" for count, label in sorted(rare)[:MAX_NAMED])
    more = f" and {len(rare) - MAX_NAMED:,} more" if len(rare) > MAX_NAMED else ""
    return [f"fewer than {FEW_EXAMPLES} texts: {names}{more}; add examples of these labels, or merge them with others."]
