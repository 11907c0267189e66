"""Parallel corpora: source and target files, or files with both sides, split into training, validation and test."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, get_args

from seqwright.core.config import UserError, check_sizes
from seqwright.core.printable import quantity
from seqwright.data.files import UTF_8, Errors, as_list, check_encoding, read_text, refuse_blank, resolve
from seqwright.data.parallel.formats import FORMATS, Pair
from seqwright.data.parallel.tables import table_pairs
from seqwright.data.samples.pairs import embedded_pairs
from seqwright.data.samples.text import PREFIX, is_embedded
from seqwright.data.text.corpus import check_split, documents_of, parse_split

Format = Literal["lines", "csv", "tsv", "jsonl", "scan", "cmudict", "speeches"]
SUFFIXES: dict[str, Format] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".dict": "cmudict"}


@dataclass(frozen=True, kw_only=True)
class PairsConfig:
    kind: Literal["pairs"] = "pairs"
    """Pairs of source and target: translation, summarization, parsing, grapheme-to-phoneme conversion."""
    train: tuple[str, ...] | str = ()
    """Training files (plain, .gz or .xz): source and target alternating, line-aligned, or files with both sides."""
    valid: tuple[str, ...] | str | None = None
    """Validation files."""
    split: str | None = None
    """Validation split of the training pairs: "tail 5%", or "documents 5%", a fixed choice by hash of the source."""
    test: float = 0.0
    """Share of the pairs held out as a test set, by the hash of the source: `evaluate RUN --on test`."""
    format: Format | None = None
    """File format: lines, csv, tsv, jsonl ({"source": …, "target": …}, lists for several), scan, cmudict or speeches (a
    play). Default: by the suffix."""
    columns: tuple[int | str, int | str] | None = None
    """Source and target columns of a .csv or .tsv file, by name or number from 1. Default: those with usual names
    (source, target …) in its header, or the first two."""
    sources: int = 1
    """Source files per target file; their lines are concatenated."""
    tags: tuple[str, ...] = ()
    """Special token per pair of files, prepended to its sources: "<de>" for the target language."""
    max_length: int = 256
    """Maximum tokens of either side; longer training pairs are skipped and counted."""
    batch_tokens: int | None = None
    """Tokens per batch on the longer side, padding included; default: training.batch_size pairs."""
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
            raise UserError("train names no files; give your own with --pairs SOURCE TARGET.")
        check_split(self.split, self.valid)
        check_sizes(self, "sources", "max_length", "batch_tokens")
        if self.test and (self.split is None or parse_split(self.split)[0] != "documents"):
            raise UserError('test holds pairs out by the hash of their source: it needs split = "documents 5%".')
        if not 0 <= self.test < 1:
            raise UserError(f"test is a share from 0 to below 1, not {self.test:g}.")
        for column in self.columns or ():
            if isinstance(column, int) and column < 1:
                raise UserError(f"columns are counted from 1, not {column}.")


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """A parallel corpus: pairs in order."""

    pairs: Sequence[Pair]
    notes: tuple[str, ...] = ()
    """Notes for the user about changes made while reading."""

    def split(self, rule: str, test: float = 0.0) -> tuple[Pairs, Pairs, Pairs]:
        """The training, validation and test part; with "documents", pairs of the same source fall on the same side."""
        method, share = parse_split(rule)
        if method == "tail":
            cut = int(len(self.pairs) * (1 - share))
            sides = [int(n >= cut) for n in range(len(self.pairs))]
        else:
            hashes = [_hash_fraction("\n".join(pair.sources)) for pair in self.pairs]
            # Of a small file there is one source to validate on, however small the share is.
            first = -1.0 if test else min(hashes, default=0.0)
            sides = [1 if h < share or h == first else 2 if h < share + test else 0 for h in hashes]
        parts = [[pair for pair, part in zip(self.pairs, sides, strict=True) if part == side] for side in range(3)]
        if not all(parts[: 3 if test else 2]):
            raise UserError(
                f'split = "{rule}" of {quantity(len(self.pairs), "pair")} leaves one side empty; give more pairs, or'
                " --valid FILE, or hold out another share with data.split."
            )
        return Pairs(pairs=parts[0], notes=self.notes), Pairs(pairs=parts[1]), Pairs(pairs=parts[2])


def read_splits(config: PairsConfig) -> tuple[Pairs, Pairs | None]:
    """Training pairs, and validation pairs if there are any."""
    train = read_pairs(config.train, config)
    if config.valid is not None:
        return train, read_pairs(config.valid, config)
    return train.split(config.split, config.test)[:2] if config.split is not None else (train, None)


def read_test(config: PairsConfig) -> Pairs:
    """The test pairs, held out from training and validation."""
    if config.split is None or not config.test:
        raise UserError("this run has no test split (data.test); name files with --on SOURCE TARGET.")
    return read_pairs(config.train, config).split(config.split, config.test)[2]


def read_pairs(files: Sequence[str] | str, config: PairsConfig, *, references: int = 1) -> Pairs:
    """The pairs of files; parallel files alternate: `config.sources` source files, then `references` target files."""
    names = as_list(files)
    notes: list[str] = []
    pairs: list[Pair] = []
    groups = list(_groups(names, config, config.sources + references))
    if config.tags and len(config.tags) != len(groups):
        raise UserError(f"tags names {len(config.tags)} for {len(groups)} (pairs of) files; give one for each.")
    for number, group in enumerate(groups):
        read = _read(group, config, notes)
        tag = config.tags[number] if config.tags else None
        pairs += [replace(pair, tag=tag) for pair in read] if tag else read
    empty = sum(not any(pair.sources) or not any(pair.targets) for pair in pairs)
    if empty:
        notes.append(f"{empty:,} of {len(pairs):,} pairs of {names[0]} … have an empty side.")
    copied = sum(pair.sources == pair.targets for pair in pairs)
    if copied > len(pairs) / 2:
        notes.append(
            f"{copied:,} of {len(pairs):,} targets of {names[0]} … equal their source: was a file given twice?"
        )
    return Pairs(pairs=pairs, notes=tuple(notes))


def format_of(name: str, config: PairsConfig) -> Format:
    """The format of a file: the recipe's, otherwise by suffix."""
    if config.format is not None:
        return config.format
    plain = name.removesuffix(".xz").removesuffix(".gz")
    return next((kind for suffix, kind in SUFFIXES.items() if plain.endswith(suffix)), "lines")


def _groups(names: list[str], config: PairsConfig, size: int) -> list[tuple[str, ...]]:
    """The files grouped: one with both sides, or sources and references that are aligned by line."""
    if all(is_embedded(name) or format_of(name, config) != "lines" for name in names):
        return [(name,) for name in names]
    if len(names) % size:
        raise UserError(
            f"{quantity(len(names), 'file')}, but source and target files alternate, {size} files together:"
            f" {', '.join(names)}. Give the target file, too. A file with both sides ends in {', '.join(SUFFIXES)}"
            f", or set data.format ({', '.join(get_args(Format))})."
        )
    return [tuple(names[n : n + size]) for n in range(0, len(names), size)]


def _read(group: tuple[str, ...], config: PairsConfig, notes: list[str]) -> list[Pair]:
    if is_embedded(group[0]):
        return embedded_pairs(group[0].removeprefix(PREFIX))
    kind = format_of(group[0], config)
    if kind in ("csv", "tsv"):
        path = resolve(group[0])
        return table_pairs(_text(path, config, notes), path, kind, config.columns, notes)
    sides = [_lines(name, config, notes) for name in group]
    if kind != "lines":
        return FORMATS[kind](sides[0], group[0])
    counts = {name: len(lines) for name, lines in zip(group, sides, strict=True)}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {count:,}" for name, count in counts.items())
        raise UserError(f"parallel files must be aligned line by line, but {listed} lines.")
    return [Pair(row[: config.sources], row[config.sources :]) for row in zip(*sides, strict=True)]


def _text(path: Path, config: PairsConfig, notes: list[str]) -> str:
    text, decoding_notes = read_text(path, config.errors, config.encoding)
    refuse_blank(text, path)
    notes += decoding_notes
    return text


def _lines(name: str, config: PairsConfig, notes: list[str]) -> list[str]:
    path = resolve(name)
    text = _text(path, config, notes)
    if "\r\n" in text:
        notes.append(f"{path}: CRLF line endings are read as LF.")
    return documents_of(text, "line")


def _hash_fraction(text: str) -> float:
    """A hash of the text in [0, 1): a split by it is stable when the corpus is reordered or grows."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64
