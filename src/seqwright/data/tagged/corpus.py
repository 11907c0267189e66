"""Tagged corpora: sentences from files, split into training and validation; checks of span tags (IOB2, IOBES)."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from seqwright.core.config import UserError, check_not_negative, check_sizes
from seqwright.core.printable import quantity
from seqwright.data.files import UTF_8, Errors, as_list, check_encoding, plain_suffix, read_text, refuse_blank, resolve
from seqwright.data.samples.pronouns import pronouns
from seqwright.data.samples.python_tokens import python_tokens
from seqwright.data.samples.text import is_embedded
from seqwright.data.tagged.formats import CONLLU, FORMATS, Columns, Format, Sentence, sniff
from seqwright.data.text.corpus import check_split, parse_split

EMBEDDED: dict[str, Callable[[], list[Sentence]]] = {
    "embedded:python-tokens": python_tokens,
    "embedded:pronouns": pronouns,
}


@dataclass(frozen=True, kw_only=True)
class TaggedConfig:
    kind: Literal["tagged"] = "tagged"
    """Sentences with a tag per token: part of speech, named entities, slots."""
    train: tuple[str, ...] | str = ()
    """Training files (plain, .gz or .xz)."""
    valid: tuple[str, ...] | str | None = None
    """Validation files."""
    split: str | None = None
    """Validation split of the training sentences: "tail 5%", or "documents 5%", a fixed choice by the hash of their
    words."""
    format: Format | None = None
    """File format: columns (CoNLL: a token and its tag per line, a blank line between sentences), conllu, lines (tokens
    TAB tags, one sentence per line) or jsonl ({"tokens": […], "tags": […]}). Default: by the suffix and the first
    lines."""
    columns: tuple[int | str, int | str] | None = None
    """Token and tag columns, counted from 1; required for more than two columns. Those of CoNLL-U may be named: default
    ["FORM", "UPOS"]; ["FORM", "XPOS"] has language-specific tags."""
    batch_tokens: int | None = None
    """Tokens per batch, padding included; default: training.batch_size sentences."""
    word_dropout: float = 0.0
    """Word dropout α: a training word of frequency n is replaced by <unk> with probability α / (α + n), so that <unk>
    is trained (Kiperwasser & Goldberg 2016)."""
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
            raise UserError("train names no files; give your own with --tagged FILE.")
        check_split(self.split, self.valid)
        check_sizes(self, "batch_tokens")
        check_not_negative(self, "word_dropout")
        if self.column_numbers is not None and (
            min(self.column_numbers) < 1 or self.column_numbers[0] == self.column_numbers[1]
        ):
            raise UserError(f"columns are two different numbers from 1, not {list(self.columns or ())}.")

    @property
    def column_numbers(self) -> Columns:
        """The numbers of the token and tag columns, counted from 1."""
        if self.columns is None:
            return None
        token, tag = (CONLLU.index(key) + 1 if key in CONLLU else key for key in map(str, self.columns))
        for key in (token, tag):
            if not str(key).isdecimal():
                raise UserError(f"no column '{key}'; give its number from 1, or one of {', '.join(CONLLU)}.")
        return int(token), int(tag)


@dataclass(frozen=True, kw_only=True)
class Tagged:
    """A tagged corpus: sentences in order."""

    sentences: Sequence[Sentence]
    notes: tuple[str, ...] = ()
    """Notes for the user about changes made while reading."""

    @property
    def words(self) -> int:
        """Number of words."""
        return sum(len(sentence.words) for sentence in self.sentences)

    @property
    def tags(self) -> list[str]:
        """The tags by decreasing frequency, ties by name."""
        counts = Counter(tag for sentence in self.sentences for tag in sentence.tags)
        return sorted(counts, key=lambda tag: (-counts[tag], tag))

    def split(self, rule: str) -> tuple[Tagged, Tagged]:
        """The training and the held-out part; with "documents", duplicate sentences fall on the same side."""
        method, share = parse_split(rule)
        cut = int(len(self.sentences) * (1 - share))
        held_out = [
            n >= cut if method == "tail" else _hash_fraction(sentence) < share
            for n, sentence in enumerate(self.sentences)
        ]
        train, valid = (
            [sentence for sentence, held in zip(self.sentences, held_out, strict=True) if held == side]
            for side in (False, True)
        )
        if not train or not valid:
            raise UserError(
                f'split = "{rule}" of {quantity(len(self.sentences), "sentence")} leaves one side empty; give --valid'
                " FILE, or hold out another share with data.split."
            )
        return Tagged(sentences=train, notes=self.notes), Tagged(sentences=valid)


def read_splits(config: TaggedConfig) -> tuple[Tagged, Tagged | None]:
    """Training sentences, and validation sentences if there are any."""
    train = read_tagged(config.train, config)
    if config.valid is not None:
        return train, read_tagged(config.valid, config)
    return train.split(config.split) if config.split is not None else (train, None)


def read_tagged(files: Sequence[str] | str, config: TaggedConfig) -> Tagged:
    """The tagged corpus of the files."""
    notes: list[str] = []
    sentences: list[Sentence] = []
    for name in as_list(files):
        if is_embedded(name):
            if name not in EMBEDDED:
                raise UserError(f"no embedded tagged corpus '{name}'; there are {' and '.join(EMBEDDED)}.")
            sentences += EMBEDDED[name]()
            continue
        path = resolve(name)
        if config.format is None and plain_suffix(path) == ".csv":
            raise UserError(
                f"{path}: tags of words are not read from CSV; write `token TAB tag` lines with a blank line between"
                ' sentences, CoNLL-U, or JSON lines {"tokens": […], "tags": […]}.'
            )
        text, decoding_notes = read_text(path, config.errors, config.encoding)
        refuse_blank(text, path)
        notes += decoding_notes
        kind = config.format or sniff(text, name, config.column_numbers)
        parsed = list(FORMATS[kind](text, name, config.column_numbers, True))
        if not parsed:
            raise UserError(f"{path} holds no sentences.")
        sentences += parsed
    return Tagged(sentences=sentences, notes=tuple(notes))


def invalid_transitions(names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Transitions (from, to) between tag ids that are invalid in IOB2 and IOBES: I or E after a tag that is not B or I
    of the same type. The start of a sentence is id `len(names)`.

    Whether a corpus obeys this is for the caller to check: in IOB1, as in CoNLL 2003, spans begin with I.
    """
    inside = {n: name[2:] for n, name in enumerate(names) if name[:2] in ("I-", "E-")}
    opening = {n: name[2:] for n, name in enumerate(names) if name[:2] in ("B-", "I-")}
    return tuple((m, n) for n, span in inside.items() for m in range(len(names) + 1) if opening.get(m) != span)


def count_invalid_transitions(sentences: Sequence[Sentence]) -> int:
    """The number of I and E tags that follow no B or I of the same type."""
    return sum(
        tag[:2] in ("I-", "E-") and previous not in (f"B-{tag[2:]}", f"I-{tag[2:]}")
        for sentence in sentences
        for previous, tag in itertools.pairwise(("O", *sentence.tags))
    )


def _hash_fraction(sentence: Sentence) -> float:
    """A hash of the words in [0, 1): a split by it is stable when the corpus is reordered or grows."""
    return int.from_bytes(hashlib.blake2b("\n".join(sentence.words).encode(), digest_size=8).digest(), "big") / 2**64
