"""Messages in the words of whom they reach: options for the command line, parameters for Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

RENAMED = {
    "from": "base",
    "measure": "measured",
    "metric": "metrics",
    "min-tokens": "min_tokens",
    "beam": "beam_size",
    "view": "views",
    "max-tokens": "max_tokens",
}
"""Options whose parameter has another name."""
SAME = (
    *("on", "columns", "valid", "text", "pairs", "labeled", "tagged", "chat", "masked", "images", "captions", "set"),
    *("model", "run", "minutes", "device", "precision", "draft", "target", "against", "beside", "span", "layer"),
    *("head", "image", "samples", "vocabulary", "labels", "length", "gpus", "gpu", "templates", "seeds", "random"),
    *("top",),
)
FLAGS = {
    **{name: f"{name}=True" for name in ("trust", "geometric", "ngram", "halving", "truncate")},
    "measure": "measured=True",
    "skip-bad-rows": 'set=["data.bad_rows=skip"]',
}
"""Options without a value, and what they are in Python."""
PARAMETERS = {name: name for name in SAME} | RENAMED

COMMAND = re.compile(r"(`[^`]*`)")
"""What a message quotes: a command for a shell stays one."""
KEY = re.compile(
    r"--set ([A-Za-z_][\w.]*(?:\[[^]]*\])?)"
    r"=(\"[^\"]*\"|'[^']*'|\[[^]]*\]|(?:[^\s,;:)\"']|,(?=[^\s]))*[^\s,;:)\"'.])"
)
COLUMNS = re.compile(r"--columns ((?:\w+=\w+,?)+)(?<!,)")
FILES = re.compile(r"--([a-z]+) (FILE|SOURCE TARGET|RUN|TEXT|NAME|KIND)\b")
QUOTED = re.compile(r"--([a-z]+) ('[^']*')")
FOLDER = re.compile(r"--(run|from) (?!RUN|NEW)(\S*[-/\d]\S*?)(?=[.,;]?(?:\s|$))")
NUMBER = re.compile(r"--([a-z-]+) (N|\d[\d.]*\d|\d+)\b")
OPTION = re.compile(r"--([a-z][a-z-]*[a-z])(?![a-z-])")

_state = {"command_line": False}


@contextmanager
def on_command_line(state: bool = True) -> Iterator[None]:
    """Context manager under which messages keep the options of the command line, or with False do not."""
    before, _state["command_line"] = _state["command_line"], state
    try:
        yield
    finally:
        _state["command_line"] = before


def worded(message: str) -> str:
    """A message that names options, in Python with their parameters: `--on FILE` is on="FILE"."""
    if _state["command_line"] or "--" not in message:
        return message
    parts = COMMAND.split(message)
    return "".join(part if part.startswith("`") else _in_python(part) for part in parts)


def named_verb(verb: str) -> str:
    """A verb of runs as it is called: a command, or a method in Python."""
    return f"`seqwright {verb.replace('_', '-')}`" if _state["command_line"] else f"run.{verb}(…)"


def _in_python(text: str) -> str:
    text = KEY.sub(lambda key: f"set=[{_string(f'{key[1]}={key[2]}')}]", text)
    text = COLUMNS.sub(lambda roles: f"columns={{{', '.join(map(_role, roles[1].split(',')))}}}", text)
    text = FILES.sub(lambda option: _assigned(option, _names(option[2].split())), text)
    text = QUOTED.sub(lambda option: _assigned(option, option[2]), text)
    text = FOLDER.sub(lambda option: _assigned(option, _string(option[2])), text)
    text = NUMBER.sub(lambda option: _assigned(option, option[2]), text)
    return OPTION.sub(lambda option: FLAGS.get(option[1]) or PARAMETERS.get(option[1], option[0]), text)


def _assigned(option: re.Match[str], value: str) -> str:
    if option[1] not in PARAMETERS:
        return option[0]
    return f"{PARAMETERS[option[1]]}={value}"


def _names(names: list[str]) -> str:
    listed = ", ".join(map(_string, names))
    return listed if len(names) == 1 else f"[{listed}]"


def _role(pair: str) -> str:
    role, _, column = pair.partition("=")
    return f'"{role}": "{column}"'


def _string(text: str) -> str:
    return f'"{text}"' if '"' not in text else f"'{text}'"
