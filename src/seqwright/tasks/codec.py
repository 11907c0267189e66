"""Codecs of text: the tokenizer that a task and its run share, learned, of a file, or of the run to fine-tune."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from seqwright.core.config import UserError
from seqwright.core.native import cache_folder
from seqwright.core.progress import Progress
from seqwright.core.storage import write_text
from seqwright.data.files import is_remote, resolve
from seqwright.data.remote import remote_files
from seqwright.runs.directory import RunDirectory
from seqwright.runs.run import Codec
from seqwright.tasks.base import Settings
from seqwright.text.backend import Kind
from seqwright.text.special_tokens import with_special_tokens
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

C = TypeVar("C", bound=Codec)


@dataclass(frozen=True, kw_only=True)
class TextCodec:
    """A tokenizer: the codec of language models, and the base of those with labels beside it."""

    tokenizer: Tokenizer

    @classmethod
    def open(cls, directory: RunDirectory) -> Self:
        return cls(tokenizer=directory.tokenizer)

    def save(self, directory: RunDirectory) -> None:
        write_text(directory.tokenizer_path, self.tokenizer.json)

    @property
    def sizes(self) -> Any:
        return self.tokenizer.vocabulary


def open_or_learn(kind: type[C], directory: RunDirectory, learn: Callable[[], C]) -> C:
    """The codec of a run; learned and saved where the run has learned nothing yet: what ids mean never changes. Ranks
    other than 0 have received that of rank 0."""
    if directory.learned or directory.received:
        return kind.open(directory)
    codec = learn()
    codec.save(directory)
    return codec


def learn_tokenizer(
    settings: Settings, texts: Sequence[str], progress: Progress, *, special_tokens: Sequence[str] = ()
) -> Tokenizer:
    """The tokenizer of a new run, with these special tokens added: of the run to fine-tune, of a file, or trained."""
    if settings.training.init_from is not None:
        tokenizer = RunDirectory.open(settings.training.init_from).tokenizer
    elif not texts and settings.tokenizer.file is None:
        raise UserError("a prepared text has its tokenizer beside it: set tokenizer.file to the tokenizer.json there.")
    else:
        tokenizer = train_tokenizer(settings.tokenizer, texts)
    tokenizer = with_special_tokens(tokenizer, special_tokens)
    for note in tokenizer.notes:
        progress.note(note)
    return tokenizer


def tokenizer_kind(settings: Settings, directory: RunDirectory) -> Kind:
    """The kind of a run's tokenizer before its text is read: a file, or a run to fine-tune, brings its own."""
    if directory.learned or directory.received:
        return kind_of(directory.tokenizer, settings)
    if settings.training.init_from is not None:
        return kind_of(RunDirectory.open(settings.training.init_from).tokenizer, settings)
    if settings.tokenizer.file is not None:
        return kind_of(train_tokenizer(settings.tokenizer, ()), settings)
    kind: Kind = settings.tokenizer.kind
    return kind


def kind_of(tokenizer: Tokenizer, settings: Settings) -> Kind:
    """The kind of a tokenizer; of one of another program, which may keep line ends in any kind, that of the recipe."""
    kind: Kind = settings.tokenizer.kind if tokenizer.imported else tokenizer.kind
    return kind


def train_tokenizer(config: TokenizerConfig, texts: Sequence[str]) -> Tokenizer:
    """The tokenizer of `tokenizer.file`, resolved like data; without one, trained on these texts."""
    if config.file is None:
        return train(config, texts)
    if not is_remote(config.file):
        return train(replace(config, file=str(resolve(config.file))), texts)
    remote = remote_files(config.file, cache_folder() / "remote")[0]
    remote.copy()
    return train(replace(config, file=str(remote.path)), texts)
