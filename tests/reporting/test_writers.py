"""Writers: every number of the log once, and an error that names what to install."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from seqwright.config import UserError
from seqwright.reporting.writers import TensorBoard, log_csv

RECORDS: list[dict[str, Any]] = [
    {"kind": "note", "text": "held out"},
    {"kind": "train", "step": 2, "loss": 1.5, "rate": 0.1},
    {"kind": "evaluation", "step": 2, "nll": 1.25, "bits_per_byte": None},
    {"kind": "sample", "step": 2, "text": "once, upon"},
    {"kind": "train", "step": 4, "loss": 1.25, "rate": 0.05},
]


def test_a_table_has_a_row_for_each_record_of_numbers() -> None:
    rows = list(csv.DictReader(io.StringIO(log_csv(RECORDS))))
    assert [(row["kind"], row["step"], row["loss"], row["nll"]) for row in rows] == [
        ("train", "2", "1.5", ""),
        ("evaluation", "2", "", "1.25"),
        ("train", "4", "1.25", ""),
    ]


def test_without_tensorboard_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"seqwright\[tensorboard\]"):
        TensorBoard(tmp_path, 0)


def test_tensorboard_is_told_each_number_and_goes_on_where_training_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Any, ...]] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int):
            told.append((folder, purge_step))

        def add_scalar(self, *given: Any) -> None:
            told.append(given)

        def close(self) -> None:
            told.append(("closed",))

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    board = TensorBoard(tmp_path, 7)
    for record in RECORDS[:3]:
        board(record)
    board.close()
    assert told == [
        (str(tmp_path), 8),
        ("train/loss", 1.5, 2),
        ("train/rate", 0.1, 2),
        ("evaluation/nll", 1.25, 2),
        ("closed",),
    ]
