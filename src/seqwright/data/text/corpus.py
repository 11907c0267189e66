"""Plain text as a corpus: files cut into documents, and documents split into training and validation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.data.files import Errors, expand, read_text, resolve
from seqwright.data.records import holds_records, records
from seqwright.data.samples.text import embedded_text, is_embedded
from seqwright.text.backend import SPLIT_AT_SPACE, Kind

Document = Literal["line", "blank-line", "file"]

END = {"line": "\n", "blank-line": "\n\n", "file": ""}
"""What stands after a document in a text; `<eos>` says it in the stream."""

_SPLIT = re.compile(r"([a-z]+) (\d+(?:\.\d+)?)%")


@dataclass(frozen=True, kw_only=True)
class TextFiles:
    """Where documents come from, whatever is made of them."""

    kind: str
    """What is made of them."""
    train: tuple[str, ...] | str = ()
    """Files, folders or patterns to learn from (text, Markdown, .jsonl, .csv, .tsv; plain, .gz or .xz), or folders that
    `seqwright data prepare` made: beside the recipe, then under the data root SEQWRIGHT_DATA, where "$SEQWRIGHT_DATA/…"
    is looked for only."""
    columns: tuple[str, ...] = ()
    """The column of .jsonl, .csv and .tsv files that is the text, by name or counted from "1"; each is a document."""
    valid: tuple[str, ...] | str | None = None
    """Files to measure progress on."""
    split: str | None = None
    """Validation text from the training files: "tail 10%" takes the end (of each file, where they are few),
    "documents 5%" a fixed choice of documents."""
    document: Document | None = None
    """What a document is: line, blank-line (paragraphs) or file. Left out: line for words, bpe and wordpiece, which do
    not know line ends, and file otherwise."""
    errors: Errors = "strict"
    """strict refuses files that are not UTF-8 text; replace reads U+FFFD where they are broken, and says how often."""

    files: ClassVar[tuple[str, ...]] = ("train", "valid")
    """The keys that name files."""

    def __post_init__(self) -> None:
        if not self.train:
            raise UserError("train names no file; give your own text with --text FILE.")
        if self.valid == ():
            raise UserError("valid names no file; leave it out where there is none.")
        if self.columns and self.document not in (None, "line"):
            raise UserError(f'with columns each record is a document; document = "{self.document}" has no meaning.')
        check_split(self.split, self.valid)


@dataclass(frozen=True, kw_only=True)
class TextConfig(TextFiles):
    kind: Literal["text"] = "text"
    """Plain text for a language model."""
    weights: tuple[float, ...] = ()
    """How much of what is learned comes from each entry of train, in the same order; left out: as much as there is."""
    examples: Literal["windows", "bptt", "prefixes", "documents"] | None = None
    """What a row of a training batch is: a window of the packed text, a stretch of it whose state is carried to the
    next step (rows), a prefix of a document with one target, or a document. Left out: what suits the model."""
    mask_documents: bool = False
    """Whether tokens of packed windows see their own document only, and positions begin anew with each (gpt); measured
    the same way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_documents and self.examples not in (None, "windows"):
            raise UserError(f'mask_documents is for packed windows; with examples = "{self.examples}" leave it out.')
        if self.weights and (isinstance(self.train, str) or len(self.weights) != len(self.train)):
            raise UserError("weights needs one number for each entry of train, in the same order.")
        if any(weight <= 0 for weight in self.weights):
            raise UserError("weights must be above 0; take the files that should not be learned from out of train.")


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Documents in order."""

    documents: Sequence[str]
    kind: Document
    notes: tuple[str, ...] = ()
    """What was mended while reading, to be said."""
    exact: bool = True
    """The documents and their ends are the text that was read."""
    unended: Mapping[int, int] = field(default_factory=dict)
    """How many characters of its end the text lacks after a document: the last line of a file may have no line end."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(documents,): characters of each document, its end included where the text has one."""
        lengths = np.fromiter(map(len, self.documents), np.int64, len(self.documents)) + len(END[self.kind])
        for document, lacking in self.unended.items():
            lengths[document] -= lacking
        return lengths

    @property
    def characters(self) -> int:
        """Of the text as it was read."""
        return int(self.lengths.sum())


def read_corpus(
    files: Sequence[str] | str,
    kind: Document,
    *,
    base: Path | None = None,
    errors: Errors,
    columns: Sequence[str] | None = None,
) -> Corpus:
    """The documents of some files, folders and patterns; the lines of records too, where no column is asked for."""
    notes: list[str] = []
    parts: list[Corpus] = []
    for name in [files] if isinstance(files, str) else files:
        if is_embedded(name):
            parts.append(corpus_of(embedded_text(name), kind))
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
                parts.append(Corpus(documents=list(texts_of(records(text, path, columns), path, columns)), kind=kind))
                continue
            if kind != "file" and "\r\n" in text:
                notes.append(f"{path}: lines end in CR LF, read as line ends.")
            parts.append(corpus_of(text, kind))
    return replace(joined(parts, kind), notes=tuple(notes))


def corpus_of(text: str, kind: Document) -> Corpus:
    """The documents of a text, and whether they and their ends are all of it; the last may have less of an end."""
    documents, end = documents_of(text, kind), END[kind]
    inside = end.join(documents)
    rest = text[len(inside) :]
    if not documents or not text.startswith(inside) or not end.startswith(rest):
        return Corpus(documents=documents, kind=kind, exact=False)
    lacking = len(end) - len(rest)
    return Corpus(documents=documents, kind=kind, unended={len(documents) - 1: lacking} if lacking else {})


def joined(parts: Sequence[Corpus], kind: Document) -> Corpus:
    """Corpora one after the other."""
    documents: list[str] = []
    unended: dict[int, int] = {}
    for part in parts:
        unended |= {len(documents) + document: lacking for document, lacking in part.unended.items()}
        documents += part.documents
    return Corpus(documents=documents, kind=kind, exact=all(part.exact for part in parts), unended=unended)


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


def document_kind(config: TextFiles, tokenizer: Kind) -> Document:
    """What a document is: what the recipe says, otherwise a line for kinds that do not know line ends, and a file."""
    return config.document or ("line" if config.columns or tokenizer in SPLIT_AT_SPACE else "file")


def check_split(split: str | None, valid: Sequence[str] | None, ways: Sequence[str] = ("tail", "documents")) -> None:
    """Refuses a split that cannot be understood, or that stands beside files to validate on."""
    if split is None:
        return
    parse_split(split, ways)
    if valid is not None:
        raise UserError("valid and split both say what to validate on; keep one.")


def parse_split(rule: str, ways: Sequence[str] = ("tail", "documents")) -> tuple[str, Fraction]:
    """The way and the held-out share of a split."""
    match = _SPLIT.fullmatch(rule)
    if not match or match[1] not in ways or not 0 < Fraction(match[2]) < 100:
        written = " or ".join(f'"{way} 5%"' for way in ways)
        raise UserError(f'split is "{rule}"; write {written}.')
    return match[1], Fraction(match[2]) / 100


def split(corpus: Corpus, rule: str) -> tuple[Corpus, Corpus]:
    """Training and held-out part.

    "tail" holds out the last documents, or the last characters where there is one document, or those of each file where
    one of them is more than the share. "documents" holds out those whose text hashes low: the choice needs no seed,
    survives a reordered or grown corpus, and never puts two copies of one document on both sides.
    """
    way, share = parse_split(rule)
    documents = corpus.documents
    if way == "tail" and (len(documents) == 1 or (corpus.kind == "file" and len(documents) * share < 1)):
        cuts = [int(len(document) * (1 - share)) for document in documents]
        heads = [document[:cut] for document, cut in zip(documents, cuts, strict=True)]
        tails = [document[cut:] for document, cut in zip(documents, cuts, strict=True)]
        train = replace(corpus, documents=heads, unended=dict.fromkeys(range(len(heads)), len(END[corpus.kind])))
        valid = replace(corpus, documents=tails, notes=())
    else:
        if way == "documents":
            held_out = [_hash_fraction(document) < share for document in documents]
        else:
            cut = int(len(documents) * (1 - share))
            held_out = [number >= cut for number in range(len(documents))]
        train = _only(corpus, [number for number, out in enumerate(held_out) if not out])
        valid = replace(_only(corpus, [number for number, out in enumerate(held_out) if out]), notes=())
    if not any(train.documents) or not any(valid.documents):
        raise UserError(
            f'split = "{rule}" of {len(documents)} {corpus.kind} document(s) leaves one side empty;'
            " hold out another share, or name a file in data.valid."
        )
    return train, valid


def _only(corpus: Corpus, numbers: list[int]) -> Corpus:
    """Some of the documents, in this order."""
    unended = {new: corpus.unended[old] for new, old in enumerate(numbers) if old in corpus.unended}
    return replace(corpus, documents=[corpus.documents[number] for number in numbers], unended=unended)


def _hash_fraction(document: str) -> float:
    digest = hashlib.blake2b(document.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
