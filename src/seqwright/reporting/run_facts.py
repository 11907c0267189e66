"""What a run left behind, as plain data, and the questions the pages ask of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from seqwright.reporting.svg import Point

Record = Mapping[str, Any]

COMPARABLE = ("bits_per_byte", "bits_per_character", "accuracy", "pearson", "nll")
"""Scores that runs compare on, from the most comparable to the least: nll depends on the tokenizer, or on how sure a
model is of what it answers."""
HIGHER = ("accuracy", "pearson")
"""Those of which more is better."""

UNITS = {"perplexity": "token", "squared_error": "number"}
"""What was learned and is counted, by a score that is had of such things alone; of all else, answers."""
TITLES = {"psnr": "PSNR in dB", "psnr_shown": "PSNR before"}
"""Scores whose names say too little."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The files of a run directory, read."""

    name: str
    recipe: Mapping[str, Any]
    """The resolved recipe: sections of keys."""
    environment: Mapping[str, Any]
    """Machine and versions; may be nested."""
    log: Sequence[Record]
    """Records of log.jsonl in the order they were written."""
    summary: Mapping[str, Any]
    """Final counts and scores."""

    @property
    def scores(self) -> Mapping[str, Mapping[str, Any]]:
        """Each score with its value, low, high and signature; those that were refused (null) are left out."""
        return {name: score for name, score in self.summary.get("scores", {}).items() if score}

    def records(self, kind: str) -> list[Record]:
        """The records of one kind by step. A resumed run repeats the steps after a checkpoint: the later counts."""
        found = {(r["step"], r.get("prompt")): r for r in self.log if r["kind"] == kind}
        return sorted(found.values(), key=lambda record: record["step"])

    def points(self, kind: str, key: str, over: str = "step") -> list[Point]:
        """(over, key) of the records of one kind; values that are missing or not finite cannot be drawn."""
        pairs = ((r.get(over), r.get(key)) for r in self.records(kind))
        return [(x, y) for x, y in pairs if _drawable(x) and _drawable(y)]

    def setting(self, section: str, key: str) -> Any:
        """A key of the recipe, None where it says nothing."""
        return self.recipe.get(section, {}).get(key)


def title(score: str, beside: Collection[str] = ("perplexity",)) -> str:
    """The name of a score in words; the scores beside it say what it was counted over."""
    return f"nats per {unit(beside)}" if score == "nll" else TITLES.get(score, score.replace("_", " "))


def unit(scores: Collection[str]) -> str:
    """What is learned where there are such scores: a token, an answer, a number."""
    return next((name for score, name in UNITS.items() if score in scores), "answer" if scores else "target")


def headline(runs: list[RunFacts]) -> str | None:
    """The most comparable score that all of the runs have."""
    return next((name for name in COMPARABLE if all(name in run.scores for run in runs)), None)


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables as dotted keys and plain values."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _drawable(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
