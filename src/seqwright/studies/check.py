"""`check`: the laws proved on a user's own model, as a table of differences."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch

from seqwright.batch import Batch
from seqwright.config import UserError
from seqwright.run import Run
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
class Finding:
    law: str
    difference: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance


@torch.no_grad()
def check(run: Run) -> list[Finding]:
    """Every law on a copy of this run's model, with rows of its own tokens."""
    model, laws, tolerance = run.model, LAWS, COUNTED_TOLERANCE
    if model.context is not None and model.context < SHORTEST:
        raise UserError(
            f"{run.path} sees {model.context} of the {SHORTEST} tokens that the laws are checked on; nothing to check."
        )
    if isinstance(model, torch.nn.Module):
        model = copy.deepcopy(model).cpu().double().eval()
        laws, tolerance = LAWS | TRAINING_LAWS, TOLERANCE
    batch = _rows(run, min(LENGTH, model.context or LENGTH))
    return [Finding(law=name, difference=law(model, batch), tolerance=tolerance) for name, law in laws.items()]


def _rows(run: Run, length: int) -> Batch:
    """Rows of ids that the tokenizer can produce, the same every time."""
    vocabulary = run.tokenizer.vocabulary
    reserved = set(run.tokenizer.specials.values())
    ids = np.array([id for id in range(vocabulary.size) if id not in reserved])
    drawn = np.random.default_rng(1).choice(ids, (ROWS, length + 1))
    if vocabulary.sos is not None:
        drawn[:, 0] = vocabulary.sos
    rows = torch.from_numpy(drawn)
    return Batch(source=run.source(ROWS, length), input=rows[:, :-1].contiguous(), target=rows[:, 1:].contiguous())
