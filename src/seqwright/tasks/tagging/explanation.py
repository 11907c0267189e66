"""Why a perceptron chose a tag: the word features and tag bigrams that support it rather than the next best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import Source


@runtime_checkable
class ExplainsTags(Protocol):
    """A tagger whose score of a path is a sum over word features and tag bigrams."""

    transitions: NDArray[np.float32]
    """(C + 1, C): from the previous tag to the next; the last row is the start of a sentence."""

    def feature_weights(self, source: Source) -> NDArray[np.float32]:
        """(W, K, C): weight of every feature of every word for each tag."""
        ...

    def feature_names(self, words: Sequence[str]) -> list[tuple[str, ...]]:
        """(W, K): readable features."""
        ...

    def tag(self, source: Source) -> Any:
        """Viterbi paths (B, W), and None."""
        ...


@dataclass(frozen=True, kw_only=True)
class TagExplanation:
    """The margin of a tag as a sum: features of the word + tag bigrams on both sides."""

    word: str
    tag: str
    against: str
    """The next best tag, all other words keeping theirs."""
    margin: float
    """Score of the path minus that with the next best tag here; not below 0 on a Viterbi path."""
    transitions: float
    """Part of the margin that tag bigrams add."""
    features: tuple[tuple[str, float], ...]
    """Features and what each adds to the margin, the strongest first."""


def explain_tags(
    model: ExplainsTags, source: Source, words: Sequence[str], tags: Sequence[str]
) -> Iterator[TagExplanation]:
    """The explanation of the tag of each word of one sentence; `tags` are the names of all tags, at least two."""
    path = model.tag(source)[0][0, : len(words)].tolist()
    weights, names = model.feature_weights(source), model.feature_names(words)
    for n, (word, tag) in enumerate(zip(words, path, strict=True)):
        bigrams = model.transitions[path[n - 1] if n else -1].copy()  # (C,)
        if n + 1 < len(path):
            bigrams += model.transitions[:-1, path[n + 1]]
        scores = weights[n].sum(0) + bigrams
        scores[tag] = -np.inf
        against = int(scores.argmax())
        differences = weights[n, :, tag] - weights[n, :, against]  # (K,)
        transitions = float(bigrams[tag] - bigrams[against])
        yield TagExplanation(
            word=word,
            tag=tags[tag],
            against=tags[against],
            margin=float(differences.sum()) + transitions,
            transitions=transitions,
            features=tuple((names[n][k], float(differences[k])) for k in np.argsort(-np.abs(differences))),
        )
