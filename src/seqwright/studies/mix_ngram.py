"""The n-gram that `mix --ngram` adds to a neural language model: its training text, tokenizer and validation text."""

from __future__ import annotations

from pathlib import Path

from seqwright.core.config import UserError
from seqwright.pipeline import recipe
from seqwright.pipeline.training import train
from seqwright.runs.run import Run

SECTIONS = ("data", "decoding", "evaluation")


def ngram_beside(run: Run, path: Path) -> Path:
    """Fits an n-gram with the text and the tokenizer of a run, in a run of its own beside `path`; its folder."""
    if "generate" not in run.verbs:
        raise UserError(f"--ngram is for language models, but {run.path} holds a model that {run.description}.")
    folder = path.with_name(f"{path.name}-ngram")
    settings = run.settings.table()
    table = {key: settings[key] for key in SECTIONS}  # without data.refit: the validation text tunes the weights
    tokenizer = {"file": str(run.directory.tokenizer_path.resolve())}
    wanted = {"name": folder.name, "tokenizer": tokenizer, "model": {"kind": "ngram"}} | table
    train(recipe.make(wanted, origin="mix --ngram", base=Path()), folder)
    return folder
