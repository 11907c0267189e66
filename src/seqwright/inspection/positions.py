"""Positional similarity of a run, as `explain positions` shows it."""

from __future__ import annotations

from seqwright.inspection.subject import Subject, ViewResult
from seqwright.studies.explain.position_similarity import position_module, similarity_step


def positions_view(subject: Subject) -> ViewResult:
    """Of models that encode positions."""
    module = position_module(subject.run.model)
    assert module is not None
    return ViewResult(*similarity_step(module, subject.run.model.context))
