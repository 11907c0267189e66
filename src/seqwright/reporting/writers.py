"""Log writers: CSV and TensorBoard."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError

SCALAR_KINDS = ("train", "epoch", "evaluation")
"""Kinds of log records that hold scalars by step."""


def log_csv(records: Iterable[Mapping[str, Any]]) -> str:
    """CSV text with a row per scalar record and a column per key that occurs."""
    rows = [record for record in records if record["kind"] in SCALAR_KINDS]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


class TensorBoard:
    """Writes the scalars of log records to TensorBoard under the tag `kind/key`."""

    def __init__(self, folder: Path, step: int):
        """Resumes after `step`: later events, written before an interruption, are purged."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError(
                'training.writers names tensorboard, which is not installed; `pip install "seqwright[tensorboard]"`, '
                "or leave it out: log.jsonl has every number."
            ) from error
        self.writer = SummaryWriter(str(folder), purge_step=step + 1)

    def __call__(self, record: Mapping[str, Any]) -> None:
        if record["kind"] not in SCALAR_KINDS:
            return
        for key, value in record.items():
            if key != "step" and isinstance(value, int | float):
                name = f"{record['kind']}/{key}"
                self.writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self.writer.close()
