"""Train, compare, look inside and ship sequence models on your own data, from counting n-grams to GPT.

import seqwright as sw
run = sw.open("runs/x")
run.generate("Once upon a time")

Functions: train, open, load, mix, compare, sweep, ladder, demo, plan, probe, check, explain, inspect, where, tokenizer,
list_runs, list_recipes and register_encoder; `help(sw.train)` describes one, and `help(run)` what a run does.
"""

from __future__ import annotations

import os

__version__ = "0.1.0"

# GNU OpenMP, which PyTorch links on Linux, reads this when it is loaded. By default its idle threads spin for
# milliseconds, which on a busy machine takes the core from the thread that they wait for (docs/decisions/0157).
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "1000"

# What type checkers take for true. `typing` itself takes longer to import than all the rest of this file, and an
# interrupt is not handled before that (`__main__`).
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from seqwright.api import check as check
    from seqwright.api import compare as compare
    from seqwright.api import demo as demo
    from seqwright.api import explain as explain
    from seqwright.api import inspect as inspect
    from seqwright.api import list_recipes as list_recipes
    from seqwright.api import list_runs as list_runs
    from seqwright.api import load as load
    from seqwright.api import mix as mix
    from seqwright.api import open as open
    from seqwright.api import plan as plan
    from seqwright.api import probe as probe
    from seqwright.api import register_encoder as register_encoder
    from seqwright.api import sweep as sweep
    from seqwright.api import tokenizer as tokenizer
    from seqwright.api import train as train
    from seqwright.api import where as where
    from seqwright.core.config import UserError as UserError
    from seqwright.core.warning import SeqwrightWarning as SeqwrightWarning
    from seqwright.layers.encoder import EncoderConfig as EncoderConfig
    from seqwright.layers.encoder import EncoderOutput as EncoderOutput

_VERBS = (
    "check",
    "compare",
    "demo",
    "explain",
    "inspect",
    "ladder",
    "list_recipes",
    "list_runs",
    "load",
    "mix",
    "open",
)
_MORE_VERBS = ("plan", "probe", "register_encoder", "sweep", "tokenizer", "train", "where")
_HOMES = dict.fromkeys((*_VERBS, *_MORE_VERBS), "api") | {
    "UserError": "core.config",
    "SeqwrightWarning": "core.warning",
}
_HOMES |= dict.fromkeys(("EncoderConfig", "EncoderOutput"), "layers.encoder")
_OF_RUNS = ("generate", "translate", "classify", "tag", "caption", "chat", "fill", "embed", "score", "evaluate")
_EXPECTED = {"fit": "train", "load_run": "open", "load_model": "open", "Run": "open", "recipes": "list_recipes"}
_EXPECTED |= {"runs": "list_runs", "Tokenizer": "tokenizer", "load_tokenizer": "tokenizer"}
"""Names that people expect, and those that do it here."""


def __dir__() -> list[str]:
    return [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:  # torch is heavy: it is imported by the first verb that needs it
    if name not in _HOMES:
        raise AttributeError(f"module 'seqwright' has no attribute '{name}'{_hint(name)}")
    import importlib

    return getattr(importlib.import_module(f"seqwright.{_HOMES[name]}"), name)


def _hint(name: str) -> str:
    """What an unknown name means here; nothing for the private names that Python and notebooks look up."""
    if name.startswith("_"):
        return ""
    from seqwright.core.config import did_you_mean

    if name in _OF_RUNS:
        return f": `seqwright.open(RUN).{name}(…)` is a method of a run."
    return f".{did_you_mean(_EXPECTED.get(name, name), _HOMES)}"
