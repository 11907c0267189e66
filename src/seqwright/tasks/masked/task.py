"""Masked language modeling (Devlin et al. 2019): masked tokens predicted and scored; runs that fill blanks."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqwright import __version__
from seqwright.core.batch import IGNORE, Batch, EncoderSizes, OutputSpec, Source
from seqwright.core.config import UserError, check_not_negative, check_sizes, with_options
from seqwright.core.notebook import NotebookTable
from seqwright.core.printable import printable
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Feed
from seqwright.data.subword_regularization import RegularizedFeed
from seqwright.data.text.masked import MASK, MaskedRows
from seqwright.data.text.stream import Stream
from seqwright.metrics.counts import Counts, nll_counts, percentage
from seqwright.metrics.examples import Examples
from seqwright.metrics.score import Floats, signature
from seqwright.runs.overlap import warns_of_training_data
from seqwright.runs.run import one_or_many
from seqwright.tasks.base import Settings, synthetic_source
from seqwright.tasks.codec import TextCodec
from seqwright.tasks.language.scores import QUICK_TOKENS
from seqwright.tasks.language.task import TextRun, TextTask, stream_scores
from seqwright.tasks.scores import Scores
from seqwright.tasks.scoring import score_epoch
from seqwright.text.tokenizer import Tokenizer

SAMPLE_TOKENS = 32
"""Tokens of a sample in the log."""
DEFAULT_LENGTH = 128
"""Tokens of a row for a model without a context limit."""
SPACE_IN_PIECE = ("byte-bpe", "unigram")
"""Tokenizers whose pieces include the space before a word, so that a mask stands for the space, too."""


@dataclass(frozen=True, kw_only=True)
class MaskedEvaluationConfig:
    batch_size: int = 32
    """Rows per batch."""
    resamples: int = 1000
    """Bootstrap resamples for confidence intervals; 0 for none."""
    seed: int = 1
    """Seed of the masks and the bootstrap."""

    def __post_init__(self) -> None:
        check_sizes(self, "batch_size")
        check_not_negative(self, "resamples", "seed")


@dataclass(frozen=True, kw_only=True)
class FillOptions:
    top_k: int = 5
    """Predictions per mask."""

    def __post_init__(self) -> None:
        check_sizes(self, "top_k")


@dataclass(frozen=True, kw_only=True)
class Guess:
    """A prediction for a mask."""

    token: str
    probability: float

    def __str__(self) -> str:
        return f"{self.token!r} {self.probability:.1%}"


@dataclass(frozen=True, kw_only=True)
class Filled(NotebookTable):
    """A text with its masks predicted."""

    text: str
    """The text with the most probable token at every mask."""
    blanks: tuple[tuple[Guess, ...], ...]
    """Predictions for each mask, the most probable first; each is made while the others are masked."""

    def __str__(self) -> str:
        masks = (", ".join(map(str, guesses)) for guesses in self.blanks)
        return "\n".join([f"text    {printable(self.text)}", *(f"mask {n}  {mask}" for n, mask in enumerate(masks, 1))])


@dataclass(frozen=True, kw_only=True)
class MaskedCodec(TextCodec):
    """A tokenizer with `<mask>`; the output is a token at each position."""

    @property
    def sizes(self) -> EncoderSizes:
        outputs = OutputSpec(kind="tokens", count=self.tokenizer.size)
        return EncoderSizes(answers=outputs, vocabulary=self.tokenizer.vocabulary)


class MaskedTask(TextTask):
    """Training of a masked language model."""

    codec_class = MaskedCodec

    @property
    def special_tokens(self) -> tuple[str, ...]:
        return (MASK,)

    @property
    def corpus(self) -> Any:
        raise UserError("a masked language model is trained by gradients; choose another model.kind.")

    def feed(self, model: Any) -> Feed:
        training = self.settings.training
        length = training.sequence_length or model.context or DEFAULT_LENGTH
        if model.context is not None and length > model.context:
            raise UserError(f"training.sequence_length is {length}, but the model sees at most {model.context} tokens.")
        resegmented = self.resegmented
        if resegmented is None:
            return masked_rows(self.streams[0], self.tokenizer, self.settings, length=length)
        return RegularizedFeed(
            lambda epoch: masked_rows(resegmented(epoch), self.tokenizer, self.settings, length=length)
        )

    def evaluate(self, model: Any, device: torch.device | str, *, quick: bool) -> Scores | None:
        if self.valid is None:
            return None
        return evaluate(model, self.codec, self.valid, self.settings, device=device, quick=quick)

    @torch.inference_mode()
    def sample(self, model: Any, device: torch.device | str) -> list[dict[str, str]]:
        """A row of the validation text with predictions in place of its masks: [right], [wrong ≠ right]."""
        stream = self.streams[0] if self.valid is None else self.valid
        length, stream = min(SAMPLE_TOKENS, model.context or DEFAULT_LENGTH), stream.first(4 * SAMPLE_TOKENS)
        batch = masked_rows(stream, self.tokenizer, self.settings, length=length, fixed=True).batch(0)
        masked = batch.target[:1] != IGNORE
        hidden, _ = model.hidden(batch.to(device))
        predicted = model.head.predict(hidden[:1])[masked.to(device)].tolist()
        reference = batch.target[:1][masked].tolist()
        assert batch.source.ids is not None
        tokens = self.tokenizer.tokens(batch.source.ids[0].tolist())
        pairs = zip(self.tokenizer.tokens(predicted), self.tokenizer.tokens(reference), strict=True)
        for n, (guess, correct) in zip(masked[0].nonzero().flatten().tolist(), pairs, strict=True):
            tokens[n] = f"[{guess}]" if guess == correct else f"[{guess} ≠ {correct}]"
        kept = [token for token, real in zip(tokens, batch.source.mask[0].tolist(), strict=True) if real]
        return [{"prompt": "", "text": " ".join(kept).replace("\n", "↵")}]

    def show(self, batch: Batch) -> str:
        return self._tokens(batch)[:200]

    def _tokens(self, batch: Batch) -> str:
        assert batch.source.ids is not None
        return _in_line(self.tokenizer, batch.source.ids[0][batch.source.mask[0]])


class MaskedRun(TextRun):
    """A trained masked language model: `run = seqwright.open("runs/x"); run.fill("the <mask> sat")`."""

    description = "fills masks"
    verbs = ("fill", "evaluate")
    codec_class = MaskedCodec

    def source(self, rows: int, length: int) -> Source:
        """Sources of different lengths."""
        return synthetic_source(self.tokenizer, rows, length)

    def example(self, rows: int, length: int) -> Batch:
        """Synthetic sources; every second token is a target."""
        source = self.source(rows, length)
        assert source.ids is not None
        targets = source.mask & (torch.arange(length) % 2 == 0)
        return Batch.of_source(source, source.ids.masked_fill(~targets, IGNORE))

    @warns_of_training_data
    def evaluate(self, on: str | Sequence[str] | None = None, *, progress: Progress = SILENT, **options: Any) -> Scores:
        """Scores of predictions in files, or in the validation text of the run; options are those of [evaluation]."""
        settings = replace(self.settings, evaluation=with_options(self.settings.evaluation, options))
        return evaluate(self.model, self.codec, self.stream(on), settings, device=self.device, progress=progress)

    @one_or_many
    def fill(self, texts: Iterable[str], **options: Any) -> Iterator[Filled]:
        """Predictions for every `<mask>` of each text, in order; options are those of [decoding]."""
        decoding = with_options(self.settings.decoding, options)
        return (self._fill(text, decoding) for text in texts)

    @torch.inference_mode()
    def _fill(self, text: str, decoding: FillOptions) -> Filled:
        ids = encode_masks(text, self.tokenizer)
        if self.model.context is not None and len(ids) > self.model.context:
            raise UserError(f"the text has {len(ids)} tokens, but the model sees at most {self.model.context}.")
        input = torch.tensor([ids], device=self.device)
        source = Source(mask=torch.ones_like(input, dtype=torch.bool), ids=input)
        hidden, _ = self.model.hidden(Batch.of_source(source, input))
        # Masks stand for text, never for special tokens.
        banned = torch.tensor(self.tokenizer.never_generated(), device=self.device)
        logits = self.model.head(hidden[input == self.tokenizer.mask]).index_fill(-1, banned, -torch.inf)
        top = logits.log_softmax(-1).topk(min(decoding.top_k, int(self.tokenizer.is_text.sum())))  # (masks, k)
        best = iter(top.indices[:, 0].tolist())
        filled = [next(best) if id == self.tokenizer.mask else id for id in ids]
        return Filled(text=self.tokenizer.decode(filled), blanks=tuple(map(self._guesses, *top)))

    def _guesses(self, log_probs: Tensor, ids: Tensor) -> tuple[Guess, ...]:
        tokens = self.tokenizer.tokens(ids.tolist())
        return tuple(Guess(token=t, probability=p) for t, p in zip(tokens, log_probs.exp().tolist(), strict=True))


def encode_masks(text: str, tokenizer: Tokenizer) -> list[int]:
    """`<sos> … <eos>`, with the id of `<mask>` wherever the text has it."""
    assert tokenizer.mask is not None
    parts = text.split(MASK)
    if len(parts) == 1:
        raise UserError(f"there is nothing to fill: write {MASK} where a token is missing.")
    if tokenizer.kind in SPACE_IN_PIECE:
        parts = [*(part.removesuffix(" ") for part in parts[:-1]), parts[-1]]
    ids = tokenizer.encode(parts[0])
    for part in parts[1:]:
        ids += [tokenizer.mask, *tokenizer.encode(part)]
    return [id for id in (tokenizer.sos, *ids, tokenizer.eos) if id is not None]


def masked_rows(
    stream: Stream, tokenizer: Tokenizer, settings: Settings, *, length: int, fixed: bool = False
) -> MaskedRows:
    """Rows for training or, `fixed`, for evaluation: with the same windows and masks every time."""
    if length < 2:
        raise UserError(
            f"a row of {length} token has no room beside <sos>; raise training.sequence_length or model.context."
        )
    batch = settings.evaluation.batch_size if fixed else settings.training.batch_size
    seed = settings.evaluation.seed if fixed else settings.training.seed
    return MaskedRows(stream, tokenizer, settings.data, length=length, batch=batch, seed=seed, shift=not fixed)


def evaluate(
    model: Any,
    codec: TextCodec,
    stream: Stream,
    settings: Settings,
    *,
    device: torch.device | str = "cpu",
    quick: bool = False,
    progress: Progress = SILENT,
) -> Scores:
    """nll, perplexity and accuracy at fixed masks of a text; `quick` reads its first QUICK_TOKENS."""
    stream = stream.first(QUICK_TOKENS) if quick else stream
    counts = masked_counts(model, codec, stream, settings, device=device, progress=progress)
    scores = stream_scores(counts, stream, settings.evaluation, quick=quick)
    if quick:
        return scores
    return scores.with_examples(lambda: masked_examples(model, codec, stream, settings, counts, device=device))


@torch.inference_mode()
def masked_examples(
    model: Any,
    codec: TextCodec,
    stream: Stream,
    settings: Settings,
    counts: Sequence[Counts],
    *,
    device: torch.device | str,
) -> Examples:
    """Rows of text as the model reads them, the tokens to be predicted, and its predictions of them with their nll,
    in which models of equal predictions differ."""
    model.eval()
    tokenizer = codec.tokenizer
    feed = masked_rows(stream, tokenizer, settings, length=model.context or DEFAULT_LENGTH, fixed=True)
    inputs, references, outputs = [], [], []
    for step in range(feed.steps_per_epoch):
        batch = feed.batch(step)
        assert batch.source.ids is not None
        predicted = model.head.predict(model.hidden(batch.to(device))[0]).cpu()
        for ids, real, target, guess in zip(batch.source.ids, batch.source.mask, batch.target, predicted, strict=True):
            masked = target != IGNORE
            inputs.append(_in_line(tokenizer, ids[real]))
            references.append(_in_line(tokenizer, target[masked]))
            outputs.append(_in_line(tokenizer, guess[masked]))
    rows = next(one for one in counts if one.name == "nll").rows.tolist()
    # The signature names text, tokenizer and masks: models that agree in it predict the same tokens.
    return Examples(
        unit="row of tokens",
        counts=counts,
        fingerprint=counts[0].signature,
        inputs=inputs,
        references=references,
        outputs=[
            f"{text} ({nll / max(1, masks):.3f} nats per token)"
            for text, (nll, masks) in zip(outputs, rows, strict=True)
        ],
    )


def _in_line(tokenizer: Tokenizer, ids: Tensor) -> str:
    """Tokens in one line; a line end is a token, too."""
    return " ".join(tokenizer.tokens(ids.tolist())).replace("\n", "↵")


def masked_counts(
    model: Any,
    codec: TextCodec,
    stream: Stream,
    settings: Settings,
    *,
    device: torch.device | str = "cpu",
    progress: Progress = SILENT,
) -> list[Counts]:
    """Counts of each row of text: nll, perplexity and accuracy at its masks."""
    config, data, length = settings.evaluation, settings.data, model.context or DEFAULT_LENGTH
    feed = masked_rows(stream, codec.tokenizer, settings, length=length, fixed=True)
    rows = score_epoch(model, feed, functools.partial(_row_counts, model), device=device, progress=progress)
    facts = signature(
        tokens=int(rows[:, 1].sum()),
        hidden=data.mask_rate,
        **{"whole-words": data.whole_words},
        seed=config.seed,
        context=length,
        tokenizer=codec.tokenizer.signature,
        **stream.signature,
        bootstrap=f"{config.resamples}-{config.seed}",
        seqwright=__version__,
    )
    accuracy = Counts(name="accuracy", rows=rows[:, [2, 1]], formula=percentage, signature=signature("accuracy", facts))
    return [*nll_counts(rows[:, :2], facts, targets="masked tokens"), accuracy]


def _row_counts(model: Any, batch: Batch) -> Floats:
    """(B, 3): nll sum, number of masks, and number of correct predictions of each row."""
    row, position = (batch.target != IGNORE).nonzero(as_tuple=True)  # (N,)
    target = batch.target[row, position]
    log_probs = model.head.log_probs(model.hidden(batch)[0][row, position])  # (N, V)
    counts = torch.stack(
        [
            -log_probs.gather(1, target.unsqueeze(1)).squeeze(1).double(),
            torch.ones_like(target).double(),
            (log_probs.argmax(-1) == target).double(),
        ],
        1,
    )
    totals: Floats = torch.zeros(batch.rows, 3).double().to(counts.device).index_add(0, row, counts).cpu().numpy()
    return totals
