"""Label errors among the training texts: each text is judged by a model that was fitted without it.

A model has learned the labels of its own training texts, wrong ones too; cross-validation gives every text the
probabilities that confident learning needs (Northcutt et al. 2021).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.core.printable import quantity
from seqwright.core.progress import Progress
from seqwright.data.labeled.labels import LabeledTexts
from seqwright.data.labeled.row import Row, is_empty
from seqwright.data.labeled.rows import LabeledConfig, read_rows, text_hash
from seqwright.metrics.score import Floats
from seqwright.reporting.progress import TimeLeft
from seqwright.tasks.base import Settings
from seqwright.tasks.classification.codec import ClassificationCodec
from seqwright.tasks.classification.details import LabelErrors, label_errors
from seqwright.tasks.classification.predictor import Member, Predictor
from seqwright.tasks.classification.scores import scale_temperature

FOLDS = 5
SHOWN_CLASSES = 5
"""Classes that a note names."""


class FoldProgress(Progress):
    """Progress of the folds together: that of one fold says which it is, and how long the others will take."""

    def __init__(self, progress: Progress):
        self.progress, self.time_left, self.fold = progress, TimeLeft(), ""

    def begin(self, fold: int) -> None:
        """Begins a fold, from 0."""
        done = self.time_left(fold, FOLDS, time.monotonic()).replace("  ", ", ")
        self.fold = f"cross-validation, fold {fold + 1} of {FOLDS}" + (f" ({done})" if fold else "")

    def stage(self, text: str) -> None:
        self.progress.stage(f"{self.fold}: {text}" if text else "")


def stratified_folds(rows: Sequence[Row]) -> NDArray[np.int64]:
    """The fold of each row: copies of a text (up to case and white space) are in one, since a copy that was learned
    would answer for it; the texts of each label are spread over all."""
    texts = [tuple(" ".join(text.split()).casefold() for text in row.texts) for row in rows]
    labels: dict[tuple[str, ...], str] = {}
    for text, row in zip(texts, rows, strict=True):
        labels[text] = min(labels.get(text, row.label), row.label)  # whatever the order of rows
    if len(labels) < 2:
        raise UserError("cross-validation needs two different texts; name other labeled data with --on FILE.")
    dealt = sorted(labels, key=lambda text: (labels[text], text_hash(text)))
    fold = {text: n % FOLDS for n, text in enumerate(dealt)}
    return np.array([fold[text] for text in texts])


def training_label_errors(
    new_model: Callable[[], Any], codec: ClassificationCodec, settings: Settings, limit: int | None, progress: Progress
) -> LabelErrors:
    """The training texts that are classified otherwise than labeled by a model that was fitted without them."""
    data, labels = settings.data, codec.labels
    rows = read_rows(data.train, data).rows
    targets = labels.targets(rows)  # or an error, where the file has others now
    outputs, judged = out_of_fold(new_model, rows, codec, data, progress)
    if not judged.any():
        raise UserError(
            "no training text can be judged by a model fitted without it: each is empty or alone has its label; name"
            " other labeled data with --on FILE."
        )
    scaled = scale_temperature(outputs, settings.decoding.temperature)
    doubted = LabelErrors(label_errors(scaled, np.where(judged, targets, IGNORE), labels, rows, limit))
    doubted.probabilities = (
        f"Each of {quantity(int(judged.sum()), 'training text')} was judged by a model fitted without it and its"
        f" copies: stratified {FOLDS}-fold cross-validation."
    )
    if left_out := len(rows) - int(judged.sum()):
        doubted.probabilities += f" Not judged: {left_out:,}, empty or the only texts of their label."
    return doubted


def out_of_fold(
    new_model: Callable[[], Any],
    rows: Sequence[Row],
    codec: ClassificationCodec,
    data: LabeledConfig,
    progress: Progress,
) -> tuple[Floats, NDArray[np.bool_]]:
    """The outputs (N, C) for each row of a counted model fitted to the other folds, and which rows are judged: not the
    empty ones, nor those whose label is in no other fold."""
    fold, labels = stratified_folds(rows), codec.labels
    outputs = np.zeros((len(rows), labels.output_spec.count))
    judged = np.array([not is_empty(row) for row in rows])
    folds = FoldProgress(progress)
    for n in np.unique(fold).tolist():
        folds.begin(n)
        held = np.flatnonzero(fold == n).tolist()
        others = [row for row, other in zip(rows, fold.tolist(), strict=True) if other != n]
        model = new_model()
        member = Member(model=model, tokenizer=codec.tokenizer, data=data)
        predictor = Predictor(members=[member], labels=labels)
        (encoded,) = predictor.encode([row.texts for row in others])
        model.fit(LabeledTexts(sources=member.sources(encoded), targets=labels.targets(others)), folds)
        outputs[held] = predictor(predictor.encode([rows[i].texts for i in held])).outputs
        known = {row.label for row in others}
        judged[held] &= [rows[i].label in known for i in held]
    folds.stage("")
    return outputs, judged


def unscored_note(missing: Collection[int], rows: Sequence[Row]) -> str:
    """A note on the rows that cross-validation does not score; empty without such."""
    empty = sum(is_empty(rows[n]) for n in missing)
    names = sorted({repr(rows[n].label) for n in missing if not is_empty(rows[n])})
    shown = ", ".join(names[:SHOWN_CLASSES]) + (" …" if len(names) > SHOWN_CLASSES else "")
    reasons = [f"{empty:,} empty {'text' if empty == 1 else 'texts'}"] * bool(empty)
    if names:
        reasons.append(
            f"{len(missing) - empty:,} {'text' if len(missing) - empty == 1 else 'texts'} of the"
            f" {'class' if len(names) == 1 else 'classes'} {shown}, held out together with all others of the class"
        )
    return f"not in the held-out scores: {'; '.join(reasons)}." if reasons else ""
