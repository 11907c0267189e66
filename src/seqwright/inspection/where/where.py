"""`where`: texts, files or samples of a run, searched in the text that it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from seqwright.core.config import UserError, with_options
from seqwright.core.progress import SILENT, Progress
from seqwright.data.files import MissingFileError, UntrustedFileError
from seqwright.inspection.where.copying import Ids, SearchedText, Searcher, copying_statistics
from seqwright.inspection.where.report import Where
from seqwright.inspection.where.training_text import part_runs, training_index
from seqwright.runs.overlap import hold_out_the_same
from seqwright.runs.run import Run
from seqwright.tasks.language.task import LanguageRun, TextRun

DEFAULT_SAMPLES = 20
MIN_TOKENS, MIN_CHARACTERS = 8, 32
"""Tokens from which matches are listed, and where tokens are characters or bytes."""
MAX_TOKENS = 200_000
"""Tokens of texts that are searched at once."""


def where(
    run: Run,
    text: str | Sequence[str] | None = None,
    *,
    open_run: Callable[[Path], Run],
    on: str | Sequence[str] | None = None,
    samples: int | None = None,
    min_tokens: int | None = None,
    progress: Progress = SILENT,
    **decoding: Any,
) -> Where:
    """Matches of a text, of several, of files (`on`) or of samples in the training text of a run, with file and line.

    Without any of them, 20 samples are drawn; `decoding` are options of [decoding]. Samples and files are compared with
    as much held-out text, where the run has some. `open_run` opens the parts of a mixture.
    """
    if sum(given is not None for given in (text, on, samples)) > 1:
        raise UserError("give texts, files with --on, or --samples N; one of them.")
    if min_tokens is not None and min_tokens < 1:
        raise UserError(f"min_tokens must be at least 1, not {min_tokens}.")
    if decoding:
        with_options(run.settings.decoding, decoding)  # refuses unknown ones before anything is read
    if text is not None:
        one = isinstance(text, str) or not isinstance(text, Iterable)
        text = list(run.check_form([text] if one else text))
    if text is not None and not (text and all(one.strip() for one in text)):
        raise UserError("the text is empty; give some words: seqwright where RUN 'a few words'.")
    notes: list[str] = []
    parts = part_runs(run, open_run, notes)
    try:
        indexes = [training_index(one, progress) for one in (run, *parts)]
    except UntrustedFileError as error:
        raise UserError(
            "this run comes from elsewhere, and the file that it was trained on is outside of the data root and this"
            " folder. Its text is what is searched: add --trust to read it."
        ) from error
    assert isinstance(run, TextRun)
    sizes = [len(index.ids) - len(index.starts) for index in indexes]
    if parts:
        counted = ", ".join(f"{size:,}" for size in sizes)
        notes.append(f"the parts were trained on different texts ({counted} tokens), and all of them are searched.")
    if text is not None:
        what, ids = "Given texts", _given(run, text)
    elif on is not None:
        what, ids = "Documents of files", _documents(run.stream(on).ids, run)
    else:
        count = DEFAULT_SAMPLES if samples is None else samples
        what, ids = f"{count:,} samples", _samples(run, count, decoding)
    ids = _limited(ids, notes)
    least = min_tokens or (MIN_CHARACTERS if run.tokenizer.kind in ("characters", "bytes") else MIN_TOKENS)
    if min_tokens is None and text is not None:  # a short text that occurs as a whole is a match, too
        least = max(1, min([least, *map(len, ids)]))
    searcher = Searcher(indexes, run.tokenizer)
    texts = searcher.search(ids, least)
    if text is not None:
        texts = _continuing_lines(run, searcher, [text] if isinstance(text, str) else text, texts, least)
    held_out = None
    if text is None and any(not hold_out_the_same(run, part) for part in parts):
        notes.append("the parts hold out different texts, so there is none to compare with.")
    elif text is None and (baseline := _held_out(run, ids, notes)):
        held_out = copying_statistics(searcher.lengths(baseline), least)
    return Where(
        run=str(run.path),
        min_tokens=least,
        indexed=sum(sizes),
        what=what,
        texts=tuple(texts),
        copying=copying_statistics([text.lengths for text in texts], least),
        held_out=held_out,
        notes=tuple(notes),
    )


def _given(run: TextRun, texts: Sequence[str]) -> list[Ids]:
    return [np.array(run.tokenizer.encode(text), np.int64) for text in run.check_form(texts)]


def _continuing_lines(
    run: TextRun, searcher: Searcher, given: Sequence[str], texts: Sequence[SearchedText], min_tokens: int
) -> list[SearchedText]:
    """The texts, or where more of them match, the texts as they continue a line: the first word of a text has
    other tokens than the same word after a space in byte-level BPE, and so do subwords of SentencePiece."""
    spaced = [np.array(run.tokenizer.encode(f" {text}"), np.int64) for text in given[: len(texts)]]
    continued = searcher.search(spaced, min_tokens)
    return [
        replace(other, text=text.text)
        if len(other.tokens) <= len(text.tokens) and other.lengths.sum() > text.lengths.sum()
        else text
        for text, other in zip(texts, continued, strict=True)
    ]


def _documents(stream: Any, run: TextRun) -> list[Ids]:
    """The documents of a stream without their special tokens."""
    ids = np.asarray(stream[: MAX_TOKENS + 1], np.int64)
    parts = np.split(ids, np.flatnonzero(ids == run.tokenizer.sos))
    ends = [id for id in (run.tokenizer.sos, run.tokenizer.eos) if id is not None]
    return [document for part in parts if len(document := part[~np.isin(part, ends)])]


def _samples(run: TextRun, count: int, options: dict[str, Any]) -> list[Ids]:
    if not isinstance(run, LanguageRun):
        raise UserError(f"{run.path} {run.description}, so it has no samples; give a text, or a file with --on.")
    if count < 1:
        raise UserError(f"samples must be at least 1, not {count}.")
    seed = options.get("seed", run.settings.decoding.seed)
    with_options(run.settings.decoding, options)  # a wrong option is refused before anything is generated
    outputs = run.generate([""] * count, seeds=[seed + n for n in range(count)], **options)
    return [np.array(output.ids, np.int64) for output in outputs if output.ids]


def _limited(texts: list[Ids], notes: list[str]) -> list[Ids]:
    """The first texts, up to MAX_TOKENS, with a note on the others."""
    total, kept = 0, []
    for ids in texts:
        kept.append(ids[: MAX_TOKENS - total])
        total += len(kept[-1])
        if total >= MAX_TOKENS:
            notes.append(f"only the first {MAX_TOKENS:,} tokens are searched.")
            break
    return kept


def _held_out(run: TextRun, texts: Sequence[Ids], notes: list[str]) -> list[Ids]:
    """Parts of the validation text, as many and as long as the texts, spread evenly; none where there is too little."""
    try:
        stream = run.stream()
    except MissingFileError as error:
        notes.append(f"no held-out text to compare with, since it was moved: {error}")
        return []
    except UntrustedFileError:
        notes.append("the held-out text, which a run from elsewhere names, is not read without --trust.")
        return []
    except UserError:
        fitted = getattr(run.settings.data, "refit", False)
        reason = "the model was fitted on it, too" if fitted else "the recipe has neither data.valid nor data.split"
        notes.append(f"the run has no held-out text to compare with: {reason}.")
        return []
    lengths = [len(ids) for ids in texts if len(ids)]
    room = len(stream.ids) - sum(lengths)
    if not lengths or room < 0:
        notes.append(f"the held-out text has fewer than {sum(lengths):,} tokens, so it is compared as it is.")
        return _documents(stream.ids, run) if lengths else []
    gaps = np.arange(len(lengths)) * (room // len(lengths))
    starts = np.cumsum([0, *lengths[:-1]]) + gaps
    return [
        np.asarray(stream.ids[start : start + length], np.int64)
        for start, length in zip(starts.tolist(), lengths, strict=True)
    ]
