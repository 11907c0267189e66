"""Tiny Shakespeare by characters: our recipes against nanoGPT's settings, in the same run.

nanoGPT's README (Karpathy 2022) trains 4 layers of width 128, context 64, batch 12, for 2,000 steps on a CPU, and 6
layers of width 384, context 256, batch 64, dropout 0.2, on a GPU; there its validation loss is least after about 1,500
of 5,000 steps (docs/results.md has the rival's figure). All are scored by nanoGPT's measure: the mean over 200 random
batches of windows of the last tenth of the text, each as long as the model's context. The peer is `peers/nanogpt.py`.
Both are compiled on a GPU, which is not counted.

    SEQWRIGHT_DATA=... python benchmarks/shakespeare.py [--device cuda] [--recipe NAME] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from peers import nanogpt
from peers.loop import Options
from seqwright import api
from seqwright.data.text.corpus import documents_of, read_corpus
from seqwright.pipeline import recipe
from seqwright.pipeline import training as session
from seqwright.training import machine

WARM_UP = 20
"""Steps that are not timed, but scaled: they compile."""
BATCHES = 200
"""Random batches of nanoGPT's measure."""


@dataclass(frozen=True)
class Settings:
    """nanoGPT's settings for a device, and our recipe for it."""

    recipe: str
    model: nanogpt.GPTConfig
    rows: int
    steps: int
    """Of the schedule."""
    stop: int
    """Steps taken."""


CPU = nanogpt.GPTConfig(layers=4, heads=4, width=128, context=64, vocabulary=65)
GPU = nanogpt.GPTConfig(layers=6, heads=6, width=384, context=256, vocabulary=65, dropout=0.2)
SETTINGS = {
    "cpu": Settings("shakespeare-cpu", CPU, rows=12, steps=2000, stop=2000),
    "cuda": Settings("shakespeare-gpt", GPU, rows=64, steps=5000, stop=1500),
}


def peer(text: str, settings: Settings, device: torch.device) -> dict[str, float]:
    """Seconds of training and nll of nanoGPT's settings."""
    alphabet = sorted(set(text))
    ids = np.array([alphabet.index(character) for character in text])
    cut = int(len(ids) * 0.9)
    cuda = device.type == "cuda"
    options = Options(device=device, dtype=torch.bfloat16 if cuda else torch.float32, compile=cuda)

    def learning_rate(step: int) -> float:
        """1e-3 after 100 steps of warm-up, then cosine decay to a tenth."""
        fall = (1 + math.cos(math.pi * (step - 100) / max(1, settings.steps - 100))) / 2
        return 1e-3 * (step / 100 if step < 100 else 0.1 + 0.9 * fall)

    torch.manual_seed(1337)
    model, step = nanogpt.step(
        settings.model, ids[:cut], settings.rows, options, learning_rate=learning_rate, betas=(0.9, 0.99)
    )
    for taken in range(settings.stop):
        if taken == WARM_UP:
            machine.synchronize(device)
            start = time.perf_counter()
        step()
    machine.synchronize(device)
    seconds = (time.perf_counter() - start) * settings.stop / (settings.stop - WARM_UP)
    model.eval()
    torch.manual_seed(1)
    valid = ids[cut:].astype(np.uint16)
    with torch.no_grad(), options.autocast():
        losses = [
            model(*nanogpt.windows(valid, settings.rows, settings.model.context, options)).item()
            for _ in range(BATCHES)
        ]
    return {"seconds": seconds, "nll": sum(losses) / len(losses), "steps": settings.stop}


def ours(name: str, device: torch.device, overrides: list[str]) -> dict[str, float]:
    """Seconds of training, nll over random windows and over the whole text, of a recipe."""
    compiled = ["training.compile=inductor"] if device.type == "cuda" else []  # as the peer
    overrides = [f"training.device={device.type}", *compiled, *overrides]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        outcome = session.train(recipe.load(name, overrides), run)
        assert outcome.summary is not None
        log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    first, *_, last = [record for record in log if record["kind"] == "train"]
    seconds = (last["seconds"] - first["seconds"]) * last["step"] / (last["step"] - first["step"])
    summary = outcome.summary
    return {
        "seconds": seconds,
        "nll": summary["random_windows_nll"],
        "whole_text_nll": summary["nll"],
        "steps": last["step"],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=list(SETTINGS), default="cpu")
    parser.add_argument("--recipe", help="default: that of the device")
    parser.add_argument("--set", action="append", default=[], help="override a key of our recipe")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device, settings = torch.device(arguments.device), SETTINGS[arguments.device]
    name = arguments.recipe or settings.recipe
    corpus = read_corpus(api.load(name).data.train, "file", errors="strict")
    text = documents_of(corpus.documents[0], "file")[0]
    results: dict[str, Any] = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    if device.type == "cuda":
        results["gpu"] = torch.cuda.get_device_name()
    results["ours"] = us = ours(name, device, arguments.set)
    results["nanogpt"] = them = peer(text, settings, device)
    results["ratio"] = us["seconds"] / them["seconds"]
    print(f"{name}: {us['steps']} steps, {us['seconds']:.1f} s, nll {us['nll']:.4f}; text {us['whole_text_nll']:.4f}")
    print(f"nanoGPT's settings: {them['steps']} steps, {them['seconds']:.1f} s, nll {them['nll']:.4f}")
    print(f"ratio: {results['ratio']:.2f} of the peer's time, {us['nll'] - them['nll']:+.4f} nats")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
