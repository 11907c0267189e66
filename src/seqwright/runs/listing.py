"""The runs in a folder and its subfolders: model, data, date and score of each."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from seqwright.core.config import UserError, did_you_mean
from seqwright.core.storage import read_json
from seqwright.data.files import as_list
from seqwright.runs.directory import RunDirectory
from seqwright.runs.facts import data_name, headline_score, scored_tokenizer, steps_not_taken, tokenizer_name
from seqwright.runs.finding import MAX_DEPTH, find_runs, is_run

SortKey = Literal["name", "date", "score", "parameters", "time"]

REACHED = (
    "parameters",
    "steps",
    "seconds",
    "nll",
    "bits_per_byte",
    "bits_per_character",
    "perplexity",
    "accuracy",
    "bleu",
    "bleu_lowercased",
)


READING = ("columns", "separator", "bad_rows")
"""Keys of [data] that select what is read of the same files."""


def listing(folder: str | Path, *, sort: SortKey = "name") -> list[dict[str, Any]]:
    """A row for each run, damaged and unfinished ones too; of "score", runs of one score are together, best first.

    "text" is a letter for the held-out data of the score: scores of different texts, or of classifiers with different
    labels, do not compare.
    """
    root = Path(folder)
    runs = [root] if is_run(root) else find_runs(root, depth=MAX_DEPTH)
    if not runs:
        raise UserError(f"no runs in {folder}; `seqwright train --text FILE` makes one.")
    rows = sorted((_row(path) for path in runs), key=_sort_key(sort))
    texts = _same_texts([row["text"] for row in rows if row.get("text")])
    letters = {text: _letter(n) for n, text in enumerate(dict.fromkeys(texts.values()))}
    for row in rows:
        row["text"] = letters[texts[row["text"][0]]] if row.get("text") else None
    return rows


def _same_texts(marks: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Held-out data by name and, for each, the first of the same data: those of one name, or of one hash."""
    first: dict[str, str] = {}
    for name, hash in marks:
        known = [first[mark] for mark in (name, hash) if mark in first]
        chosen = known[0] if known else name
        first = {mark: chosen if of in known else of for mark, of in first.items()}
        first |= {mark: chosen for mark in (name, hash) if mark}
    return first


def _sort_key(sort: SortKey) -> Any:
    if sort == "name":
        return lambda row: row["run"]
    if sort == "date":  # newest first
        return lambda row: [-ord(character) for character in row.get("date") or ""] or [0]
    if sort == "score":
        return lambda row: (row.get("score_name") or "~", _badness(row))
    if sort not in (keys := {"parameters": "parameters", "time": "seconds"}):
        raise UserError(f"runs are not sorted by '{sort}'.{did_you_mean(sort, get_args(SortKey))}")
    key = keys[sort]
    return lambda row: row.get(key) or 0


def _badness(row: Mapping[str, Any]) -> float:
    return -row["score"] if row.get("higher") else row.get("score") or 0.0


def _letter(number: int) -> str:
    """A, B, …, Z, then A1, B1, …"""
    letters = string.ascii_uppercase
    return letters[number % 26] + (str(number // 26) if number >= 26 else "")


def _row(path: Path) -> dict[str, Any]:
    try:
        run = RunDirectory.open(path, contents=False)
        run.certificate()
    except UserError as error:
        return {"run": str(path), "state": f"damaged: {error}"}
    recipe = run.recipe()
    row: dict[str, Any] = {
        "run": str(path),
        "kind": recipe.get("model", {}).get("kind"),
        "data": data_name(recipe),
        "tokenizer": tokenizer_name(recipe),
        "date": run.environment().get("time"),
    }
    if not run.finished:
        steps = run.checkpoints.steps()
        diverged = [record["step"] for record in run.records() if record["kind"] == "diverged"]
        state = f"diverged at step {diverged[-1]:,}" if diverged else "unfinished"
        return row | {"state": state, "steps": steps[-1] if steps else 0}
    summary = run.summary()
    certificate = run.certificate()
    row["checked"] = None if certificate is None else "laws hold" if certificate.holds else "laws BROKEN"
    if (score := headline_score(summary)) is not None:
        row |= {"score_name": score.name, "score": score.value, "higher": score.higher}
        row["tokenizer"] = scored_tokenizer(score.signature) or row["tokenizer"]
        hash = re.search(r"\|(text|ids|pixels):[0-9a-f]+", score.signature)
        classes = _classes(run, recipe)
        row["text"] = (_held_out(recipe, summary) + classes, hash[0] + classes if hash else "")
    # What is made of other runs has no scores but those of the texts that set its weights.
    state, tuned = ("finished, as tuned", summary["tuned"]) if "tuned" in summary else ("finished", {})
    if longer := steps_not_taken(recipe, summary):
        state = "{:,} of {:,} steps".format(*longer)
    return row | {"state": state} | {key: summary.get(key, tuned.get(key)) for key in REACHED}


def _classes(run: RunDirectory, recipe: Mapping[str, Any]) -> str:
    """The kind and the names of the labels of a text classifier: the hash in its signatures is of texts alone."""
    if recipe.get("data", {}).get("kind") != "labeled" or not run.labels_path.exists():
        return ""
    labels = read_json(run.labels_path)
    return f" {labels['kind']} {labels['names']}"


def _held_out(recipe: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """The held-out data of a run's scores: its validation files, the split of its training files, or what tuned it.

    Equal hashes in signatures tell that two files hold the same. Different ones tell nothing: those of pairs and
    conversations are of ids, which differ between tokenizers.
    """
    data = recipe.get("data", {})
    names = as_list(summary.get("tuned_on")) or as_list(data.get("valid"))
    reading = [f"{key} {data[key]}" for key in READING if data.get(key)]
    return " ".join([*(names or [*as_list(data.get("train")), str(data.get("split"))]), *reading])
