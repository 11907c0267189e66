"""What a training returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    path: Path
    summary: dict[str, Any] | None
    """None where training was stopped before its end."""
    stopped: str | None = None
    """The signal that stopped training."""
    already: bool = False
    """Whether the run was already finished."""
    advice: tuple[tuple[str, str], ...] = ()
    """What training shows should be done next: sentences and their commands."""
