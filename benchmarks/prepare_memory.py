"""Memory and speed of learning a tokenizer and encoding a large text; `--megabytes 1000` is a gigabyte of it.

The text is made up (Zipf-distributed words, so that merges and the vocabulary grow as they do in real text) and written
to a folder of its own. The peak is that of the whole process, Python and its libraries included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from seqwright.data.text.prepare import prepare, train_tokenizer
from seqwright.text.trainers import TokenizerConfig

BOUND = 800
"""Megabytes that the peak should stay under, however large the text."""


def write(path: Path, megabytes: int) -> None:
    generator = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = np.array(["".join(generator.choice(letters, length)) for length in generator.integers(2, 11, 60_000)])
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1_000_000:
            ranks = np.minimum(generator.zipf(1.2, (20_000, 12)), len(words)) - 1
            file.writelines(" ".join(row) + "\n" for row in words[ranks])


def peak() -> float:
    """The most memory that this process has held, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=int, default=100)
    arguments.add_argument("--kind", default="byte-bpe")
    arguments.add_argument("--sample", type=int, default=20_000_000, help="tokenizer.sample_bytes")
    arguments.add_argument("--inner", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.inner is None:  # the text is made by another process, whose memory should not count
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "text.txt", given.megabytes)
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--inner", folder], check=True)
        return
    text = Path(given.inner) / "text.txt"
    size = text.stat().st_size / 1e6
    begun, floor = time.perf_counter(), peak()
    config = TokenizerConfig(kind=given.kind, size=8000, sample_bytes=given.sample)
    tokenizer = train_tokenizer(config, [text], "line")
    learned, after = time.perf_counter() - begun, peak()
    begun = time.perf_counter()
    stream = prepare([text], Path(given.inner) / "ids", tokenizer, document="line")
    encoded = time.perf_counter() - begun
    found = {
        "kind": given.kind,
        "megabytes": round(size),
        "imports_mb": round(floor),
        "learning_peak_mb": round(after),
        "peak_mb": round(peak()),
        "bound_mb": BOUND,
        "learning_seconds": round(learned, 1),
        "encoding_seconds": round(encoded, 1),
        "encoding_mb_per_second": round(size / encoded, 1),
        "ids": len(stream.ids),
    }
    print(json.dumps(found))
    if peak() > BOUND:
        sys.exit(f"the peak is above {BOUND} MB")


if __name__ == "__main__":
    main()
