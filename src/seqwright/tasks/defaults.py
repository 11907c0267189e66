"""Shared by the default recipes for users' files: sizes of files, and schedules that follow them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqwright.data.files import COMPRESSED, expand, read_text, resolve
from seqwright.data.samples.text import embedded_text, is_embedded
from seqwright.data.text.corpora import prepared_index
from seqwright.training import machine

KILO, MEGA = 1_000, 1_000_000
PATIENCE = 4
"""Of ten evaluations: a small text is overfitted before the time is over."""
UTILIZATION = {"bf16": 0.4, "fp32": 0.16}
"""Floating-point operations of a small model's training over those of float32 matrix products in the same time, by
the precision in which the machine spends a budget (decision 261)."""


def run_name(files: Sequence[str], kind: str) -> str:
    """The stem of the first file and the kind of the model."""
    return f"{Path(files[0].removeprefix('embedded:')).name.split('.')[0]}-{kind}"


def held_out_percentage(examples: int, *, least: int = 1, most: int = 20) -> int:
    """Percentage of a file's examples to hold out: about 200 of up to 4,000, a twentieth of more, 500 above 10,000.

    The same for all kinds of models, so that two default runs of one file can be compared.
    """
    share = max(5, 20_000 // max(1, examples)) if examples <= 10_000 else 50_000 // examples
    return min(most, max(least, share))


def length_of_training(minutes: float | None, steps: int) -> dict[str, Any]:
    """Keys of [training]: a time budget, which early stopping may leave unspent, where there is one; or steps.

    A budget buys more steps in bf16 (decision 230); a number of steps gives the same model on every CPU.
    """
    if minutes is None:
        return {"steps": steps}
    return {"minutes": minutes, "patience": PATIENCE} | ({"precision": "bf16"} if _precision() == "bf16" else {})


def epochs_within(minutes: float | None, epochs: float) -> dict[str, Any]:
    """Keys of [training]: epochs, or as many of them as fit into a time budget where there is one."""
    return {"epochs": epochs} | ({} if minutes is None else {"minutes": minutes})


def affordable(minutes: float | None) -> float:
    """Floating-point operations of a training of so many minutes on this machine; unlimited without a budget."""
    if minutes is None:
        return float("inf")
    return UTILIZATION[_precision()] * machine.flops(machine.device("auto")) * 60 * minutes


def _precision() -> str:
    """The precision in which a time budget is spent on this machine."""
    return "bf16" if machine.multiplies_bfloat16(machine.device("auto")) else "fp32"


def fitting(table: Sequence[tuple[float, dict[str, Any]]], number: float) -> dict[str, Any]:
    """The row of a table of upper limits that a number falls into."""
    return next(row for most, row in table if number <= most)


def smaller(limited: dict[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    """The sizes that a time budget allows, where they are smaller than those that the data allows."""
    return limited if limited["width"] < sizes["width"] else {}


def steps_for(size: int) -> int:
    """Steps for a text of `size` bytes: with its square root, between 300 and 20,000."""
    return int(min(20_000, max(300, 1000 * (size / MEGA) ** 0.5)) // 100 * 100)


def learning_rate_for(width: int) -> float:
    """AdamW's learning rate of a Transformer: inversely proportional to its width, at most 2e-3."""
    return round(min(2e-3, 0.25 / width), 6)


def muon_rate_for(width: int) -> float:
    """Muon's learning rate of a Transformer: inversely proportional to its width, at most 0.016."""
    return round(min(0.016, 1.0 / width), 6)


def bytes_of(file: str) -> int:
    """The size of a text, a folder of texts, or a prepared corpus."""
    if is_embedded(file):
        return len(embedded_text(file))
    if (index := prepared_index(file)) is not None:
        return index.bytes
    # Compressed text must be opened to know its size; plain text need not be.
    return sum(
        len(read_text(path, "replace")[0]) if path.suffix in COMPRESSED else path.stat().st_size
        for path in expand(resolve(file))[0]
    )
