"""The ablation of the GPT paper (Radford et al. 2018, table 5), small: is the language model's loss worth keeping?

    SEQWRIGHT_DATA=… python benchmarks/auxiliary_loss.py [--seeds 3] [--minutes 20] [--folder runs/auxiliary-loss]

A GPT, and an LSTM, learn the sentences of SST-2 without their labels; then classifiers of the same shape are trained on
the labels: from scratch, begun with the language model, begun with it while half of its loss is kept
(training.auxiliary_loss_weight); with the LSTM, pooled as in ULMFiT, the last is the paper's fourth arm. All have the
same seeds, epochs and rate, and one language model of a kind serves all seeds. Seed by seed, all arms are trained; no
seed is begun that would end after `--minutes`, judged by the one before, and runs in `--folder` are not trained again.
The test sentences are read once, by `seqwright.compare`: mean accuracy, intervals over sentences and seeds, and a test
of each pair of arms.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import seqwright
from seqwright.data.labeled.rows import LabeledConfig, read_rows
from seqwright.pipeline import recipe

TRAIN, VALID, TEST = (f"sst/stsa.binary.{part}.txt.xz" for part in ("train", "dev", "test"))
MODELS: dict[str, dict[str, Any]] = {
    "gpt": {"kind": "gpt", "layers": 2, "width": 128, "heads": 4, "context": 64, "dropout": 0.2},
    "lstm": {"kind": "lstm", "layers": 2, "width": 128, "dropout": 0.2},
}
ARMS = {
    f"{kind}-{arm}": (kind, begun, weight)
    for kind in MODELS
    for arm, begun, weight in (("scratch", False, 0.0), ("pretrained", True, 0.0), ("auxiliary", True, 0.5))
}
"""Kind of model, whether it begins with the language model, and the weight of the auxiliary loss."""


def language_model(folder: Path, kind: str, epochs: float) -> Path:
    """A run that has read the training sentences, and no labels."""
    rows = read_rows(TRAIN, LabeledConfig(train=TRAIN, separator=" ")).rows
    text = folder / "sentences.txt"
    text.write_text("\n".join(row.texts[0] for row in rows), encoding="utf-8")
    table = {
        "name": "sentences",
        "data": {"kind": "text", "train": str(text), "document": "line", "split": "documents 5%"},
        "tokenizer": {"kind": "words", "min_frequency": 2},
        "model": MODELS[kind] | {"tied": True},  # the embedding is the output layer of the auxiliary loss, too
        "training": {
            "epochs": epochs,
            "batch_size": 32,
            "sequence_length": 64,
            "learning_rate": 2e-3,
            "warmup_steps": 50,
            "weight_decay": 0.1,
        },
    }
    run = seqwright.train(recipe.make(table, origin="benchmark"), run=folder / kind)
    print(f"{kind}: perplexity {run.directory.summary()['perplexity']:.1f} on held-out sentences", flush=True)
    return folder / kind


def classifier(kind: str, lm: Path | None, weight: float, seed: int, epochs: float, rate: float, path: Path) -> Path:
    """The run of a classifier."""
    training = {
        "epochs": epochs,
        "batch_size": 32,
        "learning_rate": rate,
        "warmup_steps": 50,
        "weight_decay": 0.01,
        "seed": seed,
        "auxiliary_loss_weight": weight,
    }
    head = {"head_dropout": 0.1}
    # The last state of a language model is that after <eos>, which says little of the sentence (docs/experiments.md).
    shape = {"bidirectional": False, "pooling": ["last", "max", "mean"]} if kind == "lstm" else {}
    table = {
        "name": path.parent.name,  # the seeds of an arm are one system
        "data": {"kind": "labeled", "train": TRAIN, "valid": VALID, "separator": " "},
        "tokenizer": {"kind": "words", "min_frequency": 2},
        "model": (MODELS[kind] if lm is None else {"from": str(lm)}) | head | shape,
        "training": training,
    }
    seqwright.train(recipe.make(table, origin="benchmark"), run=path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--reading", type=float, default=8, help="Epochs of the language model.")
    parser.add_argument("--rate", type=float, default=5e-4, help="Learning rate of the classifiers.")
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=list(ARMS))
    parser.add_argument("--minutes", type=float, default=20, help="No seed is begun that would end later.")
    parser.add_argument("--folder", type=Path, help="Keeps the runs here, and resumes.")
    given = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        kinds = {ARMS[arm][0] for arm in given.arms if ARMS[arm][1]}
        models = {kind: language_model(folder, kind, given.reading) for kind in MODELS if kind in kinds}
        runs: list[Path] = []
        lap = 0.0
        for seed in range(1, given.seeds + 1):
            elapsed = time.monotonic() - begin
            if runs and elapsed + lap > 60 * given.minutes:
                print(f"{seed - 1} of {given.seeds} seeds in {given.minutes:g} minutes", flush=True)
                break
            for arm in given.arms:
                kind, begun, weight = ARMS[arm]
                lm = models[kind] if begun else None
                runs.append(
                    classifier(
                        kind, lm, weight, seed, given.epochs, given.rate, folder / f"{arm}-{given.rate:g}" / str(seed)
                    )
                )
            lap = time.monotonic() - begin - elapsed
            print(f"seed {seed}: {lap:.0f} s", flush=True)
        print(seqwright.compare(runs, on=TEST, metrics=["accuracy"]))
        print(f"{time.monotonic() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
