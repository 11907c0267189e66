"""The suffix index of a run's training text: built when it is first needed, then kept in the run's folder.

A mixture has the training texts of all its parts: its own folder has the index of the first, the others theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seqwright.core.config import UserError
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Ensemble
from seqwright.data.files import MissingFileError
from seqwright.data.text.corpora import Readable, origins_of, read_corpora, to_stream
from seqwright.data.text.corpus import Corpus, TextConfig, TextFiles
from seqwright.data.text.suffix_index import IndexedText, SuffixIndex, build_index, line_places, open_index
from seqwright.runs.facts import moved_files
from seqwright.runs.run import Run
from seqwright.tasks.base import combined_fingerprint
from seqwright.tasks.language.task import TextRun
from seqwright.text.tokenizer import Tokenizer

FOLDER = "where"
"""Folder of a run that holds the index."""


def training_index(run: Run, progress: Progress = SILENT) -> SuffixIndex:
    """The suffix index of the text that a run was trained on; UserError where that is unknown, moved or changed."""
    if not isinstance(run, TextRun):
        raise UserError(
            f"{run.path} holds a model of kind '{run.settings.kind}', which {run.description}; where searches the"
            " training text of runs that were trained on documents: `train --text` and `train --masked`."
        )
    corpus = _recorded_corpus(run)
    folder = run.path / FOLDER
    index = open_index(folder, corpus)
    if index is None:
        _build(run, corpus, progress)
        index = open_index(folder, corpus)
        assert index is not None
    return index


def part_runs(run: Run, open_run: Callable[[Path], Run], notes: list[str]) -> list[Run]:
    """The parts of a mixture that were trained on other data than its first, with notes on those that cannot be opened;
    empty for any other run. Parts of a mixture that was made elsewhere are opened only where they lie beside it."""
    parts = [Path(part["run"]) for part in run.summary.get("parts", ())[1:]] if isinstance(run.model, Ensemble) else []
    named = run.directory.native
    opened: dict[str, Run] = {}
    for path in parts:
        try:
            part = open_run(path if named and path.exists() else run.path.parent / path.name)
            if part.tokenizer.hash != run.tokenizer.hash:
                raise UserError("it has another tokenizer now.")
            opened.setdefault(_recorded_corpus(part), part)
        except UserError as error:
            notes.append(f"the training text of the part {path} is not searched: {error}")
    opened.pop(_recorded_corpus(run), None)
    return list(opened.values())


def _recorded_corpus(run: Run) -> str:
    """The fingerprint of the data that a run was trained on."""
    if run.step is not None:
        checkpoint = run.directory.checkpoints.latest()
        assert checkpoint is not None, "unfinished runs are opened from a checkpoint"
        return str(checkpoint.state["corpus"])
    if not (corpus := run.summary.get("corpus")):
        raise UserError(
            f"{run.path} has no record of its training text: it was imported, or made by an older version. Train it"
            " here to search what it was trained on."
        )
    return str(corpus)


def _build(run: TextRun, corpus: str, progress: Progress) -> None:
    data = run.settings.data
    refitted = [replace(data, split=None, refit=False)] if isinstance(data, TextConfig) and data.refit else []
    for tried in (*refitted, data):  # a refitted model has seen the held-out text, too
        texts, fingerprint = _training_texts(run, tried)
        if fingerprint == corpus:
            break
    else:
        raise UserError(
            f"the files in data.train of {run.path} have changed since it was trained; put those it was trained on back"
            " to search them."
        )
    total = sum(len(text.stream.ids) for text in texts)
    progress.note(f"indexing the {total:,} tokens of the training text, once.")
    build_index(run.path / FOLDER, texts, corpus, progress=progress)


def _training_texts(run: TextRun, data: TextFiles) -> tuple[list[IndexedText], str]:
    """Ids of the training text with their places, and the fingerprint of the data."""
    try:
        corpora = read_corpora(data, run.documents)
    except MissingFileError as error:
        again = "Put it back to search it." if isinstance(run.model, Ensemble) else moved_files(run.path, data)
        raise UserError(f"the training text of {run.path} was moved: {error} {again}") from error
    train = [_indexed(readable, run.tokenizer) for readable in corpora.train]
    valid = [] if corpora.valid is None else [to_stream(corpora.valid, run.tokenizer)]
    streams = [*(text.stream for text in train), *valid]
    return train, combined_fingerprint(*(stream.fingerprint for stream in streams))


def _indexed(corpus: Readable, tokenizer: Tokenizer) -> IndexedText:
    """A corpus with the places of its lines; of a prepared one, whose text is not at hand, those of its documents."""
    stream = to_stream(corpus, tokenizer)
    if isinstance(corpus, Corpus):
        return line_places(corpus, stream, tokenizer)
    return IndexedText(stream, origins_of(corpus))
