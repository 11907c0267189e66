"""CSV and TensorBoard writers."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from seqwright.core.config import UserError
from seqwright.reporting.writers import TensorBoard, log_csv

RECORDS: list[dict[str, Any]] = [
    {"kind": "note", "text": "held out"},
    {"kind": "train", "step": 2, "loss": 1.5, "learning_rate": 0.1},
    {"kind": "evaluation", "step": 2, "nll": 1.25, "bits_per_byte": None},
    {"kind": "sample", "step": 2, "text": "once, upon"},
    {"kind": "train", "step": 4, "loss": 1.25, "learning_rate": 0.05},
]


def test_csv_has_a_row_per_scalar_record() -> None:
    rows = list(csv.DictReader(io.StringIO(log_csv(RECORDS))))
    assert [(row["kind"], row["step"], row["loss"], row["nll"]) for row in rows] == [
        ("train", "2", "1.5", ""),
        ("evaluation", "2", "", "1.25"),
        ("train", "4", "1.25", ""),
    ]


def test_missing_tensorboard_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"seqwright\[tensorboard\]"):
        TensorBoard(tmp_path, 0)


def read_back(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values by tag, as TensorBoard reads them."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder))
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_tensorboard_reads_every_scalar(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path, 0)
    for record in RECORDS:
        board(record)
    board.close()
    assert read_back(tmp_path) == {
        "train/loss": [(2, 1.5), (4, 1.25)],
        "train/learning_rate": [(2, pytest.approx(0.1)), (4, pytest.approx(0.05))],
        "evaluation/nll": [(2, 1.25)],
    }


def test_tensorboard_purges_events_after_the_resumed_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for start, losses in ((0, {2: 1.5, 4: 1.25, 6: 9.0}), (4, {6: 1.0, 8: 0.75})):
        board = TensorBoard(tmp_path, start)
        for step, loss in losses.items():
            board({"kind": "train", "step": step, "loss": loss})
        board.close()
    assert read_back(tmp_path) == {"train/loss": [(2, 1.5), (4, 1.25), (6, 1.0), (8, 0.75)]}
