"""Synthetic runs for the tests of reports: the log of a training without training."""

from __future__ import annotations

import math
import random
from typing import Any

from seqwright.reporting.run_facts import RunFacts

HOSTILE = (
    'ROMEO:\n<script>alert("x")</script> & naïve 🙂\x00\x1b[31m \u202eright to left\u202c \ud800 http://example.org'
)
PLAY = (
    "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n\n"
    "First Citizen:\nYou are all resolved rather to die than to famish?\n\nAll:\nResolved. resolved.\n"
)


def trained_run(
    name: str = "shakespeare-gpt", *, records: int = 120, final: float = 1.5, pace: float = 0.06, kind: str = "gpt"
) -> RunFacts:
    """A neural run with `records` training records, ten evaluations and five samples."""
    rng = random.Random(name)
    log: list[dict[str, Any]] = [{"kind": "note", "text": "holding out the last 5 % of documents"}]
    steps = records * 10
    for i in range(records + 1):
        step, progress = i * 10, i / records
        loss = final + (4.2 - final) * math.exp(-7 * progress) + rng.gauss(0, 0.04)
        seconds = step * pace
        if i:
            speed = {"tokens": step * 3072, "tokens_per_second": 3072 / pace * rng.uniform(0.95, 1)}
            optimization = {
                "learning_rate": _learning_rate(progress),
                "gradient_norm": 0.4 + rng.random() * 0.3,
                **speed,
            }
            log.append(
                {"kind": "train", "step": step, "seconds": seconds, "epoch": i / 40, "loss": loss, **optimization}
            )
        if i and i % 40 == 0:
            log.append({"kind": "epoch", "step": step, "epoch": i // 40, "loss": loss + 0.01})
        if i % max(1, records // 10) == 0:
            log.append({"kind": "evaluation", "step": step, "seconds": seconds, **_scores(loss + 0.05)})
        if i and i % max(1, records // 5) == 0:
            log.append({"kind": "sample", "step": step, "prompt": "ROMEO:", "text": _noisy_text(rng, progress)})
    log.append({"kind": "resume", "step": steps // 2})
    log.append({"kind": "stop", "step": steps, "reason": "all steps taken"})
    summary = {
        "steps": steps,
        "seconds": steps * pace,
        "parameters": 10_745_088,
        "trained_tokens": steps * 3072,
        "best_step": steps,
    }
    return _run(name, kind=kind, log=log, summary=summary, nll=final + 0.05)


def counted_run(name: str = "trigram", *, nll: float = 1.95) -> RunFacts:
    """An n-gram run, counted in one pass: only an evaluation and a sample."""
    log: list[dict[str, Any]] = [
        {"kind": "evaluation", "step": 0, "seconds": 0.21, **_scores(nll)},
        {"kind": "sample", "step": 0, "prompt": "", "text": HOSTILE},
    ]
    return _run(
        name,
        kind="ngram",
        log=log,
        summary={"seconds": 0.21, "parameters": 48_211, "trained_tokens": 1_003_854},
        nll=nll,
    )


def _run(name: str, *, kind: str, log: list[dict[str, Any]], summary: dict[str, Any], nll: float) -> RunFacts:
    signature = (
        "text:whole|stride:half|context:256|tokenizer:characters|interval:bootstrap 95 % of 1000, seed 1|version:0.1.0"
    )
    scores = {
        score: {"value": value, "low": value * 0.99, "high": value * 1.01, "signature": f"{score}|{signature}"}
        for score, value in _scores(nll).items()
    }
    return RunFacts(
        name=name,
        recipe={
            "name": name,
            "data": {"kind": "text", "train": "tiny_shakespeare/input.txt.xz", "split": "tail 10%", "seed": 1},
            "tokenizer": {"kind": "characters", "normalize": ["nfc", "lowercase"]},
            "model": {"kind": kind, "layers": 6, "width": 384, "heads": 6, "dropout": 0.2, "tied": True},
            "training": {
                "steps": summary.get("steps", 0),
                "batch_size": 12,
                "optimizer": {"kind": "adamw", "learning_rate": 0.001, "decay": 0.1},
            },
            "evaluation": {"every": 100},
        },
        environment={
            "seqwright": "0.1.0",
            "python": "3.11.2",
            "torch": "2.13.0",
            "device": "cpu",
            "threads": 2,
            "platform": "Linux-6.1.0-x86_64-with-glibc2.36",
            "started": "2025-11-15T08:00:00+00:00",
        },
        log=log,
        summary={**summary, "scores": scores, **{score: entry["value"] for score, entry in scores.items()}},
    )


def _scores(nll: float) -> dict[str, float]:
    bits = nll / math.log(2)
    return {"perplexity": math.exp(nll), "bits_per_byte": bits, "bits_per_character": bits, "nll": nll}


def _learning_rate(progress: float) -> float:
    return 1e-3 * min(1.0, progress * 20) * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))


def _noisy_text(rng: random.Random, progress: float) -> str:
    """The play with a share of random characters that falls as training progresses."""
    letters = "etaoinshr \n"
    return "".join(c if rng.random() < 0.4 + 0.6 * progress else rng.choice(letters) for c in "\n" + PLAY * 2)
