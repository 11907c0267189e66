"""Predictions of a tagger for every word, and their scores."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table
from torch import Tensor

from seqwright import __version__
from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import check_not_negative
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Counted
from seqwright.data.bucketing import ByLength, Ints
from seqwright.data.tagged.formats import Sentence
from seqwright.data.tagged.sentences import EncodedSentences
from seqwright.metrics import spans
from seqwright.metrics.counts import Counts, scores_json
from seqwright.metrics.examples import digest, text_examples
from seqwright.metrics.score import Floats, Score, signature
from seqwright.reporting.classification import class_report
from seqwright.reporting.terminal import spans_table
from seqwright.tasks.base import Settings
from seqwright.tasks.classification.scores import unseen_note
from seqwright.tasks.scores import Scores
from seqwright.tasks.scoring import score_epoch, visited
from seqwright.tasks.tagging.codec import TaggingCodec
from seqwright.text.ragged import concatenated_ranges

BATCH_TOKENS = 8192
"""Tokens per batch."""


@dataclass(frozen=True, kw_only=True)
class TaggingEvaluationConfig:
    resamples: int = 1000
    """Bootstrap resamples for confidence intervals; 0 for none."""
    seed: int = 1
    """Seed of the bootstrap."""

    def __post_init__(self) -> None:
        check_not_negative(self, "resamples", "seed")


class TaggingScores(Scores):
    """Scores with tables of tags and spans, and a warning about unknown tags."""

    def details(self) -> Iterator[str | Table]:
        yield from class_report(self["details"])
        if "per_span" in self["details"]:
            yield spans_table(self["details"]["per_span"])
        if self["unlearned_tags"]:
            yield unseen_note("tags", self["unlearned_tags"])


@dataclass(frozen=True, kw_only=True)
class TagPredictions:
    """Predicted tags of all words of some sentences."""

    tags: Ints
    """(words,)"""
    probabilities: NDArray[np.float64] | None
    """(words,): of the predicted tags; None for models without probabilities."""
    nll: float | None
    """Per word, over sentences whose tags are all known; None for models without probabilities."""


def predict(
    model: Any, encoded: EncodedSentences, *, device: torch.device | str = "cpu", progress: Progress = SILENT
) -> TagPredictions:
    """The tag of every word, in order."""
    probabilistic = not isinstance(model, Counted)

    def compute(batch: Batch) -> Floats:
        """(words, 4): tag and probability of each word of a batch; at its first word nll and number of its targets."""
        loss: float | Tensor = 0.0
        count: int | Tensor = 0
        if probabilistic:
            hidden, _ = model.hidden(batch)
            tags, probabilities = model.decode(hidden, batch.source)
            if bool((batch.target != IGNORE).any()):
                loss, count = model.head.loss(hidden, batch.target)
        else:
            tags, _ = model.tag(batch.source)
            probabilities = torch.zeros_like(tags)
        assert batch.source.word_starts is not None
        words = batch.source.word_starts.sum(1, keepdim=True)
        real = torch.arange(tags.size(1), device=words.device) < words  # (B, W)
        values = np.zeros((int(real.sum()), 4))
        values[:, :2] = torch.stack([tags[real].double(), probabilities[real].double()], 1).cpu().numpy()
        values[:1, 2:] = float(loss), int(count)
        return values

    feed = ByLength(encoded, seed=0, batch=1, tokens=BATCH_TOKENS)
    in_feed_order = score_epoch(model, feed, compute, device=device, progress=progress)
    rows = visited(feed)
    outputs = np.zeros((len(encoded.tags), 2))
    outputs[concatenated_ranges(encoded.first[rows], encoded.words[rows])] = in_feed_order[:, :2]
    total, count = in_feed_order[:, 2:].sum(0)
    return TagPredictions(
        tags=outputs[:, 0].astype(np.int64),
        probabilities=outputs[:, 1] if probabilistic else None,
        nll=float(total / count) if count else None,
    )


def evaluate(
    model: Any,
    codec: TaggingCodec,
    sentences: Sequence[Sentence],
    settings: Settings,
    *,
    encoded: EncodedSentences | None = None,
    device: torch.device | str = "cpu",
    quick: bool = False,
    progress: Progress = SILENT,
) -> Scores:
    """Scores of the predicted tags of sentences, which are encoded here unless they are already."""
    encoded = codec.encode(sentences, model.context) if encoded is None else encoded
    predictions = predict(model, encoded, device=device, progress=progress)
    if quick:
        return Scores(quick_scores(predictions, encoded))
    return tag_scores(predictions, codec, sentences, encoded, settings.evaluation)


def quick_scores(predictions: TagPredictions, encoded: EncodedSentences) -> dict[str, float]:
    """Values for the log of a training."""
    known = encoded.tags != IGNORE
    accuracy = 100 * float((predictions.tags == encoded.tags)[known].mean()) if known.any() else 0.0
    return ({} if predictions.nll is None else {"nll": predictions.nll}) | {"accuracy": accuracy}


def tag_scores(
    predictions: TagPredictions,
    codec: TaggingCodec,
    sentences: Sequence[Sentence],
    encoded: EncodedSentences,
    config: TaggingEvaluationConfig,
) -> TaggingScores:
    """Accuracies and, where tags mark spans, F1, with intervals and signatures; tables of tags and spans."""
    predicted = by_sentence([codec.tags[id] for id in predictions.tags.tolist()], sentences)
    gold = [sentence.tags for sentence in sentences]
    unknown_words = [[word not in codec.words for word in sentence.words] for sentence in sentences]
    has_spans = spans.are_spans([*codec.tags])
    unknown_tags = Counter(tag for row in gold for tag in row if tag not in set(codec.tags))
    facts = signature(
        sentences=len(sentences),
        words=len(encoded.tags),
        unknown=sum(map(sum, unknown_words)),
        unlearned_tags=sum(unknown_tags.values()) or None,
        text=digest(*(" ".join(sentence.words) for sentence in sentences))[:8],
        seqwright=__version__,
    )
    counts = list(_counts(predicted, gold, unknown_words, has_spans))
    table = scores_json((replace(one, signature=signature(one.signature, facts)) for one in counts), config)
    if predictions.nll is not None:
        nll = Score(value=predictions.nll, signature=signature("nll", "of:words", facts)).as_json()
        table |= {"nll": predictions.nll, "scores": {"nll": nll} | table["scores"]}
    per_tag = spans.by_tag(predicted, gold)
    names = [row["class"] for row in per_tag]
    tables = {"classes": names, "confusion": spans.confusions(predicted, gold, names), "per_class": per_tag}
    if has_spans:
        tables["per_span"] = spans.by_span(predicted, gold)
    facts_of_text = {"words": len(encoded.tags), "unlearned_tags": dict(unknown_tags), "details": tables}
    return TaggingScores(table | facts_of_text).with_examples(
        lambda: text_examples(
            "sentence",
            counts,
            inputs=[" ".join(sentence.words) for sentence in sentences],
            references=list(map(" ".join, gold)),
            outputs=list(map(" ".join, predicted)),
        )
    )


def _counts(
    predicted: spans.Sentences, gold: spans.Sentences, unknown: Sequence[Sequence[bool]], has_spans: bool
) -> Iterator[Counts]:
    yield spans.accuracy(predicted, gold)
    if any(map(any, unknown)):
        yield spans.unknown_accuracy(predicted, gold, unknown)
    yield spans.sentence_accuracy(predicted, gold)
    if has_spans:
        yield from spans.span_f1(predicted, gold)


def by_sentence(tags: Sequence[str], sentences: Sequence[Sentence]) -> list[list[str]]:
    """The tags of all words, split into sentences."""
    rest = iter(tags)
    return [list(itertools.islice(rest, len(sentence.words))) for sentence in sentences]
