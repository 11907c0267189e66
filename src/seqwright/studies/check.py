"""`check`: the laws proved on a user's own model and text, as a table of differences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from seqwright.api import open as open_run
from seqwright.batch import Batch
from seqwright.run import Run
from seqwright.studies.laws import LAWS
from seqwright.training.weights import weights

TOLERANCE = 1e-8
"""Neural models are checked in float64, where rounding stays far below this."""
COUNTED_TOLERANCE = 1e-4
"""Counted models keep float32 tables."""
ROWS, LENGTH = 4, 24


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
    """Every law on this run's model, with rows from its own tokens."""
    model = run.model
    neural = isinstance(model, torch.nn.Module)
    if neural:
        model = model.cpu().double().eval()
    tolerance = TOLERANCE if neural else COUNTED_TOLERANCE
    batch = _rows(run, min(LENGTH, model.context or LENGTH))
    findings = [Finding(law=name, difference=law(model, batch), tolerance=tolerance) for name, law in LAWS.items()]
    findings.append(Finding(law="opened = opened again", difference=_opened_again(run), tolerance=0.0))
    return findings


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


def _opened_again(run: Run) -> float:
    """0 where the folder, opened once more, gives the same weights bit for bit."""
    first, second = (open_run(run.path, device="cpu") for _ in range(2))
    one, other = (
        weights(r.model) if isinstance(r.model, torch.nn.Module) else r.model.tensors() for r in (first, second)
    )
    same = one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    return 0.0 if same else float("inf")
