"""The codec of a text classifier: its tokenizer, or those of a mixture, and its labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from seqwright.core.batch import EncoderSizes
from seqwright.core.progress import Progress
from seqwright.core.storage import read_record, write_json, write_text
from seqwright.data.labeled.labels import Labels
from seqwright.data.labeled.rows import Rows
from seqwright.runs.directory import RunDirectory
from seqwright.tasks.base import Settings
from seqwright.tasks.codec import learn_tokenizer
from seqwright.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class ClassificationCodec:
    """Texts to ids, and labels to targets."""

    tokenizers: tuple[Tokenizer, ...]
    """One, or one for each model of a mixture."""
    labels: Labels

    @classmethod
    def learn(cls, rows: Rows, train: Rows, settings: Settings, progress: Progress) -> Self:
        """The labels of all rows, and the tokenizer of the training rows."""
        labels = Labels.of(rows, settings.data.labels)
        return cls(tokenizers=(learn_tokenizer(settings, train.texts, progress),), labels=labels)

    @classmethod
    def open(cls, directory: RunDirectory) -> Self:
        others = map(Tokenizer.open, directory.tokenizer_paths()[1:])
        labels = read_record(directory.labels_path, Labels)
        return cls(tokenizers=(directory.tokenizer, *others), labels=labels)

    def save(self, directory: RunDirectory) -> None:
        write_json(directory.labels_path, self.labels.table())
        write_text(directory.tokenizer_path, self.tokenizer.json)

    @property
    def tokenizer(self) -> Tokenizer:
        """That of the first model."""
        return self.tokenizers[0]

    @property
    def sizes(self) -> EncoderSizes:
        return EncoderSizes(
            answers=self.labels.output_spec, vocabulary=self.tokenizer.vocabulary, segments=self.labels.parts
        )
