"""`check`: runs the laws on the model of a run and reports the largest difference of each."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.core.storage import write_json, write_text
from seqwright.pipeline.facts import facts_of
from seqwright.reporting.report import report
from seqwright.runs.environment import environment
from seqwright.runs.run import Run
from seqwright.studies.encoder_laws import ENCODER_LAWS
from seqwright.studies.laws import LAWS
from seqwright.studies.training_laws import TRAINING_LAWS

TOLERANCE = 1e-8
"""For neural models, which are checked in float64: rounding errors stay far below."""
COUNTED_TOLERANCE = 1e-4
"""For counted models, whose tables are float32."""
ROWS, LENGTH = 4, 24
MIN_CONTEXT = 3
"""Shortest context the laws need, in tokens: a first one, one in which rows diverge, one to continue with."""


@dataclass(frozen=True, kw_only=True)
class LawResult:
    """The largest difference between both sides of a law, and the tolerance."""

    law: str
    difference: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance


def certify(run: Run, results: Sequence[LawResult]) -> dict[str, Any]:
    """Stores what was checked in the run and in its report: laws, fingerprint and hashes, versions and machine."""
    directory = run.directory
    if not directory.finished:
        raise UserError(f"{run.path} is unfinished; finish it with `seqwright train --run {run.path}`, then --save.")
    certificate = {
        "holds": all(result.holds for result in results),
        "fingerprint": directory.fingerprint,
        "files": {name: asdict(record) for name, record in directory.check().items()},
        "laws": [asdict(result) | {"holds": result.holds} for result in results],
        "environment": environment(),
    }
    with directory.writing():
        write_json(directory.certificate_path, certificate)
        write_text(directory.report_path, report(facts_of(directory)))
    return certificate


@torch.no_grad()
def check(run: Run) -> list[LawResult]:
    """The result of every applicable law on a copy of the run's model, on a batch of its vocabulary."""
    model, tolerance = run.model, COUNTED_TOLERANCE
    laws = LAWS if isinstance(model, Autoregressive) else ENCODER_LAWS
    if model.context is not None and model.context < MIN_CONTEXT:
        raise UserError(
            f"{run.path} has a context of {model.context} tokens, but the laws need {MIN_CONTEXT}; check a"
            " model with a longer context."
        )
    if isinstance(model, torch.nn.Module):
        model = copy.deepcopy(model).cpu().double().eval()
        laws, tolerance = laws | TRAINING_LAWS, TOLERANCE
    batch = run.example(ROWS, min(LENGTH, model.context or LENGTH))
    return [LawResult(law=name, difference=law(model, batch), tolerance=tolerance) for name, law in laws.items()]
