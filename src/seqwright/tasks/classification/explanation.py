"""Why a bag of n-grams chose a label: the n-grams that contribute most to its score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.data.labeled.labels import Labels
from seqwright.data.labeled.sources import EncodedTexts, Sources
from seqwright.tasks.classification.predictor import Predictor
from seqwright.text.tokenizer import Tokenizer

SHOWN = 10
"""N-grams of an explanation."""


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
    """An n-gram of a text."""

    text: str
    unit: str
    """Of what it is an n-gram: words, characters, or other tokens."""
    contribution: float


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A score as a sum: bias + contributions of the strongest n-grams + those of all others."""

    label: str
    """The predicted class; the most probable label of several."""
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
    predictor: Predictor, encoded: Sequence[EncodedTexts], *, temperature: float | None, shown: int = SHOWN
) -> Iterator[Explanation]:
    """The explanation of the prediction for each text that `predictor.encode` made."""
    if not explains(predictor):
        raise UserError(
            "only a bag of n-grams (model.kind = bag, without data.truncation = windows) explains its labels; train one"
            " beside this model."
        )
    (member,) = predictor.members
    sources = member.sources(encoded[0])
    starts = np.cumsum(sources.lengths) - sources.lengths
    for start, length, one in zip(starts, sources.lengths, member.model.contributions(sources), strict=True):
        ids = sources.ids[start : start + length]
        yield _explanation(one, ids, member.tokenizer, predictor.labels, temperature or 1.0, shown)


def _explanation(
    one: TextContributions,
    ids: NDArray[np.int64],
    tokenizer: Tokenizer,
    labels: Labels,
    temperature: float,
    shown: int,
) -> Explanation:
    logits, bias = one.logits.numpy(), one.bias.numpy()
    totals = logits.sum(0) + bias
    first, *rest = np.argsort(-totals, kind="stable").tolist()
    against: int | None = None
    if labels.kind == "regression":
        contributions, offset = logits[:, 0] * labels.deviation, bias[0] * labels.deviation + labels.mean
    elif labels.kind == "multi":
        contributions, offset = logits[:, first], bias[first]
    else:
        against = rest[0]
        contributions = (logits[:, first] - logits[:, against]) / temperature
        offset = (bias[first] - bias[against]) / temperature
    strongest = np.argsort(-np.abs(contributions), kind="stable")[:shown]
    separator = " " if tokenizer.kind == "words" else ""
    ngrams = tuple(
        NGram(
            separator.join(tokenizer.tokens(ids[slice(*one.spans[n])].tolist())),
            "words" if one.of_words[n] else tokenizer.kind,
            float(contributions[n]),
        )
        for n in strongest.tolist()
    )
    total = float(contributions.sum())
    return Explanation(
        label="value" if labels.kind == "regression" else labels.names[first],
        against=None if against is None else labels.names[against],
        score=total + float(offset),
        bias=float(offset),
        ngrams=ngrams,
        others=total - sum(ngram.contribution for ngram in ngrams),
    )
