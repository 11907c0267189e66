"""Denoising: text restored from what is left of it, to pre-train encoder-decoders; runs to begin others with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from seqwright import __version__
from seqwright.core.batch import IGNORE, Batch, Source, Vocabularies
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive, Feed, Watch, unwatched
from seqwright.data.subword_regularization import RegularizedFeed
from seqwright.data.text.denoising import DenoisingConfig, DenoisingRows
from seqwright.data.text.stream import Stream
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from seqwright.metrics.counts import Counts, nll_counts, values
from seqwright.metrics.score import Floats
from seqwright.runs.directory import RunDirectory
from seqwright.tasks.base import Settings, made_up_source
from seqwright.tasks.language.task import QUICK_TOKENS, TextRun, TextTask, stream_scores
from seqwright.text.tokenizer import Tokenizer

SHOWN = 2
"""Texts in the log at each sampling."""


class DenoisingTask(TextTask):
    """The data side of training a model that restores text."""

    @property
    def special_tokens(self) -> tuple[str, ...]:
        data: DenoisingConfig = self.settings.data
        return data.special_tokens

    @property
    def sizes(self) -> Vocabularies:
        return sizes_of(self.tokenizer)

    @property
    def corpus(self) -> Any:
        raise UserError("a model that restores text is trained by gradients; choose another model.kind.")

    def feed(self, model: Autoregressive) -> Feed:
        most = self.settings.data.length + 1
        if model.context is not None and most > model.context:
            raise UserError(f"data.length and <eos> are {most} tokens, but the model sees at most {model.context}.")
        recut = self.recut
        if recut is None:
            return rows_of(self.streams[0], self.tokenizer, self.settings)
        return RegularizedFeed(lambda epoch: rows_of(recut(epoch), self.tokenizer, self.settings))

    def evaluate(self, model: Autoregressive, device: torch.device | str, *, quick: bool) -> dict[str, Any] | None:
        if self.valid is None:
            return None
        stream = self.valid.first(QUICK_TOKENS) if quick else self.valid
        counts = restoring_counts(model, self.tokenizer, stream, self.settings, device)
        return values(counts) if quick else stream_scores(counts, stream, self.settings.evaluation)

    def sample(self, model: Autoregressive, device: torch.device | str) -> list[dict[str, str]]:
        """What a greedy search restores of a stretch of the validation text."""
        stream = (self.streams[0] if self.valid is None else self.valid).first(SHOWN * self.settings.data.length)
        batch = rows_of(stream, self.tokenizer, self.settings, fixed=True).batch(0)
        options = SearchOptions(kind="greedy", max_tokens=self.settings.data.length)
        few = batch.source.select(torch.arange(min(SHOWN, batch.rows)))
        sos, eos = self.tokenizer.sos, self.tokenizer.eos
        # Sentinels stand in the targets of span corruption, so they may be generated.
        banned = self.tokenizer.never_generated(eos, allowed=self.special_tokens)
        found = search(model, few.to(device), options, sos=sos, eos=eos, banned=banned)
        return [
            {
                "prompt": self._shown(few, row),
                "text": " ".join(self.tokenizer.tokens(best.ids)),
                "reference": " ".join(self.tokenizer.tokens(batch.target[row][batch.target[row] >= 0].tolist())),
            }
            for row, (best, *_) in enumerate(found)
        ]

    def show(self, batch: Batch) -> str:
        return self._shown(batch.source, 0)[:200]

    def _shown(self, source: Source, row: int) -> str:
        assert source.ids is not None
        return " ".join(self.tokenizer.tokens(source.ids[row][source.mask[row]].tolist()))


class DenoisingRun(TextRun):
    """A model that restores text; begin a translator with it: `seqwright train --pairs … --from RUN`."""

    does = "restores damaged text, and is there to begin translators with (`train --pairs … --from`)"
    verbs = ("evaluate",)

    @staticmethod
    def sizes(directory: RunDirectory) -> Vocabularies:
        return sizes_of(directory.tokenizer)

    def framed(self, text: str) -> list[int]:
        """Sources are ended, and never begun."""
        return [*self.tokenizer.encode(text), self.tokenizer.eos]  # type: ignore[list-item]

    def source(self, rows: int, length: int) -> Source:
        """Sources of different lengths, ended as they are in training."""
        return made_up_source(self.tokenizer, rows, length, ended=True)

    def evaluate(
        self, on: str | Sequence[str] | None = None, *, watch: Watch = unwatched, **options: Any
    ) -> dict[str, Any]:
        """Likelihood of what is to be said, in files or in the run's own validation text."""
        settings = replace(self.settings, evaluation=replace(self.settings.evaluation, **options))
        stream = self.stream(on)
        counts = restoring_counts(self.model, self.tokenizer, stream, settings, self.device, watch)
        return stream_scores(counts, stream, settings.evaluation)


def sizes_of(tokenizer: Tokenizer) -> Vocabularies:
    return Vocabularies(source=tokenizer.vocabulary, target=tokenizer.vocabulary, joint=True)


def rows_of(stream: Stream, tokenizer: Tokenizer, settings: Settings, *, fixed: bool = False) -> DenoisingRows:
    """Rows to train on or, fixed, to measure on: always cut and damaged alike."""
    batch = settings.evaluation.batch_size if fixed else settings.training.batch_size
    seed = settings.evaluation.seed if fixed else settings.training.seed
    return DenoisingRows(stream, tokenizer, settings.data, batch=batch, seed=seed, shift=not fixed)


@torch.inference_mode()
def restoring_counts(
    model: Any,
    tokenizer: Tokenizer,
    stream: Stream,
    settings: Settings,
    device: torch.device | str,
    watch: Watch = unwatched,
) -> list[Counts]:
    """nll and perplexity of what is to be said of damaged texts: one row of counts for each."""
    model.eval()
    config, data = settings.evaluation, settings.data
    rows = rows_of(stream, tokenizer, settings, fixed=True)
    found: list[Floats] = []
    for step in range(rows.steps_per_epoch):
        batch = rows.batch(step)
        log_probs, _ = model.score(batch.to(device))
        said = (batch.target != IGNORE).sum(1).numpy()
        found.append(np.stack([-log_probs.double().sum(1).cpu().numpy(), said], 1))
        watch(step + 1, rows.steps_per_epoch)
    counts = np.concatenate(found)
    signature = (
        f"tokens:{int(counts[:, 1].sum())}|{data.noise}:{data.density}-{data.mean_span_length}"
        f"{'|permuted' if data.permute_sentences else ''}"
        f"|length:{data.length}|seed:{config.seed}"
        f"|tokenizer:{tokenizer.signature}|text:{stream.fingerprint[:8]}"
        f"|bootstrap:{config.resamples}-{config.seed}|seqwright:{__version__}"
    )
    return nll_counts(counts, signature)
