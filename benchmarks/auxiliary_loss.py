"""The ablation of the GPT paper (Radford et al. 2018, table 5), small: is the language model's loss worth keeping?

    SEQWRIGHT_DATA=… python benchmarks/auxiliary_loss.py [--seeds 3] [--epochs 2]

A GPT learns the sentences of SST-2 without their labels; then classifiers of the same shape are trained on the labels:
from scratch, begun with the language model, and begun with it while half of its loss is kept
(training.auxiliary_loss_weight). All
have the same seeds, steps and rate. Accuracy is that on the test sentences.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import seqwright
from seqwright.data.labeled.rows import LabeledConfig, read_rows
from seqwright.pipeline import recipe

TRAIN, VALID, TEST = (f"sst/stsa.binary.{part}.txt.xz" for part in ("train", "dev", "test"))
MODEL = {"kind": "gpt", "layers": 2, "width": 128, "heads": 4, "context": 64, "dropout": 0.2}
WAYS: dict[str, dict[str, Any]] = {
    "from scratch": {"base": False},
    "begun with the language model": {"base": True},
    "and half of its loss kept": {"init_from": True, "auxiliary_loss_weight": 0.5},
}


def language_model(folder: Path, epochs: float) -> Path:
    """A run that has read the training sentences, and no labels."""
    rows = read_rows(TRAIN, LabeledConfig(train=TRAIN, separator=" ")).rows
    text = folder / "sentences.txt"
    text.write_text("\n".join(row.texts[0] for row in rows), encoding="utf-8")
    table = {
        "name": "sentences",
        "data": {"kind": "text", "train": str(text), "document": "line", "split": "documents 5%"},
        "tokenizer": {"kind": "words", "minimum_count": 2},
        "model": MODEL,
        "training": {
            "epochs": epochs,
            "batch_size": 32,
            "sequence_length": 64,
            "learning_rate": 2e-3,
            "warmup_steps": 50,
            "weight_decay": 0.1,
        },
    }
    run = seqwright.train(recipe.make(table, origin="benchmark"), run=folder / "lm")
    print(f"language model: perplexity {run.directory.summary()['perplexity']:.1f} on held-out sentences", flush=True)
    return folder / "lm"


def classifier(lm: Path, way: dict[str, Any], seed: int, epochs: float, path: Path) -> float:
    """Test accuracy of a classifier."""
    training = {
        "epochs": epochs,
        "batch_size": 32,
        "learning_rate": 5e-4,
        "warmup_steps": 50,
        "weight_decay": 0.01,
        "seed": seed,
    }
    table = {
        "name": path.name,
        "data": {"kind": "labeled", "train": TRAIN, "valid": VALID, "separator": " "},
        "tokenizer": {"kind": "words", "minimum_count": 2},
        "model": MODEL | {"answer_dropout": 0.1},
        "training": training | {key: value for key, value in way.items() if key != "base"},
    }
    if way["base"]:
        table["model"] = {"from": str(lm), "answer_dropout": 0.1}
    run = seqwright.train(recipe.make(table, origin="benchmark"), run=path)
    return float(run.evaluate(TEST, resamples=0)["accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--reading", type=float, default=8, help="Epochs of the language model.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lm = language_model(folder, given.reading)
        for number, (way, options) in enumerate(WAYS.items()):
            found = [
                classifier(lm, options, seed, given.epochs, folder / f"{number}-{seed}")
                for seed in range(1, given.seeds + 1)
            ]
            shown = ", ".join(f"{accuracy:.2f}" for accuracy in found)
            print(f"{way}: {shown}; mean {sum(found) / len(found):.2f}", flush=True)


if __name__ == "__main__":
    main()
