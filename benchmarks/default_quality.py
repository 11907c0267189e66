"""Default quality: what `seqwright train --text FILE` gives in some minutes, beside the default n-gram and both mixed.

    SEQWRIGHT_DATA=… python benchmarks/default_quality.py [TEXT ...] [--minutes 10] [--together 1] [--threads N]
        [--json benchmarks/results/default_quality.json]

The last tenth of each text chooses nothing: models are trained on the rest, of which 5 % are held out for validation.
Prints bits per byte on that last tenth as a table in Markdown, one row for each text as it is done. Several texts are
trained at a time where --together says so, each on its own --threads; `--table FILE` only prints the table of a file.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

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


HEADER = """| text | MB | network | minutes | n-gram | network | mixture | better than either by |
|---|---:|---|---:|---:|---:|---:|---:|"""


def measured(name: str, kind: str, minutes: float, folder: Path) -> dict[str, Any]:
    """Bits per byte of a text's last tenth, and the length of the training."""
    text = TEXTS[name]()
    cut = text.index("\n", len(text) * 9 // 10) + 1
    train, test = folder / "train.txt", folder / "test.txt"
    train.write_text(text[:cut], encoding="utf-8")
    test.write_text(text[cut:], encoding="utf-8")
    network = sw.train(text=str(train), model=kind, minutes=minutes, run=folder / kind)
    ngram = sw.train(text=str(train), model="ngram", run=folder / "ngram")
    mixed = sw.mix([folder / kind], folder / "mixed", ngram=True)
    runs = {"ngram": ngram, "network": network, "mixture": mixed}
    bits = {key: round(run.evaluate(str(test))["bits_per_byte"], 4) for key, run in runs.items()}
    summary, settings = network.directory.summary(), network.settings
    facts = {"steps": summary["steps"], "epochs": round(summary["steps"] / summary["steps_per_epoch"], 1)}
    facts |= {"dropout": settings.model.to_table()["dropout"], "parameters": summary["parameters"]}
    about = {"text": name, "bytes": len(text.encode()), "kind": kind, "minutes": round(summary["seconds"] / 60, 2)}
    return about | bits | facts


def apart(name: str, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own, with its own threads, on the CPU."""
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads), "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, __file__, name, "--kind", kind, "--minutes", str(options.minutes)]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"text": name, "kind": kind, "failed": done.returncode}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def row(result: dict[str, Any]) -> str:
    """A row of the table."""
    if "failed" in result:
        return f"| {result['text']} | | {result['kind']} | failed | | | | |"
    better = 1 - result["mixture"] / min(result["ngram"], result["network"])
    return (
        f"| {result['text']} | {result['bytes'] / MEGA:.2f} | {result['kind']} | {result['minutes']:.1f} |"
        f" {result['ngram']:.3f} | {result['network']:.3f} | {result['mixture']:.3f} | {better:.1%} |"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("texts", nargs="*", metavar="TEXT", help=", ".join(TEXTS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--together", type=int, default=1, help="texts at a time")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--kind", help="measure one text in this process, and print JSON")
    parser.add_argument("--table", type=Path, help="print the table of a JSON file")
    options = parser.parse_args()
    if options.kind:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(options.texts[0], options.kind, options.minutes, Path(folder))))
        return
    print(HEADER, flush=True)
    if options.table:
        print("\n".join(row(result) for result in json.loads(options.table.read_text())["results"]))
        return
    # The longest texts first: they need most time beside the training.
    names = sorted(options.texts or TEXTS, key=lambda name: -list(TEXTS).index(name))
    wanted = [(name, kind) for name in names for kind in (("gpt", "lstm") if name == "Penn Treebank" else ("gpt",))]
    about = {"machine": machine(), "threads": options.threads, "together": options.together}
    about |= {"minutes": options.minutes, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
    results = []
    with ThreadPoolExecutor(options.together) as pool:
        for done in as_completed([pool.submit(apart, name, kind, options) for name, kind in wanted]):
            results.append(done.result())
            print(row(results[-1]), flush=True)
            if options.json:
                results.sort(key=lambda result: (list(TEXTS).index(result["text"]), result["kind"]))
                options.json.write_text(json.dumps(about | {"results": results}, indent=1, ensure_ascii=False) + "\n")


def machine() -> str:
    """The CPU's name, where the system tells it."""
    path = Path("/proc/cpuinfo")
    names = [line for line in path.read_text().splitlines() if "model name" in line] if path.exists() else []
    return names[0].split(":")[1].strip() if names else platform.processor()


if __name__ == "__main__":
    main()
