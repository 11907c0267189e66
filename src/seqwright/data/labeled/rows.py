"""Labeled texts: rows of a label and one text or two, from files, split so that every class is on both sides."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Literal
from unicodedata import normalize

from seqwright.core.config import UserError, check_sizes
from seqwright.data.files import Errors, expand, read_text, resolve
from seqwright.data.labeled.columns import FASTTEXT, Layout, bare, columnless, layout
from seqwright.data.records import JSON_LINES, records
from seqwright.data.samples.labels import embedded_labels
from seqwright.data.samples.text import is_embedded
from seqwright.data.text.corpus import check_split, parse_split

WAYS = ("stratified", "tail", "documents")

Long = Literal["head", "tail", "head+tail", "windows"]


@dataclass(frozen=True, kw_only=True)
class LabeledConfig:
    kind: Literal["labeled"] = "labeled"
    """Texts with a label each: sentiment, intents, languages, whether two sentences mean the same."""
    train: tuple[str, ...] | str = ()
    """Files, folders or patterns to learn from (.tsv, .csv, .jsonl or `label TAB text`; plain, .gz or .xz), or
    embedded:languages."""
    valid: tuple[str, ...] | str | None = None
    """Files to measure progress on."""
    split: str | None = None
    """Validation texts from the training files: "stratified 5%" of each class (of all texts where labels are no
    classes), a fixed choice by the text; or "documents 5%" of all, or "tail 5%"."""
    columns: tuple[int | str, ...] = ()
    """The label's column, then the text's, or those of two texts, by name or counted from 1. Left out: the only two
    there are, or those that are called so (label, class, intent …; text, sentence, review …)."""
    separator: str | None = None
    """What stands between label and text where it is no tab: " " for `label text`. The first one in a line parts it."""
    labels: Literal["single", "multi", "regression"] = "single"
    """What a label is: one class, several separated by commas (or none), or a number to be predicted."""
    truncation: Long = "head"
    """What is read of a text that is too long: its beginning (head), its end (tail), a quarter from the beginning and
    the rest from the end (head+tail, Sun et al. 2019), or all of it in windows, whose answers are averaged."""
    max_length: int | None = None
    """Tokens of a text that are read at once; the model's context unless given, or all."""
    add_special_tokens: bool = True
    """Whether <sos> stands before a text and <eos> behind it, where the vocabulary has them. Texts of a pair always
    end in <eos>."""
    balance: Literal["none", "oversample"] = "none"
    """repeat visits texts of rarer classes several times an epoch, until classes are about as frequent."""
    batch_tokens: int | None = None
    """Tokens of a step, padding included; left out: training.batch_size texts."""
    errors: Errors = "strict"
    """strict refuses files that are not UTF-8 text; replace reads U+FFFD where they are broken, and says how often."""

    files: ClassVar[tuple[str, ...]] = ("train", "valid")
    """The keys that name files."""

    def __post_init__(self) -> None:
        if not self.train:
            raise UserError("train names no file; give your own with --labeled FILE.")
        check_split(self.split, self.valid, WAYS)
        check_sizes(self, "max_length", "batch_tokens")
        if self.columns and len(self.columns) not in (2, 3):
            raise UserError('columns names the label and one text or two, as in ["label", "text"] or [1, 3].')
        if self.separator is not None and (self.columns or not self.separator):
            raise UserError("separator parts a line into label and text, and nothing else; leave columns out.")
        if self.labels != "single" and self.balance != "none":
            raise UserError(f'balance evens out classes; with labels = "{self.labels}" there are none.')
        if self.truncation == "windows" and len(self.columns) == 3:
            raise UserError("windows of two texts at once have no meaning; let long be head, tail or head+tail.")


@dataclass(frozen=True)
class Row:
    label: str
    texts: tuple[str, ...]
    place: str
    """Where it stands, for messages."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows in order."""

    rows: Sequence[Row]
    notes: tuple[str, ...] = ()
    """What a reader of the numbers should know, to be said."""

    @property
    def texts(self) -> list[str]:
        return [text for row in self.rows for text in row.texts]

    @property
    def parts(self) -> int:
        """Texts of a row."""
        return len(self.rows[0].texts)

    def split(self, rule: str, *, classes: bool = True) -> tuple[Rows, Rows]:
        """Training and held-out part; but for "tail", copies of a text fall on one side, and the order of rows does not
        matter."""
        way, share = parse_split(rule, WAYS)
        if way == "tail":
            cut = len(self.rows) - round(share * len(self.rows))
            train, valid = self.rows[:cut], self.rows[cut:]
        else:
            groups: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
            for row in self.rows:
                groups[row.label if way == "stratified" and classes else ""].add(row.texts)
            held = {
                texts for group in groups.values() for texts in sorted(group, key=_hash)[: _some(len(group), share)]
            }
            train = [row for row in self.rows if row.texts not in held]
            valid = [row for row in self.rows if row.texts in held]
        if not train or not valid:
            raise UserError(
                f'split = "{rule}" of {len(self.rows)} rows leaves one side empty; hold out another share, or name a'
                " file in data.valid."
            )
        return Rows(rows=train, notes=self.notes), Rows(rows=valid)


def splits(train: Rows, config: LabeledConfig) -> tuple[Rows, Rows | None]:
    """What is left to learn from, and the validation rows, if there are any."""
    if config.valid is not None:
        return train, read_rows(config.valid, config)
    if config.split is None:
        return train, None
    return train.split(config.split, classes=config.labels == "single")


def read_rows(files: Sequence[str] | str, config: LabeledConfig) -> Rows:
    """The rows of some files."""
    notes: list[str] = []
    rows: list[Row] = []
    for name in [files] if isinstance(files, str) else files:
        if is_embedded(name):
            rows += [
                Row(label, (text,), f"{name}, row {n:,}") for n, (label, text) in enumerate(embedded_labels(name), 1)
            ]
            continue
        for path in expand(resolve(name))[0]:
            text, replaced = read_text(path, config.errors)
            if replaced:
                notes.append(f"{path}: {replaced:,} places were not UTF-8 text and are read as U+FFFD.")
            found = list(_rows(text.rstrip("\r\n"), path, config))
            if not found:
                raise UserError(f"{path} has a heading and no rows below it.")
            if config.labels == "single" and len(found) > 2 and counts_of(found)[found[0].label] == 1:
                notes.append(
                    f"{found[0].place}: no other row has the label {found[0].label!r}; if it is a heading, name the"
                    " columns in data.columns."
                )
            rows += found
    notes += [*odd_labels(rows), *conflicts(rows)] if config.labels == "single" else []
    empty = sum(not any(text.strip() for text in row.texts) for row in rows)
    if empty:
        notes.append(
            f"{empty:,} of {len(rows):,} texts are empty: all that can be learned of them is what is frequent."
        )
    return Rows(rows=rows, notes=tuple(notes))


def conflicts(rows: Sequence[Row]) -> list[str]:
    """How many texts have several labels: no answer can be right for all of their copies."""
    labels: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for row in rows:
        labels[row.texts].add(row.label)
    several = [texts for texts, own in labels.items() if len(own) > 1]
    return (
        [f"{len(several):,} texts have different labels, the first of them {several[0][0][:40]!r}."] if several else []
    )


def odd_labels(rows: Sequence[Row]) -> list[str]:
    """What speaks against labels that are one class each: rows without any, and lists that share names."""
    counts = counts_of(rows)
    said = []
    if counts[""] and len(counts) > 1:
        said.append(
            f"{counts['']:,} of {len(rows):,} rows have an empty label ({_place(rows, '')} …): a class of its own."
        )
    alone = {label for label in counts if label and "," not in label}
    lists = [label for label in counts if alone & {name.strip() for name in label.split(",")} and label not in alone]
    if lists:
        said.append(
            f"{len(lists):,} labels are lists of others ({lists[0][:40]!r} …) and classes of their own; data.labels ="
            ' "multi" learns each name alone.'
        )
    spelled: defaultdict[str, list[str]] = defaultdict(list)
    for label in counts:
        spelled[label.casefold()].append(label)
    if alike := next((own for own in spelled.values() if len(own) > 1), None):
        said.append(f"{' and '.join(map(repr, alike))} differ in case alone and are classes of their own.")
    composed: defaultdict[str, list[str]] = defaultdict(list)
    for label in counts:
        composed[normalize("NFC", label)].append(label)
    if alike := next((own for own in composed.values() if len(own) > 1), None):
        said.append(
            f"{alike[0]!r} is written in {len(alike)} ways (composed and decomposed characters), which are classes of"
            " their own; write all labels in one, such as NFC."
        )
    return said


def _place(rows: Sequence[Row], label: str) -> str:
    return next(row.place for row in rows if row.label == label)


def read_texts(path: Path, config: LabeledConfig, parts: int) -> list[tuple[str, ...]]:
    """The texts of a file of records, so many a row, whether it has labels or not."""
    text = read_text(path, config.errors)[0].rstrip("\r\n")
    _refuse_blank(text, path)
    found = bare(text, path, parts)
    columns = tuple(map(str, config.columns[1:])) if found.suffix in JSON_LINES and config.columns else found.columns
    if columns:
        return list(records(text, path, columns, suffix=found.suffix, delimiter=found.delimiter))
    return [row.texts for row in _rows(text, path, config)]


def _refuse_blank(text: str, path: Path) -> None:
    if not text.strip():
        raise UserError(f"{path} holds nothing but blank lines; name a file with texts.")


def _rows(text: str, path: Path, config: LabeledConfig) -> Iterator[Row]:
    _refuse_blank(text, path)
    if config.separator is not None:
        written = Layout(separator=config.separator)
    elif config.columns:
        written = replace(columnless(text, path), columns=tuple(map(str, config.columns)))
    else:
        written = layout(text, path, classes=config.labels == "single")
    if written.separator is not None:
        yield from _parted(text, path, written.separator)
        return
    suffix, columns = written.suffix, written.columns
    heading = suffix not in JSON_LINES and not all(column.isdecimal() for column in columns)
    unit = "record" if suffix == ".csv" else "line"  # a quoted field may hold line ends
    lists = columns[:1] if config.labels == "multi" else ()
    given = records(text, path, columns, suffix=suffix, delimiter=written.delimiter, scalars=columns[:1], lists=lists)
    filled = (n for n, line in enumerate(text.split("\n"), 1) if line.strip("\r"))
    numbers = itertools.islice(itertools.count(1) if unit == "record" else filled, heading, None)
    for (label, *texts), n in zip(given, numbers, strict=False):
        yield Row(label.strip(), tuple(texts), f"{path}, {unit} {n:,}")


def _parted(text: str, path: Path, separator: str) -> Iterator[Row]:
    for n, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        label, found, rest = line.partition(separator)
        if not line:
            continue
        if not found:
            raise UserError(f"{path}, line {n:,} has no {separator!r} between label and text: {line[:60]!r}.")
        if label.startswith(FASTTEXT) and rest.startswith(FASTTEXT):  # the second would be read as a word of the text
            raise UserError(
                f"{path}, line {n:,} has several labels: {line[:60]!r}. Write them as `one,other TAB text` and set"
                ' data.labels = "multi".'
            )
        yield Row(label.strip().removeprefix(FASTTEXT), (rest,), f"{path}, line {n:,}")


def counts_of(rows: Sequence[Row]) -> Counter[str]:
    """How often each label occurs."""
    return Counter(row.label for row in rows)


def _some(count: int, share: Fraction) -> int:
    """How many of so many are held out: at least one of three."""
    return max(round(share * count), 1 if count >= 3 else 0)


def _hash(texts: tuple[str, ...]) -> bytes:
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=8).digest()
