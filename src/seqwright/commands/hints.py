"""Hints for commands and options of other tools: which of ours they mean."""

from __future__ import annotations

import re

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


NOT_A_NUMBER = re.compile(r"is not a valid (integer|float)( range)?")
"""click's words for a value that is no number."""
RANGE = re.compile(r"invalid value for '(\S+)': (\S+) is not in the range (\S+)\.")
"""click's message for a number outside of its range: x>0, x>=1 or 1<=x<=100."""


def usage_message(error: click.ClickException) -> str:
    """click's message for a wrong command line in the form of ours: what is wrong, then the next move."""
    message = error.format_message()
    message = f"{message[:1].lower()}{message[1:]}" + ("" if message.endswith((".", "?", "?)")) else ".")
    if wrong := RANGE.fullmatch(message):
        option, value, limits = wrong.groups()
        low, high = limits.split("x")
        bounds = {">": f"above {high[1:]}", ">=": f"at least {high[2:]}", "<=": f"from {low[:-2]} to {high[2:]}"}
        if wanted := bounds.get(high.rstrip("0123456789.")):
            message = f"{option} must be {wanted}, not {value}."
    message = NOT_A_NUMBER.sub(lambda kind: "is no whole number" if kind[1] == "integer" else "is no number", message)
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or "`" in message:
        return message
    command = f"seqwright {context.info_name}" if context.parent else "seqwright"
    return f"{message} `{command} --help` shows the usage."


def command_hint(name: str, known: dict[str, str]) -> str:
    """What an unknown command means here."""
    expected = EXPECTED.get(name.casefold().replace("_", "-"))
    return f" {expected[0].upper()}{expected[1:]}." if expected else did_you_mean(name, known)


def option_hint(option: str, command: click.Command) -> str:
    """The option of this command that an unknown one means, or the recipe key that `--set` takes; empty without."""
    name = option.lstrip("-").replace("-", "_")
    flags = {parameter.name: parameter.opts[0] for parameter in command.params if parameter.opts[0].startswith("--")}
    if name in flags:  # --max_tokens
        return f" Did you mean {flags[name]}?"
    meant = KEYS_BY_SYNONYM.get(name, ())
    synonyms = {*meant, *(other for key in meant for other in SYNONYMS[key])}
    if same := [flag for parameter, flag in flags.items() if parameter in synonyms]:
        return f" Did you mean {same[0]}?"
    if "--set" not in flags.values():
        return ""
    if command.name == "train" and (key := training_key(name)):
        return f" It is a key of the recipe: --set {key}=…"
    from seqwright.pipeline.recipe import keys_named

    # A tagger predicts the best tags without options of decoding.
    settable = ("data.encoding", "data.errors", *(() if command.name == "tag" else ("decoding.", "evaluation.")))
    keys = [key for key in keys_named(name) if command.name == "train" or key.startswith(settable)]
    return f" It is a key of the recipe: --set {keys[0]}=…" if keys else ""
