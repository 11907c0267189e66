"""The codec of a tagger: its tokenizer, its tags, and the words of its training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from seqwright.core.batch import EncoderSizes, OutputSpec
from seqwright.core.config import UserError
from seqwright.core.progress import Progress
from seqwright.core.storage import read_record, write_json, write_text
from seqwright.data.tagged.corpus import Tagged, invalid_transitions
from seqwright.data.tagged.formats import Sentence
from seqwright.data.tagged.sentences import EncodedSentences, encode_sentences
from seqwright.runs.directory import RunDirectory
from seqwright.tasks.base import Settings
from seqwright.tasks.codec import TextCodec, learn_tokenizer


@dataclass(frozen=True, kw_only=True)
class SavedTags:
    """The keys of labels.json of a tagger: its tags by id, and the words of its training data."""

    tags: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TaggingCodec(TextCodec):
    """Words to pieces, and tags to ids."""

    tags: tuple[str, ...]
    """In the order of their ids."""
    words: frozenset[str]
    """Words of the training data: others are unknown, and scored separately."""

    @classmethod
    def learn(cls, train: Tagged, settings: Settings, progress: Progress) -> Self:
        if len(train.tags) < 2:
            raise UserError(
                f"every word has the tag {train.tags[0]!r}; there is nothing to tell apart. Name the right columns in"
                " data.columns, or give other files."
            )
        texts = [" ".join(sentence.words) for sentence in train.sentences]
        words = frozenset(word for sentence in train.sentences for word in sentence.words)
        return cls(tokenizer=learn_tokenizer(settings, texts, progress), tags=tuple(train.tags), words=words)

    @classmethod
    def open(cls, directory: RunDirectory) -> Self:
        saved = read_record(directory.labels_path, SavedTags)
        return cls(tokenizer=directory.tokenizer, tags=saved.tags, words=frozenset(saved.words))

    def save(self, directory: RunDirectory) -> None:
        write_json(directory.labels_path, {"tags": list(self.tags), "words": sorted(self.words)})
        write_text(directory.tokenizer_path, self.tokenizer.json)

    @property
    def sizes(self) -> EncoderSizes:
        outputs = OutputSpec(kind="tags", count=len(self.tags), impossible=invalid_transitions(self.tags))
        return EncoderSizes(answers=outputs, vocabulary=self.tokenizer.vocabulary)

    def encode(self, sentences: Sequence[Sentence], context: int | None) -> EncodedSentences:
        """Sentences as rows of at most `context` ids."""
        ids = {tag: id for id, tag in enumerate(self.tags)}
        return encode_sentences(sentences, self.tokenizer, ids, max_length=context)
