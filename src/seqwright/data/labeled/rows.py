"""Labeled texts from files: rows of a label and one text or a pair, and stratified splits."""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Literal

from seqwright.core.config import UserError, check_sizes
from seqwright.data.files import UTF_8, Errors, as_list, check_encoding, expand, read_text, refuse_blank, resolve
from seqwright.data.headers import is_header, is_numbered
from seqwright.data.labeled.columns import FASTTEXT, Layout, infer_format, infer_layout, sample_rows
from seqwright.data.labeled.row import Row, counts_of, is_empty, label_value
from seqwright.data.labeled.row_notes import comma_hint, conflicts, copies, odd_labels, unsplit_labels
from seqwright.data.records import JSON_LINES, parse_records, quoted_note
from seqwright.data.samples.labels import embedded_labels
from seqwright.data.samples.text import is_embedded
from seqwright.data.text.corpus import check_split, parse_split

SPLIT_METHODS = ("stratified", "tail", "documents")

SHOWN_ERRORS = 3
"""Malformed rows that an error shows."""
LABEL_FIRST = ("1", "2")
"""Columns of `label TAB text`, which need no note."""

Truncation = Literal["head", "tail", "head+tail", "windows"]
Padding = Literal["masked", "longest", "max_length"]


@dataclass(frozen=True, kw_only=True)
class LabeledConfig:
    kind: Literal["labeled"] = "labeled"
    """Labeled texts or text pairs: sentiment, intents, language identification, paraphrases."""
    train: tuple[str, ...] | str = ()
    """Training files, folders or glob patterns (.tsv, .csv, .jsonl or `label TAB text`; plain, .gz or .xz), or
    embedded:languages."""
    valid: tuple[str, ...] | str | None = None
    """Validation files."""
    split: str | None = None
    """Validation split of the training texts: "stratified 5%" of each class (of all texts where labels are no classes)
    or "documents 5%" of all, a fixed choice by the hash of the text; or "tail 5%"."""
    columns: tuple[int | str, ...] = ()
    """Label column, then the text column or those of a text pair, by name or number from 1. Default: the only two
    columns, or those with known names (label, class, intent …; text, sentence, review …)."""
    separator: str | None = None
    """Separator of label and text in place of a tab: " " for `label text`. Lines are split at the first one."""
    labels: Literal["single", "multi", "regression"] = "single"
    """Label type: single (one class), multi (any number of classes, comma-separated) or regression (a number)."""
    truncation: Truncation = "head"
    """Truncation of long texts: keep the beginning (head), the end (tail), a quarter from the beginning and the rest
    from the end (head+tail, Sun et al. 2019), or everything in windows, whose predictions are averaged."""
    max_length: int | None = None
    """Maximum tokens of a text; default: the model's context, or no limit."""
    padding: Padding = "masked"
    """Padding of a batch: masked, or <pad> that the model reads as a token, up to the longest text of the batch
    (longest) or to max_length. Without a mask a recurrent network forgets the text on its way through them."""
    add_special_tokens: bool = True
    """Adds <sos> before and <eos> after a text, where the vocabulary has them. Texts of a pair always end in <eos>."""
    balance: Literal["none", "oversample"] = "none"
    """Class balance: oversample repeats texts of rarer classes within an epoch until classes are about equally
    frequent."""
    batch_tokens: int | None = None
    """Tokens per batch, padding included; default: training.batch_size texts."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """Malformed rows (too many or too few columns, no JSON object, regression labels that are no number): refuse the
    file, or skip them and report how many (`--skip-bad-rows`), together with rows without a label or a text."""
    errors: Errors = "strict"
    """Decoding errors: strict refuses files with bytes that are invalid in their encoding; replace decodes them as
    U+FFFD and reports how many."""
    encoding: str = UTF_8
    """Encoding of the files: utf-8, latin-1, cp1252, utf-16 or another that Python knows."""

    files: ClassVar[tuple[str, ...]] = ("train", "valid")
    """Keys whose values are paths."""

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if not self.train:
            raise UserError("train names no file; give your own with --labeled FILE.")
        check_split(self.split, self.valid, SPLIT_METHODS)
        check_sizes(self, "max_length", "batch_tokens")
        if self.columns and len(self.columns) not in (2, 3):
            raise UserError('columns names the label and one text or two, as in ["label", "text"] or [1, 3].')
        if self.separator == "":
            raise UserError('separator is empty; give what stands between label and text, as in separator = " ".')
        if self.separator is not None and self.columns:
            raise UserError("separator splits a line into label and text only; leave columns out.")
        if self.labels != "single" and self.balance != "none":
            raise UserError(f'balance is for single classes; leave it out with labels = "{self.labels}".')
        if self.padding == "max_length" and self.max_length is None:
            raise UserError('padding = "max_length" needs a length; set max_length, to 500 for instance.')
        if self.truncation == "windows" and len(self.columns) == 3:
            raise UserError('truncation = "windows" is for single texts; for pairs set it to head, tail or head+tail.')


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A labeled corpus: rows in order."""

    rows: Sequence[Row]
    notes: tuple[str, ...] = ()
    """Notes for the user about the data."""

    @property
    def texts(self) -> list[str]:
        """All texts, those of pairs one by one."""
        return [text for row in self.rows for text in row.texts]

    @property
    def parts(self) -> int:
        """Texts per row."""
        return len(self.rows[0].texts)

    def split(self, rule: str, *, classes: bool = True) -> tuple[Rows, Rows]:
        """The training and the held-out part; except with "tail", duplicates of a text fall on the same side, and the
        choice does not depend on the order of rows."""
        method, share = parse_split(rule, SPLIT_METHODS)
        if method == "tail":
            cut = len(self.rows) - round(share * len(self.rows))
            train, valid = self.rows[:cut], self.rows[cut:]
        else:
            groups: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
            for row in self.rows:
                groups[row.label if method == "stratified" and classes else ""].add(row.texts)
            held_out = {
                texts
                for group in groups.values()
                for texts in sorted(group, key=text_hash)[: _quota(len(group), share)]
            }
            train = [row for row in self.rows if row.texts not in held_out]
            valid = [row for row in self.rows if row.texts in held_out]
        if not train or not valid:
            raise UserError(
                f'split = "{rule}" of {len(self.rows)} rows leaves one side empty; hold out another share, or name a'
                " file in data.valid."
            )
        return Rows(rows=train, notes=self.notes), Rows(rows=valid)


def train_valid_split(train: Rows, config: LabeledConfig) -> tuple[Rows, Rows | None]:
    """Training rows without held-out ones, and validation rows if there are any."""
    if config.valid is not None:
        return train, read_rows(config.valid, config)
    if config.split is None:
        return train, None
    return train.split(config.split, classes=config.labels == "single")


def read_rows(files: Sequence[str] | str, config: LabeledConfig) -> Rows:
    """The rows of the files."""
    notes: list[str] = []
    rows: list[Row] = []
    for name in as_list(files):
        if is_embedded(name):
            rows += [
                Row(label, (text,), f"{name}, row {n:,}") for n, (label, text) in enumerate(embedded_labels(name), 1)
            ]
            continue
        for path in expand(resolve(name))[0]:
            text, decoding_notes = read_text(path, config.errors, config.encoding)
            notes += decoding_notes
            refuse_blank(text, path)
            text = text.rstrip("\r\n")
            layout = _layout(text, path, config)
            if layout.columns and not config.columns and layout.columns != LABEL_FIRST:
                label, read = layout.columns
                notes.append(f"{path}: the label is column {label!r}, the text {read!r}; --columns names others.")
            if header := _numbered_header(text, path, layout):
                named, *others = (repr(header[int(column) - 1]) for column in layout.columns)
                texts = " and ".join(others)
                notes.append(f"{path}: the first row is a header; the label is column {named}, the text {texts}.")
            if layout.quoted:
                notes.append(quoted_note(path))
            parsed = _well_formed(_rows(text, path, config, layout), path, config, notes)
            if not parsed:
                raise UserError(f"{path} has a header and no rows below it.")
            if config.labels == "single" and len(parsed) > 2 and counts_of(parsed)[parsed[0].label] == 1:
                notes.append(
                    f"{parsed[0].place}: no other row has the label {parsed[0].label!r}; if it is a header, name the"
                    " columns: --columns label=NAME,text=NAME."
                )
            rows += parsed
    notes += [*odd_labels(rows)] if config.labels == "single" else []
    notes += [*unsplit_labels(rows)] if config.labels == "multi" else []
    notes += [*copies(rows), *(conflicts(rows) if config.labels == "single" else [])]
    empty = sum(map(is_empty, rows))
    if empty:
        notes.append(
            f"{empty:,} of {len(rows):,} texts {'is' if empty == 1 else 'are'} empty, which says nothing about the"
            " label; --skip-bad-rows leaves such rows out."
        )
    return Rows(rows=rows, notes=tuple(notes))


def _well_formed(rows: Iterable[Row | UserError], path: Path, config: LabeledConfig, notes: list[str]) -> list[Row]:
    """The rows without malformed ones, which are errors, or skipped with a note (data.bad_rows)."""
    unchecked = list(rows)
    parsed = [_checked(row, config) for row in unchecked]
    errors = [row for row in parsed if isinstance(row, UserError)]
    hint = comma_hint(row for row in unchecked if isinstance(row, Row)) if config.labels == "regression" else ""
    if errors and len(errors) == len(parsed):
        if config.labels == "regression":
            raise UserError(
                f"{errors[0]} None of the {len(parsed):,} rows has a number and a text.{hint} --columns"
                " label=NAME,text=NAME names other columns."
            )
        raise errors[0]
    if errors and config.bad_rows == "refuse":
        shown = "\n".join(f"  {error}" for error in errors[:SHOWN_ERRORS])
        raise UserError(
            f"{path}: malformed rows: {len(errors):,} of {len(parsed):,}.\n{shown}\nFix them, or leave them out with"
            f' --skip-bad-rows (data.bad_rows = "skip").{hint}'
        )
    if errors:
        notes.append(f"{path}: malformed rows, skipped: {len(errors):,} of {len(parsed):,}. {errors[0]}{hint}")
    return [row for row in parsed if isinstance(row, Row)]


def _checked(row: Row | UserError, config: LabeledConfig) -> Row | UserError:
    """The row, or an error where its label is no number that has to be one; or where its label or its text is empty and
    malformed rows are skipped. No labels are labels, too, where there are many."""
    if not isinstance(row, Row):
        return row
    skip = config.bad_rows == "skip"
    if not row.label and (config.labels == "regression" or (config.labels == "single" and skip)):
        return UserError(f"{row.place} has an empty label.")
    if config.labels == "regression":
        try:
            label_value(row)
        except UserError as error:
            return error
    if skip and is_empty(row):
        return UserError(f"{row.place} has an empty text.")
    return row


def _layout(text: str, path: Path, config: LabeledConfig) -> Layout:
    """The layout that a recipe names, or that of the file."""
    if config.separator is not None:
        return Layout(separator=config.separator)
    if config.columns:
        return replace(infer_format(text, path), columns=tuple(map(str, config.columns)))
    return infer_layout(text, path, classes=config.labels == "single")


def _rows(text: str, path: Path, config: LabeledConfig, layout: Layout) -> Iterator[Row | UserError]:
    if layout.separator is not None:
        yield from _separated(text, path, layout.separator)
        return
    suffix, columns = layout.suffix, layout.columns
    header = suffix not in JSON_LINES and bool(not is_numbered(columns) or _numbered_header(text, path, layout))
    unit = "record" if suffix == ".csv" else "line"  # a quoted field may span lines
    lists = columns[:1] if config.labels == "multi" else ()
    parsed = parse_records(
        text, path, columns, suffix=suffix, delimiter=layout.delimiter, scalars=columns[:1], lists=lists
    )
    nonblank = (n for n, line in enumerate(text.split("\n"), 1) if line.strip("\r"))
    numbers = itertools.islice(itertools.count(1) if unit == "record" else nonblank, header, None)
    for row, n in zip(parsed, numbers, strict=False):
        yield row if isinstance(row, UserError) else Row(row[0].strip(), row[1:], f"{path}, {unit} {n:,}")


def _numbered_header(text: str, path: Path, layout: Layout) -> list[str]:
    """The first row of a file whose columns are selected by number, where it is a header with these columns."""
    if not layout.columns or layout.suffix in JSON_LINES or not is_numbered(layout.columns):
        return []
    first, *rows = sample_rows(text, path, layout)
    return first if is_header(first, rows) and max(map(int, layout.columns)) <= len(first) else []


def _separated(text: str, path: Path, separator: str) -> Iterator[Row | UserError]:
    for n, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        label, separated, rest = line.partition(separator)
        if not line:
            continue
        if not separated:
            yield UserError(f"{path}, line {n:,} has no {separator!r} between label and text: {line[:60]!r}.")
            continue
        if label.startswith(FASTTEXT) and rest.startswith(FASTTEXT):  # it would be read as a word of the text
            raise UserError(
                f"{path}, line {n:,} has several labels: {line[:60]!r}. Write them as `one,other TAB text` and set"
                ' data.labels = "multi".'
            )
        yield Row(label.strip().removeprefix(FASTTEXT), (rest,), f"{path}, line {n:,}")


def _quota(count: int, share: Fraction) -> int:
    """The number of held-out texts of a class of `count`: at least one of three or more."""
    return max(round(share * count), 1 if count >= 3 else 0)


def text_hash(texts: tuple[str, ...]) -> bytes:
    """A random number of a text that is the same every time."""
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=8).digest()
