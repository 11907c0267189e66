"""Default quality: what `seqwright train --text FILE` gives in some minutes, beside the default n-gram and both mixed.

    SEQWRIGHT_DATA=… python benchmarks/default_quality.py [TEXT ...] [--minutes 10] [--together 1] [--threads N]
        [--json benchmarks/results/default_quality.json] [--folder DIR [--decide]]

The last tenth of each text chooses nothing: models are trained on the rest, of which 5 % are held out for validation.
Prints bits per byte on that last tenth as a table in Markdown, one row for each text as it is done. Several texts are
trained at a time where --together says so, each on its own --threads; `--table FILE` only prints the table of a file.

What a budget buys depends on how busy the machine is. `--folder DIR --decide` needs a quiet minute: every training is
stopped once its budget is turned into steps. The same command without `--decide` takes these steps, however long.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

import seqwright as sw
from seqwright.runs import environment

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


def split(text: str, folder: Path) -> tuple[Path, Path]:
    """Files of a text to train on, and of its last tenth."""
    cut = text.index("\n", len(text) * 9 // 10) + 1
    train, test = folder / "train.txt", folder / "test.txt"
    train.write_text(text[:cut], encoding="utf-8")
    test.write_text(text[cut:], encoding="utf-8")
    return train, test


def decided(name: str, kind: str, minutes: float, folder: Path) -> dict[str, Any]:
    """The steps that a budget is turned into; the training is stopped there."""
    train, _ = split(TEXTS[name](), folder)
    run, recipe = folder / kind, folder / kind / "recipe.toml"
    words = ["train", "--text", str(train), "--model", kind, "--minutes", str(minutes), "--run", str(run)]
    with subprocess.Popen([sys.executable, "-m", "seqwright", *words], stdout=sys.stderr) as training:
        while training.poll() is None and not (recipe.exists() and "\nsteps = " in recipe.read_text()):
            time.sleep(0.2)
        time.sleep(3)  # a training that has no checkpoint yet leaves nothing
        training.terminate()  # SIGINT is ignored by what a shell runs in the background
    steps = tomllib.loads(recipe.read_text())["training"]["steps"]
    return {"text": name, "kind": kind, "steps": steps}


def measured(name: str, kind: str, minutes: float, folder: Path) -> dict[str, Any]:
    """Bits per byte of a text's last tenth, and the length of the training."""
    text = TEXTS[name]()
    train, test = split(text, folder)
    network = sw.train(text=str(train), model=kind, minutes=minutes, run=folder / kind)  # or goes on as decided
    ngram = sw.train(text=str(train), model="ngram", run=folder / "ngram")
    mixed = sw.mix([folder / kind], folder / "mixed", ngram=True)
    runs = {"ngram": ngram, "network": network, "mixture": mixed}
    bits = {key: round(run.evaluate(str(test))["bits_per_byte"], 4) for key, run in runs.items()}
    summary, settings = network.directory.summary(), network.settings
    facts = {"steps": summary["steps"], "epochs": round(summary["steps"] / summary["steps_per_epoch"], 1)}
    facts |= {"dropout": settings.model.to_table()["dropout"], "parameters": summary["parameters"]}
    about = {"text": name, "bytes": len(text.encode()), "kind": kind, "minutes": minutes}
    about["training_minutes"] = round(summary["seconds"] / 60, 2)
    return about | bits | facts


def apart(name: str, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own, with its own threads, on the CPU."""
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads), "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, __file__, name, "--kind", kind, "--minutes", str(options.minutes)]
    if options.folder:
        words += ["--folder", str(options.folder)] + ["--decide"] * options.decide
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"text": name, "kind": kind, "failed": done.returncode}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def one(options: argparse.Namespace, temporary: Path) -> dict[str, Any]:
    """The result of one text in this process."""
    name, folder = options.texts[0], temporary
    if options.folder:
        folder = options.folder / f"{name.replace(' ', '-')}-{options.kind}-{options.minutes:g}"
        folder.mkdir(parents=True, exist_ok=True)
    return (decided if options.decide else measured)(name, options.kind, options.minutes, folder)


def row(result: dict[str, Any]) -> str:
    """A row of the table."""
    if "failed" in result:
        return f"| {result['text']} | | {result['kind']} | failed | | | | |"
    if "mixture" not in result:
        return f"| {result['text']} | {result['kind']} | {result['steps']:,} |"
    better = 1 - result["mixture"] / min(result["ngram"], result["network"])
    return (
        f"| {result['text']} | {result['bytes'] / MEGA:.2f} | {result['kind']} | {result['minutes']:g} |"
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
    parser.add_argument("--folder", type=Path, help="keep the runs there, and go on with them")
    parser.add_argument("--decide", action="store_true", help="only turn budgets into steps")
    options = parser.parse_args()
    if options.decide and not options.folder:
        parser.error("--decide needs --folder, where the trainings are begun.")
    if options.kind:
        with tempfile.TemporaryDirectory() as temporary:
            print(json.dumps(one(options, Path(temporary))))
        return
    print(HEADER if not options.decide else "| text | network | steps |\n|---|---|---:|", flush=True)
    if options.table:
        print("\n".join(row(result) for result in json.loads(options.table.read_text())["results"]))
        return
    # The longest texts first: they need most time beside the training.
    names = sorted(options.texts or TEXTS, key=lambda name: -list(TEXTS).index(name))
    wanted = [(name, kind) for name in names for kind in (("gpt", "lstm") if name == "Penn Treebank" else ("gpt",))]
    about = {"machine": environment.cpu(), "threads": options.threads, "together": options.together}
    about |= {"minutes": options.minutes, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
    results = []
    with ThreadPoolExecutor(options.together) as pool:
        for done in as_completed([pool.submit(apart, name, kind, options) for name, kind in wanted]):
            results.append(done.result())
            print(row(results[-1]), flush=True)
            if options.json and not options.decide:
                results.sort(key=lambda result: (list(TEXTS).index(result["text"]), result["kind"]))
                options.json.write_text(json.dumps(about | {"results": results}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
