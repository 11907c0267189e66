"""Why a bag of n-grams chose a label: the words and n-grams that contribute most to its score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.data.labeled.labels import Labels
from seqwright.data.labeled.sources import EncodedTexts, Sources
from seqwright.tasks.classification.predictor import Predictor
from seqwright.text.coverage import script
from seqwright.text.tokenizer import Tokenizer

SHOWN = 10
"""N-grams of an explanation."""
UNSPACED = ("cjk", "hiragana", "katakana", "thai", "lao", "khmer", "myanmar")
"""Scripts without spaces between words: a run of their letters is more than a word."""


class TextContributions(Protocol):
    """The n-grams of one text and what each adds to the logits."""

    @property
    def spans(self) -> NDArray[np.int64]: ...

    @property
    def of_words(self) -> NDArray[np.bool_]: ...

    @property
    def logits(self) -> Any: ...

    @property
    def bias(self) -> Any: ...


@runtime_checkable
class ExplainsNGrams(Protocol):
    """A classifier whose logits are sums over n-grams."""

    def contributions(self, texts: Sources) -> Iterator[TextContributions]:
        """For each row, n-grams with their contributions."""
        ...


@dataclass(frozen=True)
class NGram:
    """An n-gram of a text, or words with all n-grams of characters that touch just these: they overlap and say the
    same. An n-gram that occurs several times counts where it is first."""

    text: str
    unit: str
    """Of what it is an n-gram: words, characters, or other tokens."""
    contribution: float


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A score as a sum: bias + contributions of the strongest n-grams + those of all others."""

    label: str
    """The predicted class, or a label of several."""
    against: str | None
    """The second most probable class; None where labels are no alternatives."""
    score: float
    """log p(label) / p(against), the log-odds of a label, or the value of a regression."""
    bias: float
    ngrams: tuple[NGram, ...]
    """The strongest, by magnitude."""
    others: float
    """Sum of the contributions of all other n-grams."""

    def __str__(self) -> str:
        label = self.label or repr("")  # an empty label is a class, too
        rather = f" rather than {self.against or repr('')}" if self.against is not None else ""
        lines = [f"{label}{rather}: {self.score:+.3f} = bias {self.bias:+.3f}, other n-grams {self.others:+.3f}, and"]
        return "\n".join(
            [*lines, *(f"  {ngram.contribution:+.3f}  {ngram.text!r} ({ngram.unit})" for ngram in self.ngrams)]
        )


def explains(predictor: Predictor) -> bool:
    """Whether predictions are those of one bag of n-grams, each text in one row."""
    (first, *others) = predictor.members
    return not others and isinstance(first.model, ExplainsNGrams) and first.data.truncation != "windows"


def explain(
    predictor: Predictor,
    encoded: Sequence[EncodedTexts],
    *,
    temperature: float | None,
    threshold: float = 0.5,
    shown: int = SHOWN,
) -> Iterator[tuple[Explanation, ...]]:
    """The explanation of the prediction for each text that `predictor.encode` made. In multi-label data: of the most
    probable label, then of each other one whose probability is at least `threshold`."""
    if not explains(predictor):
        raise UserError(
            "only a bag of n-grams (model.kind = bag, without data.truncation = windows) explains its labels; train one"
            " beside this model."
        )
    (member,) = predictor.members
    sources = member.sources(encoded[0])
    starts = np.cumsum(sources.lengths) - sources.lengths
    for start, length, one in zip(starts, sources.lengths, member.model.contributions(sources), strict=True):
        row = slice(start, start + length)
        segments = np.zeros(length, np.int8) if sources.segments is None else sources.segments[row]
        words = None if sources.words is None else sources.words[row]
        names = _named(one, sources.ids[row], words, segments, member.tokenizer)
        labels, totals = predictor.labels, one.logits.numpy().sum(0) + one.bias.numpy()
        first, *rest = np.argsort(-totals, kind="stable").tolist()
        several = labels.kind == "multi"
        predicted = [first, *(n for n in rest if several and totals[n] >= log(threshold / (1 - threshold)))]
        against = rest[0] if labels.kind == "single" else None
        yield tuple(_explanation(one, names, labels, n, against, temperature or 1.0, shown) for n in predicted)


def _named(
    one: TextContributions,
    ids: NDArray[np.int64],
    marks: NDArray[np.int8] | None,
    segments: NDArray[np.int8],
    tokenizer: Tokenizer,
) -> list[tuple[str, str, int]]:
    """(text, unit, text of a pair) of each n-gram; those of characters are named by the words that they touch, so that
    overlapping ones share a name. `marks` are those of `Tokenizer.word_bio`."""
    tokens = tokenizer.tokens(ids.tolist())
    separator = " " if tokenizer.kind == "words" else ""
    marks = np.zeros(len(ids), np.int8) if marks is None else marks
    number = np.cumsum(marks == 1) - 1  # of the last word that has begun
    starts = np.flatnonzero(marks == 1).tolist()
    ends = [int(end) for end in np.flatnonzero((marks > 0) & (np.append(marks[1:], 0) != 2)) + 1]
    unspaced = [script("".join(tokens[start:end])) in UNSPACED for start, end in zip(starts, ends, strict=True)]
    names: list[tuple[str, str, int]] = []
    for (start, end), of_words in zip(one.spans.tolist(), one.of_words.tolist(), strict=True):
        touched = number[start:end][marks[start:end] > 0].tolist()
        text, unit = separator.join(tokens[start:end]), "words" if of_words else tokenizer.kind
        if touched and not any(unspaced[n] for n in touched):
            text, unit = "".join(tokens[starts[touched[0]] : ends[touched[-1]]]), "words"
        names.append((text, unit, int(segments[start])))
    return names


def _explanation(
    one: TextContributions,
    names: Sequence[tuple[str, str, int]],
    labels: Labels,
    label: int,
    against: int | None,
    temperature: float,
    shown: int,
) -> Explanation:
    logits, bias = one.logits.numpy(), one.bias.numpy()
    if labels.kind == "regression":
        contributions, offset = logits[:, 0] * labels.deviation, bias[0] * labels.deviation + labels.mean
    elif against is None:
        contributions, offset = logits[:, label], bias[label]
    else:
        contributions = (logits[:, label] - logits[:, against]) / temperature
        offset = (bias[label] - bias[against]) / temperature
    sums: defaultdict[tuple[str, str, int], float] = defaultdict(float)
    for name, contribution in zip(names, contributions.tolist(), strict=True):
        sums[name] += contribution
    strongest = sorted(sums, key=lambda name: -abs(sums[name]))[:shown]
    ngrams = tuple(NGram(text, unit, sums[text, unit, segment]) for text, unit, segment in strongest)
    total = float(contributions.sum())
    return Explanation(
        label="value" if labels.kind == "regression" else labels.names[label],
        against=None if against is None else labels.names[against],
        score=total + float(offset),
        bias=float(offset),
        ngrams=ngrams,
        others=total - sum(ngram.contribution for ngram in ngrams),
    )
