"""The ablation of the GPT paper (Radford et al. 2018, table 5), small: is the language model's loss worth keeping?

    SEQWRIGHT_DATA=… python benchmarks/auxiliary_loss.py [--seeds 3] [--epochs 2]

A GPT, and an LSTM, learn the sentences of SST-2 without their labels; then classifiers of the same shape are trained on
the labels: from scratch, begun with the language model, begun with it while half of its loss is kept
(training.auxiliary_loss_weight), and the same with the LSTM, the paper's fourth arm. All have the same seeds, steps and
rate. Accuracy is that on the test sentences.
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
MODELS: dict[str, dict[str, Any]] = {
    "gpt": {"kind": "gpt", "layers": 2, "width": 128, "heads": 4, "context": 64, "dropout": 0.2},
    "lstm": {"kind": "lstm", "layers": 2, "width": 128, "dropout": 0.2},
}
ARMS = {
    "from scratch": ("gpt", False, 0.0),
    "begun with the language model": ("gpt", True, 0.0),
    "and half of its loss kept": ("gpt", True, 0.5),
    "the same with an LSTM": ("lstm", True, 0.5),
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


def classifier(kind: str, lm: Path | None, weight: float, seed: int, epochs: float, path: Path) -> float:
    """Test accuracy of a classifier."""
    training = {
        "epochs": epochs,
        "batch_size": 32,
        "learning_rate": 5e-4,
        "warmup_steps": 50,
        "weight_decay": 0.01,
        "seed": seed,
        "auxiliary_loss_weight": weight,
    }
    head = {"head_dropout": 0.1}
    shape = {"bidirectional": False, "pooling": "final"} if kind == "lstm" else {}
    table = {
        "name": path.name,
        "data": {"kind": "labeled", "train": TRAIN, "valid": VALID, "separator": " "},
        "tokenizer": {"kind": "words", "min_frequency": 2},
        "model": (MODELS[kind] if lm is None else {"from": str(lm)}) | head | shape,
        "training": training,
    }
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
        models = {kind: language_model(folder, kind, given.reading) for kind in MODELS}
        for number, (arm, (kind, begun, weight)) in enumerate(ARMS.items()):
            lm = models[kind] if begun else None
            accuracies = [
                classifier(kind, lm, weight, seed, given.epochs, folder / f"{number}-{seed}")
                for seed in range(1, given.seeds + 1)
            ]
            shown = ", ".join(f"{accuracy:.2f}" for accuracy in accuracies)
            print(f"{arm}: {shown}; mean {sum(accuracies) / len(accuracies):.2f}", flush=True)


if __name__ == "__main__":
    main()
