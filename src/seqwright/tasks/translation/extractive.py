"""Extractive baselines of summarization: words of the source kept or dropped."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from seqwright.data.parallel.formats import Pair
from seqwright.metrics.ngram_overlap import rouge

WORDS = re.compile(r"[^\W\d_]+|\d+")
HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Word boundaries inside `camelCase`."""
SMOOTHING = 2.0
"""Pseudocount of a feature."""
TUNED_ON = 1000
"""Training pairs on which the threshold is chosen."""
THRESHOLDS = np.arange(-3.0, 3.25, 0.25)


def words(text: str) -> list[str]:
    """The distinct words of a text or of identifiers, lowercased, in order of first occurrence."""
    return list(dict.fromkeys(word.lower() for word in WORDS.findall(HUMPS.sub(" ", text))))


def lead(source: str) -> str:
    """The words of the first line that is no decorator."""
    return " ".join(words(next((line for line in source.splitlines() if not line.startswith("@")), "")))


def oracle(source: str, targets: Sequence[str]) -> str:
    """The words of the source that are in a target: the upper bound of extraction."""
    wanted = {word for target in targets for word in words(target)}
    return " ".join(word for word in words(source) if word in wanted)


class KeepDrop:
    """Naive Bayes classifier that keeps or drops a word by the word, its position and its frequency."""

    def __init__(self, pairs: Sequence[Pair]):
        kept: Counter[str] = Counter()
        seen: Counter[str] = Counter()
        for source, targets in map(_sides, pairs):
            wanted = set(oracle(source, targets).split())
            for word, features in _features(source):
                seen.update(["", *features])  # "" counts all words
                if word in wanted:
                    kept.update(["", *features])
        share = (kept[""] + SMOOTHING / 2) / (seen[""] + SMOOTHING)
        self.prior = math.log(share / (1 - share))
        self.weights = {
            feature: math.log((kept[feature] + SMOOTHING * share) / (many - kept[feature] + SMOOTHING * (1 - share)))
            - self.prior
            for feature, many in seen.items()
        }
        self.threshold = 0.0
        some = pairs[:: -(-len(pairs) // TUNED_ON)]
        evidence = [self._evidence(_sides(pair)[0]) for pair in some]

        def reached(threshold: float) -> float:
            outputs = [_above(own, threshold) for own in evidence]
            return rouge(outputs, [pair.targets for pair in some], "1").value

        self.threshold = float(max(THRESHOLDS, key=reached))

    def __call__(self, source: str) -> str:
        """The kept words."""
        return _above(self._evidence(source), self.threshold)

    def _evidence(self, source: str) -> list[tuple[str, float]]:
        """Log-odds that each word is kept."""
        return [
            (word, self.prior + sum(self.weights.get(feature, 0.0) for feature in features))
            for word, features in _features(source)
        ]


def extracts(train: Sequence[Pair], pairs: Sequence[Pair]) -> dict[str, list[str]]:
    """The outputs of each baseline for the sources of pairs."""
    baselines: dict[str, Callable[[str, Sequence[str]], str]] = {"lead": lambda source, _: lead(source)}
    keep = KeepDrop(train)
    baselines |= {"keep_drop": lambda source, _: keep(source), "oracle": oracle}
    return {name: [baseline(*_sides(pair)) for pair in pairs] for name, baseline in baselines.items()}


def _sides(pair: Pair) -> tuple[str, tuple[str, ...]]:
    return "\n".join(pair.sources), pair.targets


def _features(source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each word with its features."""
    first = set(lead(source).split())
    many = Counter(word.lower() for word in WORDS.findall(HUMPS.sub(" ", source)))
    for n, word in enumerate(words(source)):
        yield word, (f"word {word}", f"place {n.bit_length()} {word in first}", f"times {min(3, many[word])}")


def _above(evidence: Sequence[tuple[str, float]], threshold: float) -> str:
    """The words above the threshold, or else the most probable one."""
    return (
        " ".join(word for word, odds in evidence if odds > threshold)
        or max(evidence, key=lambda entry: entry[1], default=("", 0.0))[0]
    )
