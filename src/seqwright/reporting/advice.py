"""What to do next with a trained language model: train longer, or mix it with the n-gram that is still better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqwright.reporting.numbers import duration, figure

FALLING = 0.01
"""Share of the loss by which it must still have fallen over the last fifth of the training."""


def advice(path: str, log: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Sentences and the commands to run."""
    fallen = still_falling(log)
    if fallen and summary.get("asked_steps"):
        yield (
            f"validation was still falling ({fallen:.1%} in the last fifth of the training): train twice as long",
            f"seqwright train --run {path} --set training.steps={2 * int(summary['asked_steps'])}",
        )
    counted = baseline_of(log)
    if counted is None or summary.get("nll") is None:
        return
    behind = summary["nll"] / counted["nll"] - 1
    if behind > 0:
        yield (
            f"the n-gram is still better by {behind:.1%} ({_compression(counted)} after"
            f" {duration(counted['seconds'])}): mix them",
            f"seqwright mix {path} --ngram --run {path}-mixed",
        )


def baseline_of(log: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The record of the counted baseline, if there is one."""
    return next((record for record in log if record["kind"] == "baseline"), None)


def still_falling(log: Sequence[Mapping[str, Any]]) -> float | None:
    """By which share the validation loss fell over the last fifth of the steps; None where that is little."""
    points = [(record["step"], record["nll"]) for record in log if record["kind"] == "evaluation"]
    if len(points) < 2:
        return None
    last, loss = points[-1]
    before = [nll for step, nll in points if step <= 0.8 * last]
    fallen = 1 - loss / before[-1] if before and before[-1] > 0 else 0.0
    return fallen if fallen > FALLING else None


def _compression(record: Mapping[str, Any]) -> str:
    """Bits per byte, or the loss per token where a lossy tokenizer has no bytes."""
    bits = record.get("bits_per_byte")
    return f"{figure(record['nll'])} nats per token" if bits is None else f"{figure(bits)} bits/byte"
