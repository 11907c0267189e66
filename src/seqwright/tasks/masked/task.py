"""Masked language modeling: text with hidden tokens, guesses and their likelihood; runs that fill blanks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwright import __version__
from seqwright.core.batch import IGNORE, Batch, EncoderSizes, OutputSpec, Source
from seqwright.core.config import UserError, check_not_negative, check_sizes
from seqwright.core.protocols import Feed, Watch, unwatched
from seqwright.data.subword_regularization import RegularizedFeed
from seqwright.data.text.masked import MASK, MaskedRows
from seqwright.data.text.stream import Stream
from seqwright.metrics.counts import Counts, nll_counts, percentage, values
from seqwright.metrics.score import Floats
from seqwright.runs.directory import RunDirectory
from seqwright.tasks.base import Settings, made_up_source
from seqwright.tasks.language.task import QUICK_TOKENS, TextRun, TextTask, stream_scores
from seqwright.text.tokenizer import Tokenizer

SHOWN = 32
"""Tokens of a sample in the log."""
ROW = 128
"""Tokens of a row for a model without a limit of its own."""
JOINED = ("byte-bpe", "unigram")
"""Kinds whose pieces hold the space before a word, so that the blank for a word holds it too."""


@dataclass(frozen=True, kw_only=True)
class MaskedEvaluationConfig:
    batch_size: int = 32
    """Rows scored at a time."""
    resamples: int = 1000
    """Bootstrap resamples behind an interval; 0 for none."""
    seed: int = 1
    """Fixes what is hidden, and the bootstrap."""

    def __post_init__(self) -> None:
        check_sizes(self, "batch_size")
        check_not_negative(self, "resamples", "seed")


@dataclass(frozen=True, kw_only=True)
class FillOptions:
    top_k: int = 5
    """Guesses for each blank."""

    def __post_init__(self) -> None:
        check_sizes(self, "top_k")


@dataclass(frozen=True, kw_only=True)
class Guess:
    token: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Filled:
    text: str
    """The text with the best guess in every blank."""
    blanks: tuple[tuple[Guess, ...], ...]
    """Guesses for each blank, the most probable first; each blank is guessed while the others are blank."""


class MaskedTask(TextTask):
    """The data side of training a masked language model."""

    @property
    def special_tokens(self) -> tuple[str, ...]:
        return (MASK,)

    @property
    def sizes(self) -> EncoderSizes:
        return sizes_of(self.tokenizer)

    @property
    def corpus(self) -> Any:
        raise UserError("a masked language model is trained by gradients; choose another model.kind.")

    def feed(self, model: Any) -> Feed:
        training = self.settings.training
        length = training.sequence_length or model.context or ROW
        if model.context is not None and length > model.context:
            raise UserError(f"training.sequence_length is {length}, but the model sees at most {model.context} tokens.")
        recut = self.recut
        if recut is None:
            return rows_of(self.streams[0], self.tokenizer, self.settings, length=length)
        return RegularizedFeed(lambda epoch: rows_of(recut(epoch), self.tokenizer, self.settings, length=length))

    def evaluate(self, model: Any, device: torch.device | str, *, quick: bool) -> dict[str, Any] | None:
        if self.valid is None:
            return None
        stream = self.valid.first(QUICK_TOKENS) if quick else self.valid
        counts = masked_counts(model, self.tokenizer, stream, self.settings, device)
        return values(counts) if quick else stream_scores(counts, stream, self.settings.evaluation)

    @torch.inference_mode()
    def sample(self, model: Any, device: torch.device | str) -> list[dict[str, str]]:
        """What the model makes of the blanks in a stretch of the validation text."""
        stream = self.streams[0] if self.valid is None else self.valid
        length = min(SHOWN, model.context or ROW)
        batch = rows_of(stream.first(4 * SHOWN), self.tokenizer, self.settings, length=length, fixed=True).batch(0)
        real = batch.target[:1] != IGNORE
        hidden, _ = model.hidden(batch.to(device))
        guessed = model.head.predict(hidden[:1])[real.to(device)].tolist()
        wanted = batch.target[:1][real].tolist()
        said = {"prompt": self._shown(batch), "text": f" → {' '.join(self.tokenizer.tokens(guessed))}"}
        return [said | {"reference": " ".join(self.tokenizer.tokens(wanted))}]

    def show(self, batch: Batch) -> str:
        return self._shown(batch)[:200]

    def _shown(self, batch: Batch) -> str:
        assert batch.source.ids is not None
        return " ".join(self.tokenizer.tokens(batch.source.ids[0][batch.source.mask[0]].tolist()))


class MaskedRun(TextRun):
    """A trained masked language model: `run = seqwright.open("runs/x"); run.fill("the <mask> sat")`."""

    does = "fills blanks"
    verbs = ("fill", "evaluate")

    @staticmethod
    def sizes(directory: RunDirectory) -> EncoderSizes:
        return sizes_of(directory.tokenizer)

    def source(self, rows: int, length: int) -> Source:
        """Sources of different lengths."""
        return made_up_source(self.tokenizer, rows, length)

    def example(self, rows: int, length: int) -> Batch:
        """Every second token of such sources is to be guessed."""
        source = self.source(rows, length)
        assert source.ids is not None
        hidden = source.mask & (torch.arange(length) % 2 == 0)
        return Batch.of_source(source, source.ids.masked_fill(~hidden, IGNORE))

    def evaluate(
        self, on: str | Sequence[str] | None = None, *, watch: Watch = unwatched, **options: Any
    ) -> dict[str, Any]:
        """Scores of the guesses in files, or in the run's own validation text; options are those of [evaluation]."""
        settings = replace(self.settings, evaluation=replace(self.settings.evaluation, **options))
        stream = self.stream(on)
        counts = masked_counts(self.model, self.tokenizer, stream, settings, self.device, watch)
        return stream_scores(counts, stream, settings.evaluation)

    @torch.inference_mode()
    def fill(self, text: str, **options: Any) -> Filled:
        """Guesses for every `<mask>` of a text; options are those of the recipe's [decoding] section."""
        chosen = replace(self.settings.decoding, **options)
        ids = blanked(text, self.tokenizer)
        if self.model.context is not None and len(ids) > self.model.context:
            raise UserError(f"the text has {len(ids)} tokens, but the model sees at most {self.model.context}.")
        given = torch.tensor([ids], device=self.device)
        source = Source(mask=torch.ones_like(given, dtype=torch.bool), ids=given)
        hidden, _ = self.model.hidden(Batch.of_source(source, given))
        # Blanks stand for text, never for special_tokens.
        banned = torch.tensor(self.tokenizer.never_generated(), device=self.device)
        logits = self.model.head(hidden[given == self.tokenizer.mask])
        log_probs = logits.index_fill(-1, banned, -torch.inf).log_softmax(-1)
        found = log_probs.topk(min(chosen.top_k, int(self.tokenizer.is_text.sum())))  # (blanks, top)
        best = iter(found.indices[:, 0].tolist())
        said = [next(best) if id == self.tokenizer.mask else id for id in ids]
        return Filled(text=self.tokenizer.decode(said), blanks=tuple(map(self._guesses, *found)))

    def _guesses(self, log_probs: Tensor, ids: Tensor) -> tuple[Guess, ...]:
        tokens = self.tokenizer.tokens(ids.tolist())
        return tuple(Guess(token=t, probability=p) for t, p in zip(tokens, log_probs.exp().tolist(), strict=True))


def blanked(text: str, tokenizer: Tokenizer) -> list[int]:
    """`<sos> … <eos>` with the id of `<mask>` for each of its names in the text."""
    assert tokenizer.mask is not None
    parts = text.split(MASK)
    if len(parts) == 1:
        raise UserError(f"there is nothing to fill: write {MASK} where a token is missing.")
    if tokenizer.kind in JOINED:
        parts = [*(part.removesuffix(" ") for part in parts[:-1]), parts[-1]]
    ids = tokenizer.encode(parts[0])
    for part in parts[1:]:
        ids += [tokenizer.mask, *tokenizer.encode(part)]
    return [id for id in (tokenizer.sos, *ids, tokenizer.eos) if id is not None]


def sizes_of(tokenizer: Tokenizer) -> EncoderSizes:
    return EncoderSizes(answers=OutputSpec(kind="tokens", count=tokenizer.size), vocabulary=tokenizer.vocabulary)


def rows_of(
    stream: Stream, tokenizer: Tokenizer, settings: Settings, *, length: int, fixed: bool = False
) -> MaskedRows:
    """Rows to train on or, fixed, to measure on: always cut and hidden alike."""
    if length < 2:
        raise UserError(
            f"a row of {length} token has no room beside <sos>; raise training.sequence_length or model.context."
        )
    batch = settings.evaluation.batch_size if fixed else settings.training.batch_size
    seed = settings.evaluation.seed if fixed else settings.training.seed
    return MaskedRows(stream, tokenizer, settings.data, length=length, batch=batch, seed=seed, shift=not fixed)


@torch.inference_mode()
def masked_counts(
    model: Any,
    tokenizer: Tokenizer,
    stream: Stream,
    settings: Settings,
    device: torch.device | str,
    watch: Watch = unwatched,
) -> list[Counts]:
    """nll, perplexity and accuracy of the guesses at fixed blanks: one row of counts for each row of text."""
    model.eval()
    config, data = settings.evaluation, settings.data
    rows = rows_of(stream, tokenizer, settings, length=model.context or ROW, fixed=True)
    found: list[Floats] = []
    for step in range(rows.steps_per_epoch):
        batch = rows.batch(step).to(device)
        row, place = (batch.target != IGNORE).nonzero(as_tuple=True)  # (N,)
        wanted = batch.target[row, place]
        log_probs = model.head.log_probs(model.hidden(batch)[0][row, place])  # (N, V)
        counted = torch.stack(
            [
                -log_probs.gather(1, wanted.unsqueeze(1)).squeeze(1).double(),
                torch.ones_like(wanted).double(),
                (log_probs.argmax(-1) == wanted).double(),
            ],
            1,
        )
        found.append(torch.zeros(batch.rows, 3).double().to(device).index_add(0, row, counted).cpu().numpy())
        watch(step + 1, rows.steps_per_epoch)
    counts = np.concatenate(found)
    signature = (
        f"tokens:{int(counts[:, 1].sum())}|hidden:{data.mask_rate}{'|whole-words' if data.whole_words else ''}"
        f"|seed:{config.seed}|context:{model.context or ROW}"
        f"|tokenizer:{tokenizer.signature}|text:{stream.fingerprint[:8]}"
        f"|bootstrap:{config.resamples}-{config.seed}|seqwright:{__version__}"
    )
    right = Counts(name="accuracy", rows=counts[:, [2, 1]], formula=percentage, signature=f"accuracy|{signature}")
    return [*nll_counts(counts[:, :2], signature), right]
