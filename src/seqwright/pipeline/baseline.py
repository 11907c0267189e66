"""The counted baseline of a neural language model: an n-gram of the same tokens, on the same validation text."""

from __future__ import annotations

import time
from typing import Any

from seqwright import build
from seqwright.core.config import UserError
from seqwright.core.progress import Progress
from seqwright.pipeline.recipe import Recipe
from seqwright.tasks.base import Task
from seqwright.tasks.language.defaults import COUNTED, NGRAM

MAX_TOKENS = 50_000_000
"""Training tokens above which counting would take minutes and gigabytes: no baseline then."""
SCORES = ("nll", "perplexity", "bits_per_byte", "bits_per_character")


def baseline(recipe: Recipe, task: Task, progress: Progress) -> dict[str, Any] | None:
    """A record of the n-gram's scores; None where it has none: other tasks, no validation text, above MAX_TOKENS, or
    weighted, masked or resegmented texts, which are not counted."""
    if recipe.data.kind != "text" or recipe.kind in build.COUNTED or not recipe.evaluation.baseline:
        return None
    try:
        corpus = task.corpus
    except UserError:
        return None
    if corpus.targets > MAX_TOKENS:
        progress.note(f"no n-gram baseline: {corpus.targets:,} training tokens, more than {MAX_TOKENS:,}.")
        return None
    start = time.perf_counter()
    model: Any = build.model(build.model_config(NGRAM), task.codec.sizes)
    model.fit(corpus.first(corpus.positions), progress)  # in memory, where ids are streamed
    seconds = time.perf_counter() - start
    scores = task.evaluate(model, "cpu", quick=False)
    progress.stage("")
    if scores is None:
        return None
    numbers = {name: scores[name] for name in SCORES if name in scores}
    return {"kind": "baseline", "step": 0, "model": COUNTED, "seconds": round(seconds, 3)} | numbers
