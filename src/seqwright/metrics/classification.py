"""Scores of classifiers as additive counts: accuracy, F1 and Matthews' correlation, and where the errors are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE
from seqwright.metrics.counts import Counts, rates, ratio
from seqwright.metrics.score import Floats

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def class_counts(answered: Ints, wanted: Ints, classes: Sequence[str]) -> Iterator[Counts]:
    """Of one class for each example: accuracy, F1 of classes, Matthews' correlation. Of two classes the second is the
    positive one. What is wanted but was not learned (IGNORE) is one class more, which nobody answers."""
    wanted = np.where(wanted == IGNORE, len(classes), wanted)
    accuracy = np.stack([answered == wanted, np.ones(len(wanted))], 1).astype(np.float64)
    yield Counts(name="accuracy", rows=accuracy, formula=ratio, signature=_signature("accuracy", wanted, classes))
    answers, truth = (_one_hot(numbers, len(classes) + 1) for numbers in (answered, wanted))
    yield from _f1_counts(answers, truth, classes)
    rows = _outcomes(answers, truth)
    yield Counts(name="matthews", rows=rows, formula=matthews, signature=_signature("matthews", wanted, classes))


def labels_counts(answered: Flags, wanted: Flags, labels: Sequence[str]) -> Iterator[Counts]:
    """Of any number of labels for each example (N, C): accuracy wants all of them right."""
    accuracy = np.stack([(answered == wanted).all(1), np.ones(len(wanted))], 1).astype(np.float64)
    yield Counts(name="accuracy", rows=accuracy, formula=ratio, signature=_signature("accuracy", wanted, labels))
    rows = _outcomes(answered, wanted)
    yield Counts(name="micro_f1", rows=rows, formula=micro_f1, signature=_signature("micro_f1", wanted, labels))
    yield from _f1_counts(answered, wanted, labels, binary=False)


def _f1_counts(answered: Flags, wanted: Flags, classes: Sequence[str], *, binary: bool = True) -> Iterator[Counts]:
    rows = _outcomes(answered, wanted)
    if binary and len(classes) == 2:
        signature = f"{_signature('f1', wanted, classes)}|positive:{classes[1]}"
        yield Counts(name="f1", rows=rows[:, 1 :: wanted.shape[1]], formula=macro_f1, signature=signature)
    for name, formula in (("macro_f1", macro_f1), ("weighted_f1", weighted_f1)):
        yield Counts(name=name, rows=rows, formula=formula, signature=_signature(name, wanted, classes))


def _outcomes(answered: Flags, wanted: Flags) -> Floats:
    """(N, 3 C): of each class, whether it was answered rightly, answered, and wanted."""
    return np.concatenate([answered & wanted, answered, wanted], 1).astype(np.float64)


def _one_hot(classes: Ints, count: int) -> Flags:
    hot: Flags = classes[:, None] == np.arange(count)
    return hot


def _f1_by_class(sums: Floats) -> tuple[Floats, Floats, Floats]:
    """F1, predicted + actual and actual examples of each class: three (N, C)."""
    right, answered, wanted = np.split(sums, 3, axis=1)
    return 200 * right / np.maximum(answered + wanted, 1), answered + wanted, wanted


def macro_f1(sums: Floats) -> Floats:
    """The mean F1 of the classes that were answered or wanted at all, in per cent."""
    f1, seen, _ = _f1_by_class(sums)
    return f1.sum(1) / np.maximum((seen > 0).sum(1), 1)


def weighted_f1(sums: Floats) -> Floats:
    """The mean F1 of the classes, each as often as it was wanted, in per cent."""
    f1, _, wanted = _f1_by_class(sums)
    return (f1 * wanted).sum(1) / np.maximum(wanted.sum(1), 1)


def micro_f1(sums: Floats) -> Floats:
    """F1 of all decisions together, in per cent; of one class for each example it equals accuracy."""
    right, answered, wanted = (part.sum(1) for part in np.split(sums, 3, axis=1))
    return 200 * right / np.maximum(answered + wanted, 1)


def matthews(sums: Floats) -> Floats:
    """Matthews' correlation for any number of classes, from -1 to 1 (Gorodkin 2004); 0 where a side says one class."""
    right, answered, wanted = np.split(sums, 3, axis=1)
    examples = wanted.sum(1)
    covariance = right.sum(1) * examples - (answered * wanted).sum(1)
    variances = (examples**2 - (answered**2).sum(1)) * (examples**2 - (wanted**2).sum(1))
    return covariance / np.sqrt(np.maximum(variances, 1))  # where a side says one class, both are 0


def confusion(answered: Ints, wanted: Ints, classes: int) -> Ints:
    """(C, C): how many examples of class i were called class j."""
    return np.bincount(wanted * classes + answered, minlength=classes**2).reshape(classes, classes)


def per_class(answered: Flags, wanted: Flags, classes: Sequence[str]) -> list[dict[str, Any]]:
    """How well each class is told from the others."""
    right, said, there = (answered & wanted).sum(0), answered.sum(0), wanted.sum(0)
    return [rates(name, int(right[n]), int(said[n]), int(there[n])) for n, name in enumerate(classes)]


def _signature(name: str, wanted: NDArray[Any], classes: Sequence[str]) -> str:
    return f"{name}|examples:{len(wanted)}|classes:{len(classes)}"
