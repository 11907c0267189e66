"""Default translators: what `seqwright train --pairs FILES` gives in some minutes, beside copying the source.

    SEQWRIGHT_DATA=… python benchmarks/default_translators.py [MINUTES] [PAIRS ...]

Trained on the first PAIRS of Multi30k, English to German, of which 3 % are held out; scored on the 1,000 sentences of
test 2016, which chose nothing. Prints BLEU and chrF (sacrebleu's) as a table in Markdown, one row as it is done.
"""

from __future__ import annotations

import lzma
import os
import sys
import tempfile
from pathlib import Path

import seqwright as sw
from seqwright.metrics.translation import bleu, chrf

DATA = Path(os.environ.get("SEQWRIGHT_DATA", "")) / "multi30k"
SIZES = (2_000, 5_000, 14_000, 29_000)


def lines(name: str, most: int | None = None) -> list[str]:
    """The first lines of a compressed file."""
    with lzma.open(DATA / f"{name}.xz", "rt", encoding="utf-8") as file:
        return file.read().splitlines()[:most]


def write(path: Path, texts: list[str]) -> str:
    """The name of a file with these lines."""
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return str(path)


def row(pairs: int, minutes: float, folder: Path) -> str:
    """One row of the table."""
    train = [write(folder / f"train.{side}", lines(f"train.{side}", pairs)) for side in ("en", "de")]
    test = [write(folder / f"test.{side}", lines(f"test_2016_flickr.{side}")) for side in ("en", "de")]
    run = sw.train(pairs=train, minutes=minutes, run=folder / "run")
    scores, seconds = run.evaluate(test), run.directory.summary()["seconds"]
    sources, references = lines("test_2016_flickr.en"), [[text] for text in lines("test_2016_flickr.de")]
    copied = [metric(sources, references).value for metric in (bleu, chrf)]
    return (
        f"| {pairs:,} | {seconds / 60:.1f} | {copied[0]:.1f} / {copied[1]:.1f} |"
        f" {scores['bleu']:.1f} | {scores['chrf']:.1f} |"
    )


def main() -> None:
    """Prints the table."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    print("| pairs | minutes of training | BLEU / chrF of the source itself | BLEU | chrF |")
    print("|---:|---:|---:|---:|---:|", flush=True)
    for pairs in map(int, sys.argv[2:] or SIZES):
        with tempfile.TemporaryDirectory() as folder:
            print(row(pairs, minutes, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
