"""How well a tokenizer suits a text: what it loses, what it does not know, and how finely it cuts, by script."""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

from seqwright.text.tokenizer import Tokenizer

EXAMPLES = 10


def coverage(tokenizer: Tokenizer, lines: Iterable[str]) -> dict[str, Any]:
    """Counts over all lines, the most frequent unknowns, and the cuts of each script's words."""
    totals: Counter[str] = Counter()
    words: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for line in lines:
        ids = tokenizer.encode(line)
        split = line.split()
        missing = 0 if tokenizer.unk is None else ids.count(tokenizer.unk)
        totals["lines"] += 1
        totals["words"] += len(split)
        totals["tokens"] += len(ids)
        totals["bytes"] += len(line.encode())
        totals["unknown"] += missing
        totals["lines_not_exact"] += tokenizer.decode(ids) != line
        words.update(split)
        if missing:
            unknown.update(tokenizer.unknowns(line))
    keys = ("lines", "words", "tokens", "bytes", "unknown", "lines_not_exact")
    return {
        **{key: totals[key] for key in keys},
        "bytes_per_token": ratio(totals["bytes"], totals["tokens"]),
        "tokens_per_word": ratio(totals["tokens"], totals["words"]),
        "known_share": ratio(totals["tokens"] - totals["unknown"], totals["tokens"]),
        "unknown_kinds": len(unknown),
        "unknown_examples": [_example(unit, count) for unit, count in unknown.most_common(EXAMPLES)],
        "scripts": by_script(tokenizer, words),
    }


def by_script(tokenizer: Tokenizer, words: Counter[str]) -> list[dict[str, Any]]:
    """Words of each script with the tokens they are cut into, each word taken by itself; most words first."""
    lengths = tokenizer.encode_all(words).lengths
    counts: dict[str, Counter[str]] = {}
    for (word, count), length in zip(words.items(), lengths, strict=True):
        own = counts.setdefault(script(word), Counter())
        own["words"] += count
        own["tokens"] += count * length
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1]["words"], entry[0]))
    return [{"script": name, **own, "tokens_per_word": ratio(own["tokens"], own["words"])} for name, own in ranked]


def script(word: str) -> str:
    """The script of a word's first letter, as Unicode names it; "none" for numbers and signs."""
    return next((_script_of(character) for character in word if character.isalpha()), "none")


def ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


@functools.lru_cache(1 << 16)
def _script_of(letter: str) -> str:
    name = unicodedata.name(letter, "unnamed")
    return name.split()[0].split("-")[0].lower()


def _example(unit: str, count: int) -> dict[str, Any]:
    name = unicodedata.name(unit, "") if len(unit) == 1 else ""
    return {"text": unit, "count": count} | ({"name": f"U+{ord(unit):04X} {name}".rstrip()} if len(unit) == 1 else {})
