"""Denoising pre-training of encoder-decoders (BART, T5): noised text to its original; runs to fine-tune."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from seqwright import __version__
from seqwright.core.batch import Batch, Source, Vocabularies
from seqwright.core.config import UserError, with_options
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Autoregressive, Feed
from seqwright.data.subword_regularization import RegularizedFeed
from seqwright.data.text.denoising import DenoisingConfig, DenoisingRows
from seqwright.data.text.stream import Stream
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from seqwright.metrics.counts import Counts, nll_counts
from seqwright.metrics.score import signature
from seqwright.runs.overlap import warns_of_training_data
from seqwright.tasks.base import Settings, synthetic_source
from seqwright.tasks.codec import TextCodec
from seqwright.tasks.language.scores import QUICK_TOKENS
from seqwright.tasks.language.task import TextRun, TextTask, stream_scores
from seqwright.tasks.scores import Scores
from seqwright.tasks.scoring import score_epoch, target_nll
from seqwright.text.tokenizer import Tokenizer

SHOWN = 2
"""Texts in the log at each sampling."""


@dataclass(frozen=True, kw_only=True)
class DenoisingCodec(TextCodec):
    """One tokenizer, with sentinels or `<mask>`, for the noised source and the target."""

    @property
    def sizes(self) -> Vocabularies:
        vocabulary = self.tokenizer.vocabulary
        return Vocabularies(source=vocabulary, target=vocabulary, joint=True)


class DenoisingTask(TextTask):
    """Training of a model that restores noised text."""

    codec_class = DenoisingCodec

    @property
    def special_tokens(self) -> tuple[str, ...]:
        data: DenoisingConfig = self.settings.data
        return data.special_tokens

    @property
    def corpus(self) -> Any:
        raise UserError("a model that restores text is trained by gradients; choose another model.kind.")

    def feed(self, model: Autoregressive) -> Feed:
        longest = self.settings.data.length + 1
        if model.context is not None and longest > model.context:
            raise UserError(f"data.length and <eos> are {longest} tokens, but the model sees at most {model.context}.")
        resegmented = self.resegmented
        if resegmented is None:
            return noised_rows(self.streams[0], self.tokenizer, self.settings)
        return RegularizedFeed(lambda epoch: noised_rows(resegmented(epoch), self.tokenizer, self.settings))

    def evaluate(self, model: Autoregressive, device: torch.device | str, *, quick: bool) -> Scores | None:
        if self.valid is None:
            return None
        return evaluate(model, self.codec, self.valid, self.settings, device=device, quick=quick)

    def sample(self, model: Autoregressive, device: torch.device | str) -> list[dict[str, str]]:
        """Greedy reconstructions of rows of the validation text."""
        stream = (self.streams[0] if self.valid is None else self.valid).first(SHOWN * self.settings.data.length)
        batch = noised_rows(stream, self.tokenizer, self.settings, fixed=True).batch(0)
        few = batch.source.select(torch.arange(min(SHOWN, batch.rows)))
        found = reconstructed(model, few.to(device), self.tokenizer, self.settings.data)
        return [
            {
                "prompt": self._tokens(few, row),
                "text": " ".join(self.tokenizer.tokens(ids)),
                "reference": " ".join(self.tokenizer.tokens(batch.target[row][batch.target[row] >= 0].tolist())),
            }
            for row, ids in enumerate(found)
        ]

    def show(self, batch: Batch) -> str:
        return self._tokens(batch.source, 0)[:200]

    def _tokens(self, source: Source, row: int) -> str:
        assert source.ids is not None
        return " ".join(self.tokenizer.tokens(source.ids[row][source.mask[row]].tolist()))


class DenoisingRun(TextRun):
    """A pre-trained encoder-decoder; fine-tune it to translate: `seqwright train --pairs … --from RUN`."""

    description = "denoises text, to initialize translators (`train --pairs … --from`)"
    verbs = ("evaluate",)

    codec_class = DenoisingCodec

    def encode_source(self, text: str) -> list[int]:
        """Ids of a source, which ends with `<eos>` and has no `<sos>`."""
        return [*self.tokenizer.encode(text), self.tokenizer.eos]  # type: ignore[list-item]

    def source(self, rows: int, length: int) -> Source:
        """Sources of different lengths, each with `<eos>`, as in training."""
        return synthetic_source(self.tokenizer, rows, length, eos=True)

    @warns_of_training_data
    def evaluate(self, on: str | Sequence[str] | None = None, *, progress: Progress = SILENT, **options: Any) -> Scores:
        """Likelihood of the targets of files, or of the validation text of the run."""
        settings = replace(self.settings, evaluation=with_options(self.settings.evaluation, options))
        return evaluate(self.model, self.codec, self.stream(on), settings, device=self.device, progress=progress)


def reconstructed(
    model: Autoregressive, source: Source, tokenizer: Tokenizer, data: DenoisingConfig
) -> list[list[int]]:
    """Ids of the greedy reconstruction of each noised source."""
    options = SearchOptions(kind="greedy", max_tokens=data.length)
    # Sentinels stand in the targets of span corruption, so they may be generated.
    banned = tokenizer.never_generated(tokenizer.eos, allowed=data.special_tokens)
    found = search(model, source, options, sos=tokenizer.sos, eos=tokenizer.eos, banned=banned)
    return [list(best.ids) for best, *_ in found]


def noised_rows(stream: Stream, tokenizer: Tokenizer, settings: Settings, *, fixed: bool = False) -> DenoisingRows:
    """Rows for training or, `fixed`, for evaluation: with the same windows and noise every time."""
    batch = settings.evaluation.batch_size if fixed else settings.training.batch_size
    seed = settings.evaluation.seed if fixed else settings.training.seed
    return DenoisingRows(stream, tokenizer, settings.data, batch=batch, seed=seed, shift=not fixed)


def evaluate(
    model: Autoregressive,
    codec: TextCodec,
    stream: Stream,
    settings: Settings,
    *,
    device: torch.device | str = "cpu",
    quick: bool = False,
    progress: Progress = SILENT,
) -> Scores:
    """nll and perplexity of the targets of a text under fixed noise; `quick` reads its first QUICK_TOKENS."""
    stream = stream.first(QUICK_TOKENS) if quick else stream
    counts = denoising_counts(model, codec, stream, settings, device=device, progress=progress)
    return stream_scores(counts, stream, settings.evaluation, quick=quick)


def denoising_counts(
    model: Autoregressive,
    codec: TextCodec,
    stream: Stream,
    settings: Settings,
    *,
    device: torch.device | str = "cpu",
    progress: Progress = SILENT,
) -> list[Counts]:
    """Counts of each row of text: nll and perplexity of its target."""
    config, data = settings.evaluation, settings.data
    feed = noised_rows(stream, codec.tokenizer, settings, fixed=True)
    rows = score_epoch(model, feed, target_nll(model), device=device, progress=progress)
    facts = signature(
        tokens=int(rows[:, 1].sum()),
        **{data.noise: f"{data.density}-{data.mean_span_length}"},
        permuted=data.permute_sentences,
        length=data.length,
        seed=config.seed,
        tokenizer=codec.tokenizer.signature,
        **stream.signature,
        bootstrap=f"{config.resamples}-{config.seed}",
        seqwright=__version__,
    )
    return nll_counts(rows, facts)
