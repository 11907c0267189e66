"""What a tagger answers, and how good its answers are."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright import __version__
from seqwright.core.batch import IGNORE
from seqwright.core.config import check_not_negative
from seqwright.core.protocols import Watch, unwatched
from seqwright.data.bucketing import ByLength, Ints
from seqwright.data.tagged.formats import Sentence
from seqwright.data.tagged.sentences import EncodedSentences
from seqwright.metrics import spans
from seqwright.metrics.counts import Counts, scores_json
from seqwright.metrics.score import Score

TOKENS = 8192
"""Tokens read at a time."""


@dataclass(frozen=True, kw_only=True)
class TaggingEvaluationConfig:
    resamples: int = 1000
    """Bootstrap resamples behind an interval; 0 for none."""
    seed: int = 1
    """Fixes the bootstrap."""

    def __post_init__(self) -> None:
        check_not_negative(self, "resamples", "seed")


@dataclass(frozen=True, kw_only=True)
class TagPredictions:
    """What a model says of sentences."""

    tags: Ints
    """(words,)"""
    probabilities: NDArray[np.float64] | None
    """(words,): of the tags said; None where a model has none."""
    nll: float | None
    """Of a word of the sentences whose tags are all known; None where a model has no probabilities."""


@torch.no_grad()
def answers(
    model: Any, encoded: EncodedSentences, device: torch.device | str, watch: Watch = unwatched
) -> TagPredictions:
    """The tag of every word, in order."""
    if isinstance(model, torch.nn.Module):
        model.eval()
    feed = ByLength(encoded, seed=0, batch=1, tokens=TOKENS)
    tags, likely = np.zeros(len(encoded.tags), np.int64), np.zeros(len(encoded.tags))
    loss, count, done = 0.0, 0, 0
    sure = hasattr(model, "head")  # counted models have no probabilities
    for step in range(feed.steps_per_epoch):
        rows = feed.rows(step)
        batch = encoded.batch(rows).to(device)
        if sure:
            hidden, _ = model.hidden(batch)
            said, probabilities = model.decode(hidden, batch.source)
        else:
            said, _ = model.tag(batch.source)
        real = np.arange(said.size(1)) < encoded.words[rows, None]  # (B, W)
        words = (encoded.first[rows, None] + np.arange(said.size(1)))[real]
        tags[words] = said.cpu().numpy()[real]
        if sure:
            likely[words] = probabilities.cpu().double().numpy()[real]
        if sure and encoded.tags[words].max(initial=IGNORE) != IGNORE:
            total, many = model.head.loss(hidden, batch.target)
            loss, count = loss + total.item(), count + int(many)
        done += len(rows)
        watch(done, len(encoded))
    return TagPredictions(tags=tags, probabilities=likely if sure else None, nll=loss / count if count else None)


def quick_scores(found: TagPredictions, encoded: EncodedSentences) -> dict[str, float]:
    """What the log of a training shows."""
    known = encoded.tags != IGNORE
    accuracy = 100 * float((found.tags == encoded.tags)[known].mean()) if known.any() else 0.0
    return ({} if found.nll is None else {"nll": found.nll}) | {"accuracy": accuracy}


def tag_scores(
    found: TagPredictions,
    sentences: Sequence[Sentence],
    encoded: EncodedSentences,
    names: Sequence[str],
    known: Collection[str],
    config: TaggingEvaluationConfig,
) -> dict[str, Any]:
    """Accuracies and, where tags mark spans, F1, each with interval and signature; tables of tags and spans."""
    said = by_sentence([names[tag] for tag in found.tags.tolist()], sentences)
    gold = [sentence.tags for sentence in sentences]
    unknown = [[word not in known for word in sentence.words] for sentence in sentences]
    marked = spans.are_spans([*names])
    strange = Counter(tag for row in gold for tag in row if tag not in set(names))
    facts = "|".join(
        [
            f"sentences:{len(sentences)}",
            f"words:{len(encoded.tags)}",
            f"unknown:{sum(map(sum, unknown))}",
            *([f"unlearned_tags:{sum(strange.values())}"] if strange else []),
            f"text:{encoded.fingerprint[:8]}",
            f"seqwright:{__version__}",
        ]
    )
    signed = (replace(one, signature=f"{one.signature}|{facts}") for one in _counts(said, gold, unknown, marked))
    values = scores_json(signed, config)
    if found.nll is not None:
        nll = Score(value=found.nll, signature=f"nll|of:words|{facts}").as_json()
        values |= {"nll": found.nll, "scores": {"nll": nll} | values["scores"]}
    tables = {"per_class": spans.by_tag(said, gold)} | ({"per_span": spans.by_span(said, gold)} if marked else {})
    return values | {"words": len(encoded.tags), "unlearned_tags": dict(strange), "details": tables}


def _counts(
    said: spans.Sentences, gold: spans.Sentences, unknown: Sequence[Sequence[bool]], marked: bool
) -> Iterator[Counts]:
    yield spans.accuracy(said, gold)
    if any(map(any, unknown)):
        yield spans.unknown_accuracy(said, gold, unknown)
    yield spans.sentence_accuracy(said, gold)
    if marked:
        yield from spans.span_f1(said, gold)


def by_sentence(tags: Sequence[str], sentences: Sequence[Sentence]) -> list[list[str]]:
    """A tag for each word of each sentence."""
    rest = iter(tags)
    return [list(itertools.islice(rest, len(sentence.words))) for sentence in sentences]
