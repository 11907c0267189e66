"""Text classification: labeled texts in batches of similar length; runs that classify."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from numpy.typing import NDArray

from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError, with_options
from seqwright.core.printable import quantity
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Counted, Ensemble
from seqwright.core.warning import warn
from seqwright.data.bucketing import ByLength
from seqwright.data.labeled.labels import LabeledTexts, Labels, balance_notes, rare_labels
from seqwright.data.labeled.row import Row
from seqwright.data.labeled.rows import LabeledConfig, Rows, read_rows, train_valid_split
from seqwright.data.labeled.sources import EncodedTexts, encode
from seqwright.metrics.counts import scores_json, values
from seqwright.metrics.examples import digest
from seqwright.metrics.score import Floats
from seqwright.runs.calls import checked
from seqwright.runs.directory import RunDirectory
from seqwright.runs.overlap import own_data, warns_of_training_data
from seqwright.runs.run import Run, one_or_many
from seqwright.tasks.base import Settings, combined_fingerprint, evenly_spaced, held_out_notes, synthetic_source
from seqwright.tasks.classification.codec import ClassificationCodec
from seqwright.tasks.classification.defaults import COUNTED
from seqwright.tasks.classification.details import (
    MIN_CALIBRATION,
    LabelErrors,
    calibration,
    details,
    label_errors,
    no_label_errors,
)
from seqwright.tasks.classification.explanation import explain as explanations_of
from seqwright.tasks.classification.explanation import explains
from seqwright.tasks.classification.out_of_fold import training_label_errors, unscored_note
from seqwright.tasks.classification.predictions import READ_AHEAD, ClassifiedText, classify, labeled_examples
from seqwright.tasks.classification.predictor import (
    Member,
    Predictor,
    held_out_predictions,
    max_length,
    truncated_sources,
)
from seqwright.tasks.classification.scores import (
    ClassificationOptions,
    ClassificationScores,
    classification_counts,
    scale_temperature,
    scaled_outputs,
)
from seqwright.tasks.classification.training_accuracy import training_accuracy
from seqwright.tasks.codec import open_or_learn
from seqwright.tasks.scores import Scores

SAMPLES = 4
"""Texts in the log at each sampling."""


class ClassificationTask:
    """Training of a text classifier."""

    def __init__(self, settings: Settings, directory: RunDirectory, progress: Progress):
        self.settings, self.progress = settings, progress
        data: LabeledConfig = settings.data
        rows = read_rows(data.train, data)
        train, valid = train_valid_split(rows, data)
        self.codec = open_or_learn(
            ClassificationCodec, directory, lambda: ClassificationCodec.learn(rows, train, settings, progress)
        )
        self.labels, self.tokenizer = self.codec.labels, self.codec.tokenizer
        if unknown := self.labels.unknown(train.rows):
            row, name = unknown[0]
            raise UserError(
                f"{row.place}: the label {name!r} was not in training when {directory.path} was begun, and a run keeps"
                " its labels. Correct it, or train in another folder with --run."
            )
        self.train_rows, self.valid_rows = train, valid
        self.train_texts = encode([row.texts for row in train.rows], self.tokenizer)
        self.train_targets = self.labels.targets(train.rows)
        self.valid_texts: EncodedTexts | None = None
        if valid is not None:
            self.valid_texts = encode([row.texts for row in valid.rows], self.tokenizer)
            self.labels.targets(valid.rows, settings.evaluation.unknown)  # refuses unknown labels before training
        if data.padding != "masked" and settings.kind == COUNTED:
            raise UserError("a bag of n-grams has no padding; leave data.padding out.")
        if settings.training.r_drop and data.labels != "single":
            raise UserError("R-Drop compares distributions over classes; leave training.r_drop out.")
        self._note_data()

    def _note_data(self) -> None:
        """Notes on splits, leaks, unknown labels and tokens, and class balance."""
        data, train, valid, note = self.settings.data, self.train_rows, self.valid_rows, self.progress.note
        held_out = self._held_out_notes() if self.settings.kind != COUNTED or valid is not None else ()
        for text in (*train.notes, *(valid.notes if valid else ()), *held_out):
            note(text)
        if valid is not None:
            known = {row.texts for row in train.rows}
            if leaked := sum(row.texts in known for row in valid.rows):
                note(f"{leaked:,} of {len(valid.rows):,} validation texts are training texts, too.")
            if unknown := self.labels.unknown_counts(valid.rows):
                names = ", ".join(unknown)
                note(f"validation labels that training does not have, counted as wrong: {names}.")
        for name, texts in (("training", self.train_texts), ("validation", self.valid_texts)):
            if texts is not None and texts.unknown:
                note(f"{texts.unknown:,} of {len(texts.ids):,} {name} tokens are <unk>.")
        if data.labels == "single":
            note(balance_notes(train.rows, oversampled=data.balance == "oversample"))
            for text in rare_labels(train.rows):
                note(text)
            if len(train.rows) < MIN_CALIBRATION:
                note(f"{len(train.rows)} texts are few: probabilities of labels may be overconfident.")
        note(
            f"{len(train.rows):,} training texts, {len(self.train_texts.ids):,} tokens;"
            f" {self.tokenizer.kind} vocabulary of {self.tokenizer.size:,}."
        )

    def _held_out_notes(self) -> list[str]:
        count = None if self.valid_rows is None else len(self.valid_rows.rows)
        return held_out_notes(self.settings.data.split, count, "texts")

    @property
    def fingerprint(self) -> str:
        texts = [texts.fingerprint for texts in (self.train_texts, self.valid_texts) if texts is not None]
        labels = [row.label for rows in (self.train_rows, self.valid_rows) if rows is not None for row in rows.rows]
        return combined_fingerprint(*texts, *labels)

    @property
    def corpus(self) -> LabeledTexts:
        return self._examples(None)

    def _examples(self, context: int | None) -> LabeledTexts:
        sources = truncated_sources(self.train_texts, self.tokenizer, self.settings.data, context)
        return LabeledTexts(sources=sources, targets=self.train_targets)

    def feed(self, model: Any) -> ByLength:
        data, training = self.settings.data, self.settings.training
        examples = self._examples(model.context)
        if truncated := examples.sources.truncated:
            tokens, texts = int(self.train_texts.lengths.sum()), len(self.train_rows.rows)
            how = (
                "read in windows"
                if data.truncation == "windows"
                else f"cut ({examples.sources.lost.sum() / tokens:.1%} of all tokens)"
            )
            self.progress.note(
                f"{truncated:,} of {texts:,} training texts ({truncated / texts:.1%})"
                f" exceed {max_length(data, model.context)} tokens and are {how};"
                f' data.truncation = "{data.truncation}".'
            )
        repeats = examples.oversampling() if data.balance == "oversample" else None
        return ByLength(
            examples, seed=training.seed, batch=training.batch_size, tokens=data.batch_tokens, repeats=repeats
        )

    def evaluate(self, model: Any, device: torch.device | str, *, quick: bool) -> Scores | None:
        if self.valid_texts is None:
            return None if quick else self._selection_scores(model)
        assert self.valid_rows is not None
        predictor, rows = self._predictor(model, device), self.valid_rows.rows
        scores = evaluate(predictor, self.codec, rows, self.settings, encoded=[self.valid_texts], quick=quick, fit=True)
        if not quick or self.labels.kind != "single":
            return scores
        return Scores({**scores, **training_accuracy(predictor, self.train_texts, self.train_targets, len(rows))})

    def _selection_scores(self, model: Any) -> Scores | None:
        """Scores on the training texts that the model held out to select its hyperparameters; None without such."""
        held_out = held_out_predictions(model, self.labels) if self.settings.data.truncation != "windows" else None
        if held_out is None:
            for text in self._held_out_notes() if self.settings.kind == COUNTED else ():
                self.progress.note(text)
            return None
        chosen, outputs, folds = held_out
        split = f"{folds}-fold cross-validation" if folds > 1 else "a split (10%)"
        rows, targets = [self.train_rows.rows[n] for n in chosen], self.train_targets[chosen]
        if folds > 1 and (
            unscored := unscored_note({*range(len(self.train_rows.rows))} - {*chosen}, self.train_rows.rows)
        ):
            self.progress.note(unscored)
        table = class_scores(outputs, targets, self.labels, rows, self.settings, hash_of_texts(rows))
        for score in table["scores"].values():
            score["signature"] += f"|split:{folds}-fold" if folds > 1 else "|split:10%"
        facts = f"the held-out texts of {split}, which also selected the hyperparameters"
        return Scores(table | {"scored_on": facts, "refitted": True})

    def sample(self, model: Any, device: torch.device | str) -> list[dict[str, str]]:
        all_rows = (self.valid_rows or self.train_rows).rows
        rows = [all_rows[n] for n in evenly_spaced(len(all_rows), SAMPLES)]
        predictions = classify(self._predictor(model, device), [row.texts for row in rows], self.settings.decoding)
        return [
            {"prompt": " | ".join(row.texts), "text": f" → {prediction}", "reference": row.label}
            for prediction, row in zip(predictions, rows, strict=True)
        ]

    def show(self, batch: Batch) -> str:
        assert batch.source.ids is not None
        return repr(self.tokenizer.decode(batch.source.ids[0].tolist())[:200])

    def _predictor(self, model: Any, device: torch.device | str) -> Predictor:
        member = Member(model=model, tokenizer=self.tokenizer, data=self.settings.data)
        return Predictor(members=[member], labels=self.labels, device=device)


class ClassificationRun(Run):
    """A trained classifier: `run = seqwright.open("runs/x"); run.classify(["A fine film."])`."""

    description = "classifies texts"
    verbs = ("classify", "evaluate")
    codec_class = ClassificationCodec

    @property
    def labels(self) -> Labels:
        labels: Labels = self.codec.labels
        return labels

    def source(self, rows: int, length: int) -> Source:
        """Sources of different lengths, valid in the smallest vocabulary."""
        smallest = min(self.codec.tokenizers, key=lambda tokenizer: tokenizer.size)
        return synthetic_source(smallest, rows, length)

    def example(self, rows: int, length: int) -> Batch:
        """Synthetic sources with targets that differ between rows."""
        outputs = self.labels.output_spec
        target = torch.arange(rows) % outputs.count
        if outputs.kind != "class":
            target = torch.nn.functional.one_hot(target, outputs.count).double()
        return Batch.of_source(self.source(rows, length), target)

    @one_or_many
    def classify(
        self,
        texts: Iterable[str | Sequence[str]],
        *,
        explain: bool = False,
        read_ahead: int = READ_AHEAD,
        **options: Any,
    ) -> Iterator[ClassifiedText]:
        """The prediction for each text (or pair), in order; options are those of the recipe's [decoding] section.

        `explain` adds the n-grams that contribute most, where the model is a bag of n-grams. The label of an empty text
        is one of nothing, which a SeqwrightWarning says.
        """
        inputs = self._inputs(texts)
        return classify(self.predictor, inputs, self._decoding(**options), explain=explain, read_ahead=read_ahead)

    def _inputs(self, texts: Iterable[str | Sequence[str]]) -> Iterator[tuple[str, ...]]:
        """The parts of every text; the first that is empty has a warning."""
        warned = False
        for text in texts:
            parts = (text,) if isinstance(text, str) else tuple(text)
            if not warned and not any(part.strip() for part in parts):
                warned = True
                warn("an empty text says nothing of its label: what it gets is one for no text at all.")
            yield parts

    @functools.cached_property
    def predictor(self) -> Predictor:
        """The model, or the models of a mixture with their tokenizers."""
        models = self.model.models if isinstance(self.model, Ensemble) else None
        data, tokenizers = self.settings.data, self.codec.tokenizers
        if models is None:
            members = [Member(model=self.model, tokenizer=self.codec.tokenizer, data=data)]
        else:
            parts = zip(models, tokenizers, self.settings.model.config.truncation, strict=True)
            members = [
                Member(model=model, tokenizer=tokenizer, data=replace(data, **keys)) for model, tokenizer, keys in parts
            ]
        return Predictor(
            members=members, labels=self.labels, mix=self.model.mix if models else None, device=self.device
        )

    def _decoding(self, **options: Any) -> ClassificationOptions:
        """Options with the temperature that was fitted to the validation texts, unless another is set."""
        decoding: ClassificationOptions = with_options(self.settings.decoding, options)
        if decoding.threshold != ClassificationOptions.threshold and self.labels.kind != "multi":
            raise UserError(
                'threshold is for multi-label data (data.labels = "multi"); compare the probability of each answer with'
                " yours instead."
            )
        return replace(decoding, temperature=decoding.temperature or self.summary.get("temperature"))

    @warns_of_training_data
    def evaluate(self, on: str | Sequence[str] | None = None, *, progress: Progress = SILENT, **options: Any) -> Scores:
        """Scores on labeled files, or on the validation texts of the run."""
        evaluation = with_options(self.settings.evaluation, options)
        settings = replace(self.settings, evaluation=evaluation, decoding=self._decoding())
        rows = self.rows(on)
        for text in rows.notes if on is not None else ():
            progress.note(text)
        return evaluate(self.predictor, self.codec, rows.rows, settings, progress=progress)

    @checked
    def label_errors(
        self, on: str | Sequence[str] | None = None, limit: int | None = 20, *, progress: Progress = SILENT
    ) -> LabelErrors:
        """The texts of files that are classified otherwise, at most `limit`: those whose label is least probable first.
        By default those of the validation data; of a bag of n-grams those of the training data, each judged by a model
        that is fitted without it."""
        if self.labels.kind != "single":
            raise no_label_errors(str(self.path), self.labels)
        if limit is not None and limit < 1:
            raise UserError(f"limit must be at least 1, not {limit}; None lists all.")
        if on is None and isinstance(self.model, Counted):
            assert self.new_model is not None, "seqwright.open sets it"
            settings = replace(self.settings, decoding=self._decoding())
            with own_data(self):
                return training_label_errors(self.new_model, self.codec, settings, limit, progress)
        with own_data(self, on):
            rows = self.rows(on).rows
        probabilities = self.predictor(self.predictor.encode([row.texts for row in rows]), progress).outputs
        scaled = scale_temperature(probabilities, self._decoding().temperature)
        doubted = LabelErrors(label_errors(scaled, self.labels.targets(rows, "wrong"), self.labels, rows, limit))
        doubted.probabilities = f"Label probabilities are those of {self.path}, for {quantity(len(rows), 'text')}."
        return doubted

    def rows(self, on: str | Sequence[str] | None = None) -> Rows:
        """Labeled texts of files, or the validation texts of the run."""
        if on is not None:
            return read_rows(on, self.settings.data)
        data = self.settings.data
        if data.valid is None and data.split is None:
            raise self._nothing_held_out("texts")
        _, valid = train_valid_split(read_rows(data.train, data), data)
        assert valid is not None
        return valid


def evaluate(
    predictor: Predictor,
    codec: ClassificationCodec,
    rows: Sequence[Row],
    settings: Settings,
    *,
    encoded: Sequence[EncodedTexts] | None = None,
    quick: bool = False,
    fit: bool = False,
    progress: Progress = SILENT,
) -> Scores:
    """Scores of predictions for labeled texts, which are encoded here unless they are already.

    `fit` adds the temperature fitted to these texts: those of the validation; otherwise the number of texts, of
    truncated ones, and unknown labels are added.
    """
    labels, targets = codec.labels, codec.labels.targets(rows, settings.evaluation.unknown)
    predictions = predictor(encoded or predictor.encode([row.texts for row in rows]), progress)
    if quick:
        return Scores(class_values(predictions.outputs, targets, labels, settings))
    table = class_scores(predictions.outputs, targets, labels, rows, settings, hash_of_texts(rows))
    if explains(predictor):
        errors = table["details"].get("mistakes", [])
        _explain_errors(errors, {row.place: row.texts for row in rows}, predictor, settings.decoding.temperature)
    if fit:
        table |= calibration(predictions.outputs, targets, labels)
    else:
        table |= {"texts": len(rows), "cut": predictions.truncated, "unlearned_labels": labels.unknown_counts(rows)}
    scores = ClassificationScores(table, truncation=settings.data.truncation)
    return scores.with_examples(lambda: labeled_examples(predictions.outputs, targets, labels, rows, settings.decoding))


def _explain_errors(
    errors: Sequence[dict[str, Any]],
    texts: Mapping[str, tuple[str, ...]],
    predictor: Predictor,
    temperature: float | None,
) -> None:
    """Adds to each misclassified text (by its place) why it has its label."""
    encoded = predictor.encode([texts[error["place"]] for error in errors])
    explanations = explanations_of(predictor, encoded, temperature=temperature) if errors else ()
    for error, (explanation,) in zip(errors, explanations, strict=True):
        error["explanation"] = asdict(explanation)


def hash_of_texts(rows: Sequence[Row]) -> str:
    """sha256 of texts, whatever the tokenizer."""
    return digest(*(part for row in rows for part in row.texts))


def class_values(outputs: Floats, targets: NDArray[Any], labels: Labels, settings: Settings) -> dict[str, float]:
    """Values for the log of a training."""
    scaled = scaled_outputs(outputs, labels, settings.decoding)
    return values(classification_counts(scaled, targets, labels, settings.decoding))


def class_scores(
    outputs: Floats, targets: NDArray[Any], labels: Labels, rows: Sequence[Row], settings: Settings, data_hash: str
) -> dict[str, Any]:
    """Scores with intervals, whose signatures name the data by their hash, and the tables behind them."""
    scaled = scaled_outputs(outputs, labels, settings.decoding)
    unseen = max(1, len(labels.unknown_counts(rows)))
    counts = classification_counts(scaled, targets, labels, settings.decoding, data_hash, unseen=unseen)
    tables = details(scaled, targets, labels, rows, settings.decoding)
    return scores_json(counts, settings.evaluation) | {"details": tables}
