"""The tokenizer of a run: the one it has, that of the run it begins with, that of a file, or one that is learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seqwright.core.config import UserError
from seqwright.core.storage import write_text
from seqwright.data.files import resolve
from seqwright.runs.directory import RunDirectory
from seqwright.tasks.base import Note, Settings
from seqwright.text.special_tokens import with_special_tokens
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train


def saved_tokenizer(
    settings: Settings, directory: RunDirectory, texts: Sequence[str], note: Note, *, special_tokens: Sequence[str] = ()
) -> Tokenizer:
    """The run's tokenizer, found for these texts where the run has none yet; these reserved tokens added to it."""
    if directory.tokenizer_path.exists():
        return directory.tokenizer
    if settings.training.init_from is not None:
        found = RunDirectory.open(settings.training.init_from).tokenizer
    elif not texts and settings.tokenizer.file is None:
        raise UserError("a prepared text has its tokenizer beside it: set tokenizer.file to the tokenizer.json there.")
    else:
        found = learned_tokenizer(settings.tokenizer, texts)
    tokenizer = with_special_tokens(found, special_tokens)
    write_text(directory.tokenizer_path, tokenizer.json)
    for said in tokenizer.notes:
        note(said)
    return tokenizer


def learned_tokenizer(config: TokenizerConfig, texts: Sequence[str]) -> Tokenizer:
    """The tokenizer of `tokenizer.file`, resolved like data; without one, trained on these texts."""
    return train(config if config.file is None else replace(config, file=str(resolve(config.file))), texts)
