"""A run in a few words, from its recipe and summary: data, tokenizer and headline score."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from seqwright.core.config import UserError
from seqwright.data.files import as_list, resolve
from seqwright.data.samples.text import is_embedded
from seqwright.reporting.run_facts import COMPARABLE, HIGHER, title

NAMES = 2
"""File names shown of the training data."""
TASK_METRICS = ("bleu", "f1", "exact_match")
HEADLINES = (*TASK_METRICS, *COMPARABLE, "perplexity")
"""Scores that stand for a run, the first that it has; mixtures of lossy tokens have the last alone."""
SIZED = ("bpe", "byte-bpe", "unigram", "wordpiece")
"""Tokenizers whose vocabulary size is chosen."""


class HeadlineScore(NamedTuple):
    """The score that stands for a run."""

    name: str
    value: float
    signature: str
    higher: bool
    """Whether higher is better."""


def moved_files_of(run: PurePath, data: Any, names: Sequence[str]) -> str:
    """How to go on where one of these files is missing and is, by its name, one of a run that is missing, too; empty
    for others."""
    missing = {PurePath(name).name for name in names if _is_missing(name)}
    own = {PurePath(name).name for key in data.files for name in as_list(getattr(data, key)) if _is_missing(name)}
    return moved_files(run, data) if missing & own else ""


def moved_files(run: PurePath, data: Any) -> str:
    """How to go on where data files of a run are missing, by its [data]: the command that names their new paths."""
    overrides = []
    for key in data.files:
        names = getattr(data, key)
        if any(map(_is_missing, as_list(names))):
            moved = [f"NEW/{PurePath(name).name}" if _is_missing(name) else name for name in as_list(names)]
            value = moved[0] if len(moved) == 1 else f"[{', '.join(map(json.dumps, moved))}]"
            overrides.append(f" --set {shlex.quote(f'data.{key}={value}')}")
    return f"If it was moved to a folder NEW, say so: `seqwright train --run {run}{''.join(overrides)}`."


def _is_missing(name: str) -> bool:
    """Whether a data file is named that is not there."""
    try:
        return not is_embedded(name) and not resolve(name)
    except UserError:
        return True


def steps_not_taken(recipe: Mapping[str, Any], summary: Mapping[str, Any]) -> tuple[int, int] | None:
    """The steps that saved weights and scores are of, and the more that the recipe asks for since: a finished run whose
    longer training was stopped."""
    asked, steps = summary.get("asked_steps"), recipe.get("training", {}).get("steps")
    return (asked, steps) if asked and steps and steps > asked else None


def note_steps_not_taken(run: PurePath, recipe: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """A sentence on a finished run whose longer training was stopped, and how to go on; empty for others."""
    if (longer := steps_not_taken(recipe, summary)) is None:
        return ""
    taken, asked = (f"{count:,}" for count in longer)
    return (
        f"the weights of {run} are of {taken} steps: the {asked} of its recipe are not taken yet;"
        f" `seqwright train --run {run}` goes on."
    )


def data_name(recipe: Mapping[str, Any]) -> str:
    """The training files by name, without folders."""
    names = [PurePath(name).name or name for name in as_list(recipe.get("data", {}).get("train"))]
    return ", ".join(names[:NAMES] + ["…"] * (len(names) > NAMES))


def tokenizer_name(recipe: Mapping[str, Any]) -> str:
    """Kind of the tokenizer, and its size where that was chosen: "byte-bpe 1,024"."""
    tokenizer = recipe.get("tokenizer") or {}
    kind, size = tokenizer.get("kind", ""), tokenizer.get("size")
    if tokenizer.get("file"):
        return PurePath(tokenizer["file"]).name
    return f"{kind} {size:,}" if kind in SIZED and isinstance(size, int) else str(kind)


def scored_tokenizer(signature: str) -> str:
    """The tokenizer in the signature of a score, as `tokenizer_name` writes it: the recipe may only name its file."""
    match = re.search(r"\|tokenizer:([a-z-]+)-(\d+)-", signature)
    if match is None:
        return ""
    kind, size = match.groups()
    return f"{kind} {int(size):,}" if kind in SIZED else kind


def headline_score(summary: Mapping[str, Any]) -> HeadlineScore | None:
    """The first of HEADLINES that a summary has; a mixture has those of the text that tuned its weights.

    F1 is that of spans: of two classes it is the positive one's, and accuracy stands for the run.
    """
    scores = summary.get("scores") or {}
    for name in HEADLINES:
        if name == "f1" and "macro_f1" in scores:
            continue
        value = (scores.get(name) or {}).get("value", summary.get("tuned", {}).get(name))
        if isinstance(value, int | float):
            signature = str((scores.get(name) or {}).get("signature", ""))
            return HeadlineScore(title(name, scores), value, signature, name in (*TASK_METRICS, *HIGHER))
    return None
