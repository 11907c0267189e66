"""N-gram lens: what a model gains over another, usually an n-gram, token by token."""

from __future__ import annotations

import math

import torch

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.inspection.figures import SignedStrip
from seqwright.inspection.labeled import LabeledTensor
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import number, visible
from seqwright.tasks.language.task import LanguageRun
from seqwright.text.tokenizer import Tokenizer


def check_comparable(run: Run, against: Run) -> None:
    """Raises UserError unless both are language models with the same tokenizer."""
    for one in (run, against):
        if not isinstance(one, LanguageRun):
            raise UserError(f"--against compares language models, and {one.path} {one.description}.")
    if run.tokenizer.hash != against.tokenizer.hash:
        raise UserError(
            f"--against compares token by token, so {against.path} needs the tokenizer of {run.path}"
            f" ({tokenizer_difference(run.tokenizer, against.tokenizer)}): train it with"
            f" `--set tokenizer.file={run.path}/tokenizer.json`."
        )


def tokenizer_difference(ours: Tokenizer, theirs: Tokenizer) -> str:
    """In what two tokenizers differ: kind, size, or the first id that stands for another token."""
    if (ours.kind, ours.size) != (theirs.kind, theirs.size):
        return f"{ours.kind} of {ours.size:,} tokens, not {theirs.kind} of {theirs.size:,}"
    pairs = zip(ours.tokens(range(ours.size)), theirs.tokens(range(theirs.size)), strict=True)
    for id, (our, their) in enumerate(pairs):
        if our != their:
            return f"its id {id} is “{visible(our)}”, not “{visible(their)}”: they were learned from different texts"
    return "the same tokens, but normalized or split otherwise"


@torch.inference_mode()
def gain_view(subject: Subject) -> ViewResult:
    """Bits that the run saves at each token; where the other is an n-gram, what context beyond its order is worth."""
    assert subject.against is not None
    batch = subject.example.batch
    ours = subject.run.model.score(batch)[0][0].cpu()
    theirs = subject.against.model.score(batch.to(subject.against.device))[0][0].cpu()
    real = batch.target[0].cpu() != IGNORE
    bits = (ours - theirs)[real] / math.log(2)
    gains = tuple(bits.tolist())
    tokens = tuple(token for token, there in zip(subject.example.targets, real.tolist(), strict=True) if there)
    shown = subject.options.shown(len(gains), 1)
    total = sum(gains)
    name = f"gain of {subject.run.path.name} over {subject.against.path.name}"
    best = max(range(len(gains)), key=lambda n: gains[n], default=0)
    where = f" The greatest: “{visible(tokens[best])}” (token {best + 1})." if gains else ""
    step = Step(
        f"N-gram lens: {name}" if subject.against.settings.kind == "ngram" else name.capitalize(),
        f"Above zero {subject.run.path.name} gives the token the greater probability. Sum over the text:"
        f" {number(total)} bits, {number(total / max(1, len(gains)))} per token.{where}{_refitted(subject.against)}"
        f"{_other_documents(subject.run, subject.against)}",
        "gain(t) = log₂ p(token t) - log₂ q(token t)",
        [SignedStrip(name, tokens[shown], gains[shown], "bits", 1 + shown.start)],
    )
    return ViewResult(step, LabeledTensor(name, bits.unsqueeze(1), tokens, ("bits",)))


def _other_documents(run: Run, against: Run) -> str:
    """That one run ends a document where the other goes on, if so: it keeps probability for <eos> there."""
    ours, theirs = (one.documents if isinstance(one, LanguageRun) else None for one in (run, against))
    if ours == theirs:
        return ""
    return (
        f" A document was a {ours} to {run.path.name}, a {theirs} to {against.path.name}: what one keeps for <eos>"
        " counts for the other. Train both with one data.document to compare them."
    )


def _refitted(run: Run) -> str:
    """That a run has read its held-out text, too, if so."""
    if not run.settings.data.refit:
        return ""
    return (
        f" {run.path.name} was fitted again on all of its text (data.refit): on text that it held out before it seems"
        " better than it is."
    )
