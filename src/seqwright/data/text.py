"""Plain text as a corpus: files cut into documents, and documents split into training and validation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Literal

from seqwright.config import UserError
from seqwright.data.embedded import embedded_text, is_embedded
from seqwright.data.files import Errors, expand, read_text, resolve
from seqwright.data.records import holds_records, records
from seqwright.text.backend import SPLIT_AT_SPACE, Kind

Document = Literal["line", "blank-line", "file"]

END = {"line": "\n", "blank-line": "\n\n", "file": ""}
"""What stands after a document in a text; `<eos>` says it in the stream."""

_SPLIT = re.compile(r"(tail|documents) (\d+(?:\.\d+)?)%")


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    kind: Literal["text"] = "text"
    """Plain text for a language model."""
    train: tuple[str, ...] | str = ()
    """Files, folders or patterns to learn from (text, Markdown, .jsonl, .csv, .tsv; plain, .gz or .xz), or folders that
    `seqwright data prepare` made: beside the recipe, then under the data root SEQWRIGHT_DATA."""
    weights: tuple[float, ...] = ()
    """How much of what is learnt comes from each entry of train, in the same order; left out: as much as there is."""
    columns: tuple[str, ...] = ()
    """The column of .jsonl, .csv and .tsv files that is the text, by name or counted from "1"; each is a document."""
    valid: tuple[str, ...] | str | None = None
    """Files to measure progress on."""
    split: str | None = None
    """Validation text from the training files: "tail 10%" takes the end, "documents 5%" a fixed choice of documents."""
    document: Document | None = None
    """What a document is: line, blank-line (paragraphs) or file. Left out: line for words, bpe and wordpiece, which do
    not know line ends, and file otherwise."""
    errors: Errors = "strict"
    """strict refuses files that are not UTF-8 text; replace reads U+FFFD where they are broken, and says how often."""
    examples: Literal["windows", "rows", "prefixes", "documents"] | None = None
    """windows (packed), rows (state carried on), prefixes (one target each) or documents. Left out: by the model."""

    files: ClassVar[tuple[str, ...]] = ("train", "valid")
    """The keys that name files."""

    def __post_init__(self) -> None:
        if not self.train:
            raise UserError("train names no file; give your own text with --text FILE.")
        if self.valid == ():
            raise UserError("valid names no file; leave it out where there is none.")
        if self.weights and (isinstance(self.train, str) or len(self.weights) != len(self.train)):
            raise UserError("weights needs one number for each entry of train, in the same order.")
        if any(weight <= 0 for weight in self.weights):
            raise UserError("weights must be above 0; take the files that should not be learnt from out of train.")
        if self.columns and self.document not in (None, "line"):
            raise UserError(f'with columns each record is a document; document = "{self.document}" has no meaning.')
        if self.split is not None:
            parse_split(self.split)
        if self.split is not None and self.valid is not None:
            raise UserError("valid and split both say what to validate on; keep one.")


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Documents in order."""

    documents: Sequence[str]
    kind: Document
    notes: tuple[str, ...] = ()
    """What was mended while reading, to be said."""

    @property
    def characters(self) -> int:
        """Of the text as it was read, the end of each line (blank line) included."""
        return sum(map(len, self.documents)) + len(END[self.kind]) * len(self.documents)

    @property
    def bytes(self) -> int:
        """Of the text in UTF-8, ends included."""
        return sum(len(document.encode()) for document in self.documents) + len(END[self.kind]) * len(self.documents)


def read_corpus(
    files: Sequence[str] | str,
    kind: Document,
    *,
    base: Path | None = None,
    errors: Errors,
    columns: Sequence[str] | None = None,
) -> Corpus:
    """The documents of some files, folders and patterns; the lines of records too, where no column is asked for."""
    documents: list[str] = []
    notes: list[str] = []
    for name in [files] if isinstance(files, str) else files:
        if is_embedded(name):
            documents += documents_of(embedded_text(name), kind)
            continue
        paths, others = expand(resolve(name, base))
        if others:
            shown = ", ".join([path.name for path in others[:3]] + ["…"] * (len(others) > 3))
            notes.append(f"{name}: {len(others):,} files of other kinds are left out ({shown}).")
        for path in paths:
            text, replaced = read_text(path, errors)
            if replaced:
                notes.append(f"{path}: {replaced:,} places were not UTF-8 text and are read as U+FFFD.")
            if columns is not None and holds_records(path):
                documents += texts_of(records(text, path, columns), path, columns)
                continue
            if kind != "file" and "\r\n" in text:
                notes.append(f"{path}: lines end in CR LF, read as line ends.")
            documents += documents_of(text, kind)
    return Corpus(documents=documents, kind=kind, notes=tuple(notes))


def texts_of(rows: Iterable[tuple[str, ...]], path: Path, columns: Sequence[str]) -> Iterator[str]:
    """The texts of a file's records: each is a document."""
    if len(columns) != 1:
        raise UserError(f'{path} holds records; say which column is the text, as in data.columns = ["text"] or ["3"].')
    return (row[0] for row in rows)


def documents_of(text: str, kind: Document) -> list[str]:
    """A text cut into documents. A line ends at LF or CR LF and at nothing else; lines that hold nothing count too."""
    if kind == "file":
        return [text]
    text = text.replace("\r\n", "\n")
    if kind == "blank-line":
        return [paragraph.strip("\n") for paragraph in re.split(r"\n(?:[ \t]*\n)+", text) if paragraph.strip()]
    return text.removesuffix("\n").split("\n")


def document_kind(config: TextConfig, tokenizer: Kind) -> Document:
    """What a document is: what the recipe says, otherwise a line for kinds that do not know line ends, and a file."""
    return config.document or ("line" if config.columns or tokenizer in SPLIT_AT_SPACE else "file")


def parse_split(rule: str) -> tuple[str, Fraction]:
    """The way and the held-out share of a split."""
    match = _SPLIT.fullmatch(rule)
    if not match or not 0 < Fraction(match[2]) < 100:
        raise UserError(f'split is "{rule}"; write "tail 10%" or "documents 5%".')
    return match[1], Fraction(match[2]) / 100


def split(corpus: Corpus, rule: str) -> tuple[Corpus, Corpus]:
    """Training and held-out part.

    "tail" holds out the last documents, or the last characters where there is one document. "documents" holds out those
    whose text hashes low: the choice needs no seed, survives a reordered or grown corpus, and never puts two copies of
    one document on both sides.
    """
    way, share = parse_split(rule)
    documents = corpus.documents
    if way == "documents":
        held_out = [_hash_fraction(document) < share for document in documents]
        train = [document for document, out in zip(documents, held_out, strict=True) if not out]
        valid = [document for document, out in zip(documents, held_out, strict=True) if out]
    elif len(documents) == 1:
        cut = int(len(documents[0]) * (1 - share))
        train, valid = [documents[0][:cut]], [documents[0][cut:]]
    else:
        cut = int(len(documents) * (1 - share))
        train, valid = list(documents[:cut]), list(documents[cut:])
    if not any(train) or not any(valid):
        raise UserError(
            f'split = "{rule}" of {len(documents)} {corpus.kind} document(s) leaves one side empty;'
            " hold out another share, or name a file in data.valid."
        )
    return (
        Corpus(documents=train, kind=corpus.kind, notes=corpus.notes),
        Corpus(documents=valid, kind=corpus.kind),
    )


def _hash_fraction(document: str) -> float:
    digest = hashlib.blake2b(document.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
