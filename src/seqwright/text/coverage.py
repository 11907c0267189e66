"""Coverage of a text by a tokenizer: unknown tokens, lossy lines, compression, and fertility by script."""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

from seqwright.text.tokenizer import Tokenizer

EXAMPLES = 10


def coverage(tokenizer: Tokenizer, lines: Iterable[str]) -> dict[str, Any]:
    """Counts over all lines, the most frequent unknown units, and the fertility (tokens per word) of each script."""
    totals: Counter[str] = Counter()
    words: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for line in lines:
        ids = tokenizer.encode(line)
        line_words = line.split()
        unknown_ids = 0 if tokenizer.unk is None else ids.count(tokenizer.unk)
        totals["lines"] += 1
        totals["words"] += len(line_words)
        totals["tokens"] += len(ids)
        totals["bytes"] += len(line.encode())
        totals["unknown"] += unknown_ids
        totals["lines_not_exact"] += tokenizer.decode(ids) != line
        words.update(line_words)
        if unknown_ids:
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
    """Words and tokens of each script, every word encoded in isolation; scripts with the most words first."""
    lengths = tokenizer.encode_batch(words).lengths
    by_name: dict[str, Counter[str]] = {}
    for (word, count), length in zip(words.items(), lengths, strict=True):
        counter = by_name.setdefault(script(word), Counter())
        counter["words"] += count
        counter["tokens"] += count * length
    ranked = sorted(by_name.items(), key=lambda entry: (-entry[1]["words"], entry[0]))
    return [
        {"script": name, **counter, "tokens_per_word": ratio(counter["tokens"], counter["words"])}
        for name, counter in ranked
    ]


def script(word: str) -> str:
    """Unicode script of a word's first letter, from its character name; "none" for numbers and punctuation."""
    return next((_script_of(character) for character in word if character.isalpha()), "none")


def ratio(part: int, total: int) -> float | None:
    """part / total, rounded to 4 digits; None for an empty total."""
    return round(part / total, 4) if total else None


@functools.lru_cache(1 << 16)
def _script_of(letter: str) -> str:
    # Python has no script property: names begin with it (LATIN SMALL LETTER A, CJK UNIFIED IDEOGRAPH-4E00).
    name = unicodedata.name(letter, "unnamed")
    return name.split()[0].split("-")[0].lower()


def _example(unit: str, count: int) -> dict[str, Any]:
    name = unicodedata.name(unit, "") if len(unit) == 1 else ""
    return {"text": unit, "count": count} | ({"name": f"U+{ord(unit):04X} {name}".rstrip()} if len(unit) == 1 else {})
