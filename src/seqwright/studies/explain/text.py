"""Texts of explanations: example sentences, lines of the user, and the tokens of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from seqwright.core.config import UserError
from seqwright.runs.run import Run
from seqwright.tasks.classification.task import ClassificationRun
from seqwright.tasks.example import Example, example
from seqwright.tasks.images.run import ImageInputRun
from seqwright.tasks.tagging.task import TaggingRun
from seqwright.tasks.translation.task import TranslationRun

if TYPE_CHECKING:
    from seqwright.text.tokenizer import Tokenizer

PROVERBS = "Ăn quả nhớ kẻ trồng cây\nCó chí thì nên"
"""Two Vietnamese proverbs, the lectures' corpus (worked example 1)."""
MAX_TOKENS = 24
"""Tokens of a text whose matrices are shown: an attention matrix has the square of them."""


def documents(text: str) -> list[str]:
    """The lines of a text, each a document; blank lines are skipped."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise UserError("the text is empty; give words to explain: --on 'two or three sentences'.")
    return lines


def run_tokenizer(run: Run) -> Tokenizer:
    """The tokenizer of a run; UserError where it has none, such as one of images."""
    if not run.directory.tokenizer_path.exists():
        raise UserError(
            f"{run.path} has no tokenizer: it holds a model of kind '{run.settings.kind}' of {run.settings.data.kind}."
        )
    return run.tokenizer


def run_example(run: Run, text: str, target: str | None = None) -> Example:
    """The beginning of a text as a run reads it; of a translator with a target, by default the output of its search."""
    if isinstance(run, ImageInputRun):
        raise UserError(
            f"{run.path} {run.description}; `seqwright inspect` shows its layers, `explain vit` its patches."
        )
    if not isinstance(run, TranslationRun | ClassificationRun | TaggingRun):
        return example(run, text, target, limit=MAX_TOKENS)
    words = text.split(" ")  # whole words: a search must have read the source that is shown
    read = example(run, " ".join(words[:MAX_TOKENS]), target)
    left = len(words) - MAX_TOKENS
    note = f"shown are the first {MAX_TOKENS} words: the last {left:,} are left out."
    return read if left <= 0 else replace(read, notes=(note, *read.notes))


def notes_of(read: Example) -> str:
    """The notes on what was read, as sentences after others."""
    return "".join(f" {note[0].upper()}{note[1:]}" for note in read.notes)


def run_ids(run: Run, text: str, *, limit: int | None = MAX_TOKENS) -> tuple[list[int], list[str]]:
    """Ids and tokens of a text for a language model, `<sos>` first.

    The text is cut to `limit` tokens and to the context; a prompt, which has no limit, must fit the context.
    """
    if "generate" not in run.verbs:
        raise UserError(
            f"{run.path} holds a model of kind '{run.settings.kind}', which {run.description}; name a run that"
            " continues text. `seqwright inspect RUN TEXT` shows what others compute."
        )
    if not text.strip():
        raise UserError("the text is empty; give some words: --on 'a few words'.")
    tokenizer = run_tokenizer(run)
    first = [] if tokenizer.sos is None else [tokenizer.sos]
    ids = [*first, *tokenizer.encode(next(iter(run.check_form([text]))))]
    context = run.model.context
    if limit is None and context is not None and len(ids) > context:
        raise UserError(f"a prompt of {len(ids)} tokens does not fit the context of {context}; shorten it.")
    ids = ids[: min(limit or len(ids), context or len(ids))]
    return ids, tokenizer.tokens(ids)
