"""A trained run, opened: tokenizer and weights together, and the verbs that need both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from seqwright import build, recipe
from seqwright.config import UserError
from seqwright.data.stream import Stream, make_stream
from seqwright.data.text import Corpus, Document, document_kind, read_corpus, read_splits
from seqwright.decoding.sampling import SamplingOptions
from seqwright.decoding.text import Continuation, complete
from seqwright.evaluate import evaluate_text
from seqwright.metrics.lines import ScoredLine, score_lines
from seqwright.run_directory import RunDirectory
from seqwright.storage import load_tensors
from seqwright.text.tokenizer import Tokenizer
from seqwright.training import machine
from seqwright.training.weights import load_weights


class Run:
    """What a run directory holds, ready to use: `run = seqwright.open("runs/x"); run.generate("Once")`."""

    def __init__(self, path: str | Path, *, device: str = "auto"):
        self.directory = RunDirectory.open(path)
        self.path = self.directory.path
        self.recipe = recipe.make(self.directory.recipe(), origin=str(self.directory.recipe_path), settled=True)
        if not self.directory.model_path.exists():
            steps = self.directory.checkpoints.steps()
            reached = f"is at step {steps[-1]:,}" if steps else "has no checkpoint yet"
            raise UserError(
                f"{path} is not finished: it {reached}. Go on with `seqwright train --run {path}`, then try again."
            )
        self.tokenizer = Tokenizer.open(self.directory.tokenizer_path)
        tensors, _ = load_tensors(self.directory.model_path)
        self.model = build.model(self.recipe.model, self.tokenizer.vocabulary)
        self.device = torch.device("cpu")
        if isinstance(self.model, torch.nn.Module):
            self.device = machine.device(device)
            load_weights(self.model, tensors)
            self.model.to(self.device).eval()
        else:
            self.model.load(tensors)

    @property
    def documents(self) -> Document:
        """What a document was in training: a line, a paragraph or a file."""
        return document_kind(self.recipe.data, self.recipe.tokenizer.kind)

    def generate(
        self,
        prompts: str | Sequence[str] = "",
        *,
        listen: Callable[[int, str], None] = lambda row, text: None,
        seeds: Sequence[int] | None = None,
        **options: Any,
    ) -> list[Continuation]:
        """Continues each prompt; options are those of the recipe's [decoding] section."""
        several = [prompts] if isinstance(prompts, str) else list(prompts)
        return complete(
            self.model,
            self.tokenizer,
            several,
            self._options(options),
            seeds=seeds,
            device=self.device,
            listen=listen,
        )

    def evaluate(
        self,
        on: str | Sequence[str] | None = None,
        *,
        watch: Callable[[int, int], None] = lambda done, of: None,
        **options: Any,
    ) -> dict[str, Any]:
        """Scores on files, or on the run's own validation text; options are those of [evaluation]."""
        config = replace(self.recipe.evaluation, **options)
        stream = self.stream(on)
        return evaluate_text(self.model, self.tokenizer, stream, config, device=self.device, watch=watch)

    def score(self, lines: Iterable[str]) -> Iterator[ScoredLine]:
        """Log-probability and surprisals of each line, in order, as it comes."""
        vocabulary = self.tokenizer.vocabulary
        ended = vocabulary.eos if self.documents != "file" else None
        return score_lines(
            self.model, lines, self.tokenizer.encode_all, sos=vocabulary.sos, eos=ended, device=self.device
        )

    def stream(self, on: str | Sequence[str] | None = None) -> Stream:
        """A text as this run reads it: framed ids."""
        return make_stream(self._corpus(on), self.tokenizer)

    def _corpus(self, on: str | Sequence[str] | None) -> Corpus:
        if on is not None:
            return read_corpus(on, self.documents, errors=self.recipe.data.errors)
        _, valid = read_splits(self.recipe.data, self.documents)
        if valid is None:
            raise UserError(f"{self.path} has no validation text of its own; name a file with --on.")
        return valid

    def _options(self, options: dict[str, Any]) -> SamplingOptions:
        return replace(self.recipe.decoding, **options)
