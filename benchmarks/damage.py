"""Damaged runs: random changes to every file of a run and what opening and resuming make of them; cost of hashing.

    python benchmarks/damage.py [DAMAGES]

Prints how many damages were refused, skipped (an older checkpoint was used) or changed nothing that is read, how many
changed a score silently, and how long hashing takes beside loading for a run of 1 GB.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.core.storage import load_tensors
from seqwright.runs.directory import RunDirectory

KEYS = (
    *("model.layers=1", "model.width=32", "model.heads=2", "model.context=16", "tokenizer.kind=characters"),
    *("training.steps=6", "training.batch_size=4", "training.sample_every=0", "training.evaluate_every=3"),
)
UNBOUND = ("report.html", ".lock")
"""Files that no number is read from."""


def damage(path: Path, rng: random.Random) -> None:
    """Flips a bit, cuts the end or overwrites a part."""
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    kind = rng.randrange(3)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[at:]
    else:
        data[at : at + 16] = rng.randbytes(len(data[at : at + 16]))
    path.write_bytes(bytes(data))


def outcome(run: Path, score: float) -> str:
    """What a damaged run is: refused, skipped, unchanged, or changed without a word."""
    try:
        if sw.open(run, device="cpu", trust=True).evaluate(stride=16)["nll"] != score:
            return "CHANGED SILENTLY"
        checkpoint = RunDirectory.open(run).checkpoints.latest()
    except UserError:
        return "refused"
    return "an older checkpoint, with a note" if checkpoint is not None and checkpoint.note else "nothing that is read"


def damages(number: int, folder: Path) -> Counter[str]:
    run = sw.train(text="embedded:topics", set=KEYS, run=folder / "run")
    score = run.evaluate(stride=16)["nll"]
    files = [path for path in sorted(run.path.rglob("*")) if path.is_file() and path.name not in UNBOUND]
    counts: Counter[str] = Counter()
    rng = random.Random(0)
    for _ in range(number):
        path = rng.choice(files)
        intact = path.read_bytes()
        damage(path, rng)
        counts["identical bytes" if path.read_bytes() == intact else outcome(run.path, score)] += 1
        path.write_bytes(intact)
    return counts


def cost(folder: Path, gigabytes: float = 1.0) -> tuple[float, float]:
    """Seconds of checking the manifest of a run of this size, and of loading its weights."""
    run = RunDirectory.create(folder / "large", recipe='name = "large"\n[model]\nkind = "gpt"\n')
    run.save_model({"weight": torch.zeros(int(gigabytes * 250_000_000))}, {})
    began = time.perf_counter()
    run.check()
    hashed = time.perf_counter() - began
    began = time.perf_counter()
    tensors, _ = load_tensors(run.model_path)
    for tensor in tensors.values():
        tensor.clone()
    return hashed, time.perf_counter() - began


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    folder = Path(tempfile.mkdtemp())
    try:
        counts = damages(number, folder)
        print(f"{number:,} damaged files: " + ", ".join(f"{what} {count:,}" for what, count in counts.most_common()))
        hashed, loaded = cost(folder)
        print(f"a run of 1 GB: {hashed:.2f} s to check its manifest, {loaded:.2f} s to load its weights")
    finally:
        shutil.rmtree(folder)
    sys.exit(1 if counts["CHANGED SILENTLY"] else 0)


if __name__ == "__main__":
    main()
