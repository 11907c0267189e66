"""The corpora of a recipe's [data]: one or several for training, mixed by weight, and one for validation."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from seqwright.core.config import UserError
from seqwright.data.files import as_list, expand, is_remote, resolve
from seqwright.data.records import RECORD_SUFFIXES, holds_records
from seqwright.data.samples.text import is_embedded
from seqwright.data.text.blocks import blocks
from seqwright.data.text.corpus import (
    Corpus,
    Document,
    TextConfig,
    TextFiles,
    concatenate,
    first_lines,
    read_corpus,
    read_each,
    record_origins,
    split,
)
from seqwright.data.text.origins import Origins
from seqwright.data.text.prepared import Index, is_prepared, open_prepared, read_index
from seqwright.data.text.stream import Stream, make_stream
from seqwright.data.text.streamed import RemoteFolder, remote_folder
from seqwright.text.tokenizer import Tokenizer

Readable = Corpus | Path | RemoteFolder
"""Documents in memory, or the folder of a prepared corpus, here or at a URL."""


@dataclass(frozen=True, kw_only=True)
class Corpora:
    """The training corpora with their names, and the validation corpus."""

    names: list[str]
    train: list[Readable]
    valid: Readable | None

    @property
    def texts(self) -> list[str]:
        """Training documents available as text, from which a tokenizer is trained; prepared corpora have none."""
        return list(chain.from_iterable(part.documents for part in self.train if isinstance(part, Corpus)))

    @property
    def notes(self) -> list[str]:
        """Notes of all corpora."""
        return [note for part in (*self.train, self.valid) if isinstance(part, Corpus) for note in part.notes]

    @property
    def leak(self) -> str | None:
        """A warning about validation documents that are in the training text too, if there are any."""
        if not isinstance(self.valid, Corpus) or len(self.valid.documents) < 2:
            return None
        seen = {_digest(document) for document in self.texts}
        leaked = [document for document in self.valid.documents if document.strip() and _digest(document) in seen]
        if not leaked:
            return None
        share = sum(map(len, leaked)) / max(1, self.valid.characters)
        return (
            f"{len(leaked):,} of {len(self.valid.documents):,} validation documents are exact duplicates of training"
            f" documents ({share:.1%} of its characters); `seqwright data audit` finds near-duplicates too."
        )


def read_corpora(config: TextFiles, kind: Document, *, base: Path | None = None) -> Corpora:
    """The corpora of a recipe; with weights, each entry of `train` is a corpus of its own."""
    names = as_list(config.train)
    _refuse_unused_columns(config, base)
    prepared = [_prepared(name, base, kind) for name in names]
    weighted = isinstance(config, TextConfig) and bool(config.weights)
    if any(prepared) and len(names) > 1 and not weighted:
        raise UserError("several prepared corpora are mixed by weight; set their weights in data.weights.")
    groups = [[name] for name in names] if weighted else [names]
    corpora = [folder or _read(group, kind, config, base) for group, folder in zip(groups, prepared, strict=False)]
    train, valid = _train_valid(config, kind, corpora, base)
    return Corpora(names=[", ".join(group) for group in groups], train=train, valid=valid)


def prepared_index(name: str) -> Index | None:
    """The index of a prepared folder, by path or URL; None of other files."""
    if is_remote(name):
        return remote_folder(name).index
    return None if is_embedded(name) or not is_prepared(resolve(name)) else read_index(resolve(name))


def to_stream(corpus: Readable, tokenizer: Tokenizer, *, streamed: bool = False) -> Stream:
    """The stream of ids of a corpus; `streamed`: ids at a URL are fetched while they are read, else all at once."""
    if isinstance(corpus, RemoteFolder):
        return corpus.stream(tokenizer, whole=not streamed)
    return make_stream(corpus, tokenizer) if isinstance(corpus, Corpus) else open_prepared(corpus, tokenizer)


def origins_of(corpus: Readable) -> Origins:
    """File and line of each document; of a prepared corpus whose files are not there, or have other documents now, its
    folder and their numbers."""
    if isinstance(corpus, Corpus):
        assert corpus.origins is not None, "training documents come from files"
        return corpus.origins
    if isinstance(corpus, RemoteFolder):
        return Origins.of_file(str(corpus), np.arange(1, corpus.index.documents + 1), "document")
    index = read_index(corpus)
    with suppress(UserError):  # moved, or no longer readable
        files = list(map(Path, index.files))
        origins = Origins.join(list(read_each(files, lambda path: [_file_origins(path, index)], lambda note: None)))
        if len(origins.places) == index.documents:
            return origins
    return Origins.of_file(str(corpus), np.arange(1, index.documents + 1), "document")


def _file_origins(path: Path, index: Index) -> Origins:
    """Of a file that was prepared, read block by block."""
    parts, count = [], 0
    for block in blocks(path, index.document, index.block):
        if holds_records(path):
            documents = len(block.corpus(index.document, index.columns).documents)
            parts.append(record_origins(path, documents, first=count + 1).places)
            count += documents
        elif index.document != "file" or block.first:
            lines = first_lines(block.text, index.document) + block.line - 1
            parts.append(Origins.of_file(str(path), lines).places)
    return Origins(((str(path), "record" if holds_records(path) else "line"),), np.concatenate(parts))


def _read(names: list[str], kind: Document, config: TextFiles, base: Path | None) -> Corpus:
    return read_corpus(names, kind, base=base, errors=config.errors, encoding=config.encoding, columns=config.columns)


def _train_valid(
    config: TextFiles, kind: Document, train: list[Readable], base: Path | None
) -> tuple[list[Readable], Readable | None]:
    """Training corpora without held-out documents, and the validation corpus."""
    if config.valid is not None:
        names = as_list(config.valid)
        prepared = [folder for name in names if (folder := _prepared(name, base, kind))]
        if prepared and len(names) > 1:
            raise UserError(
                f"{prepared[0]} is prepared, so it must be the only validation corpus; name nothing beside it in"
                " data.valid."
            )
        return train, prepared[0] if prepared else _read(names, kind, config, base)
    if config.split is None:
        return train, None
    parts = []
    for corpus in train:
        if not isinstance(corpus, Corpus):
            raise UserError(f"{corpus} is prepared, and cannot be split; prepare the validation text by itself.")
        parts.append(split(corpus, config.split))
    return [kept for kept, _ in parts], concatenate([valid for _, valid in parts], kind)


def _refuse_unused_columns(config: TextFiles, base: Path | None) -> None:
    """Refuses data.columns where no file has columns: it would silently make every line a document."""
    if not config.columns:
        return
    names = (*as_list(config.train), *as_list(config.valid))
    paths = [resolve(name, base) for name in names if not (is_embedded(name) or is_remote(name))]
    if not any(holds_records(file) for path in paths if not is_prepared(path) for file in expand(path)[0]):
        raise UserError(
            f"data.columns is for files that end in {', '.join(RECORD_SUFFIXES)}; none of these does. Leave it out."
        )


def _prepared(name: str, base: Path | None, kind: Document) -> Path | RemoteFolder | None:
    """The folder of a prepared corpus, if the name is one; its document kind must match the recipe's."""
    folder: Path | RemoteFolder
    if is_remote(name):
        folder = remote_folder(name)
        prepared = folder.index.document
    else:
        path = None if is_embedded(name) else resolve(name, base)
        if path is None or not is_prepared(path):
            return None
        folder, prepared = path, read_index(path).document
    if prepared != kind:
        raise UserError(
            f"{folder} was prepared with documents of the kind '{prepared}', but here a document is a {kind};"
            f' set data.document = "{prepared}".'
        )
    return folder


def _digest(document: str) -> bytes:
    return hashlib.blake2b(" ".join(document.split()).encode(), digest_size=16).digest()
