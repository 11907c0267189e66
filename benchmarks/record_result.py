"""Record finished runs for docs/results.md: seeds, scores, commit and machine, from the run folders alone.

    seqwright train ptb-ngram --run runs/ptb-ngram
    seqwright evaluate runs/ptb-ngram --on ptb/ptb.test.txt.xz
    python benchmarks/record_result.py runs/ptb-ngram
    python docs/results_page.py > docs/results.md

Runs of one recipe that differ in the seed are one row: record them together or one after another, from any machine.
A run with a recorded seed replaces that seed. Scores come from the run's summary (validation) and from evaluations
in its log (`evaluate --on`). Random windows, neural cache and dynamic evaluation are not in the log: save `evaluate
RUN --on FILE --json` to a file and add `--evaluation FILE.json`. A run whose settings are not those of its recipe
needs `--name` (`--name sst2-dropout-0.3`), and so does a mixture. `--commit` names the commit where the run was
trained in a copy without .git; otherwise the hash of the sources stands for it.

Only the standard library is needed, so that the record can be written where the run was trained (`--into $OUT`) and
copied to benchmarks/results/recipes. Figures of others, and how settings were chosen, are in
benchmarks/results/recipes.toml.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "src" / "seqwright" / "recipes"
RECORDS = Path(__file__).parent / "results" / "recipes"
FREE = (
    *("name", "training.seed", "training.device", "training.keep_last", "training.keep_best", "training.log_every"),
    "training.compile",  # decided by the first run on a machine
    "model.weights",  # of a mixture, tuned for each seed
)
"""Keys in which runs of one recipe may differ: none of them is a choice of the model or of how it is trained."""
ADAPTED = ("neural_cache", "dynamic_evaluation")
"""Evaluations that adapt to the text; their scores are recorded under names of their own."""
HASH = 16
"""Hexadecimal digits of a hash that are kept."""


def shipped_recipes() -> dict[str, Path]:
    """The recipe files of the package by name."""
    return {path.stem: path for path in sorted(RECIPES.rglob("*.toml"))}


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def settings_hash(recipe: Mapping[str, Any]) -> str:
    """sha256 of all settings of a recipe that matter, the same for every seed, comments and order of keys."""
    settings = {key: without_root(value) for key, value in flatten(recipe) if key not in FREE}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:HASH]


def without_root(value: Any) -> Any:
    """A value with absolute paths cut to folder and name, which are the same on every machine."""
    values = value if isinstance(value, list) else [value]
    cut = [file_name(item) if isinstance(item, str) and item.startswith("/") else item for item in values]
    return cut if isinstance(value, list) else cut[0]


def departures(shipped: Mapping[str, Any], resolved: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Settings of a run that its recipe has otherwise, and those that were overridden on its command line."""
    values = dict(flatten(resolved))
    changed = {
        key: values.get(key)
        for key, value in flatten(shipped)
        if key not in FREE and not same_value(value, values.get(key))
    }
    words = shlex.split(command.replace("--set=", "--set ").replace("--minutes=", "--minutes "))
    overrides = [word for option, word in pairwise(words) if option == "--set"]
    overrides += [f"training.minutes={word}" for option, word in pairwise(words) if option == "--minutes"]
    for key, _, value in (override.partition("=") for override in overrides):
        if key not in FREE and key not in dict(flatten(shipped)):
            changed[key] = values.get(key, value)
    return changed


def same_value(shipped: Any, resolved: Any) -> bool:
    """Whether two values are equal; a resolved file has the data root in front, and a list of one may be its item."""
    left, right = (value if isinstance(value, list) else [value] for value in (shipped, resolved))
    return len(left) == len(right) and all(
        one == other or (isinstance(one, str) and str(other).endswith(f"/{one}"))
        for one, other in zip(left, right, strict=True)
    )


def machine(environment: Mapping[str, Any], summary: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """The processor that trained a run: its GPU, unless it was trained on the CPU."""
    gpus = environment.get("gpus") or []
    counted = not summary.get("steps")  # n-grams, bags and perceptrons are estimated on the CPU
    if gpus and not counted and recipe.get("training", {}).get("device") != "cpu":
        ranks = int(summary.get("ranks") or 1)
        return f"{ranks} × {gpus[0]}" if ranks > 1 else str(gpus[0])
    return f"{environment.get('cpu', 'CPU')}, {environment.get('threads')} of {environment.get('cores')} cores"


def file_names(files: Any) -> list[str]:
    """A file or files, each without the folders in front of its data set's."""
    return [file_name(name) for name in ([files] if isinstance(files, str) else files or ())]


def file_name(path: str) -> str:
    return "/".join(PurePosixPath(path).parts[-2:])


def split_of(on: list[str], data: Mapping[str, Any]) -> str:
    """Which data an evaluation has read: "test" unless they are the run's validation or training data."""
    for split, key in (("validation", "valid"), ("training", "train")):
        if on in ([key], [split]) or (on and set(on) <= set(file_names(data.get(key)))):
            return split
    return "test"


def evaluations(folder: Path, recipe: Mapping[str, Any], extra: list[Path]) -> list[dict[str, Any]]:
    """Scores of a run by split and files, validation first; the latest of several evaluations of the same files."""
    data, summary = recipe.get("data", {}), read_json(folder / "summary.json")
    held_out = file_names(data.get("valid")) or [str(data.get("split") or summary.get("scored_on") or "")]
    found: dict[tuple[str, ...], dict[str, Any]] = {}

    def add(split: str, on: list[str], scores: Mapping[str, Any]) -> None:
        known = found.setdefault((split, *on), {"split": split, "on": on, "scores": {}})
        known["scores"] |= scores

    add("validation", held_out, scores_of(summary))
    for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["kind"] == "scores" and not reduced_precision(record):
            on = file_names(record["on"])
            add(split_of(on, data), on, scores_of(record))
    for path in extra:
        result = read_json(path)
        on = held_out if result["on"] == "validation" else file_names(result["on"])
        add(split_of(on, data) if on != held_out else "validation", on, scores_of(result))
    return [evaluation for evaluation in found.values() if evaluation["scores"]]


def reduced_precision(record: Mapping[str, Any]) -> bool:
    """Whether scores are those of weights in another precision than the run's (`evaluate --precision`)."""
    return any("precision:" in str((score or {}).get("signature")) for score in (record.get("scores") or {}).values())


def scores_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Value, interval and signature of every score; scores of adapted models have names of their own."""
    scores = {name: score for name, score in (result.get("scores") or {}).items() if score}
    scores = {
        name: {key: score[key] for key in ("value", "low", "high", "signature") if score.get(key) is not None}
        for name, score in scores.items()
    }
    if "random_windows_nll" in result:
        scores["random_windows_nll"] = {
            "value": result["random_windows_nll"],
            "signature": f"random_windows_nll|windows:{result['random_windows']}",
        }
    for name in ADAPTED:
        for metric in ("perplexity", "nll"):
            if metric in (result.get(name) or {}):
                adapted = result[name]
                scores[f"{name}_{metric}"] = {"value": adapted[metric], "signature": adapted.get("signature", "")}
    return scores


def record(folder: Path, *, name: str | None, commit: str | None, extra: list[Path]) -> dict[str, Any]:
    """The record of one finished run: facts of the recipe, and those of the seed under "run"."""
    if not (folder / "recipe.toml").exists():
        raise SystemExit(f"no run at {folder}; name the folder of a finished run.")
    if not (folder / "summary.json").exists():
        raise SystemExit(f"{folder} has no summary.json: finish it with `seqwright train --run {folder}`.")
    recipe = tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))
    summary, environment = read_json(folder / "summary.json"), read_json(folder / "environment.json")
    recipe_name, paths = str(recipe.get("name", "")), shipped_recipes()
    changed: dict[str, Any] = {}
    shipped: dict[str, Any] = {}
    if recipe_name in paths:
        shipped = tomllib.loads(paths[recipe_name].read_text(encoding="utf-8"))
        changed = departures(shipped, recipe, str(environment.get("command", "")))
        if changed and name is None:
            raise SystemExit(f"{folder} is not {recipe_name} as shipped ({changed}): record it by --name NAME.")
    elif name is None:
        raise SystemExit(f"{folder} is of no shipped recipe: record it by --name NAME.")
    if name is not None and not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise SystemExit(f"--name {name}: small letters, digits, hyphens and periods only.")
    commit, fingerprint = commit or environment.get("commit"), str(summary.get("fingerprint", ""))[:HASH]
    run = {
        # A mixture has the seeds of its parts: its weights stand for them.
        "seed": recipe.get("training", {}).get("seed") if summary.get("kind") != "mixture" else fingerprint,
        "date": str(environment.get("time", ""))[:10],
        "commit": commit and commit[:HASH],
        "sources": str(environment.get("sources", ""))[:HASH],
        "python": environment.get("python"),  # whose library embedded texts are from
        "torch": environment.get("torch"),
        "machine": machine(environment, summary, recipe),
        "seconds": summary.get("seconds"),
        "steps": summary.get("steps"),
        "parameters": summary.get("parameters"),
        "model": fingerprint,
        "evaluations": evaluations(folder, recipe, extra),
    }
    return {
        "name": name or recipe_name,
        "recipe": recipe_name,
        "kind": summary.get("kind"),
        "changed": changed,
        "recipe_hash": settings_hash(shipped) if shipped else None,
        # Defaults grow with every version: only a run of no shipped recipe is known by all of its settings.
        "settings_hash": None if shipped else settings_hash(recipe),
        "run": run,
    }


def add(records: Path, new: dict[str, Any]) -> str:
    """Adds a run to the record of its name; runs with other settings than these are dropped. Returns what was done."""
    path = records / f"{new['name']}.json"
    known = read_json(path) if path.exists() else {"runs": []}
    run = new.pop("run")
    runs, dropped = known["runs"], 0
    identity = ("recipe_hash", "changed") if new["recipe_hash"] else ("settings_hash",)
    if any(known.get(key, new[key]) != new[key] for key in identity):
        runs, dropped = [], len(runs)
    runs = sorted([*(other for other in runs if other["seed"] != run["seed"]), run], key=lambda run: str(run["seed"]))
    records.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(new | {"runs": runs}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)
    return f"{path}: {len(runs)} seed{'s' * (len(runs) != 1)}" + f", {dropped} of other settings dropped" * bool(
        dropped
    )


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="finished runs; without any, list the records"
    )
    parser.add_argument("--name", help="name of the record, for a run that is not its recipe as shipped")
    parser.add_argument("--commit", help="commit of the sources, where the run did not record it")
    parser.add_argument(
        "--evaluation", type=Path, action="append", default=[], metavar="FILE", help="output of `evaluate RUN --json`"
    )
    parser.add_argument("--into", type=Path, default=RECORDS, metavar="FOLDER", help=f"default: {RECORDS.name}")
    given = parser.parse_args(arguments)
    if given.evaluation and len(given.runs) > 1:
        parser.error("--evaluation is of one run; record the others by themselves.")
    for path in () if given.runs else sorted(given.into.glob("*.json")):
        print(f"{path.stem}: seeds {', '.join(str(run['seed']) for run in read_json(path)['runs'])}")
    for folder in given.runs:
        print(add(given.into, record(folder, name=given.name, commit=given.commit, extra=given.evaluation)))


if __name__ == "__main__":
    main()
