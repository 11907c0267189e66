"""Variants of the default language model at the steps that ten minutes of a CPU give, trained side by side on one GPU.

    SEQWRIGHT_DATA=… python benchmarks/default_variants.py [FILE] [--minutes 7] [--workers 14] [--texts kieu,sh400]

FILE has a variant on each line, as words: default, v1024 (byte-bpe tokens; `chars`), d0.1 (dropout), l4 w128 h4
(layers, width, heads), c128 b16 (context, rows), r8 (rate in thousandths), s0.5 (share of the steps), adamw, mod
(RMSNorm, ReLU², QK-norm, no biases), o5 (order of the n-gram), KEY=VALUE (any other). Words that are missing are the
default recipe's. Lines are taken in turn until the time is over, each for all texts; `kieu:` before a line names its
texts.

Of every text the last tenth stays unread (`default_quality.py` scores it); the last tenth of the rest is held out here.
Printed are its bits per byte: the n-gram, the network, and both mixed with weights tuned on its other half. A training
has as many steps as fit into ten minutes of two CPU cores (`milliseconds`).
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import queue
import re
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

import seqwright as sw
from default_quality import TEXTS
from seqwright.metrics.interpolation import interpolation_weights
from seqwright.metrics.likelihood import score_text
from seqwright.tasks.defaults import muon_rate_for
from seqwright.tasks.language.defaults import AFFORDABLE, text_recipe

NAMES = dict(zip(("kieu", "sh400", "sh", "imdb", "wt2", "ptb"), TEXTS, strict=True))
MODERN = {"norm": "rmsnorm", "activation": "relu2", "qk_norm": True, "bias": False}
DROPOUTS = {"kieu": 0.3, "sh400": 0.2, "sh": 0.1, "imdb": 0.1, "wt2": 0.0, "ptb": 0.0}
"""As the default recipe has it for ten minutes of two cores."""
KEYS = {"d": "model.dropout", "l": "model.layers", "w": "model.width", "h": "model.heads", "c": "model.context"}
KEYS |= {"b": "training.batch_size", "v": "tokenizer.size"}


def milliseconds(settings: dict[str, Any]) -> float:
    """Time of a step on two quiet cores with bf16: fitted by hand to CPU times of one core (EPYC, AVX512-BF16)."""
    layers, width, size = (settings[f"model.{key}"] for key in ("layers", "width", "vocabulary"))
    tokens = settings["training.batch_size"] * settings["model.context"]
    parameters = 12 * layers * width**2 + size * width
    work = 143 * (parameters * tokens / (917_504 * 2048)) ** 0.93 * (1.1 if settings.get("model.qk_norm") else 1.0)
    dropped = 54 if settings.get("model.attention_dropout", 1) else 27  # by a slower kernel of attention
    work += dropped * tokens * layers * width / (2048 * 4 * 128) * (settings["model.dropout"] > 0)
    if settings["training.optimizer"] == "muon":
        work += 18 * layers / 4 * (width / 128) ** 2.6
    return 0.62 * work


def settings_of(words: str, file: str) -> tuple[dict[str, Any], float, int]:
    """Keys of the recipe, the share of the steps and the order of the n-gram."""
    table = text_recipe([file], kind="gpt")
    found = {f"model.{key}": table["model"][key] for key in ("layers", "width", "heads", "context")}
    found["model.dropout"] = DROPOUTS[Path(file).stem]
    found |= {f"training.{key}": table["training"][key] for key in ("batch_size", "optimizer")}
    found["tokenizer.size"] = table["tokenizer"]["size"]
    found |= {f"model.{key}": value for key, value in AFFORDABLE[0][1].items()}
    share, order = 1.0, 5
    for word in words.split():
        if match := re.fullmatch(r"([dlwhcbv])([\d.]+)", word):
            found[KEYS[match[1]]] = float(match[2]) if match[1] == "d" else int(match[2])
        elif word.startswith("r"):
            found["training.learning_rate"] = float(word[1:]) / 1000
        elif word.startswith("s"):
            share = float(word[1:])
        elif word.startswith("o"):
            order = int(word[1:])
        elif word == "mod":
            found |= {f"model.{key}": value for key, value in MODERN.items()}
        elif word == "default":
            continue
        elif word == "adamw":
            found["training.optimizer"] = word
        elif word == "chars":
            found["tokenizer.kind"] = "characters"
            del found["tokenizer.size"]
        else:
            key, value = word.split("=")
            found[key] = json.loads(value)
    found.setdefault("training.learning_rate", muon_rate_for(found["model.width"]))
    found["model.vocabulary"] = found.get("tokenizer.size", 100)
    return found, share, order


def counted(run: sw.Run, task_text: str, order: int, cache: Path) -> tuple[np.ndarray, np.ndarray]:
    """log p of the held-out tokens under the n-gram, and the orders of the n-grams that were found; computed once."""
    name = cache / f"{task_text}-{run.tokenizer.hash[:12]}-{order}.npy"
    if not name.exists():
        with tempfile.TemporaryDirectory() as folder:
            wanted = [f"tokenizer.file={run.directory.tokenizer_path}", f"model.order={order}", "data.refit=false"]
            ngram = sw.train(
                text=run.settings.data.train[0],
                model="ngram",
                set=[*wanted, 'data.split="tail 10%"'],
                run=Path(folder) / "ngram",
            )
            values = scored(ngram, run.stream(None))
        partial = name.with_suffix(f".{os.getpid()}.npy")
        np.save(partial, values)
        partial.rename(name)
    return np.load(name)


def scored(run: sw.Run, stream: Any) -> np.ndarray:
    """log p of every predicted token."""
    ids = torch.from_numpy(stream.ids.astype(np.int64))
    with torch.no_grad():
        result = score_text(run.model, ids, sos=stream.sos, device=run.device, batch_size=64)
    return result.log_probs[result.mask]


def cross_mixed(log_probs: np.ndarray) -> float:
    """Nats of all tokens under a mixture whose weights are tuned on the half that is not scored."""
    half, total = len(log_probs) // 2, 0.0
    parts = (log_probs[:half], log_probs[half:])
    for tuned, other in (parts, parts[::-1]):
        with np.errstate(divide="ignore"):
            total -= float(np.logaddexp.reduce(other + np.log(interpolation_weights(tuned)), axis=1).sum())
    return total


def trained(text: str, words: str, minutes: float, folder: Path, cache: Path) -> dict[str, Any]:
    """The scores of one variant on one text."""
    file = cache / f"{text}.txt"
    settings, share, order = settings_of(words, str(file))
    steps = int(share * minutes * 60 * 0.9 * 1000 / milliseconds(settings))
    settings.pop("model.vocabulary")
    fixed = {"training.steps": steps, "training.precision": "bf16", "training.compile": "cudagraphs"}
    fixed |= {"evaluation.baseline": False, "evaluation.resamples": 0, "training.sample_every": 0}
    overrides = [f"{key}={json.dumps(value)}" for key, value in (fixed | settings).items()] + ['data.split="tail 10%"']
    start = time.perf_counter()
    run = sw.train(text=str(file), model="gpt", set=overrides, run=folder / "gpt")
    seconds = time.perf_counter() - start
    stream, summary = run.stream(None), run.directory.summary()
    network = scored(run, stream)
    ngram = counted(run, text, order, cache)
    bits = 1 / math.log(2) / stream.sizes[:, 0].sum()
    records = [r for r in run.directory.records() if r["kind"] == "evaluation"]
    row = {"text": text, "words": words, "steps": steps, "best": summary["best_step"], "seconds": round(seconds, 1)}
    row |= {"epochs": round(steps / summary["steps_per_epoch"], 1), "tokens": len(network)}
    row |= {"ngram": -ngram.sum() * bits, "network": -network.sum() * bits}
    row |= {"mixed": cross_mixed(np.stack([network, ngram], 1)) * bits}
    row |= {"curve": [round(r["nll"], 3) for r in records]}
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


def work(jobs: Any, results: Any, deadline: float, minutes: float, cache: Path) -> None:
    """Trains variants until there are none or the time is over."""
    torch.set_num_threads(1)
    while time.time() < deadline:
        try:
            text, words = jobs.get_nowait()
        except queue.Empty:
            return
        with tempfile.TemporaryDirectory() as folder:
            try:
                results.put(trained(text, words, minutes, Path(folder), cache))
            except Exception:
                results.put({"text": text, "words": words, "error": traceback.format_exc()})


def lines(path: Path, texts: list[str]) -> list[tuple[str, str]]:
    """Jobs, in turn."""
    found = []
    for line in path.read_text().splitlines():
        named, _, words = line.rpartition(":")
        chosen = [name for name in texts if not named or name in named.split(",")]
        found += [(name, words.strip()) for name in chosen if line.strip() and not line.startswith("#")]
    return found


def main() -> None:
    """Trains, and prints a row for each variant and text."""
    parser = argparse.ArgumentParser()
    parser.add_argument("variants", type=Path, nargs="?", default=Path(__file__).with_suffix(".txt"))
    parser.add_argument("--minutes", type=float, default=7.0, help="of this command")
    parser.add_argument("--budget", type=float, default=10.0, help="minutes of the CPU whose steps are taken")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--texts", default=",".join(NAMES))
    options = parser.parse_args()
    end = time.time() + 60 * options.minutes
    context = multiprocessing.get_context("spawn")
    jobs, results = context.Queue(), context.Queue()
    wanted = lines(options.variants, options.texts.split(","))
    out = Path(os.environ.get("OUT") or ".") / "default_variants.jsonl"
    with tempfile.TemporaryDirectory() as folder:
        for name in {name for name, _ in wanted}:
            text = TEXTS[NAMES[name]]()
            (Path(folder) / f"{name}.txt").write_text(text[: text.index("\n", len(text) * 9 // 10) + 1])
        for job in wanted:
            jobs.put(job)
        arguments = (jobs, results, end - 40, options.budget, Path(folder))
        workers = [context.Process(target=work, args=arguments, daemon=True) for _ in range(options.workers)]
        for worker in workers:
            worker.start()
        rows: list[dict[str, Any]] = []
        with out.open("w") as file:
            while len(rows) < len(wanted) and time.time() < end and any(w.is_alive() for w in workers):
                try:
                    row = results.get(timeout=1)
                except queue.Empty:
                    continue
                rows.append(row)
                print(json.dumps(row), file=file, flush=True)
        for worker in workers:
            worker.terminate()
            worker.join()
    show(rows, len(wanted))


def show(rows: list[dict[str, Any]], wanted: int) -> None:
    """The table."""
    for row in [row for row in rows if "error" in row][:3]:
        print(row["text"], row["words"], row["error"][-600:])
    good = [row for row in rows if "error" not in row]
    print(f"{len(good)} of {wanted} trainings")
    for name in NAMES:
        print(f"{name}: n-gram, network, mixed, % better than either; steps, epochs, best; seconds")
        for row in sorted((row for row in good if row["text"] == name), key=lambda row: row["network"]):
            better = 100 * (1 - row["mixed"] / min(row["ngram"], row["network"]))
            print(
                f"  {row['ngram']:.3f} {row['network']:.3f} {row['mixed']:.3f} {better:4.1f}%  {row['steps']:6}"
                f" {row['epochs']:5.1f} {row['best']:6} {row['seconds']:5.0f}s  {row['words']}"
            )


if __name__ == "__main__":
    main()
