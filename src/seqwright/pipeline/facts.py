"""What report pages show of a run: recipe and defaults, log, scores, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from seqwright import build
from seqwright.core.config import UserError, describe
from seqwright.core.storage import write_text
from seqwright.data.files import as_list
from seqwright.pipeline.recipe import DEFAULT_TASK, Recipe, sections
from seqwright.reporting.advice import advice
from seqwright.reporting.report import report
from seqwright.reporting.run_facts import RunFacts
from seqwright.runs.directory import RunDirectory
from seqwright.runs.environment import now
from seqwright.runs.finding import free_folder

NEXT = {
    "generate": 'generate {run} "Once upon"',
    "translate": "translate {run} FILE",
    "classify": "classify {run} FILE",
    "tag": "tag {run} FILE",
    "caption": "caption {run} IMAGES",
    "chat": "chat {run}",
    "fill": 'fill {run} "a <mask> text"',
}
"""The command that uses a run, by verb."""
CLASSIFYING = ("class", "frames")
"""Objectives of image models with classes; others restore or predict images."""


def facts_of(directory: RunDirectory, summary: dict[str, Any] | None = None, *, path: Path | None = None) -> RunFacts:
    """The facts that report pages show; `path` is where a run will be that is written in a temporary folder."""
    certificate = directory.certificate() if summary is None else None
    recipe = directory.recipe()
    if recipe.get("model", {}).get("kind") in (*build.COUNTED, *build.DERIVED):  # these take no steps
        recipe = {key: table for key, table in recipe.items() if key != "training"}
    reached = summary if summary is not None else directory.summary()
    return RunFacts(
        name=directory.path.resolve().name,
        recipe=recipe,
        environment=directory.environment(),
        log=directory.records(),
        summary=reached,
        laws=[vars(law) for law in certificate.laws] if certificate else [],
        defaults=default_settings(recipe),
        next_steps=next_steps(directory, recipe, reached, path or directory.path),
    )


def default_settings(recipe: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The defaults of each section of a recipe, for its kinds of data and model."""
    task, kind = recipe.get("data", {}).get("kind", DEFAULT_TASK), recipe.get("model", {}).get("kind", "")
    defaults: dict[str, dict[str, Any]] = {}
    with suppress(UserError, KeyError):  # kinds of encoders that were registered elsewhere
        for section, cls in sections(task).items():
            keys = build.model_keys(kind, task=task) if cls is None else describe(cls)
            defaults[section] = {key.name: key.default for key in keys}
    return defaults


def scored_on(settings: Recipe) -> str:
    """The data of a run's scores: its validation files, or a split of its training data."""
    if settings.data.valid:
        return f"the validation data ({', '.join(as_list(settings.data.valid))})"
    return f"the held-out split ({settings.data.split}) of the training data"


def advice_of(directory: RunDirectory, summary: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What the training of a run shows should be done next: sentences and their commands."""
    anew = partial(_trained_anew, directory)
    return tuple(advice(shlex.quote(str(directory.path)), directory.records(), summary, anew))


def _trained_anew(directory: RunDirectory, times: int) -> str | None:
    """The command that began a run, with so many times its time budget and another folder; None where it had none, or
    was begun from Python."""
    minutes = directory.recipe().get("training", {}).get("minutes")
    _, verb, *words = [*shlex.split(str(directory.environment().get("command", ""))), "", ""]
    if minutes is None or verb != "train":
        return None
    kept: list[str] = []
    given = iter(filter(None, words))
    for word in given:
        if word in ("--minutes", "--run"):
            next(given, None)
        elif not word.startswith(("--minutes=", "--run=", "-q", "--quiet", "--json")):
            kept.append(word)
    folder = free_folder(directory.path)
    return shlex.join(["seqwright", "train", *kept, "--minutes", f"{times * minutes:g}", "--run", str(folder)])


def next_steps(
    directory: RunDirectory, recipe: Mapping[str, Any], summary: Mapping[str, Any], path: Path
) -> list[tuple[str, str]]:
    """What to do next with a run at a path: a sentence and its command."""
    run = shlex.quote(str(path))
    steps: list[tuple[str, str]] = []
    if not summary and any(record["kind"] == "diverged" for record in directory.records()[-1:]):
        old, rate = shlex.quote(str(directory.recipe_path)), recipe["training"]["learning_rate"] / 10
        command = f"seqwright train {old} --set training.learning_rate={rate:g} --run {run}-2"
        return [("It diverged: train again with a lower learning rate", command)]
    if not summary:
        return [("Go on from its last checkpoint", f"seqwright train --run {run}")] if directory.learned else []
    steps += ((text[:1].upper() + text[1:], command) for text, command in advice_of(directory, summary))
    with suppress(UserError, KeyError):
        verbs = build.task_spec(recipe.get("data", {}).get("kind", DEFAULT_TASK)).run.verbs
        if recipe["data"].get("objective", "class") not in CLASSIFYING:
            verbs = tuple(verb for verb in verbs if verb != "classify")
        steps += [("Use it", f"seqwright {NEXT[verb].format(run=run)}") for verb in verbs if verb in NEXT]
    files = "SOURCE TARGET" if recipe.get("data", {}).get("kind") == "pairs" else "FILE"
    steps.append(
        ("Score it on other data; the scores are added to this page", f"seqwright evaluate {run} --on {files}")
    )
    steps.append(("Compare it with other runs", f"seqwright runs {shlex.quote(str(path.parent))} --sort score"))
    return steps


def record_scores(
    directory: RunDirectory, on: Sequence[str], scores: Mapping[str, Any], *, trained_on: bool = False
) -> bool:
    """Adds scores on other data to the log and the report of a finished run, and whether it was trained on that data;
    returns False for a run that cannot be written, which stays."""
    if not directory.finished:
        return True
    record = {"kind": "scores", "on": list(on), "scores": scores["scores"], "time": now()}
    with suppress(OSError, UserError), directory.writing():
        directory.log(record | ({"trained_on": True} if trained_on else {}))
        write_text(directory.report_path, report(facts_of(directory)))
        return True
    return False
