"""What to do next with a trained model: train longer, or mix it with the n-gram that is still better."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from seqwright.reporting.numbers import duration, figure

FALLING = 0.01
"""Share of the loss by which it must still have fallen over the last fifth of the training."""
LEARNED = 0.01
"""Nats per token below which nothing is left to learn: a perplexity of 1.01."""

SHORT = 60.0
"""Seconds of a training below which twice as long is still short."""
AMPLE = 300.0
"""Seconds of the training that is then proposed."""
MOST_TIMES = 20
"""The longest training that is proposed, in lengths of the last: its losses say nothing of what comes much later."""
USABLE_BLEU = 10.0
"""BLEU below which outputs rarely have the meaning of their sources."""


def advice(
    path: str,
    log: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    anew: Callable[[int], str | None] = lambda times: None,
) -> Iterator[tuple[str, str]]:
    """Sentences and the commands to run. `anew` is the command of a training from the beginning, of so many times the
    time budget; None where there was none."""

    def going_on(times: int) -> tuple[str, str]:
        """What is said of a longer training, and its command: many times as long it has other sizes and dropout."""
        if times > 2 and (command := anew(times)):
            return ", anew, since sizes and dropout follow the time", command
        return "", f"seqwright train --run {path} --set training.steps={times * steps}"

    fallen, steps = still_falling(log), int(summary.get("asked_steps") or 0)
    bleu = summary.get("bleu_lowercased", summary.get("bleu", 100.0))  # lowercased outputs: without regard to case
    low = f"BLEU {figure(bleu)} is too low to be useful" if bleu < USABLE_BLEU else ""
    if steps and (fallen or (low and _early(log, float(summary.get("seconds") or AMPLE)))):
        falling = f"validation was still falling ({fallen:.1%} in the last fifth of the training)" if fallen else ""
        times = longer(float(summary.get("seconds") or AMPLE))
        how, command = going_on(times)
        many = "twice" if times == 2 else f"{times:,} times"
        yield f"{'; '.join(filter(None, (low, falling)))}: train {many} as long{how}", command
    elif steps and low:
        yield (
            f"{low}, and validation no longer falls: more pairs are needed",
            f"seqwright train --pairs MORE.SOURCE MORE.TARGET --run {path}-more",
        )
    counted = baseline_of(log)
    if counted is None or summary.get("nll") is None:
        return
    if summary["nll"] > counted["nll"]:
        seconds = float(summary.get("seconds") or AMPLE)
        if steps and not fallen and _early(log, seconds):
            times, single = longer(seconds), len(_losses(log)) < 2
            short = "a single validation says" if single else "a short training that was best at its end says"
            how, command = going_on(times)
            yield f"{short} little: train longer first{how}", command
        yield (
            f"{_compression(summary)}, and the n-gram has {_compression(counted)} after"
            f" {duration(counted['seconds'])}: mix them",
            f"seqwright mix {path} --ngram --run {path}-mixed",
        )


def longer(seconds: float) -> int:
    """How many times as long a training of some seconds should be, which has not finished learning."""
    if seconds > SHORT:
        return 2
    times = AMPLE / max(seconds, 0.5)
    return min(MOST_TIMES, int(round(times, -math.floor(math.log10(times)))))  # one digit: 14 is 10


def baseline_of(log: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The record of the counted baseline, if there is one."""
    return next((record for record in log if record["kind"] == "baseline"), None)


def still_falling(log: Sequence[Mapping[str, Any]]) -> float | None:
    """By which share the validation loss fell over the last fifth of the steps; None where that is little, or where it
    was lower before."""
    points = _losses(log)
    if len(points) < 2 or points[-1][1] > min(nll for _, nll in points):
        return None
    last, loss = points[-1]
    if loss < LEARNED:
        return None
    before = [nll for step, nll in points if step <= 0.8 * last]
    fallen = 1 - loss / before[-1] if before and before[-1] > 0 else 0.0
    return fallen if fallen > FALLING else None


def _early(log: Sequence[Mapping[str, Any]], seconds: float) -> bool:
    """Whether a training was too short for its validation losses to say anything: few, or the last one is the best."""
    losses = [nll for _, nll in _losses(log)]
    return len(losses) < 2 or (seconds < SHORT and losses[-1] == min(losses))


def _losses(log: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Steps and validation losses."""
    return [(record["step"], record["nll"]) for record in log if record["kind"] == "evaluation"]


def _compression(record: Mapping[str, Any]) -> str:
    """Bits per byte, or the loss per token where a lossy tokenizer has no bytes."""
    bits = record.get("bits_per_byte")
    return f"{figure(record['nll'])} nats per token" if bits is None else f"{figure(bits)} bits/byte"
