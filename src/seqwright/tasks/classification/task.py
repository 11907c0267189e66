"""Texts to labels: examples in batches of like length, answers, scores; runs that classify."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from seqwright.core.batch import Batch, EncoderSizes, Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Watch, unwatched
from seqwright.core.storage import read_record, write_json
from seqwright.data.bucketing import ByLength
from seqwright.data.labeled.labels import LabeledTexts, Labels, balance_notes
from seqwright.data.labeled.rows import LabeledConfig, Row, Rows, read_rows, read_texts, train_valid_split
from seqwright.data.labeled.sources import EncodedTexts, Sources, encode
from seqwright.metrics.counts import scores_json, values
from seqwright.metrics.score import Floats
from seqwright.runs.directory import RunDirectory
from seqwright.runs.run import Run
from seqwright.tasks.base import Note, Settings, fingerprint_of, held_out_notes, made_up_source, spread
from seqwright.tasks.classification.details import calibrated, details, label_errors
from seqwright.tasks.classification.predictor import Member, Predictor, framed, longest
from seqwright.tasks.classification.scores import ClassificationOptions, answers, counted
from seqwright.tasks.tokenizers import saved_tokenizer
from seqwright.text.tokenizer import Tokenizer

SHOWN = 4
"""Texts in the log at each sampling."""
AT_ONCE = 512
"""Lines read ahead, so that lines of like length can share a batch."""


class ClassificationTask:
    """The data side of training a classifier."""

    def __init__(self, settings: Settings, directory: RunDirectory, note: Note):
        self.settings, self.note = settings, note
        data: LabeledConfig = settings.data
        whole = read_rows(data.train, data)
        self.labels = saved_labels(directory, whole, data)
        train, valid = train_valid_split(whole, data)
        self.tokenizer = saved_tokenizer(settings, directory, train.texts, note)
        self.train_rows, self.valid_rows = train, valid
        self.train_texts = encode([row.texts for row in train.rows], self.tokenizer)
        self.train_targets = self.labels.targets(train.rows)
        self.valid_texts: EncodedTexts | None = None
        if valid is not None:
            self.valid_texts = encode([row.texts for row in valid.rows], self.tokenizer)
            self.valid_targets = self.labels.targets(valid.rows, settings.evaluation.unknown)
        if settings.training.r_drop and data.labels != "single":
            raise UserError("R-Drop compares distributions over classes; leave training.r_drop out.")
        self._say()

    def _say(self) -> None:
        """What a reader of the numbers should know of the data."""
        data, train, valid = self.settings.data, self.train_rows, self.valid_rows
        held_out = held_out_notes(data.split, None if valid is None else len(valid.rows), "texts")
        for said in (*train.notes, *(valid.notes if valid else ()), *held_out):
            self.note(said)
        if valid is not None:
            known = {row.texts for row in train.rows}
            if leaked := sum(row.texts in known for row in valid.rows):
                self.note(f"{leaked:,} of {len(valid.rows):,} validation texts are training texts, too.")
            if strange := self.labels.unknown_counts(valid.rows):
                names = ", ".join(strange)
                self.note(f"validation labels that training does not have, {self.labels.unknown_treatment}: {names}.")
        for name, texts in (("training", self.train_texts), ("validation", self.valid_texts)):
            if texts is not None and texts.unknown:
                self.note(f"{texts.unknown:,} of {len(texts.ids):,} {name} tokens are <unk>.")
        if data.labels == "single":
            self.note(balance_notes(train.rows, oversampled=data.balance == "oversample"))
        self.note(
            f"{len(train.rows):,} training texts, {len(self.train_texts.ids):,} tokens;"
            f" {self.tokenizer.kind} vocabulary of {self.tokenizer.size:,}."
        )

    @property
    def sizes(self) -> EncoderSizes:
        return sizes_of(self.tokenizer, self.labels)

    @property
    def fingerprint(self) -> str:
        texts = [one.fingerprint for one in (self.train_texts, self.valid_texts) if one is not None]
        labels = [row.label for rows in (self.train_rows, self.valid_rows) if rows is not None for row in rows.rows]
        return fingerprint_of(*texts, *labels)

    @property
    def corpus(self) -> LabeledTexts:
        return LabeledTexts(sources=self._framed(self.train_texts, None), targets=self.train_targets)

    def feed(self, model: Any) -> ByLength:
        data, training = self.settings.data, self.settings.training
        sources = self._framed(self.train_texts, model.context)
        if sources.truncated:
            tokens, texts = int(self.train_texts.lengths.sum()), len(self.train_rows.rows)
            how = (
                "read in windows"
                if data.truncation == "windows"
                else f"cut ({sources.lost.sum() / tokens:.1%} of all tokens)"
            )
            self.note(
                f"{sources.truncated:,} of {texts:,} training texts ({sources.truncated / texts:.1%})"
                f" exceed {longest(data, model.context)} tokens and are {how};"
                f' data.truncation = "{data.truncation}".'
            )
        examples = LabeledTexts(sources=sources, targets=self.train_targets)
        repeats = examples.oversampling() if data.balance == "oversample" else None
        return ByLength(
            examples, seed=training.seed, batch=training.batch_size, tokens=data.batch_tokens, repeats=repeats
        )

    def evaluate(self, model: Any, device: torch.device | str, *, quick: bool) -> dict[str, Any] | None:
        if self.valid_texts is None:
            return None
        assert self.valid_rows is not None
        found = answers(model, self._framed(self.valid_texts, model.context), self.labels, device)
        fingerprint = self.valid_texts.fingerprint
        if quick:
            counts = counted(found, self.valid_targets, self.labels, self.settings.decoding, fingerprint)
            return values(counts)
        rows = self.valid_rows.rows
        judgment = judged(found, self.valid_targets, self.labels, rows, self.settings, fingerprint)
        return judgment | calibrated(found, self.valid_targets, self.labels)

    def sample(self, model: Any, device: torch.device | str) -> list[dict[str, str]]:
        rows = (self.valid_rows or self.train_rows).rows
        some = [rows[n] for n in spread(len(rows), SHOWN)]
        reader = Member(model=model, tokenizer=self.tokenizer, data=self.settings.data)
        ask = Predictor(readers=[reader], labels=self.labels, device=device)
        said = classify(ask, [row.texts for row in some], self.settings.decoding)
        return [
            {"prompt": " | ".join(row.texts), "text": f" → {one.said}", "reference": row.label}
            for one, row in zip(said, some, strict=True)
        ]

    def show(self, batch: Batch) -> str:
        assert batch.source.ids is not None
        return repr(self.tokenizer.decode(batch.source.ids[0].tolist())[:200])

    def _framed(self, texts: EncodedTexts, context: int | None) -> Sources:
        return framed(texts, self.tokenizer, self.settings.data, context)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a classifier says of a text."""

    texts: tuple[str, ...]
    label: str | list[str] | float
    """The most probable class, the probable labels, or a value."""
    probabilities: dict[str, float]
    """Of every class or label; none for a value."""
    unread: int
    """Tokens that did not fit."""

    @property
    def said(self) -> str:
        """Label and probability as a person reads them."""
        if isinstance(self.label, float):
            return f"{self.label:.4g}"
        labels = [self.label] if isinstance(self.label, str) else self.label
        return ", ".join(f"{label} ({self.probabilities[label]:.2f})" for label in labels) or "none"


class ClassificationRun(Run):
    """A trained classifier: `run = seqwright.open("runs/x"); run.classify(["A fine film."])`."""

    does = "answers with labels of whole texts"
    verbs = ("classify", "evaluate")

    @staticmethod
    def sizes(directory: RunDirectory) -> EncoderSizes:
        return sizes_of(directory.tokenizer, open_labels(directory))

    @functools.cached_property
    def labels(self) -> Labels:
        return open_labels(self.directory)

    def source(self, rows: int, length: int) -> Source:
        """Sources of different lengths."""
        smallest = min((reader.tokenizer for reader in self.readers), key=lambda tokenizer: tokenizer.size)
        return made_up_source(smallest, rows, length)

    def example(self, rows: int, length: int) -> Batch:
        """Made-up sources, each with another answer."""
        answers = self.labels.output_spec
        target = torch.arange(rows) % answers.count
        if answers.kind != "class":
            target = torch.nn.functional.one_hot(target, answers.count).double()
        return Batch.of_source(self.source(rows, length), target)

    def classify(
        self, texts: Iterable[str | Sequence[str]], *, at_once: int = AT_ONCE, **options: Any
    ) -> Iterator[Answer]:
        """What it says of each text (or pair), in order; options are those of the recipe's [decoding] section."""
        given = ((text,) if isinstance(text, str) else tuple(text) for text in texts)
        chosen = replace(self.settings.decoding, **options)
        return classify(self.predictor(chosen), given, chosen, at_once=at_once)

    def predictor(self, options: ClassificationOptions) -> Predictor:
        """Who answers: this run's reader, or those it mixes, at the temperature that suited the validation texts."""
        return Predictor(
            readers=self.readers,
            labels=self.labels,
            mix=getattr(self.model, "mix", None),
            temperature=options.temperature or self.directory.summary().get("temperature"),
            device=self.device,
        )

    @functools.cached_property
    def readers(self) -> list[Member]:
        """The model and how texts are cut for it, or all of a mixture, each with a tokenizer of its own."""
        data, models = self.settings.data, getattr(self.model, "models", None)
        if models is None:
            return [Member(model=self.model, tokenizer=self.tokenizer, data=data)]
        tokenizers = map(Tokenizer.open, self.directory.tokenizer_paths())
        parts = zip(models, tokenizers, self.settings.model.cutting, strict=True)
        return [Member(model=model, tokenizer=own, data=replace(data, **cut)) for model, own, cut in parts]

    def evaluate(
        self, on: str | Sequence[str] | None = None, *, watch: Watch = unwatched, **options: Any
    ) -> dict[str, Any]:
        """Scores on labeled files, or on the run's own validation texts."""
        rows = self.rows(on).rows
        config = replace(self.settings.evaluation, **options)
        targets = self.labels.targets(rows, config.unknown)
        ask = self.predictor(self.settings.decoding)
        asked = ask([row.texts for row in rows], watch)
        decoding = replace(self.settings.decoding, temperature=ask.temperature)
        settings = replace(self.settings, evaluation=config, decoding=decoding)
        found = judged(asked.found, targets, self.labels, rows, settings, asked.fingerprint)
        return found | {"texts": len(rows), "cut": asked.cut, "unlearned_labels": self.labels.unknown_counts(rows)}

    def label_errors(self, on: str | Sequence[str] | None, many: int) -> list[dict[str, Any]]:
        """The texts of a file whose label it finds least probable, the worst first."""
        if self.labels.kind != "single":
            raise UserError(f"{self.path} answers with no single class, so no label can be called improbable.")
        rows = self.rows(on).rows
        asked = self.predictor(self.settings.decoding)([row.texts for row in rows])
        return label_errors(asked.found, self.labels.targets(rows, "wrong"), self.labels, rows, many)

    def texts(self, path: Path) -> list[tuple[str, ...]]:
        """The texts of a file of records (.tsv, .csv, .jsonl), which may have labels, as they stand there."""
        return read_texts(path, self.settings.data, self.labels.parts)

    def rows(self, on: str | Sequence[str] | None = None) -> Rows:
        """Labeled texts of files, or those the run was validated on."""
        if on is not None:
            return read_rows(on, self.settings.data)
        data = self.settings.data
        _, valid = train_valid_split(read_rows(data.train, data), data)
        if valid is None:
            raise UserError(f"{self.path} has no validation texts of its own; name a file with --on FILE.")
        return valid


def judged(
    found: Floats, targets: NDArray[Any], labels: Labels, rows: Sequence[Row], settings: Settings, fingerprint: str
) -> dict[str, Any]:
    """Scores of answers, and what lies behind them."""
    options = settings.decoding
    counts = counted(found, targets, labels, options, fingerprint)
    return scores_json(counts, settings.evaluation) | {"details": details(found, targets, labels, rows, options)}


def classify(
    ask: Predictor, given: Iterable[tuple[str, ...]], options: ClassificationOptions, *, at_once: int = AT_ONCE
) -> Iterator[Answer]:
    """What is said of each text, in order, so many read ahead."""
    lines, parts = iter(given), ask.labels.parts
    while chunk := list(itertools.islice(lines, at_once)):
        for text in chunk:
            if len(text) != parts:
                how = " Part them by a tab." if parts > 1 else ""
                raise UserError(f"{parts} text(s) are read at a time, not {len(text)}: {text[0][:60]!r}.{how}")
        asked = ask(chunk)
        for text, row, lost in zip(chunk, asked.found, asked.lost, strict=True):
            yield _answer(text, row.tolist(), ask.labels, options, int(lost))


def _answer(
    text: tuple[str, ...], row: list[float], labels: Labels, options: ClassificationOptions, unread: int
) -> Answer:
    if labels.kind == "regression":
        return Answer(texts=text, label=row[0], probabilities={}, unread=unread)
    likely = dict(zip(labels.names, row, strict=True))
    best: str | list[str] = max(likely, key=likely.__getitem__)
    if labels.kind == "multi":
        best = [name for name, share in likely.items() if share >= options.threshold]
    return Answer(texts=text, label=best, probabilities=likely, unread=unread)


def sizes_of(tokenizer: Tokenizer, labels: Labels) -> EncoderSizes:
    return EncoderSizes(answers=labels.output_spec, vocabulary=tokenizer.vocabulary, segments=labels.parts)


def saved_labels(directory: RunDirectory, rows: Rows, data: LabeledConfig) -> Labels:
    """The run's labels, those of its training rows where it has none yet: what they mean never changes."""
    if not directory.labels_path.exists():
        write_json(directory.labels_path, Labels.of(rows, data.labels).table())
    return open_labels(directory)


def open_labels(directory: RunDirectory) -> Labels:
    return read_record(directory.labels_path, Labels)
