"""What runs there are in a folder, and what they reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqwright.core.config import UserError
from seqwright.runs.directory import RunDirectory
from seqwright.runs.finding import find_runs

REACHED = (
    "parameters",
    "steps",
    "seconds",
    "nll",
    "bits_per_byte",
    "bits_per_character",
    "perplexity",
    "accuracy",
    "bleu",
)


def listing(folder: str | Path) -> list[dict[str, Any]]:
    """A row for each run, damaged and unfinished ones too."""
    found = find_runs(Path(folder))
    if not found:
        raise UserError(f"no runs in {folder}; `seqwright train --text FILE` makes one.")
    return [_row(path) for path in found]


def _row(path: Path) -> dict[str, Any]:
    try:
        run = RunDirectory.open(path, contents=False)
        run.certificate()
    except UserError as error:
        return {"run": str(path), "state": f"damaged: {error}"}
    row: dict[str, Any] = {"run": str(path), "kind": run.recipe().get("model", {}).get("kind")}
    if not run.finished:
        steps = run.checkpoints.steps()
        diverged = [record["step"] for record in run.records() if record["kind"] == "diverged"]
        state = f"diverged at step {diverged[-1]:,}" if diverged else "unfinished"
        return row | {"state": state, "steps": steps[-1] if steps else 0}
    summary = run.summary()
    certificate = run.certificate()
    row["checked"] = None if certificate is None else "laws hold" if certificate.holds else "laws BROKEN"
    # What is made of other runs has no scores but those of the texts that set its weights.
    state, tuned = ("finished, as tuned", summary["tuned"]) if "tuned" in summary else ("finished", {})
    return row | {"state": state} | {key: summary.get(key, tuned.get(key)) for key in REACHED}
