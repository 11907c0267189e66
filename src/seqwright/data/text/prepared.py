"""Prepared corpora: the index of a folder, and its stream of ids, memory-mapped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seqwright.core.config import UserError
from seqwright.core.regular_files import FileRecord
from seqwright.core.storage import read_json, to_record
from seqwright.data.text.blocks import BLOCK
from seqwright.data.text.corpus import Document
from seqwright.data.text.stream import Stream, lossy, surfaces
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.word_table import Ids

FORMAT = 5
SHARD = 64 << 20
"""Default size of a shard in bytes."""
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Inputs and settings of a preparation; parts made under another plan are never reused."""

    files: list[str]
    tokenizer: str
    document: Document
    columns: list[str]
    block: int = BLOCK
    format: int = FORMAT


@dataclass(frozen=True, kw_only=True)
class EncodedCounts:
    """Counts of encoded text."""

    ids: int
    documents: int
    characters: int
    bytes: int
    unknown: int
    exact: bool
    whole: bool


@dataclass(frozen=True, kw_only=True)
class Index(EncodedCounts, Plan):
    """The contents of index.json."""

    dtype: Literal["uint16", "uint32"]
    """dtype of ids.bin."""
    sha256: str
    """Of ids.bin."""
    shard: int
    """Bytes of a shard: the range of ids.bin that is fetched at a time where the folder is at a URL (decision 211)."""
    shards: list[str]
    """sha256 of each shard."""
    fingerprint: str
    """Fingerprint of the stream."""
    unended: list[tuple[int, int]]
    """(position, missing line ends) of blocks whose last document has no end."""
    skipped: list[str]
    """Why files, or the rest of them, were left out."""


def is_prepared(folder: Path) -> bool:
    """Whether a folder holds a complete prepared corpus."""
    return (folder / "index.json").is_file()


def open_prepared(folder: Path, tokenizer: Tokenizer) -> Stream:
    """The stream of a prepared folder, its ids memory-mapped."""
    index = read_index(folder)
    check_tokenizer(str(folder), index, tokenizer)
    dtype, path = np.dtype(index.dtype), folder / "ids.bin"
    if not path.exists() or path.stat().st_size != index.ids * dtype.itemsize or not index.ids:
        raise UserError(f"{path} is missing or cut short; delete {folder} and prepare the text again.")
    if not verify(folder):
        raise UserError(
            f"{path} is damaged: its sha256 is not that of index.json; delete {folder} and prepare the text again."
        )
    ids = np.memmap(path, dtype, mode="r")
    if int(ids.max()) >= tokenizer.size:
        raise UserError(f"{path} has ids beyond its vocabulary of {tokenizer.size:,}; prepare the text again.")
    return stream_of(index, ids, tokenizer)


def check_tokenizer(folder: str, index: Index, tokenizer: Tokenizer) -> None:
    """Refuses a tokenizer other than that of a prepared folder, by path or URL."""
    if index.tokenizer != tokenizer.hash:
        raise UserError(
            f"{folder} was encoded with tokenizer {index.tokenizer[:16]}…, but this one is {tokenizer.hash[:16]}…;"
            f' set tokenizer.file = "{folder}/tokenizer.json", or prepare the text again.'
        )


def stream_of(index: Index, ids: Ids, tokenizer: Tokenizer, *, fingerprint: str | None = None) -> Stream:
    """The stream of these ids with the facts of an index; `fingerprint` where the ids are streamed."""
    assert tokenizer.sos is not None
    return Stream(
        ids=ids,
        sos=tokenizer.sos,
        pad=tokenizer.sos if tokenizer.pad is None else tokenizer.pad,
        documents=index.documents,
        unknown=index.unknown,
        lossy=lossy(index.document, tokenizer, unknown=index.unknown, exact=index.exact, whole=index.whole),
        surfaces=surfaces(index.document, tokenizer),
        unended=dict(index.unended),
        recorded_fingerprint=fingerprint,
    )


def read_index(folder: Path) -> Index:
    """The index.json of a prepared folder."""
    path = folder / "index.json"
    return to_index(read_json(path), str(folder))


def to_index(index: Any, folder: str) -> Index:
    """The index of a folder, by path or URL, from its JSON."""
    if isinstance(index, dict) and index.get("format") != FORMAT:
        raise UserError(f"{folder} was prepared by another version (format {index.get('format')}); prepare it again.")
    advice = "Prepare the text again, or copy the prepared folder again."
    record = to_record(index, Index, f"{folder}/index.json", advice=advice)
    if not all(map(SHA256.fullmatch, record.shards)):  # they become names of files
        raise UserError(f"{folder}/index.json is damaged: its shards are no sha256. {advice}")
    return record


def verify(folder: Path) -> bool:
    """Whether the ids on disk match their checksum; reads about a gigabyte per second."""
    return FileRecord.of(folder / "ids.bin").sha256 == read_index(folder).sha256
