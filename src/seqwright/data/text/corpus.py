"""Text corpora: files split into documents, and documents split into training and validation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.core.printable import quantity
from seqwright.data.files import (
    UTF_8,
    EmptyFileError,
    Errors,
    as_list,
    check_encoding,
    expand,
    plain_suffix,
    read_text,
    refuse_blank,
    resolve,
)
from seqwright.data.records import holds_records, is_quoted, quoted_note, records
from seqwright.data.samples.text import embedded_text, is_embedded
from seqwright.data.text.origins import Origins
from seqwright.text.backend import SPLIT_AT_SPACE, Kind

F = TypeVar("F", bound=str | Path)
T = TypeVar("T")

Document = Literal["line", "blank-line", "file"]

END = {"line": "\n", "blank-line": "\n\n", "file": ""}
"""Text that ends a document of each kind; `<eos>` stands for it in the stream."""

_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_SPLIT = re.compile(r"([a-z]+) (\d+(?:\.\d+)?)%")


@dataclass(frozen=True, kw_only=True)
class TextFiles:
    """Files and documents of a text corpus: the keys that all text kinds share."""

    kind: str
    """Kind of examples."""
    train: tuple[str, ...] | str = ()
    """Training files, folders or glob patterns (text, Markdown, .jsonl, .csv, .tsv; plain, .gz or .xz), or folders of
    `seqwright data prepare`, also at a URL (s3://, gs://, hf://, https://), from where they are streamed. Relative
    paths are searched beside the recipe, then under the data root SEQWRIGHT_DATA; "$SEQWRIGHT_DATA/…" under the data
    root only."""
    columns: tuple[str, ...] = ()
    """Text column of .jsonl, .csv and .tsv files, by name or number from "1"; each record is a document."""
    valid: tuple[str, ...] | str | None = None
    """Validation files."""
    split: str | None = None
    """Validation split of the training files: "tail 10%" holds out the end (of each file, where they are few),
    "documents 5%" a fixed choice of documents by hash."""
    document: Document | None = None
    """Document unit: line, blank-line (paragraphs) or file. Default: line for words, bpe and wordpiece, whose
    vocabularies have no line ends, file otherwise."""
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
            raise UserError("train names no file; give your own text with --text FILE.")
        if self.valid == ():
            raise UserError("valid names no file; leave it out where there is none.")
        if self.columns and self.document not in (None, "line"):
            raise UserError(f'with columns each record is a document; leave document = "{self.document}" out.')
        check_split(self.split, self.valid)


@dataclass(frozen=True, kw_only=True)
class TextConfig(TextFiles):
    kind: Literal["text"] = "text"
    """Plain text for language models."""
    weights: tuple[float, ...] = ()
    """Mixture weights of the entries of train, in the same order; default: one corpus, each text once per epoch."""
    shuffle_block_tokens: int | None = None
    """Windows are shuffled within blocks of so many consecutive tokens, and the blocks among themselves, each epoch.
    Default: all windows among themselves, for which shards at a URL must fit into the cache."""
    examples: Literal["windows", "bptt", "prefixes", "documents"] | None = None
    """Rows of a training batch: windows of the packed text, contiguous slices with the state carried to the next step
    (bptt), prefixes of documents with one target each, or documents. Default: by the model. The state of a gpt is a
    segment memory (Transformer-XL, Dai et al. 2019): keys and values of the model.context - training.sequence_length
    tokens before a slice; needs positions rope, alibi, t5 or none."""
    refit: bool = False
    """n-grams: after scoring the split, fit again on all text; the run is then evaluated on other text only."""
    mask_documents: bool = False
    """Document mask: tokens of a packed window attend within their document only, and positions restart with each
    (gpt). Evaluation does the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_documents and self.examples not in (None, "windows"):
            raise UserError(f'mask_documents is for packed windows; with examples = "{self.examples}" leave it out.')
        if self.weights and (isinstance(self.train, str) or len(self.weights) != len(self.train)):
            raise UserError("weights needs one number for each entry of train, in the same order.")
        if self.shuffle_block_tokens is not None and self.shuffle_block_tokens < 1:
            raise UserError("shuffle_block_tokens must be above 0; leave it out to shuffle all windows.")
        if self.shuffle_block_tokens is not None and self.examples not in (None, "windows"):
            raise UserError(f'shuffle_block_tokens is for windows; with examples = "{self.examples}" leave it out.')
        if any(weight <= 0 for weight in self.weights):
            raise UserError("weights must be above 0; remove files that should have no weight from train.")


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A corpus: documents in order."""

    documents: Sequence[str]
    kind: Document
    notes: tuple[str, ...] = ()
    """Notes for the user about changes made while reading."""
    exact: bool = True
    """Whether the documents and their ends reproduce the text exactly."""
    unended: Mapping[int, int] = field(default_factory=dict)
    """Characters of its end missing in the text after a document, by index: the last line of a file may have no LF."""
    origins: Origins | None = field(default=None, compare=False, repr=False)
    """File and line of each document; None where the text is not from files."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(documents,): characters of each document, with its end where the text has one."""
        lengths = np.fromiter(map(len, self.documents), np.int64, len(self.documents)) + len(END[self.kind])
        for document, missing in self.unended.items():
            lengths[document] -= missing
        return lengths

    @property
    def characters(self) -> int:
        """Characters of the text."""
        return int(self.lengths.sum())

    @property
    def text_hash(self) -> str:
        """sha256 of the text, whatever its documents are."""
        end, sha = END[self.kind], hashlib.sha256()
        for number, document in enumerate(self.documents):
            ended = document + end[: len(end) - self.unended.get(number, 0)]
            sha.update(ended.encode("utf-8", "surrogatepass"))
        return sha.hexdigest()


def read_corpus(
    files: Sequence[str] | str,
    kind: Document,
    *,
    base: Path | None = None,
    errors: Errors,
    encoding: str = UTF_8,
    columns: Sequence[str] | None = None,
) -> Corpus:
    """The corpus of files, folders and glob patterns; with `columns` None, record files are read as plain text."""
    notes: list[str] = []
    entries: list[str | Path] = []
    for name in as_list(files):
        if is_embedded(name):
            entries.append(name)
            continue
        paths, others = expand(resolve(name, base))
        entries += paths
        if others:
            shown = ", ".join([path.name for path in others[:3]] + ["…"] * (len(others) > 3))
            notes.append(f"{name}: {len(others):,} files with other suffixes are skipped ({shown}).")

    def read(entry: str | Path) -> Iterator[Corpus]:
        if isinstance(entry, str):
            yield file_corpus(embedded_text(entry), kind, entry)
            return
        text, decoding_notes = read_text(entry, errors, encoding)
        refuse_blank(text, entry)
        notes.extend(decoding_notes)
        if columns is not None and holds_records(entry):
            documents = list(texts_of(records(text, entry, columns), entry, columns))
            if plain_suffix(entry) == ".tsv" and is_quoted(text):
                notes.append(quoted_note(entry))
            yield Corpus(documents=documents, kind=kind, origins=record_origins(entry, len(documents)))
            return
        if "\r\n" in text:
            notes.append(f"{entry}: CRLF line endings are read as LF.")
            text = text.replace("\r\n", "\n")
        yield file_corpus(text, kind, str(entry))

    parts = list(read_each(entries, read, notes.append))
    return replace(concatenate(parts, kind), notes=tuple(notes))


def read_each(files: Sequence[F], read: Callable[[F], Iterable[T]], note: Callable[[str], None]) -> Iterator[T]:
    """What `read` returns of each file, in order; files without text are skipped with a note, unless all are."""
    skipped = 0
    for file in files:
        try:
            yield from read(file)
        except EmptyFileError:
            if len(files) == 1:
                raise
            skipped += 1
            note(f"{file} has no text and is skipped.")
    if skipped == len(files):
        raise EmptyFileError(f"{files[0]} and {skipped - 1:,} more: no file has text; name others.")


def file_corpus(text: str, kind: Document, name: str) -> Corpus:
    """The corpus of a file's text, with the first line of each document."""
    return replace(corpus_of(text, kind), origins=Origins.of_file(name, first_lines(text, kind)))


def record_origins(path: Path, count: int, first: int = 1) -> Origins:
    """The places of consecutive records: their numbers, as line ends within a text are none of the file's."""
    return Origins.of_file(str(path), np.arange(first, first + count), "record")


def corpus_of(text: str, kind: Document) -> Corpus:
    """The corpus of a text, with whether its documents and their ends reproduce it; the last end may be incomplete."""
    documents, end = documents_of(text, kind), END[kind]
    rejoined = end.join(documents)
    rest = text[len(rejoined) :]
    if not documents or not text.startswith(rejoined) or not end.startswith(rest):
        return Corpus(documents=documents, kind=kind, exact=False)
    missing = len(end) - len(rest)
    return Corpus(documents=documents, kind=kind, unended={len(documents) - 1: missing} if missing else {})


def concatenate(parts: Sequence[Corpus], kind: Document) -> Corpus:
    """The concatenation of corpora."""
    documents: list[str] = []
    unended: dict[int, int] = {}
    for part in parts:
        unended |= {len(documents) + document: missing for document, missing in part.unended.items()}
        documents += part.documents
    origins = [part.origins for part in parts if part.origins is not None]
    return Corpus(
        documents=documents,
        kind=kind,
        exact=all(part.exact for part in parts),
        unended=unended,
        origins=Origins.join(origins) if len(origins) == len(parts) else None,
    )


def texts_of(rows: Iterable[tuple[str, ...]], path: Path, columns: Sequence[str]) -> Iterator[str]:
    """The text column of a file's records; each is a document."""
    if len(columns) != 1:
        raise UserError(f"{path} holds records; name the text column: --columns text=NAME (data.columns in a recipe).")
    return (row[0] for row in rows)


def documents_of(text: str, kind: Document) -> list[str]:
    """The documents of a text. Lines end at LF or CRLF only, not at U+2028 or a lone CR; empty lines are documents."""
    if kind == "file":
        return [text]
    text = text.replace("\r\n", "\n")
    if kind == "blank-line":
        return [paragraph.strip("\n") for paragraph in _BLANK_LINES.split(text) if paragraph.strip()]
    return text.removesuffix("\n").split("\n")


def first_lines(text: str, kind: Document) -> NDArray[np.int64]:
    """(documents,): the line, from 1, at which each document of a text begins."""
    if kind == "file":
        return np.ones(1, np.int64)
    if kind == "line":
        return np.arange(1, text.removesuffix("\n").count("\n") + 2)
    text = text.replace("\r\n", "\n")
    lines, line, begin = [], 1, 0
    for end, following in [*(match.span() for match in _BLANK_LINES.finditer(text)), (len(text), len(text))]:
        paragraph = text[begin:end]
        if paragraph.strip():
            lines.append(line + len(paragraph) - len(paragraph.lstrip("\n")))
        line += text.count("\n", begin, following)
        begin = following
    return np.array(lines, np.int64)


def document_kind(config: TextFiles, tokenizer: Kind) -> Document:
    """The document unit: the recipe's, otherwise a line for tokenizers without line ends, a file for others."""
    return config.document or ("line" if config.columns or tokenizer in SPLIT_AT_SPACE else "file")


def check_split(split: str | None, valid: Sequence[str] | None, methods: Sequence[str] = ("tail", "documents")) -> None:
    """Refuses a split rule that does not parse, or that is given together with validation files."""
    if split is None:
        return
    parse_split(split, methods)
    if valid is not None:
        raise UserError("valid and split both define the validation data; keep one.")


def parse_split(rule: str, methods: Sequence[str] = ("tail", "documents")) -> tuple[str, Fraction]:
    """The method and the held-out share of a split rule."""
    match = _SPLIT.fullmatch(rule)
    if not match or match[1] not in methods or not 0 < Fraction(match[2]) < 100:
        examples = " or ".join(f'"{method} 5%"' for method in methods)
        raise UserError(f'split is "{rule}"; write {examples}.')
    return match[1], Fraction(match[2]) / 100


def split(corpus: Corpus, rule: str) -> tuple[Corpus, Corpus]:
    """The training and the held-out part.

    "tail" holds out the last documents; the last characters of a single document; or the last characters of each file
    where the share is less than one file. "documents" holds out those whose text hashes below the share: the choice
    needs no seed, is stable when the corpus is reordered or grows, and puts duplicates of a document on the same side.
    """
    method, share = parse_split(rule)
    documents = corpus.documents
    if method == "tail" and (len(documents) == 1 or (corpus.kind == "file" and len(documents) * share < 1)):
        cuts = [int(len(document) * (1 - share)) for document in documents]
        heads = [document[:cut] for document, cut in zip(documents, cuts, strict=True)]
        tails = [document[cut:] for document, cut in zip(documents, cuts, strict=True)]
        train = replace(corpus, documents=heads, unended=dict.fromkeys(range(len(heads)), len(END[corpus.kind])))
        valid = replace(corpus, documents=tails, notes=(), origins=None)  # they begin within lines
    else:
        if method == "documents":
            held_out = [_hash_fraction(document) < share for document in documents]
        else:
            cut = int(len(documents) * (1 - share))
            held_out = [number >= cut for number in range(len(documents))]
        train = _select(corpus, [number for number, held in enumerate(held_out) if not held])
        valid = replace(_select(corpus, [number for number, held in enumerate(held_out) if held]), notes=())
    if not any(train.documents) or not any(valid.documents):
        raise UserError(
            f'split = "{rule}" of {quantity(len(documents), f"{corpus.kind} document")} leaves one side empty;'
            " hold out another share, or name a file in data.valid."
        )
    return train, valid


def _select(corpus: Corpus, numbers: list[int]) -> Corpus:
    """These documents, in this order."""
    unended = {new: corpus.unended[old] for new, old in enumerate(numbers) if old in corpus.unended}
    origins = None if corpus.origins is None else corpus.origins.select(numbers)
    return replace(corpus, documents=[corpus.documents[n] for n in numbers], unended=unended, origins=origins)


def _hash_fraction(document: str) -> float:
    """A hash of the text in [0, 1)."""
    digest = hashlib.blake2b(document.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
