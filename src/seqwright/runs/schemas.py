"""The keys of a run's JSON files that are read again, and their types."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError
from seqwright.core.regular_files import FileRecord

Number = float | None
"""A score; null where it is infinite or undefined."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The keys of environment.json that are read again; it has more."""

    format: int
    inode: int = 0
    """Of the run's folder when it was created."""
    seqwright: str = "of unknown version"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The keys of summary.json that every run has, and those of scores; each task adds others."""

    kind: str
    parameters: int
    steps: int
    seconds: float
    fingerprint: str = ""
    asked_steps: int = 0
    steps_per_epoch: int = 0
    trained_tokens: int = 0
    best_step: int | None = None
    nll: Number = None
    bits_per_byte: Number = None
    bits_per_character: Number = None
    perplexity: Number = None
    accuracy: Number = None
    bleu: Number = None
    scores: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    tuned: dict[str, Number] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    scored_on: str = ""
    """The data of the scores."""
    refitted: bool = False
    """Whether the scores are of a model that was then fitted again on all data."""
    baseline: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, score in self.scores.items():
            numbers = [score.get(key) for key in ("value", "low", "high")] if score else []
            if not all(number is None or type(number) in (int, float) for number in numbers):
                raise UserError(f"the score '{name}' is no number.")


@dataclass(frozen=True, kw_only=True)
class LawRecord:
    """One law of a certificate."""

    law: str
    difference: float | None
    tolerance: float
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The keys of certificate.json that are read again."""

    holds: bool
    fingerprint: str
    files: dict[str, FileRecord]
    laws: tuple[LawRecord, ...]


Types = type | tuple[type, ...]

LOG: dict[str, dict[str, Types]] = {
    "note": {"text": str},
    "train": {"step": int},
    "epoch": {"step": int},
    "evaluation": {"step": int},
    "baseline": {"model": str, "nll": (int, float), "seconds": (int, float)},
    "sample": {"step": int, "prompt": str, "text": str},
    "resume": {"step": int},
    "stop": {"step": int, "reason": str},
    "diverged": {"step": int, "reason": str},
    "scores": {"on": list, "scores": dict},
    "early": {"step": int, "best_step": int},
    "averaging": {"step": int},
    "spike": {"step": int, "at": int, "loss": (int, float)},
    "memory": {"step": int, "micro_batch_size": int},
}
"""Keys of the records of log.jsonl by kind; those of other programs pass."""


def check_log(records: list[dict[str, Any]], path: Path) -> None:
    """Raises where a record lacks a key of its kind, or has another type of value."""
    for number, record in enumerate(records, 1):
        keys: dict[str, Types] = {"kind": str, **({"step": int} if "step" in record else {})}
        keys |= LOG.get(str(record["kind"]), {})
        if wrong := [key for key, types in keys.items() if not isinstance(record.get(key), types)]:
            raise UserError(f"{path} is damaged at line {number}: '{wrong[0]}'. Delete that line and run again.")
