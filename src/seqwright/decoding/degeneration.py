"""The degeneration watch: outputs that repeat themselves ("ag ag ag"), copy, say nothing or never end are flagged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

TIMES = 3
"""Repetitions in a row that are label_errors, where they fill a good part of the output."""
SHARE = 0.2
LONGEST_UNIT = 8
"""Tokens in the longest unit whose repetition is looked for."""
LETTERS = 8
"""Repetitions in a row of the same few letters that are label_errors: "aaaaaaaa"."""
COPIED = 0.9
"""Share of an output's words that stand in the source in the same order, from which it is a copy."""
FEWEST = 4
"""Words below which a copy may be a name or a number."""
RUNAWAY = 3.0
"""Words for each word of the source, beyond ten, from which an output ran away."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A reason to distrust an output, with the measure that raised it."""

    kind: str
    """"repetition", "copy", "empty" or "runaway"."""
    measure: str
    value: float
    confidence: float | None
    """Geometric mean of the probability of a token, where it is known."""
    text: str
    """In words."""
    coverage: float | None = None
    """The share of the source that was attended to, where the model can say."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        sure = "" if self.confidence is None else f"confidence {self.confidence:.2f}"
        seen = "" if self.coverage is None else f"{self.coverage:.0%} of the source attended"
        beside = ", ".join(part for part in (sure, seen) if part)
        return f"{self.text} ({beside})" if beside else self.text


@dataclass(frozen=True, kw_only=True)
class Typical:
    """What the targets of a training do themselves, all but one in a thousand: no more than that is suspicious."""

    times: int = 0
    """Words, or several, said over and over in a row."""
    letters: int = 0
    """The same few letters in a row."""
    copied: float = 0.0
    """Share of a target's words that stand in the source in the same order."""
    ratio: float = 0.0
    """Words for each word of the source."""


def typical(pairs: Iterable[tuple[str, str]]) -> Typical:
    """What sources and their targets show of each; all zero where there are none."""
    found = [_measures(source, target) for source, target in pairs]
    rare = len(found) // 1000
    if not found:
        return Typical()
    times, letters, copied, ratio = (sorted(column)[-1 - rare] for column in zip(*found, strict=True))
    return Typical(times=times, letters=letters, copied=copied, ratio=ratio)


def _measures(source: str, target: str) -> tuple[int, int, float, float]:
    words, given = target.split(), source.split()
    return (
        longest_repeat(words).times,
        longest_repeat(target, longest_unit=4).times,
        _in_order(words, given) / max(1, len(words)),
        len(words) / max(1, len(given)),
    )


@dataclass(frozen=True)
class Repeat:
    """The longest stretch that says one thing over and over."""

    unit: tuple[str, ...] = ()
    times: int = 0
    length: int = 0


def longest_repeat(items: Sequence[str], longest_unit: int = LONGEST_UNIT) -> Repeat:
    """The repetition that fills most of a sequence; of equals, the one with the shortest unit."""
    best = Repeat()
    for period in range(1, min(longest_unit, len(items) // 2) + 1):
        start = 0
        for n in range(period, len(items) + 1):
            if n < len(items) and items[n] == items[n - period]:
                continue
            times = (n - start) // period
            if times >= 2 and times * period > best.length:
                best = Repeat(tuple(items[start : start + period]), times, times * period)
            start = n - period + 1
    return best


def watch(
    text: str,
    *,
    source: str | None = None,
    reason: str | None = None,
    log_prob: float | None = None,
    tokens: int = 0,
    typical: Typical = Typical(),  # noqa: B008 frozen
) -> list[Flag]:
    """Why an output should not be trusted; empty where nothing is wrong, or no more so than is `typical`.

    With a `source` it is also asked whether the output copies it or is far too long for it; `reason` "length" says that
    it was cut off. `log_prob` of all its `tokens` gives the confidence that is told beside the measure.
    """
    confidence = None if log_prob is None or not tokens else math.exp(log_prob / tokens)
    words = text.split()
    if not words:
        if source is not None and not source.split():
            return []  # nothing was asked
        return [Flag(kind="empty", measure="words", value=0, confidence=confidence, text="the output is empty")]
    found = [*_repetition(text, words, source, typical), *_against_source(words, source, reason, typical)]
    return [Flag(kind=k, measure=m, value=v, confidence=confidence, text=t) for k, m, v, t in found]


def _repetition(text: str, words: list[str], source: str | None, typical: Typical) -> list[tuple[str, str, float, str]]:
    repeat = longest_repeat(words)
    share = repeat.length / len(words)
    # What the source repeats may be repeated.
    allowed = max(typical.times, longest_repeat(source.split()).times if source is not None else 0)
    if repeat.times >= TIMES and share >= SHARE and repeat.times > allowed:
        unit = " ".join(repeat.unit)
        return [("repetition", "share of words", share, f'"{unit}" is said {repeat.times} times in a row')]
    letters = longest_repeat(text, longest_unit=4)
    if (
        letters.times >= max(LETTERS, typical.letters + 1)
        and letters.length >= SHARE * len(text)
        and any(map(str.isalnum, letters.unit))
    ):
        unit = "".join(letters.unit)
        return [("repetition", "times in a row", letters.times, f'"{unit}" is said {letters.times} times in a row')]
    return []


def _against_source(
    words: list[str], source: str | None, reason: str | None, typical: Typical
) -> list[tuple[str, str, float, str]]:
    if source is None:
        return []
    given = source.split()
    found = []
    copied = _in_order(words, given) / len(words)
    if len(words) >= FEWEST and copied >= COPIED and copied > typical.copied:
        found.append(("copy", "share of words", copied, f"{copied:.0%} of the output is copied from the source"))
    ratio = len(words) / max(1, len(given))
    if reason == "length":
        found.append(("runaway", "words a source word", ratio, "the output was cut off before its end"))
    elif len(words) > RUNAWAY * len(given) + 10 and ratio > typical.ratio:
        found.append(
            ("runaway", "words a source word", ratio, f"the output has {ratio:.1f} words for one of the source")
        )
    return found


def _in_order(words: list[str], given: list[str]) -> int:
    """Words that stand in the source in the same order, taken greedily from the left."""
    place, many = 0, 0
    for word in words:
        try:
            place = given.index(word, place) + 1
        except ValueError:
            continue
        many += 1
    return many
