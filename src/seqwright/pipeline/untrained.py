"""Finished runs of models that were not trained: imported from other programs, or mixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqwright.core.storage import write_text
from seqwright.pipeline.facts import facts_of
from seqwright.pipeline.recipe import Recipe
from seqwright.reporting.report import report
from seqwright.runs.directory import RunDirectory


def keep(
    made: Recipe,
    path: Path,
    *,
    tokenizer: str,
    model: Any,
    notes: Sequence[str],
    beside: Mapping[str, str] | None = None,
    **facts: Any,
) -> dict[str, Any]:
    """Writes a finished run of such a model, with the `beside` files that its kind
    needs; returns the summary, which is written last."""
    with RunDirectory.staged(path, recipe=made.toml()) as directory:
        write_text(directory.tokenizer_path, tokenizer)
        for name, text in (beside or {}).items():
            write_text(directory.path / name, text)
        for note in notes:
            directory.note(note)
        tensors = model.state_dict()
        directory.save_model(tensors, {"kind": made.kind, "step": "0"})
        summary = {"kind": made.kind, "steps": 0, "seconds": 0.0, "fingerprint": directory.fingerprint}
        summary |= {"parameters": sum(tensor.numel() for tensor in tensors.values())} | facts
        directory.finish(summary, report(facts_of(directory, summary, path=path)))
    return summary
