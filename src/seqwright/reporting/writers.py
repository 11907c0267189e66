"""Further places for a training's log: a table of comma-separated values, and TensorBoard's files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError

MEASURED = ("train", "epoch", "evaluation")
"""Kinds of records that are about numbers over steps."""


def log_csv(records: Iterable[Mapping[str, Any]]) -> str:
    """A row for each record of numbers, a column for each key that any of them has."""
    rows = [record for record in records if record["kind"] in MEASURED]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


class TensorBoard:
    """Writes the numbers of each record under `kind/key` as they come."""

    def __init__(self, folder: Path, step: int):
        """Goes on after `step`: what an earlier sitting wrote beyond it is taken back."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError(
                'training.writers names tensorboard, which is not installed; `pip install "seqwright[tensorboard]"`, '
                "or leave it out: log.jsonl has every number."
            ) from error
        self.writer = SummaryWriter(str(folder), purge_step=step + 1)

    def __call__(self, record: Mapping[str, Any]) -> None:
        if record["kind"] not in MEASURED:
            return
        for key, value in record.items():
            if key != "step" and isinstance(value, int | float):
                name = f"{record['kind']}/{key}"
                self.writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self.writer.close()
