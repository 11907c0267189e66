"""What a training returns, and which of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqwright.core.progress import Progress


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


def note_kept_weights(progress: Progress, kind: str, steps: Sequence[int], last: int) -> None:
    """Notes that the weights of another step than the last are kept."""
    if kind == "best" and list(steps) != [last]:
        progress.note(
            f"the weights of step {steps[0]:,} are kept, which had the best validation loss; training.weights ="
            f' "last" keeps those of step {last:,}.'
        )
