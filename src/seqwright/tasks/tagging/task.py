"""Tagging: one tag per word, sentences in batches of similar length; runs that tag."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from seqwright.core.batch import Batch
from seqwright.core.config import UserError, with_options
from seqwright.core.notebook import NotebookTable
from seqwright.core.printable import printable, quantity
from seqwright.core.progress import SILENT, Progress
from seqwright.data.tagged.corpus import Tagged, TaggedConfig, count_invalid_transitions, read_splits, read_tagged
from seqwright.data.tagged.formats import Sentence
from seqwright.data.tagged.sentences import EncodedSentences, SentenceFeed
from seqwright.runs.directory import RunDirectory
from seqwright.runs.embedding import Embedded, Pooled
from seqwright.runs.overlap import warns_of_training_data
from seqwright.runs.run import Run, one_or_many
from seqwright.tasks.base import Settings, combined_fingerprint, evenly_spaced, held_out_notes
from seqwright.tasks.codec import open_or_learn
from seqwright.tasks.scores import Scores
from seqwright.tasks.tagging.codec import TaggingCodec
from seqwright.tasks.tagging.scores import evaluate, predict
from seqwright.text.backend import Kind
from seqwright.text.trainers import TokenizerConfig
from seqwright.text.word_splitting import WordSplitter

SAMPLES = 3
"""Sentences in the log at each sampling."""
MAX_SENTENCE = 1000
"""Words of a sentence from which a file probably lacks the blank lines between sentences."""
READ_AHEAD = 512
"""Sentences read ahead, so that those of similar length share a batch."""


@dataclass(frozen=True, kw_only=True)
class TaggingTokenizerConfig(TokenizerConfig):
    kind: Kind = "words"
    """words, characters, bytes, or subwords trained on the text (byte-bpe, bpe, unigram, wordpiece), where a word is
    tagged at its first piece."""
    min_frequency: int = 2
    """Words and characters seen less often are unknown, so that unknown ones are met in training; bpe and byte-bpe
    merge no pair seen less often."""


@dataclass(frozen=True, kw_only=True)
class TaggingOptions:
    """Taggers have no decoding options."""


class TaggingTask:
    """Training of a tagger."""

    def __init__(self, settings: Settings, directory: RunDirectory, progress: Progress):
        self.settings, self.progress = settings, progress
        data: TaggedConfig = settings.data
        self.train, self.valid = read_splits(data)
        self.codec = open_or_learn(TaggingCodec, directory, lambda: TaggingCodec.learn(self.train, settings, progress))
        self.tokenizer = self.codec.tokenizer
        if data.word_dropout and self.tokenizer.kind != "words":
            raise UserError("word_dropout reads whole words as <unk>; it is for tokenizer.kind = words.")
        self.encoded = self.codec.encode(self.train.sentences, None)
        self.encoded_valid = None
        if self.valid is not None:
            self.encoded_valid = self.codec.encode(self.valid.sentences, None)
        self._note_data()

    def _note_data(self) -> None:
        """Notes on splits, leaks, unknown tags and invalid transitions."""
        data, train, valid, note = self.settings.data, self.train, self.valid, self.progress.note
        held_out = held_out_notes(data.split, None if valid is None else len(valid.sentences), "sentences")
        for text in (*train.notes, *held_out):
            note(text)
        if valid is not None:
            known = {sentence.words for sentence in train.sentences}
            if leaked := sum(sentence.words in known for sentence in valid.sentences):
                note(f"{leaked:,} of {len(valid.sentences):,} validation sentences are training ones, too.")
            if unknown := sorted(set(valid.tags) - set(self.codec.tags)):
                note(f"validation tags that training does not have, counted as wrong: {', '.join(unknown)}.")
        if invalid := count_invalid_transitions(train.sentences):
            note(
                f"{invalid:,} spans of the training tags go on (I-, E-) where none of their type began, as in old files"
                " or by mistake; they count as spans, and the tagger may answer so."
            )
        longest = max(len(sentence.words) for sentence in train.sentences)
        if longest > MAX_SENTENCE:
            note(f"the longest training sentence has {longest:,} words: does a blank line end each sentence?")
        note(
            f"{quantity(len(train.sentences), 'training sentence')}, {train.words:,} words, {len(self.codec.words):,}"
            f" different ones, {len(self.codec.tags)} tags; {self.tokenizer.kind} vocabulary of"
            f" {self.tokenizer.size:,}."
        )

    @property
    def fingerprint(self) -> str:
        parts = [encoded.fingerprint for encoded in (self.encoded, self.encoded_valid) if encoded is not None]
        return combined_fingerprint(*self.codec.tags, *parts)

    @property
    def corpus(self) -> EncodedSentences:
        return self.encoded

    def feed(self, model: Any) -> SentenceFeed:
        data, training = self.settings.data, self.settings.training
        encoded = self._within_context(self.encoded, self.train, model.context)
        if parts := len(encoded) - len(self.encoded):
            self.progress.note(
                f"sentences of more than {model.context} tokens are read in parts: {parts:,} more rows than sentences."
            )
        return SentenceFeed(
            encoded,
            seed=training.seed,
            batch=training.batch_size,
            tokens=data.batch_tokens,
            word_dropout=data.word_dropout,
        )

    def evaluate(self, model: Any, device: torch.device | str, *, quick: bool) -> Scores | None:
        if self.valid is None:
            return None
        assert self.encoded_valid is not None
        encoded = self._within_context(self.encoded_valid, self.valid, model.context)
        sentences = self.valid.sentences
        return evaluate(model, self.codec, sentences, self.settings, encoded=encoded, device=device, quick=quick)

    def sample(self, model: Any, device: torch.device | str) -> list[dict[str, str]]:
        all_sentences = (self.valid or self.train).sentences
        sentences = [all_sentences[n] for n in evenly_spaced(len(all_sentences), SAMPLES)]
        tagged = tag(model, self.codec, [sentence.words for sentence in sentences], device=device)
        return [
            {"prompt": " ".join(one.words), "text": f" → {' '.join(one.tags)}", "reference": " ".join(gold.tags)}
            for one, gold in zip(tagged, sentences, strict=True)
        ]

    def show(self, batch: Batch) -> str:
        assert batch.source.ids is not None
        return repr(self.tokenizer.decode(batch.source.ids[0].tolist())[:200])

    def _within_context(self, encoded: EncodedSentences, data: Tagged, context: int | None) -> EncodedSentences:
        """Sentences as rows within the context, encoded again only where some are too long for it."""
        if context is None or encoded.lengths.max() <= context:
            return encoded
        return self.codec.encode(data.sentences, context)


@dataclass(frozen=True, kw_only=True)
class TaggedSentence(NotebookTable):
    """The prediction for a sentence."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...] | None
    """Of each tag; None for models without probabilities."""

    def __str__(self) -> str:
        width = max(map(len, self.words), default=0)
        return "\n".join(f"{printable(word):<{width}}  {tag}" for word, tag in zip(self.words, self.tags, strict=True))


class TaggingRun(Run):
    """A trained tagger: `run = seqwright.open("runs/x"); run.tag(["Time flies"])`."""

    description = "gives every word a tag"
    verbs = ("tag", "evaluate")
    codec_class = TaggingCodec

    def example(self, rows: int, length: int) -> Batch:
        """Synthetic sentences of different lengths, made of training words."""
        words, tags = itertools.cycle(sorted(self.codec.words)), itertools.cycle(self.codec.tags)
        counts = [max(1, length // 2 - 3 * row) for row in range(rows)]
        sentences = [Sentence(tuple(itertools.islice(words, n)), tuple(itertools.islice(tags, n))) for n in counts]
        batch: Batch = self.codec.encode(sentences, length).batch(np.arange(rows))
        return batch

    @functools.cached_property
    def splitter(self) -> WordSplitter:
        """Splits running text into words as the training data has them."""
        return WordSplitter(self.codec.words)

    @one_or_many
    def tag(
        self, sentences: Iterable[str | Sequence[str]], *, pretokenized: bool = False, read_ahead: int = READ_AHEAD
    ) -> Iterator[TaggedSentence]:
        """The tags of a sentence, or of each sentence of a list: a text, which is split into words as the training data
        is (`splitter`; `pretokenized`: at white space only), or a list of its words, as in [["Time", "flies"]]."""
        split = self.splitter.at_spaces if pretokenized else self.splitter
        words = (tuple(split(one) if isinstance(one, str) else one) for one in sentences)
        return tag(self.model, self.codec, words, read_ahead=read_ahead, device=self.device)

    @one_or_many
    def embed(self, texts: Iterable[str], *, pooling: Pooled = "mean") -> Iterator[Embedded]:
        """One vector for each text, in order, of a tagger without character features."""
        if self.settings.model.to_table().get("char_features"):
            raise UserError(
                f"{self.path} reads the letters of given words, too, and has no vectors of plain lines; a tagger with"
                " model.char_features = 0 has, or any language model or classifier."
            )
        return super().embed(texts, pooling=pooling)

    @warns_of_training_data
    def evaluate(self, on: str | Sequence[str] | None = None, *, progress: Progress = SILENT, **options: Any) -> Scores:
        """Scores on tagged files, or on the validation sentences of the run."""
        settings = replace(self.settings, evaluation=with_options(self.settings.evaluation, options))
        sentences = self.tagged(on).sentences
        return evaluate(self.model, self.codec, sentences, settings, device=self.device, progress=progress)

    def tagged(self, on: str | Sequence[str] | None = None) -> Tagged:
        """Tagged sentences of files, or the validation sentences of the run."""
        if on is not None:
            return read_tagged(on, self.settings.data)
        _, valid = read_splits(self.settings.data)
        if valid is None:
            raise self._nothing_held_out("sentences")
        return valid


def tag(
    model: Any,
    codec: TaggingCodec,
    sentences: Iterable[tuple[str, ...]],
    *,
    read_ahead: int = READ_AHEAD,
    device: torch.device | str = "cpu",
) -> Iterator[TaggedSentence]:
    """The prediction for each sentence, in order, `read_ahead` of them together; no tags for an empty one."""
    lines = iter(sentences)
    while chunk := [Sentence(words, ()) for words in itertools.islice(lines, read_ahead)]:
        tags: list[str] = []
        probabilities: list[float] | None = []
        if nonempty := [sentence for sentence in chunk if sentence.words]:
            predictions = predict(model, codec.encode(nonempty, model.context), device=device)
            tags = [codec.tags[id] for id in predictions.tags.tolist()]
            probabilities = None if predictions.probabilities is None else predictions.probabilities.tolist()
        end = 0
        for sentence in chunk:
            start, end = end, end + len(sentence.words)
            of_tags = None if probabilities is None else tuple(probabilities[start:end])
            yield TaggedSentence(words=sentence.words, tags=tuple(tags[start:end]), probabilities=of_tags)
