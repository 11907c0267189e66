"""Words to tags: sentences in batches of like length, answers for every given word, scores; runs that tag."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from seqwright.core.batch import Batch, EncoderSizes, OutputSpec
from seqwright.core.config import UserError
from seqwright.core.protocols import Watch, unwatched
from seqwright.core.storage import read_record, write_json
from seqwright.data.tagged.corpus import (
    Tagged,
    TaggedConfig,
    count_invalid_transitions,
    invalid_transitions,
    read_splits,
    read_tagged,
)
from seqwright.data.tagged.formats import FORMATS, Format, Sentence, sniff
from seqwright.data.tagged.sentences import EncodedSentences, SentenceFeed, encode_sentences
from seqwright.runs.directory import RunDirectory
from seqwright.runs.embedding import Embedded, Pooled
from seqwright.runs.run import Run
from seqwright.tasks.base import Note, Settings, fingerprint_of, held_out_notes, spread
from seqwright.tasks.tagging.scores import TaggingEvaluationConfig, answers, quick_scores, tag_scores
from seqwright.tasks.tokenizers import saved_tokenizer
from seqwright.text.backend import Kind
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig

SHOWN = 3
"""Sentences in the log at each sampling."""
AT_ONCE = 512
"""Sentences read ahead, so that those of like length can share a batch."""


@dataclass(frozen=True, kw_only=True)
class TaggingTokenizerConfig(TokenizerConfig):
    kind: Kind = "words"
    """words, or subwords: a word is tagged at its first piece. characters, bytes, or trained on the text: byte-bpe,
    bpe, unigram, wordpiece."""
    min_frequency: int = 2
    """Words and characters seen less often are unknown, so that unknown ones are met in training; bpe and byte-bpe
    merge no pair seen less often."""


@dataclass(frozen=True, kw_only=True)
class TaggingOptions:
    """A tagger has nothing to decide when it answers."""


class TaggingTask:
    """The data side of training a tagger."""

    def __init__(self, settings: Settings, directory: RunDirectory, note: Note):
        self.settings, self.note = settings, note
        data: TaggedConfig = settings.data
        self.train, self.valid = read_splits(data)
        self.names = self.train.tags
        if len(self.names) < 2:
            raise UserError(
                f"every word has the tag {self.names[0]!r}; there is nothing to tell apart. Name the right columns in"
                " data.columns, or give other files."
            )
        self.known = {word for sentence in self.train.sentences for word in sentence.words}
        if not directory.labels_path.exists():  # of another session: its hash is in the manifest
            write_json(directory.labels_path, {"tags": self.names, "words": sorted(self.known)})
        texts = [" ".join(sentence.words) for sentence in self.train.sentences]
        self.tokenizer = saved_tokenizer(settings, directory, texts, note)
        if data.word_dropout and self.tokenizer.kind != "words":
            raise UserError("word_dropout reads whole words as <unk>; it is for tokenizer.kind = words.")
        self.encoded = encode(self.train.sentences, self.tokenizer, self.names, None)
        self.encoded_valid = None
        if self.valid is not None:
            self.encoded_valid = encode(self.valid.sentences, self.tokenizer, self.names, None)
        self._say()

    def _say(self) -> None:
        """What a reader of the numbers should know of the data."""
        data, train, valid = self.settings.data, self.train, self.valid
        held_out = held_out_notes(data.split, None if valid is None else len(valid.sentences), "sentences")
        for said in (*train.notes, *held_out):
            self.note(said)
        if valid is not None:
            learned = {sentence.words for sentence in train.sentences}
            if leaked := sum(sentence.words in learned for sentence in valid.sentences):
                self.note(f"{leaked:,} of {len(valid.sentences):,} validation sentences are training ones, too.")
            if strange := sorted(set(valid.tags) - set(self.names)):
                self.note(f"validation tags that training does not have, counted as wrong: {', '.join(strange)}.")
        if begun := count_invalid_transitions(train.sentences):
            self.note(
                f"{begun:,} spans of the training tags go on (I-, E-) where none of their type began, as in old files"
                " or by mistake; they count as spans, and the tagger may answer so."
            )
        self.note(
            f"{len(train.sentences):,} training sentences, {train.words:,} words, {len(self.known):,} different ones,"
            f" {len(self.names)} tags; {self.tokenizer.kind} vocabulary of {self.tokenizer.size:,}."
        )

    @property
    def sizes(self) -> EncoderSizes:
        return sizes_of(self.tokenizer, self.names)

    @property
    def fingerprint(self) -> str:
        parts = [one.fingerprint for one in (self.encoded, self.encoded_valid) if one is not None]
        return fingerprint_of(*self.names, *parts)

    @property
    def corpus(self) -> EncodedSentences:
        return self.encoded

    def feed(self, model: Any) -> SentenceFeed:
        data, training = self.settings.data, self.settings.training
        encoded = self._fitting(self.encoded, self.train, model.context)
        if parts := len(encoded) - len(self.encoded):
            self.note(
                f"sentences of more than {model.context} tokens are read in parts: {parts:,} more rows than sentences."
            )
        return SentenceFeed(
            encoded,
            seed=training.seed,
            batch=training.batch_size,
            tokens=data.batch_tokens,
            word_dropout=data.word_dropout,
        )

    def evaluate(self, model: Any, device: torch.device | str, *, quick: bool) -> dict[str, Any] | None:
        if self.valid is None:
            return None
        assert self.encoded_valid is not None
        encoded = self._fitting(self.encoded_valid, self.valid, model.context)
        found = answers(model, encoded, device)
        if quick:
            return quick_scores(found, encoded)
        return tag_scores(found, self.valid.sentences, encoded, self.names, self.known, self.settings.evaluation)

    def sample(self, model: Any, device: torch.device | str) -> list[dict[str, str]]:
        sentences = (self.valid or self.train).sentences
        some = [sentences[n] for n in spread(len(sentences), SHOWN)]
        said = tag(model, self.tokenizer, self.names, [sentence.words for sentence in some], device=device)
        return [
            {"prompt": " ".join(one.words), "text": f" → {' '.join(one.tags)}", "reference": " ".join(right.tags)}
            for one, right in zip(said, some, strict=True)
        ]

    def show(self, batch: Batch) -> str:
        assert batch.source.ids is not None
        return repr(self.tokenizer.decode(batch.source.ids[0].tolist())[:200])

    def _fitting(self, encoded: EncodedSentences, data: Tagged, context: int | None) -> EncodedSentences:
        """Sentences as rows that the model can see, encoded anew only where some are too long for it."""
        if context is None or encoded.lengths.max() <= context:
            return encoded
        return encode(data.sentences, self.tokenizer, self.names, context)


@dataclass(frozen=True, kw_only=True)
class TaggedSentence:
    """What a tagger says of a sentence."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...] | None
    """Of each tag; None where a model has none."""


@dataclass(frozen=True, kw_only=True)
class SavedTags:
    """The keys of labels.json of a tagger: its tags by id, and the words of its training data."""

    tags: list[str]
    words: list[str]


class TaggingRun(Run):
    """A trained tagger: `run = seqwright.open("runs/x"); run.tag(["Time flies"])`."""

    does = "gives every word a tag"
    verbs = ("tag", "evaluate")

    @staticmethod
    def sizes(directory: RunDirectory) -> EncoderSizes:
        return sizes_of(directory.tokenizer, read_record(directory.labels_path, SavedTags).tags)

    @functools.cached_property
    def labels(self) -> dict[str, list[str]]:
        """The tags by number, and the words of the training data."""
        return vars(read_record(self.directory.labels_path, SavedTags))

    def example(self, rows: int, length: int) -> Batch:
        """Sentences of different lengths, made of the words that were learned from."""
        words, tags = (itertools.cycle(self.labels[key]) for key in ("words", "tags"))
        counts = [max(1, length // 2 - 3 * row) for row in range(rows)]
        made = [Sentence(tuple(itertools.islice(words, n)), tuple(itertools.islice(tags, n))) for n in counts]
        return encode(made, self.tokenizer, self.labels["tags"], length).batch(np.arange(rows))

    def tag(self, sentences: Iterable[str | Sequence[str]], *, at_once: int = AT_ONCE) -> Iterator[TaggedSentence]:
        """The tags of each sentence, in order: a text, which is split at white space, or the words themselves."""
        given = (tuple(words.split() if isinstance(words, str) else words) for words in sentences)
        return tag(self.model, self.tokenizer, self.labels["tags"], given, at_once=at_once, device=self.device)

    def embed(self, texts: Iterable[str], *, pooling: Pooled = "mean", **options: Any) -> Iterator[Embedded]:
        """One vector for each text, in order, from a tagger that reads nothing but tokens."""
        if getattr(self.settings.model, "char_features", 0):
            raise UserError(
                f"{self.path} reads the letters of given words, too, and has no vectors of plain lines; a tagger with"
                " model.char_features = 0 has, or any language model or classifier."
            )
        return super().embed(texts, pooling=pooling, **options)

    def words(self, text: str, name: str, *, columns: bool = False) -> tuple[list[tuple[str, ...]], Format]:
        """The sentences of a text that is written as this run's data is, and how that is; tags are not needed."""
        data: TaggedConfig = self.settings.data
        kind: Format = "columns" if columns else data.format or sniff(text, name, data.column_numbers)
        return [sentence.words for sentence in FORMATS[kind](text, name, data.column_numbers, False)], kind

    def evaluate(
        self, on: str | Sequence[str] | None = None, *, watch: Watch = unwatched, **options: Any
    ) -> dict[str, Any]:
        """Scores on tagged files, or on the run's own validation sentences."""
        config: TaggingEvaluationConfig = replace(self.settings.evaluation, **options)
        sentences, names = self.tagged(on).sentences, self.labels["tags"]
        encoded = encode(sentences, self.tokenizer, names, self.model.context)
        found = answers(self.model, encoded, self.device, watch)
        return tag_scores(found, sentences, encoded, names, set(self.labels["words"]), config)

    def tagged(self, on: str | Sequence[str] | None = None) -> Tagged:
        """Tagged sentences of files, or those the run was validated on."""
        if on is not None:
            return read_tagged(on, self.settings.data)
        _, valid = read_splits(self.settings.data)
        if valid is None:
            raise UserError(f"{self.path} has no validation sentences of its own; name a file with --on FILE.")
        return valid


def tag(
    model: Any,
    tokenizer: Tokenizer,
    names: Sequence[str],
    given: Iterable[tuple[str, ...]],
    *,
    at_once: int = AT_ONCE,
    device: torch.device | str = "cpu",
) -> Iterator[TaggedSentence]:
    """What a model says of each sentence, in order, so many read ahead; nothing of an empty one."""
    lines = iter(given)
    while chunk := [Sentence(words, ()) for words in itertools.islice(lines, at_once)]:
        said: list[str] = []
        likely: list[float] | None = []
        if real := [sentence for sentence in chunk if sentence.words]:
            found = answers(model, encode(real, tokenizer, names, model.context), device)
            said = [names[number] for number in found.tags.tolist()]
            likely = None if found.probabilities is None else found.probabilities.tolist()
        end = 0
        for sentence in chunk:
            start, end = end, end + len(sentence.words)
            sure = None if likely is None else tuple(likely[start:end])
            yield TaggedSentence(words=sentence.words, tags=tuple(said[start:end]), probabilities=sure)


def encode(
    sentences: Sequence[Sentence], tokenizer: Tokenizer, names: Sequence[str], context: int | None
) -> EncodedSentences:
    return encode_sentences(
        sentences, tokenizer, {name: number for number, name in enumerate(names)}, max_length=context
    )


def sizes_of(tokenizer: Tokenizer, names: Sequence[str]) -> EncoderSizes:
    asked = OutputSpec(kind="tags", count=len(names), impossible=invalid_transitions(names))
    return EncoderSizes(answers=asked, vocabulary=tokenizer.vocabulary)
