"""Masked image modeling before a classifier of few labels, on MNIST: SimMIM and MAE at the same pretraining time.

    SEQWRIGHT_DATA=… python benchmarks/masked_patches.py [--labeled 500 1000] [--minutes 3] [--epochs 60] [--seeds 2]

A vision Transformer is pretrained on the first 10,000 training images without labels. SimMIM (Xie et al. 2022): the
encoder reads all patches, half of them as a mask token. MAE (He et al. 2022): it reads the visible quarter, and two
narrower blocks predict the rest. Classifiers of the same shape then learn the first few hundred labels, from scratch,
fine-tuned, or with a frozen encoder (linear probe). Accuracy is that on the 10,000 test images.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import seqwright
from seqwright.data.images.corpus import ImagesConfig, read_images
from seqwright.pipeline import recipe

TRAIN = ("mnist/train-images-first10k.idx3-ubyte.xz", "mnist/train-labels-first10k.idx1-ubyte.xz")
TEST = ("mnist/t10k-images-idx3-ubyte.xz", "mnist/t10k-labels-idx1-ubyte.xz")
MODEL: dict[str, Any] = {"kind": "vit", "layers": 6, "width": 96, "heads": 6, "ffn_width": 192}
TRAINING: dict[str, Any] = {"batch_size": 128, "learning_rate": 2e-3, "weight_decay": 0.05, "evaluate_every": 0}
TRAINING |= {"weights": "last"}
FORMS: dict[str, tuple[dict[str, Any], float]] = {
    "simmim 50%": ({}, 0.5),
    "mae 75%": ({"decoder_layers": 2, "decoder_width": 48}, 0.75),
    "mae 50%": ({"decoder_layers": 2, "decoder_width": 48}, 0.5),
}
"""Keys of [model], and the share of masked patches."""


def step_seconds(form: str, folder: Path) -> float:
    """CPU seconds of a training step, whatever else the machine does: from trainings of 10 and 40 steps."""
    seconds = []
    for steps in (10, 40):
        start = time.process_time()
        pretrain(form, folder / f"{steps} {form}", steps)
        seconds.append(time.process_time() - start)
    return (seconds[1] - seconds[0]) / 30


def pretrain(form: str, path: Path, steps: int) -> dict[str, Any]:
    """Trains on the images without labels; returns the scores."""
    keys, mask_rate = FORMS[form]
    data = {"kind": "images", "train": list(TRAIN), "split": "images 5%", "objective": "inpaint", "patch": 4}
    table = {
        "name": "pretrained",
        "data": data | {"shift": 2, "mask_rate": mask_rate},
        "model": MODEL | keys | {"dropout": 0.0},
        "training": TRAINING | {"steps": steps},
    }
    return dict(seqwright.train(recipe.make(table, origin="benchmark"), run=path).directory.summary())


def pretrained(form: str, folder: Path, minutes: float) -> Path:
    """A run that was pretrained for so many minutes of CPU time."""
    seconds = step_seconds(form, folder)
    steps = round(60 * minutes / seconds)
    psnr = pretrain(form, folder / form, steps)["psnr"]
    # PSNR compares forms of one mask rate only: filling three quarters is harder than filling half.
    print(f"{form}: {1000 * seconds:.0f} ms a step, {steps:,} steps, PSNR {psnr:.2f} dB on held-out images", flush=True)
    return folder / form


def accuracy(base: Path | None, file: Path, seed: int, epochs: float, path: Path, **keys: Any) -> float:
    """Test accuracy of a classifier trained on the labeled images of a file."""
    table = {
        "name": path.name,
        "data": {"kind": "images", "train": str(file), "patch": 4, "shift": 2},
        "model": (MODEL if base is None else {"from": str(base)}) | {"dropout": 0.1},
        "training": TRAINING
        | {"epochs": epochs, "learning_rate": 1e-3, "batch_size": 64, "label_smoothing": 0.1, "seed": seed}
        | keys,
    }
    run = seqwright.train(recipe.make(table, origin="benchmark"), run=path)
    return float(run.evaluate(list(TEST), resamples=0)["accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labeled", type=int, nargs="+", default=[500])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1, help="CPU time of each pretraining.")
    parser.add_argument("--epochs", type=float, default=20, help="Epochs of the classifiers.")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    options = parser.parse_args()
    images = read_images(list(TRAIN), ImagesConfig(train=TRAIN))
    assert images.labels is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bases = {form: pretrained(form, folder, options.minutes) for form in options.forms}
        ways: list[tuple[str, Path | None, dict[str, Any]]] = [("from scratch", None, {})]
        for form, base in bases.items():
            ways.append((f"{form}, fine-tuned", base, {}))
            ways.append((f"{form}, linear probe", base, {"freeze": "all", "learning_rate": 1e-2}))
        for count in options.labeled:
            file = folder / f"first-{count}.npz"
            np.savez(file, images=images.pixels[:count], labels=np.array(images.labels[:count]))
            for n, (way, base, keys) in enumerate(ways):
                found = [
                    accuracy(base, file, seed, options.epochs, folder / f"{count}-{n}-{seed}", **keys)
                    for seed in range(1, options.seeds + 1)
                ]
                shown = ", ".join(f"{value:.2f}" for value in found)
                print(f"{count} labels, {way}: {shown}; mean {np.mean(found):.2f}", flush=True)


if __name__ == "__main__":
    main()
