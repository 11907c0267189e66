"""Degeneration checks: flags for outputs that repeat ("ag ag ag"), copy the source, are empty or far too long.

Repetition loops are the usual failure of decoding by maximum probability (Holtzman et al. 2020). What the training
targets do as well is not flagged (decision 75).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MIN_REPEATS = 3
"""Consecutive repetitions of words that are suspicious, where they fill MIN_REPEAT_SHARE of the output."""
MIN_REPEAT_SHARE = 0.2
MAX_PERIOD = 8
"""Length of the longest repeated unit that is detected, in words."""
MAX_CHAR_PERIOD = 4
"""The same in characters."""
MIN_CHAR_REPEATS = 8
"""Consecutive repetitions of characters that are suspicious: "aaaaaaaa"."""
MIN_COPY_SHARE = 0.9
"""Share of an output's words that occur in the source in the same order, from which it is a copy."""
MIN_COPY_WORDS = 4
"""Words below which a copy may be a name or a number."""
MAX_LENGTH_RATIO = 3.0
"""Words per source word, with an allowance of EXTRA_WORDS, above which an output is a runaway."""
EXTRA_WORDS = 10


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A reason to distrust an output, with the measure that exceeds its threshold."""

    kind: str
    """"repetition", "copy", "empty" or "runaway"."""
    measure: str
    value: float
    confidence: float | None
    """Geometric mean of the token probabilities, where known."""
    text: str
    """Message for users."""
    coverage: float | None = None
    """Share of the source that is attended to, for models with cross-attention."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        confidence = "" if self.confidence is None else f"confidence {self.confidence:.2f}"
        coverage = "" if self.coverage is None else f"{self.coverage:.0%} of the source attended"
        details = ", ".join(part for part in (confidence, coverage) if part)
        return f"{self.text} ({details})" if details else self.text


@dataclass(frozen=True, kw_only=True)
class TargetStatistics:
    """99.9th percentiles of each measure over the training targets: outputs up to these are not suspicious."""

    times: int = 0
    """Consecutive repetitions of one or several words."""
    letters: int = 0
    """Consecutive repetitions of one or several characters."""
    copied: float = 0.0
    """Share of a target's words that occur in the source in the same order."""
    ratio: float = 0.0
    """Words per source word."""


def target_statistics(pairs: Iterable[tuple[str, str]]) -> TargetStatistics:
    """The statistics of (source, target) pairs; all zero without pairs."""
    rows = [_measures(source, target) for source, target in pairs]
    outliers = len(rows) // 1000
    if not rows:
        return TargetStatistics()
    times, letters, copied, ratio = (sorted(column)[-1 - outliers] for column in zip(*rows, strict=True))
    return TargetStatistics(times=times, letters=letters, copied=copied, ratio=ratio)


def _measures(source: str, target: str) -> tuple[int, int, float, float]:
    """The measures of one pair, in the order of the fields of TargetStatistics."""
    words, source_words = target.split(), source.split()
    return (
        longest_repeat(words).times,
        longest_repeat(target, max_period=MAX_CHAR_PERIOD).times,
        _copied_words(words, source_words) / max(1, len(words)),
        len(words) / max(1, len(source_words)),
    )


@dataclass(frozen=True)
class Repeat:
    """A unit and its consecutive repetitions."""

    unit: tuple[str, ...] = ()
    times: int = 0
    length: int = 0


def longest_repeat(items: Sequence[str], max_period: int = MAX_PERIOD) -> Repeat:
    """The repetition that covers most items of a sequence; of equals, the one with the shortest unit."""
    best = Repeat()
    for period in range(1, min(max_period, len(items) // 2) + 1):
        # Items n - period and n are equal throughout a repetition; the first that differs ends it.
        start = 0
        for n in range(period, len(items) + 1):
            if n < len(items) and items[n] == items[n - period]:
                continue
            times = (n - start) // period
            if times >= 2 and times * period > best.length:
                best = Repeat(tuple(items[start : start + period]), times, times * period)
            start = n - period + 1
    return best


def degeneration_flags(
    text: str,
    *,
    source: str | None = None,
    reason: str | None = None,
    log_prob: float | None = None,
    tokens: int = 0,
    baseline: TargetStatistics = TargetStatistics(),  # noqa: B008 frozen
) -> list[Flag]:
    """The flags of an output; empty where no measure exceeds both its threshold and the `baseline`.

    With a `source`, copies and runaways are flagged, too; the finish `reason` "length" is a truncated output.
    `log_prob` is the sum over all `tokens` and gives the confidence.
    """
    confidence = None if log_prob is None or not tokens else math.exp(log_prob / tokens)
    words = text.split()
    if not words:
        if source is not None and not source.split():
            return []  # the output of an empty source may be empty
        return [Flag(kind="empty", measure="words", value=0, confidence=confidence, text="the output is empty")]
    rows = [*_repetition(text, words, source, baseline), *_against_source(words, source, reason, baseline)]
    return [Flag(kind=k, measure=m, value=v, confidence=confidence, text=t) for k, m, v, t in rows]


def _repetition(
    text: str, words: list[str], source: str | None, baseline: TargetStatistics
) -> list[tuple[str, str, float, str]]:
    """Kind, measure, value and message of a repetition of words or, without one, of characters."""
    repeat = longest_repeat(words)
    share = repeat.length / len(words)
    # A source that repeats itself has a translation that does: "non non non !", "no no no !".
    allowed = max(baseline.times, longest_repeat(source.split()).times if source is not None else 0)
    if repeat.times >= MIN_REPEATS and share >= MIN_REPEAT_SHARE and repeat.times > allowed:
        unit = " ".join(repeat.unit)
        return [("repetition", "share of words", share, f'"{unit}" occurs {repeat.times} times in a row')]
    letters = longest_repeat(text, max_period=MAX_CHAR_PERIOD)
    if (
        letters.times >= max(MIN_CHAR_REPEATS, baseline.letters + 1)
        and letters.length >= MIN_REPEAT_SHARE * len(text)
        and any(map(str.isalnum, letters.unit))  # rules of dashes or dots are formatting
    ):
        unit = "".join(letters.unit)
        return [("repetition", "times in a row", letters.times, f'"{unit}" occurs {letters.times} times in a row')]
    return []


def _against_source(
    words: list[str], source: str | None, reason: str | None, baseline: TargetStatistics
) -> list[tuple[str, str, float, str]]:
    """Kind, measure, value and message of a copy of the source and of a runaway."""
    if source is None:
        return []
    source_words = source.split()
    rows = []
    copied = _copied_words(words, source_words) / len(words)
    if len(words) >= MIN_COPY_WORDS and copied >= MIN_COPY_SHARE and copied > baseline.copied:
        rows.append(("copy", "share of words", copied, f"{copied:.0%} of the output is copied from the source"))
    ratio = len(words) / max(1, len(source_words))
    if reason == "length":
        rows.append(("runaway", "words a source word", ratio, "the output was truncated at the maximum length"))
    elif len(words) > MAX_LENGTH_RATIO * len(source_words) + EXTRA_WORDS and ratio > baseline.ratio:
        rows.append(("runaway", "words a source word", ratio, f"the output has {ratio:.1f} words per source word"))
    return rows


def _copied_words(words: list[str], source_words: list[str]) -> int:
    """Length of a common subsequence of output and source, matched greedily from the left: at most the longest one."""
    position, count = 0, 0
    for word in words:
        try:
            position = source_words.index(word, position) + 1
        except ValueError:
            continue
        count += 1
    return count
