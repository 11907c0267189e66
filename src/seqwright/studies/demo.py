"""`demo`: a ladder of language models, from n-grams to GPT, trained on a text that ships with Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqwright.core.progress import Progress
from seqwright.pipeline import recipe
from seqwright.pipeline.recipe import Recipe
from seqwright.studies.ladder import Ladder, climb

BASE: dict[str, Any] = {
    "data": {"kind": "text", "train": "embedded:topics", "split": "tail 10%"},
    "tokenizer": {"kind": "byte-bpe", "size": 512},
    "training": {
        "steps": 1000,
        "batch_size": 32,
        "sequence_length": 32,
        "learning_rate": 3e-3,
        "warmup_steps": 30,
        "sample_every": 0,
    },
    "decoding": {"max_tokens": 60, "temperature": 0.8},
    "evaluation": {"baseline": False},  # the ladder has an n-gram
}

LADDER: dict[str, dict[str, Any]] = {
    "ngram": {"model": {"kind": "ngram", "order": 4}},
    "neural-bigram": {"model": {"kind": "neural-bigram", "width": 128}},
    "feedforward": {"model": {"kind": "feedforward", "context_size": 6, "width": 256, "embedding": 64}},
    "rnn": {"model": {"kind": "rnn", "width": 256}},
    "lstm": {"model": {"kind": "lstm", "width": 256}, "training": {"learning_rate": 8e-3}},
    "gpt": {
        "model": {"kind": "gpt", "layers": 3, "width": 128, "heads": 4, "context": 64, "positions": "rope"},
        "training": {"batch_size": 16, "sequence_length": 64, "learning_rate": 4e-3, "warmup_steps": 50},
    },
}


def demo(folder: Path, progress: Progress, *, minutes: float | None = None) -> Ladder:
    """Trains each model in its own run (finished runs are reused) and compares them. `minutes` is a time budget that
    the networks share equally."""
    if minutes is None and not folder.exists():
        progress.note("six models, about five minutes of one CPU core; Ctrl-C is safe; --minutes N for another budget.")
    return climb(demo_recipes(minutes), folder, progress, name="From counting to attention")


def demo_recipes(minutes: float | None = None) -> dict[str, Recipe]:
    """A recipe for each rung. The budget of a network is 1,000 steps of 1,024 tokens, or its share of the minutes."""
    budget = [] if minutes is None else [f"training.minutes={minutes / (len(LADDER) - 1)}"]
    return {name: recipe.make(_merged(name, overrides), budget, origin="demo") for name, overrides in LADDER.items()}


def _merged(name: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """BASE with the overrides of one rung, as a recipe."""
    return {"name": name} | {key: BASE.get(key, {}) | overrides.get(key, {}) for key in {**BASE, **overrides}}
