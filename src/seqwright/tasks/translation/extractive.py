"""Extractive summaries: what can be had by keeping words of the source and dropping the others, to judge others by."""

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
"""Where `camelCase` falls into words."""
SMOOTHING = 2.0
"""Words that a feature is thought to have been seen with before any was: half of the evidence of a rare one."""
TUNED_ON = 1000
"""Training pairs on which the threshold is chosen."""
THRESHOLDS = np.arange(-3.0, 3.25, 0.25)


def words(text: str) -> list[str]:
    """The words of a text or of the names in code, lower-cased, each once, in the order in which they first stand."""
    return list(dict.fromkeys(word.lower() for word in WORDS.findall(HUMPS.sub(" ", text))))


def lead(source: str) -> str:
    """The words of the first line; decorators say nothing of a function yet."""
    return " ".join(words(next((line for line in source.splitlines() if not line.startswith("@")), "")))


def oracle(source: str, targets: Sequence[str]) -> str:
    """The source's words that stand in a target: the most that keeping words, each once, can share with it."""
    wanted = {word for target in targets for word in words(target)}
    return " ".join(word for word in words(source) if word in wanted)


class KeepDrop:
    """Keeps a word or not by the evidence of the word itself, its place and its number (naive Bayes)."""

    def __init__(self, pairs: Sequence[Pair]):
        kept: Counter[str] = Counter()
        seen: Counter[str] = Counter()
        for source, targets in map(_sides, pairs):
            wanted = set(oracle(source, targets).split())
            for word, features in _described(source):
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
        """The words worth keeping."""
        return _above(self._evidence(source), self.threshold)

    def _evidence(self, source: str) -> list[tuple[str, float]]:
        """Log-odds that each word is kept."""
        return [
            (word, self.prior + sum(self.weights.get(feature, 0.0) for feature in features))
            for word, features in _described(source)
        ]


def extracts(train: Sequence[Pair], pairs: Sequence[Pair]) -> dict[str, list[str]]:
    """What each way to keep words makes of the pairs' sources."""
    ways: dict[str, Callable[[str, Sequence[str]], str]] = {"lead": lambda source, _: lead(source)}
    keep = KeepDrop(train)
    ways |= {"keep_drop": lambda source, _: keep(source), "oracle": oracle}
    return {name: [way(*_sides(pair)) for pair in pairs] for name, way in ways.items()}


def _sides(pair: Pair) -> tuple[str, tuple[str, ...]]:
    return "\n".join(pair.sources), pair.targets


def _described(source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each word with what is known of it."""
    first = set(lead(source).split())
    many = Counter(word.lower() for word in WORDS.findall(HUMPS.sub(" ", source)))
    for n, word in enumerate(words(source)):
        yield word, (f"word {word}", f"place {n.bit_length()} {word in first}", f"times {min(3, many[word])}")


def _above(evidence: Sequence[tuple[str, float]], threshold: float) -> str:
    """At least one word, the best."""
    return (
        " ".join(word for word, odds in evidence if odds > threshold)
        or max(evidence, key=lambda entry: entry[1], default=("", 0.0))[0]
    )
