"""Predictions of a text classifier as users see them: one at a time, or beside the labels of a data set."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.core.notebook import NotebookTable
from seqwright.core.printable import quantity
from seqwright.data.labeled.labels import Labels
from seqwright.data.labeled.row import Row
from seqwright.metrics.examples import Examples, text_examples
from seqwright.metrics.score import Floats
from seqwright.tasks.classification.explanation import Explanation
from seqwright.tasks.classification.explanation import explain as explanations_of
from seqwright.tasks.classification.predictor import Predictor
from seqwright.tasks.classification.scores import COUNTS, ClassificationOptions, scaled_outputs

READ_AHEAD = 512
"""Lines read ahead, so that lines of similar length share a batch."""


@dataclass(frozen=True, kw_only=True)
class ClassifiedText(NotebookTable):
    """The prediction for a text."""

    texts: tuple[str, ...]
    label: str | list[str] | float
    """The most probable class, the labels above the threshold, or a value."""
    probabilities: dict[str, float]
    """Of every class or label; empty for a value."""
    unread: int
    """Tokens lost to truncation."""
    explanation: Explanation | None = None
    """The n-grams that contribute most, if requested; of several labels those of the most probable."""
    explanations: tuple[Explanation, ...] = ()
    """In multi-label data, one of each predicted label, the most probable first."""

    @property
    def probability(self) -> float | None:
        """Of the label; None for a value, and for any number of labels."""
        return self.probabilities[self.label] if isinstance(self.label, str) else None

    def __str__(self) -> str:
        """Label and probability: `good (0.93)`."""
        if isinstance(self.label, float):
            return f"{self.label:.4g}"
        labels = [self.label] if isinstance(self.label, str) else self.label
        return ", ".join(f"{label} ({self.probabilities[label]:.2f})" for label in labels) or "none"


def classify(
    predictor: Predictor,
    texts: Iterable[tuple[str, ...]],
    options: ClassificationOptions,
    *,
    explain: bool = False,
    read_ahead: int = READ_AHEAD,
) -> Iterator[ClassifiedText]:
    """The prediction for each text, in order, `read_ahead` of them together, explained if requested."""
    lines, labels = iter(texts), predictor.labels
    while chunk := list(itertools.islice(lines, read_ahead)):
        for text in chunk:
            if len(text) != labels.parts:
                how = " Part them by a tab." if labels.parts > 1 else ""
                raise UserError(f"a row has {quantity(labels.parts, 'text')}, not {len(text)}: {text[0][:60]!r}.{how}")
        encoded = predictor.encode(chunk)
        predictions = predictor(encoded)
        outputs = scaled_outputs(predictions.outputs, labels, options)
        none = itertools.repeat(None, len(chunk))
        temperature, threshold = options.temperature, options.threshold
        reasons = explanations_of(predictor, encoded, temperature=temperature, threshold=threshold) if explain else none
        for text, row, lost, explained in zip(chunk, outputs, predictions.lost, reasons, strict=True):
            classified = _classified(text, row.tolist(), labels, options, int(lost))
            yield _explained(classified, explained) if explained else classified


def _explained(classified: ClassifiedText, explained: tuple[Explanation, ...]) -> ClassifiedText:
    label = classified.label
    of_labels = tuple(one for one in explained if one.label in label) if isinstance(label, list) else ()
    return replace(classified, explanation=explained[0], explanations=of_labels)


def _classified(
    text: tuple[str, ...], outputs: list[float], labels: Labels, options: ClassificationOptions, unread: int
) -> ClassifiedText:
    if labels.kind == "regression":
        return ClassifiedText(texts=text, label=outputs[0], probabilities={}, unread=unread)
    probabilities = dict(zip(labels.names, outputs, strict=True))
    label: str | list[str] = max(probabilities, key=probabilities.__getitem__)
    if labels.kind == "multi":
        label = [name for name, probability in probabilities.items() if probability >= options.threshold]
    return ClassifiedText(texts=text, label=label, probabilities=probabilities, unread=unread)


def labeled_examples(
    outputs: Floats, targets: NDArray[Any], labels: Labels, rows: Sequence[Row], options: ClassificationOptions
) -> Examples:
    """Labeled texts with their predictions and the counts of each metric."""
    scaled, unseen = scaled_outputs(outputs, labels, options), max(1, len(labels.unknown_counts(rows)))
    return text_examples(
        "text",
        list(COUNTS[labels.kind](scaled, targets, labels, options, unseen)),
        inputs=["\t".join(row.texts) for row in rows],
        references=[row.label for row in rows],
        outputs=[str(_classified((), row, labels, options, 0)) for row in scaled.tolist()],
    )
