"""Sources and targets: parallel files, and files that hold both sides, as pairs split into training and validation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

from seqwright.core.config import UserError, check_sizes
from seqwright.data.files import Errors, named, read_text, resolve
from seqwright.data.parallel.formats import FORMATS, Pair
from seqwright.data.samples.pairs import embedded_pairs
from seqwright.data.samples.text import PREFIX, is_embedded
from seqwright.data.text.corpus import check_split, documents_of, parse_split

Format = Literal["lines", "tsv", "jsonl", "scan", "cmudict", "speeches"]
SUFFIXES: dict[str, Format] = {".tsv": "tsv", ".jsonl": "jsonl", ".dict": "cmudict"}


@dataclass(frozen=True, kw_only=True)
class PairsConfig:
    kind: Literal["pairs"] = "pairs"
    """Sources and targets: translation, summaries, parses, phonemes."""
    train: tuple[str, ...] | str = ()
    """Files to learn from (plain, .gz or .xz): source and target in turn, line by line, or files that hold both."""
    valid: tuple[str, ...] | str | None = None
    """Files to measure progress on."""
    split: str | None = None
    """Validation pairs from the training files: "tail 5%", or "documents 5%", a fixed choice by the source's text."""
    test: float = 0.0
    """Share of the pairs, by the source's text, that is kept from training and validation: `evaluate RUN --on test`."""
    format: Format | None = None
    """lines, tsv, jsonl ({"source": …, "target": …}, lists for several), scan, cmudict or speeches (a play). Left
    out: by the name."""
    columns: tuple[int, int] = (1, 2)
    """Which columns of a .tsv file are source and target."""
    sources: int = 1
    """How many source files there are to each target file; their lines are read one after the other."""
    tags: tuple[str, ...] = ()
    """A reserved token for each pair of files, put before its sources: "<de>" says which language is wanted."""
    max_length: int = 256
    """Pairs with more tokens than this on either side are left out of training, and counted."""
    batch_tokens: int | None = None
    """Tokens of a step on the longer side, padding included; left out: training.batch_size pairs."""
    errors: Errors = "strict"
    """strict refuses files that are not UTF-8 text; replace reads U+FFFD where they are broken, and says how often."""

    files: ClassVar[tuple[str, ...]] = ("train", "valid")
    """The keys that name files."""

    def __post_init__(self) -> None:
        if not self.train:
            raise UserError("train names no files; give your own with --pairs SOURCE TARGET.")
        check_split(self.split, self.valid)
        check_sizes(self, "sources", "max_length", "batch_tokens")
        if self.test and (self.split is None or parse_split(self.split)[0] != "documents"):
            raise UserError('test sets pairs aside as split does, by their text: it needs split = "documents 5%".')
        if not 0 <= self.test < 1:
            raise UserError(f"test is a share below 1, not {self.test:g}.")
        if min(self.columns) < 1:
            raise UserError(f"columns are counted from 1, not {min(self.columns)}.")


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Pairs in order."""

    pairs: Sequence[Pair]
    notes: tuple[str, ...] = ()
    """What was mended while reading, to be said."""

    def split(self, rule: str, test: float = 0.0) -> tuple[Pairs, Pairs, Pairs]:
        """Training, validation and test part; by "documents", all pairs with one source fall on one side."""
        way, share = parse_split(rule)
        if way == "tail":
            cut = int(len(self.pairs) * (1 - share))
            sides = [int(n >= cut) for n in range(len(self.pairs))]
        else:
            fractions = (_fraction("\n".join(pair.sources)) for pair in self.pairs)
            sides = [1 if one < share else 2 if one < share + test else 0 for one in fractions]
        parts = [[pair for pair, own in zip(self.pairs, sides, strict=True) if own == side] for side in range(3)]
        if not all(parts[: 3 if test else 2]):
            raise UserError(f'split = "{rule}" of {len(self.pairs)} pairs leaves one side empty; name files in valid.')
        return Pairs(pairs=parts[0], notes=self.notes), Pairs(pairs=parts[1]), Pairs(pairs=parts[2])


def read_splits(config: PairsConfig) -> tuple[Pairs, Pairs | None]:
    """The training pairs and the validation pairs, if there are any."""
    train = read_pairs(config.train, config)
    if config.valid is not None:
        return train, read_pairs(config.valid, config)
    return train.split(config.split, config.test)[:2] if config.split is not None else (train, None)


def read_test(config: PairsConfig) -> Pairs:
    """The pairs that neither training nor validation sees."""
    if config.split is None or not config.test:
        raise UserError("this run set no test pairs aside (data.test); name files with --on SOURCE TARGET.")
    return read_pairs(config.train, config).split(config.split, config.test)[2]


def read_pairs(files: Sequence[str] | str, config: PairsConfig, *, references: int = 1) -> Pairs:
    """The pairs of some files; parallel ones come in turn: `config.sources` sources, then so many references."""
    names = named(files)
    notes: list[str] = []
    pairs: list[Pair] = []
    groups = list(_groups(names, config, config.sources + references))
    if config.tags and len(config.tags) != len(groups):
        raise UserError(f"tags names {len(config.tags)} for {len(groups)} (pairs of) files; give one for each.")
    for number, group in enumerate(groups):
        found = _read(group, config, notes)
        tag = config.tags[number] if config.tags else None
        pairs += [replace(pair, tag=tag) for pair in found] if tag else found
    empty = sum(not any(pair.sources) or not any(pair.targets) for pair in pairs)
    if empty:
        notes.append(f"{empty:,} of {len(pairs):,} pairs of {names[0]} … have an empty side.")
    same = sum(pair.sources == pair.targets for pair in pairs)
    if same > len(pairs) / 2:
        notes.append(f"{same:,} of {len(pairs):,} targets of {names[0]} … are their sources: was one file given twice?")
    return Pairs(pairs=pairs, notes=tuple(notes))


def format_of(name: str, config: PairsConfig) -> str:
    """How a file is written: what the recipe says, otherwise what its name ends in."""
    if config.format is not None:
        return config.format
    plain = name.removesuffix(".xz").removesuffix(".gz")
    return next((kind for suffix, kind in SUFFIXES.items() if plain.endswith(suffix)), "lines")


def _groups(names: list[str], config: PairsConfig, size: int) -> list[tuple[str, ...]]:
    """Files that belong together."""
    if all(is_embedded(name) or format_of(name, config) != "lines" for name in names):
        return [(name,) for name in names]
    if len(names) % size:
        raise UserError(
            f"{len(names)} file(s), but source and target come in turn, {size} files together: {', '.join(names)}."
            f" Files that hold both sides end in {', '.join(SUFFIXES)}, or data.format says so"
            f" ({', '.join(get_args(Format))})."
        )
    return [tuple(names[n : n + size]) for n in range(0, len(names), size)]


def _read(group: tuple[str, ...], config: PairsConfig, notes: list[str]) -> list[Pair]:
    if is_embedded(group[0]):
        return embedded_pairs(group[0].removeprefix(PREFIX))
    sides = [_lines(name, config.errors, notes) for name in group]
    kind = format_of(group[0], config)
    if kind != "lines":
        return FORMATS[kind](sides[0], group[0], config.columns)
    counts = {name: len(lines) for name, lines in zip(group, sides, strict=True)}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} has {count:,}" for name, count in counts.items())
        raise UserError(f"line n of one file must be the translation of line n of the other, but {said} lines.")
    return [Pair(row[: config.sources], row[config.sources :]) for row in zip(*sides, strict=True)]


def _lines(name: str, errors: Errors, notes: list[str]) -> list[str]:
    path = resolve(name)
    text, replaced = read_text(path, errors)
    if replaced:
        notes.append(f"{path}: {replaced:,} places were not UTF-8 text and are read as U+FFFD.")
    if "\r\n" in text:
        notes.append(f"{path}: lines end in CR LF, read as line ends.")
    return documents_of(text, "line")


def _fraction(text: str) -> float:
    """A number in [0, 1) that depends on the text alone: the choice survives a reordered or grown corpus."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64
