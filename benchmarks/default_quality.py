"""Default quality: what `seqwright train --text FILE` gives in some minutes, beside the default n-gram and both mixed.

    SEQWRIGHT_DATA=… python benchmarks/default_quality.py [MINUTES] [TEXT ...]

The last tenth of each text chooses nothing: models are trained on the rest, of which 5 % are held out for validation.
Prints bits per byte on that last tenth as a table in Markdown, one row for each text as it is done.
"""

from __future__ import annotations

import lzma
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import seqwright as sw

DATA = Path(os.environ.get("SEQWRIGHT_DATA", ""))
MEGA = 1_000_000


def plain(name: str, most: int | None = None) -> str:
    """The beginning of a compressed text."""
    with lzma.open(DATA / name, "rt", encoding="utf-8") as file:
        return file.read(most)


def reviews() -> str:
    """Two megabytes of film reviews, one on a line."""
    rows = plain("imdb/train.tsv.xz", 2 * MEGA).splitlines()
    return "\n".join(max(row.split("\t"), key=len) for row in rows[:-1])


TEXTS: dict[str, Callable[[], str]] = {
    "Truyện Kiều": lambda: plain("truyen_kieu/truyen_kieu.txt.xz"),
    "Shakespeare, 400 KB": lambda: plain("tiny_shakespeare/input.txt.xz", 400_000),
    "Tiny Shakespeare": lambda: plain("tiny_shakespeare/input.txt.xz"),
    "IMDB reviews": reviews,
    "WikiText-2, 5 MB": lambda: plain("wikitext2/wiki.train.tokens.xz", 5 * MEGA),
    "Penn Treebank": lambda: plain("ptb/ptb.train.txt.xz"),
}


def row(name: str, text: str, minutes: float, kind: str, folder: Path) -> str:
    """One row of the table."""
    cut = text.index("\n", len(text) * 9 // 10) + 1
    train, test = folder / "train.txt", folder / "test.txt"
    train.write_text(text[:cut], encoding="utf-8")
    test.write_text(text[cut:], encoding="utf-8")
    network = sw.train(text=str(train), model=kind, minutes=minutes, run=folder / kind)
    ngram = sw.train(text=str(train), model="ngram", run=folder / "ngram")
    mixed = sw.mix([folder / kind], folder / "mixed", ngram=True)
    bits = {run: run.evaluate(str(test))["bits_per_byte"] for run in (ngram, network, mixed)}
    better = 1 - bits[mixed] / min(bits[ngram], bits[network])
    summary = network.directory.summary()
    return (
        f"| {name} | {len(text.encode()) / MEGA:.2f} | {kind} | {summary['seconds'] / 60:.1f} | {bits[ngram]:.3f} |"
        f" {bits[network]:.3f} | {bits[mixed]:.3f} | {better:.1%} |"
    )


def main() -> None:
    """Prints the table."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    names = sys.argv[2:] or list(TEXTS)
    print("| text | MB | network | minutes | n-gram | network | mixture | better than either by |")
    print("|---|---:|---|---:|---:|---:|---:|---:|", flush=True)
    for name in names:
        for kind in ("gpt", "lstm") if name == "Penn Treebank" else ("gpt",):
            with tempfile.TemporaryDirectory() as folder:
                print(row(name, TEXTS[name](), minutes, kind, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
