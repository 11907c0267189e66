"""`mix --ngram`: a mixture of a neural language model and an n-gram of its training text and tokenizer.

The weights are tuned with an n-gram that has not seen the held-out text; it is then fitted again on all text, as an
n-gram by itself is (data.refit). A network would need another training for that, an n-gram needs seconds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError
from seqwright.data.files import MissingFileError
from seqwright.pipeline import recipe
from seqwright.pipeline.training import train
from seqwright.runs.facts import moved_files
from seqwright.runs.run import Run
from seqwright.studies.mix import mix
from seqwright.tasks.language.defaults import NGRAM

SECTIONS = ("data", "decoding", "evaluation")


def mix_with_ngram(
    runs: Sequence[Run],
    on: str | Sequence[str],
    path: Path,
    *,
    open_run: Callable[[Path], Run],
    geometric: bool = False,
) -> dict[str, Any]:
    """Writes a mixture of runs and an n-gram, which is also a run of its own beside it; the mixture's summary."""
    if "generate" not in runs[0].verbs:
        raise UserError(f"--ngram is for language models, but {runs[0].path} holds a model that {runs[0].description}.")

    def final() -> Run:
        return open_run(_fit(runs[0], path.with_name(f"{path.name}-ngram"), refit=True))

    with tempfile.TemporaryDirectory() as folder:
        held_out = open_run(_fit(runs[0], Path(folder) / "ngram", refit=False))
        return mix([*runs, held_out], on, path, geometric=geometric, final=final)


def _fit(run: Run, folder: Path, *, refit: bool) -> Path:
    """Fits an n-gram with the text and the tokenizer of a run; its folder."""
    settings = run.settings.table()
    table = {key: settings[key] for key in SECTIONS}
    table["data"] = table["data"] | ({"refit": True} if refit and "split" in table["data"] else {})
    table["data"] |= {"document": run.documents}  # whatever the defaults of its recipe and of this one
    tokenizer = {"file": str(run.directory.tokenizer_path.resolve())}
    wanted = {"name": folder.name, "tokenizer": tokenizer, "model": dict(NGRAM)} | table
    try:
        train(recipe.make(wanted, origin="mix --ngram", base=Path()), folder)
    except MissingFileError as error:
        raise UserError(
            f"the training text of {run.path}, of which the n-gram is counted, was moved: {error}"
            f" {moved_files(run.path, run.settings.data)}"
        ) from error
    return folder
