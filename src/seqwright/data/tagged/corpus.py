"""Tagged words: files to sentences, split into training and validation."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from seqwright.core.config import UserError, check_not_negative, check_sizes
from seqwright.data.files import Errors, read_text, resolve
from seqwright.data.samples.python_tokens import python_tokens
from seqwright.data.samples.text import is_embedded
from seqwright.data.tagged.formats import CONLLU, FORMATS, Columns, Format, Sentence, sniff
from seqwright.data.text.corpus import check_split, parse_split

EMBEDDED = "embedded:python-tokens"


@dataclass(frozen=True, kw_only=True)
class TaggedConfig:
    kind: Literal["tagged"] = "tagged"
    """Words with a tag each: parts of speech, names, slots."""
    train: tuple[str, ...] | str = ()
    """Files to learn from (plain, .gz or .xz)."""
    valid: tuple[str, ...] | str | None = None
    """Files to measure progress on."""
    split: str | None = None
    """Validation sentences from the training files: "tail 5%", or "documents 5%", a fixed choice by their words."""
    format: Format | None = None
    """columns (a token and its tag a line, a blank line between sentences), conllu, lines (tokens TAB tags, a sentence
    a line) or jsonl ({"tokens": […], "tags": […]}). Left out: by the name and the first lines."""
    columns: tuple[int | str, int | str] | None = None
    """Which columns are token and tag, counted from 1: needed where there are more than two. Those of CoNLL-U may be
    named: ["FORM", "UPOS"], unless told otherwise; ["FORM", "XPOS"] has the tags of the language."""
    batch_tokens: int | None = None
    """Tokens of a step, padding included; left out: training.batch_size sentences."""
    word_dropout: float = 0.0
    """How often words are read as <unk> in training, so that unknown ones are met: a word that was seen n times with
    probability word_dropout / (word_dropout + n) (Kiperwasser & Goldberg 2016)."""
    errors: Errors = "strict"
    """strict refuses files that are not UTF-8 text; replace reads U+FFFD where they are broken, and says how often."""

    files: ClassVar[tuple[str, ...]] = ("train", "valid")
    """The keys that name files."""

    def __post_init__(self) -> None:
        if not self.train:
            raise UserError("train names no files; give your own with --tagged FILE.")
        check_split(self.split, self.valid)
        check_sizes(self, "batch_tokens")
        check_not_negative(self, "word_dropout")
        if self.places is not None and (min(self.places) < 1 or self.places[0] == self.places[1]):
            raise UserError(f"columns are two different ones, counted from 1, not {list(self.columns or ())}.")

    @property
    def places(self) -> Columns:
        """Where token and tag stand, counted from 1."""
        if self.columns is None:
            return None
        token, tag = (CONLLU.index(key) + 1 if key in CONLLU else key for key in map(str, self.columns))
        for key in (token, tag):
            if not str(key).isdecimal():
                raise UserError(f"no column '{key}'; count them from 1, or name one of {', '.join(CONLLU)}.")
        return int(token), int(tag)


@dataclass(frozen=True, kw_only=True)
class Tagged:
    """Sentences in order."""

    sentences: Sequence[Sentence]
    notes: tuple[str, ...] = ()
    """What was mended while reading, to be said."""

    @property
    def words(self) -> int:
        return sum(len(sentence.words) for sentence in self.sentences)

    @property
    def tags(self) -> list[str]:
        """The commonest first, ties by name."""
        counts = Counter(tag for sentence in self.sentences for tag in sentence.tags)
        return sorted(counts, key=lambda tag: (-counts[tag], tag))

    def split(self, rule: str) -> tuple[Tagged, Tagged]:
        """Training and held-out part; by "documents", sentences of the same words fall on one side."""
        way, share = parse_split(rule)
        cut = int(len(self.sentences) * (1 - share))
        out = [n >= cut if way == "tail" else _fraction(sentence) < share for n, sentence in enumerate(self.sentences)]
        train, valid = (
            [sentence for sentence, held in zip(self.sentences, out, strict=True) if held == side]
            for side in (False, True)
        )
        if not train or not valid:
            raise UserError(
                f'split = "{rule}" of {len(self.sentences)} sentences leaves one side empty; name files in valid.'
            )
        return Tagged(sentences=train, notes=self.notes), Tagged(sentences=valid)


def read_splits(config: TaggedConfig) -> tuple[Tagged, Tagged | None]:
    """The training sentences and the validation sentences, if there are any."""
    train = read_tagged(config.train, config)
    if config.valid is not None:
        return train, read_tagged(config.valid, config)
    return train.split(config.split) if config.split is not None else (train, None)


def read_tagged(files: Sequence[str] | str, config: TaggedConfig) -> Tagged:
    """The sentences of some files."""
    notes: list[str] = []
    sentences: list[Sentence] = []
    for name in [files] if isinstance(files, str) else files:
        if is_embedded(name):
            if name != EMBEDDED:
                raise UserError(f"no embedded tags '{name}'; there is {EMBEDDED}.")
            sentences += python_tokens()
            continue
        path = resolve(name)
        text, replaced = read_text(path, config.errors)
        if replaced:
            notes.append(f"{path}: {replaced:,} places were not UTF-8 text and are read as U+FFFD.")
        kind = config.format or sniff(text, name, config.places)
        found = list(FORMATS[kind](text, name, config.places, True))
        if not found:
            raise UserError(f"{path} holds no sentences.")
        sentences += found
    return Tagged(sentences=sentences, notes=tuple(notes))


def impossible(names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Pairs of tags, by number, of which the second goes on with a span that the first is no part of; a sentence begins
    after number `len(names)`. Whether a file keeps to that is for its reader to see: old ones begin spans with I."""
    inside = {n: name[2:] for n, name in enumerate(names) if name[:2] in ("I-", "E-")}
    before = {n: name[2:] for n, name in enumerate(names) if name[:2] in ("B-", "I-")}
    return tuple((one, n) for n, kind in inside.items() for one in range(len(names) + 1) if before.get(one) != kind)


def unbegun(sentences: Sequence[Sentence]) -> int:
    """How many tags go on with a span that the tag before them is no part of."""
    return sum(
        tag[:2] in ("I-", "E-") and before not in (f"B-{tag[2:]}", f"I-{tag[2:]}")
        for sentence in sentences
        for before, tag in itertools.pairwise(("O", *sentence.tags))
    )


def _fraction(sentence: Sentence) -> float:
    """A number in [0, 1) that depends on the words alone: the choice survives a reordered or grown corpus."""
    return int.from_bytes(hashlib.blake2b("\n".join(sentence.words).encode(), digest_size=8).digest(), "big") / 2**64
