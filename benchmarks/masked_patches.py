"""What painting hidden patches in is worth to a classifier of few labels (SimMIM, Xie et al. 2022), on MNIST.

    SEQWRIGHT_DATA=… python benchmarks/masked_patches.py [--labeled 500 1000] [--pretraining 200] [--epochs 150]

A vision Transformer learns the first 10,000 training images without labels, half of their patches hidden. Classifiers
of the same shape then learn the first few hundred labels: from scratch, and begun with it; same seeds, epochs and rate.
Accuracy is that on the 10,000 test images. The numbers above are meant for a GPU; the defaults only show that it runs.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import seqwright
from seqwright.data.images.corpus import ImagesConfig, read_images
from seqwright.pipeline import recipe

TRAIN = ("mnist/train-images-first10k.idx3-ubyte.xz", "mnist/train-labels-first10k.idx1-ubyte.xz")
TEST = ("mnist/t10k-images-idx3-ubyte.xz", "mnist/t10k-labels-idx1-ubyte.xz")
MODEL = {"kind": "vit", "layers": 6, "width": 96, "heads": 6, "ffn_width": 192}
TRAINING = {"batch_size": 128, "learning_rate": 2e-3, "weight_decay": 0.05, "evaluate_every": 0, "weights": "last"}


def painter(folder: Path, epochs: float) -> Path:
    """A run that has seen the images, and no labels."""
    table = {
        "name": "fill",
        "data": {
            "kind": "images",
            "train": list(TRAIN),
            "split": "pictures 5%",
            "answer": "fill",
            "patch": 4,
            "shift": 2,
        },
        "model": MODEL | {"dropout": 0.0},
        "training": TRAINING | {"epochs": epochs, "warmup_steps": 100},
    }
    run = seqwright.train(recipe.make(table, origin="benchmark"), run=folder / "fill")
    print(f"pre-training: PSNR {run.directory.summary()['psnr']:.2f} dB on held-out images", flush=True)
    return folder / "fill"


def classifier(base: Path | None, file: Path, seed: int, epochs: float, path: Path) -> float:
    """Test accuracy of a classifier that learns the labeled pictures of a file."""
    model: dict[str, Any] = MODEL if base is None else {"from": str(base)}
    table = {
        "name": path.name,
        "data": {"kind": "images", "train": str(file), "patch": 4, "shift": 2},
        "model": model | {"dropout": 0.1},
        "training": TRAINING
        | {"epochs": epochs, "learning_rate": 1e-3, "batch_size": 64, "label_smoothing": 0.1, "seed": seed},
    }
    run = seqwright.train(recipe.make(table, origin="benchmark"), run=path)
    return float(run.evaluate(list(TEST), resamples=0)["accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labeled", type=int, nargs="+", default=[500])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--pretraining", type=float, default=1, help="Epochs of the painter.")
    parser.add_argument("--epochs", type=float, default=5, help="Epochs of the classifiers.")
    given = parser.parse_args()
    pictures = read_images(list(TRAIN), ImagesConfig(train=TRAIN))
    assert pictures.labels is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begun = painter(folder, given.pretraining)
        for many in given.labeled:
            file = folder / f"first-{many}.npz"
            np.savez(file, images=pictures.pixels[:many], labels=np.array(pictures.labels[:many]))
            for way, base in {"from scratch": None, "begun with the painter": begun}.items():
                found = [
                    classifier(base, file, seed, given.epochs, folder / f"{many}-{base is None}-{seed}")
                    for seed in range(1, given.seeds + 1)
                ]
                shown = ", ".join(f"{accuracy:.2f}" for accuracy in found)
                print(f"{many} labels, {way}: {shown}; mean {sum(found) / len(found):.2f}", flush=True)


if __name__ == "__main__":
    main()
