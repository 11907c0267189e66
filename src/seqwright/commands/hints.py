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

TRAINING = ("train", "sweep", "ladder", "plan")
"""Commands whose `--set` takes every key of a recipe."""
SETTABLE = {
    "evaluate": ("evaluation.",),
    **dict.fromkeys(("generate", "translate", "classify", "caption", "chat", "where"), ("decoding.",)),
}
"""Sections whose keys `--set` takes in other commands."""

_OUTPUT = (
    ("--out", "Did you mean --out FILE?"),
    ("--run", "Did you mean --run FOLDER?"),
    ("--html", "Did you mean --html FILE?"),
    ("FILE", "The file is an argument: COMMAND RUN FILE."),
)
_GPU, _CPU = (
    (("--device", f"Did you mean --device {name}?"), ("TRAINING", f"It is a key: --set training.device={name}."))
    for name in ("cuda", "cpu")
)
_INPUT = (
    ("--on", "Did you mean --on FILE?"),
    ("TEXT_OR_FILE", "The file is an argument: COMMAND RUN FILE."),
    ("TEXTS_OR_FILES", "The file is an argument: COMMAND RUN FILE."),
    ("--prompts", "Did you mean --prompts FILE?"),
    ("--text", "Did you mean --text FILE? Other kinds of data have options of their own, as --labeled."),
)
_HELD_OUT = (("--valid", "Did you mean --valid FILE?"), ("--on", "Did you mean --on FILE?"))
_RUN = (("RUN", "The run is an argument: COMMAND RUN."), ("--from", "Did you mean --from RUN, which fine-tunes it?"))
_COLUMN = (("--columns", "Did you mean --columns text=NAME? Roles are named, as in text=body,label=stars."),)
_TEXT = (
    ("PROMPT", "The prompt is an argument: COMMAND RUN PROMPT."),
    ("TEXT_OR_FILE", "The text is an argument: COMMAND RUN TEXT."),
    ("TEXTS_OR_FILES", "The text is an argument: COMMAND RUN TEXT."),
)
_RESUME = (("--run", "`seqwright train --run RUN` resumes."),)
EXPECTED_OPTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(("output", "output_dir", "output_file", "out", "out_dir", "o"), _OUTPUT),
    **dict.fromkeys(("save", "save_dir", "save_path", "model_dir"), _OUTPUT),
    **dict.fromkeys(("gpu", "gpus", "cuda", "use_gpu", "use_cuda"), _GPU),
    **dict.fromkeys(("cpu", "use_cpu", "no_cuda"), _CPU),
    **dict.fromkeys(("input", "input_file", "i", "file", "data", "data_path", "dataset"), _INPUT),
    **dict.fromkeys(("train", "train_file", "train_data", "corpus"), _INPUT),
    **dict.fromkeys(("test", "test_file", "dev", "eval_file", "validation_file"), _HELD_OUT),
    **dict.fromkeys(("model", "m", "model_path", "model_name_or_path", "checkpoint", "ckpt", "weights"), _RUN),
    **dict.fromkeys(("column", "text_column", "label_column", "text_col", "label_col"), _COLUMN),
    **dict.fromkeys(("prompt", "text"), _TEXT),
    **dict.fromkeys(("resume", "resume_from", "resume_from_checkpoint", "continue"), _RESUME),
    **dict.fromkeys(("config", "config_file", "recipe"), (("RECIPE", "The recipe is an argument: COMMAND RECIPE."),)),
    **dict.fromkeys(("verbose", "v"), (("--quiet", "Progress is shown unless --quiet hides it."),)),
    **dict.fromkeys(("source", "src", "target", "tgt"), (("--pairs", "Did you mean --pairs SOURCE TARGET?"),)),
    "format": (("--to", "Did you mean --to FORMAT?"),),
    "label_errors": (("TEXT_OR_FILE", "`seqwright evaluate RUN --on FILE --label-errors N` lists them."),),
    "greedy": (("--temperature", "Did you mean --temperature 0?"),),
    "do_sample": (("--temperature", "Sampling is the default; --temperature 0 is greedy, and --beam N searches."),),
    "tokenizer": (("TRAINING", "It is a key: --set tokenizer.kind=…"),),
}
"""Options of other tools, and what each means here: the first row whose option, argument (in capitals) or TRAINING a
command has."""


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
    """What an unknown option means here: one of this command, an argument, or a recipe key that `--set` takes; empty
    where nothing is known."""
    name = option.lstrip("-").replace("-", "_")
    flags = {parameter.name: parameter.opts[0] for parameter in command.params if parameter.opts[0].startswith("--")}
    if name in flags:  # --max_tokens
        return f" Did you mean {flags[name]}?"
    arguments = {str(one.name).upper() for one in command.params if isinstance(one, click.Argument)}
    known = {*flags.values(), *arguments, *(["TRAINING"] if command.name in TRAINING else [])}
    for wanted, hint in EXPECTED_OPTIONS.get(name, ()):
        if wanted in known:
            return f" {hint.replace('COMMAND', f'seqwright {command.name}')}"
    meant = KEYS_BY_SYNONYM.get(name, ())
    synonyms = {*meant, *(other for key in (name, *meant) for other in SYNONYMS.get(key, ()))}
    if same := [flag for parameter, flag in flags.items() if parameter in synonyms]:
        return f" Did you mean {same[0]}?"
    if "--set" not in flags.values():
        return ""
    if command.name in TRAINING and (key := training_key(name)):
        return f" It is a key of the recipe: --set {key}=…"
    from seqwright.pipeline.recipe import keys_named

    settable = ("data.encoding", "data.errors", *SETTABLE.get(str(command.name), ()))
    keys = [key for key in keys_named(name) if command.name in TRAINING or key.startswith(settable)]
    return f" It is a key of the recipe: --set {keys[0]}=…" if keys else ""
