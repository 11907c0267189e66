"""What a recipe's [data] asks for: corpora to learn from, one or several by weight, and the one to measure on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from seqwright.core.config import UserError
from seqwright.core.storage import read_json
from seqwright.data.files import expand, named, resolve
from seqwright.data.records import RECORDS, holds_records
from seqwright.data.samples.text import is_embedded
from seqwright.data.text.corpus import Corpus, Document, TextConfig, TextFiles, joined, read_corpus, split
from seqwright.data.text.prepare import is_prepared, open_prepared
from seqwright.data.text.stream import Stream, make_stream
from seqwright.text.tokenizer import Tokenizer

Readable = Corpus | Path
"""Documents in memory, or the folder of a prepared corpus."""


@dataclass(frozen=True, kw_only=True)
class Corpora:
    names: list[str]
    train: list[Readable]
    valid: Readable | None

    @property
    def texts(self) -> list[str]:
        """Every training document that is there as text: what a tokenizer learns from."""
        return list(chain.from_iterable(part.documents for part in self.train if isinstance(part, Corpus)))

    @property
    def notes(self) -> list[str]:
        return [note for part in (*self.train, self.valid) if isinstance(part, Corpus) for note in part.notes]

    @property
    def leak(self) -> str | None:
        """What should be said of validation documents that stand in the training text too."""
        if not isinstance(self.valid, Corpus) or len(self.valid.documents) < 2:
            return None
        known = {_digest(document) for document in self.texts}
        shared = [document for document in self.valid.documents if document.strip() and _digest(document) in known]
        if not shared:
            return None
        share = sum(map(len, shared)) / max(1, self.valid.characters)
        return (
            f"{len(shared):,} of {len(self.valid.documents):,} validation documents also stand in the training text,"
            f" word for word ({share:.1%} of its characters); `seqwright data audit` finds near copies too."
        )


def read_corpora(config: TextFiles, kind: Document, *, base: Path | None = None) -> Corpora:
    """The corpora of a recipe; each entry of `train` is one of its own where weights are given."""
    names = named(config.train)
    _refuse_idle_columns(config, base)
    prepared = [_prepared(name, base, kind) for name in names]
    weighted = isinstance(config, TextConfig) and bool(config.weights)
    if any(prepared) and len(names) > 1 and not weighted:
        raise UserError("several prepared corpora are mixed by weight; say how with data.weights.")
    groups = [[name] for name in names] if weighted else [names]
    whole = [
        folder or read_corpus(group, kind, base=base, errors=config.errors, columns=config.columns)
        for group, folder in zip(groups, prepared, strict=False)
    ]
    train, valid = _held_out(config, kind, whole, base)
    return Corpora(names=[", ".join(group) for group in groups], train=train, valid=valid)


def to_stream(corpus: Readable, tokenizer: Tokenizer) -> Stream:
    return make_stream(corpus, tokenizer) if isinstance(corpus, Corpus) else open_prepared(corpus, tokenizer)


def _held_out(
    config: TextFiles, kind: Document, train: list[Readable], base: Path | None
) -> tuple[list[Readable], Readable | None]:
    """What is left to learn from, and what to measure on."""
    if config.valid is not None:
        names = named(config.valid)
        prepared = [folder for name in names if (folder := _prepared(name, base, kind))]
        if prepared and len(names) > 1:
            raise UserError(
                f"{prepared[0]} is prepared, and is measured on alone; name nothing beside it in data.valid."
            )
        return train, prepared[0] if prepared else read_corpus(
            names, kind, base=base, errors=config.errors, columns=config.columns
        )
    if config.split is None:
        return train, None
    parts = []
    for corpus in train:
        if not isinstance(corpus, Corpus):
            raise UserError(f"{corpus} is prepared, and cannot be split; prepare the validation text by itself.")
        parts.append(split(corpus, config.split))
    return [kept for kept, _ in parts], joined([valid for _, valid in parts], kind)


def _refuse_idle_columns(config: TextFiles, base: Path | None) -> None:
    """Columns of files that have none would make each of their lines a document, and nobody asked for that."""
    if not config.columns:
        return
    names = (*named(config.train), *named(config.valid))
    paths = [resolve(name, base) for name in names if not is_embedded(name)]
    if not any(holds_records(file) for path in paths if not is_prepared(path) for file in expand(path)[0]):
        raise UserError(
            f"data.columns is for files that end in {', '.join(RECORDS)}; none of these does. Leave it out."
        )


def _prepared(name: str, base: Path | None, kind: Document) -> Path | None:
    """The folder of a prepared corpus, where that is what the name means; its documents must be those of the recipe."""
    path = None if is_embedded(name) else resolve(name, base)
    if path is None or not is_prepared(path):
        return None
    if (prepared := read_json(path / "index.json")["document"]) != kind:
        raise UserError(
            f"{path} was prepared with documents of the kind '{prepared}', but here a document is a {kind};"
            f' set data.document = "{prepared}".'
        )
    return path


def _digest(document: str) -> bytes:
    return hashlib.blake2b(" ".join(document.split()).encode(), digest_size=16).digest()
