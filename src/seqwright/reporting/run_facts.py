"""A run as plain data for reports: recipe, environment, log records and summary scores."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from seqwright.reporting.svg import Point

Record = Mapping[str, Any]

COMPARABLE = ("bits_per_byte", "bits_per_character", "accuracy", "pearson", "nll")
"""Scores to rank runs by, from the most comparable to the least: NLL depends on the tokenizer or on calibration."""
HIGHER = ("accuracy", "pearson")
"""Scores that are better when higher."""

UNITS = {"perplexity": "token", "squared_error": "value"}
"""Unit of the loss by a score that only models of such units have; all other models predict labels."""
TITLES = {
    "psnr": "PSNR in dB",
    "psnr_shown": "PSNR of input in dB",
    "psnr_last_frame": "PSNR of the last frame in dB",
    "psnr_rollout": "PSNR of the rollout in dB",
    "mse": "MSE",
    "mae": "MAE",
    "ter": "TER",
    "bleu": "BLEU",
    "bleu_lowercased": "BLEU, lowercased",
    "chrf": "chrF",
    "chrf_lowercased": "chrF, lowercased",
    "rouge_1": "ROUGE-1",
    "rouge_2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "simplified_bleu": "simplified BLEU",
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "weighted_f1": "weighted F1",
    "word_f1": "word F1",
    "matthews": "Matthews correlation",
    "brier": "Brier score",
    "calibration_error": "calibration error (ECE)",
}
"""Display names of scores, where they are not their keys."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Contents of a run directory."""

    name: str
    recipe: Mapping[str, Any]
    """The resolved recipe: sections of keys and values."""
    environment: Mapping[str, Any]
    """Hardware and library versions; may be nested."""
    log: Sequence[Record]
    """Records of log.jsonl, in order."""
    summary: Mapping[str, Any]
    """Final counts and scores."""
    laws: Sequence[Record] = ()
    """Results of `seqwright check --save`: law, difference, tolerance, holds."""
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Default values of the keys of each section."""
    next_steps: Sequence[tuple[str, str]] = ()
    """What to do next: a sentence and its command."""

    @property
    def scores(self) -> Mapping[str, Mapping[str, Any]]:
        """Scores by name, each with value, low, high and signature; null scores are omitted."""
        return {name: score for name, score in self.summary.get("scores", {}).items() if score}

    def records(self, kind: str) -> list[Record]:
        """Records of one kind, sorted by step. Of steps that were repeated after a resume, the later record is kept."""
        latest = {(r["step"], r.get("prompt")): r for r in self.log if r["kind"] == kind}
        return sorted(latest.values(), key=lambda record: record["step"])

    def points(self, kind: str, key: str, over: str = "step") -> list[Point]:
        """(over, key) points of the records of one kind; missing and non-finite values are omitted."""
        pairs = ((r.get(over), r.get(key)) for r in self.records(kind))
        return [(x, y) for x, y in pairs if _is_finite(x) and _is_finite(y)]

    def setting(self, section: str, key: str) -> Any:
        """The value of a recipe key, None where it is not set."""
        return self.recipe.get(section, {}).get(key)


def scored_on(summary: Record) -> str:
    """On which data the scores of a summary were taken, and by which model where it is not the saved one."""
    if not summary.get("scored_on"):
        return ""
    if not summary.get("refitted"):
        return f"Scored on {summary['scored_on']}."
    return (
        f"Scored on {summary['scored_on']}, by a model fitted without that data; the saved model"
        f" ({summary['fingerprint'][:8]}) was then fitted on all data."
    )


def title(score: str, scores: Collection[str] = ("perplexity",)) -> str:
    """Display name of a score; the unit of NLL and lowercased outputs are inferred from the other scores of the run."""
    if f"{score}_lowercased" in scores:
        return f"{TITLES.get(score, score)} (cased references, lowercased outputs)"
    return f"nats per {unit(scores)}" if score == "nll" else TITLES.get(score, score.replace("_", " "))


def unit(scores: Collection[str]) -> str:
    """Unit of the loss of a run with these scores: token, label or value."""
    return next((name for score, name in UNITS.items() if score in scores), "label" if scores else "target")


def training_rate(summary: Record) -> float | None:
    """Tokens or labels of training per second; None for counted models."""
    tokens, seconds = summary.get("trained_tokens"), summary.get("seconds")
    return tokens / seconds if tokens and seconds else None


def headline(runs: list[RunFacts]) -> str | None:
    """The most comparable score that all runs have in common."""
    return next((name for name in COMPARABLE if all(name in run.scores for run in runs)), None)


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and plain values of nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _is_finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
