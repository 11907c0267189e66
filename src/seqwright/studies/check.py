"""`check`: the laws proved on a user's own model, as a table of differences."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch

from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.runs.run import Run
from seqwright.studies.encoder_laws import ENCODER_LAWS
from seqwright.studies.laws import LAWS
from seqwright.studies.training_laws import TRAINING_LAWS

TOLERANCE = 1e-8
"""Neural models are checked in float64, where rounding stays far below this."""
COUNTED_TOLERANCE = 1e-4
"""Counted models keep float32 tables."""
ROWS, LENGTH = 4, 24
SHORTEST = 3
"""Ids that the laws need room for: one to begin with, one on which rows part, one to go on with."""


@dataclass(frozen=True, kw_only=True)
class LawResult:
    law: str
    difference: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance


@torch.no_grad()
def check(run: Run) -> list[LawResult]:
    """Every law on a copy of this run's model, with rows of its own tokens."""
    model, tolerance = run.model, COUNTED_TOLERANCE
    laws = LAWS if isinstance(model, Autoregressive) else ENCODER_LAWS
    if model.context is not None and model.context < SHORTEST:
        raise UserError(
            f"{run.path} sees {model.context} of the {SHORTEST} tokens that the laws are checked on; nothing to check."
        )
    if isinstance(model, torch.nn.Module):
        model = copy.deepcopy(model).cpu().double().eval()
        laws, tolerance = laws | TRAINING_LAWS, TOLERANCE
    batch = run.example(ROWS, min(LENGTH, model.context or LENGTH))
    return [LawResult(law=name, difference=law(model, batch), tolerance=tolerance) for name, law in laws.items()]
