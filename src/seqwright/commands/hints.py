"""Hints for commands and options of other tools: which of ours they mean."""

from __future__ import annotations

import click

from seqwright.commands.checks import training_key
from seqwright.core.config import did_you_mean
from seqwright.core.synonyms import KEYS_BY_SYNONYM, SYNONYMS

EXPECTED = {
    "eval": "`seqwright evaluate RUN --on FILE` scores a run",
    "test": "`seqwright evaluate RUN --on FILE` scores a run",
    "predict": "`seqwright classify`, `tag`, `translate`, `generate` or `fill RUN` predicts, by the task of the run",
    "infer": "`seqwright classify`, `tag`, `translate`, `generate` or `fill RUN` predicts, by the task of the run",
    "sample": "`seqwright generate RUN PROMPT` samples",
    "resume": "`seqwright train --run RUN` resumes",
    "fit": "`seqwright train` fits a model",
    "finetune": "`seqwright train --labeled FILE --from RUN` (or --text, --chat, …) fine-tunes a run",
    "fine-tune": "`seqwright train --labeled FILE --from RUN` (or --text, --chat, …) fine-tunes a run",
    "report": "every run has a report.html in its folder",
    "list": "`seqwright runs` lists runs, `seqwright recipes` recipes, `seqwright data` data sets",
    "serve": "not yet a command: in Python, `seqwright.open(RUN)` is a model to serve",
    "version": "`seqwright --version`",
    "help": "`seqwright --help`",
}
"""Commands that people expect, and what does it here."""


def command_hint(name: str, known: dict[str, str]) -> str:
    """What an unknown command means here."""
    expected = EXPECTED.get(name.casefold().replace("_", "-"))
    return f" {expected[0].upper()}{expected[1:]}." if expected else did_you_mean(name, known)


def option_hint(option: str, command: click.Command) -> str:
    """The option of this command that an unknown one means, or the recipe key that `--set` takes; empty without."""
    name = option.lstrip("-").replace("-", "_")
    flags = {parameter.name: parameter.opts[0] for parameter in command.params if parameter.opts[0].startswith("--")}
    meant = KEYS_BY_SYNONYM.get(name, ())
    synonyms = {*meant, *(other for key in meant for other in SYNONYMS[key])}
    if same := [flag for parameter, flag in flags.items() if parameter in synonyms]:
        return f" Did you mean {same[0]}?"
    if "--set" not in flags.values():
        return ""
    if command.name == "train" and (key := training_key(name)):
        return f" It is a key of the recipe: --set {key}=…"
    from seqwright.pipeline.recipe import keys_named

    keys = [key for key in keys_named(name) if command.name == "train" or key.startswith(("decoding.", "evaluation."))]
    return f" It is a key of the recipe: --set {keys[0]}=…" if keys else ""
