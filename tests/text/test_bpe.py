"""Byte pair encoding: the worked example, an oracle that counts everything anew, and where merging stops."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqwright.text.bpe import join, merges
from seqwright.text.trainers import TokenizerConfig, train


def words(text: str) -> dict[tuple[str, ...], int]:
    return {(*word, "</w>"): count for word, count in Counter(text.split()).items()}


def oracle(text: str) -> list[tuple[tuple[str, str], int]]:
    """Every pair counted again before each merge."""
    held = [([*word], count) for word, count in words(text).items()]
    found = []
    while True:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in held:
            for pair in pairwise(word):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            return found
        found.append((best, pairs[best]))
        held = [(join(word, best), count) for word, count in held]


def test_worked_example_3_step_by_step() -> None:
    steps = list(merges(words("low lower newest widest")))
    assert ["".join(step.pair) for step in steps] == ["es", "est", "est</w>", "lo", "low"]
    assert [step.count for step in steps] == [2, 2, 2, 2, 2]
    # 24 bytes with the white space; 24 symbols, two fewer after each merge.
    assert [step.compression for step in steps] == pytest.approx([24 / n for n in (22, 20, 18, 16, 14)])


@given(st.text(alphabet="aab c", max_size=60))
def test_merges_are_those_of_counting_anew(text: str) -> None:
    assert [(step.pair, step.count) for step in merges(words(text))] == oracle(text)


def test_the_tokenizer_cuts_as_the_merges_say() -> None:
    tokenizer = train(TokenizerConfig(kind="bpe"), ["low lower newest widest"])
    assert tokenizer.tokens(tokenizer.encode("lowest  new\n")) == ["low", "est</w>", "n", "e", "w", "</w>"]
    assert tokenizer.decode(tokenizer.encode("lowest  new\n")) == "lowest new"
    assert "5 merges; 1.71 bytes per token" in tokenizer.notes[0]


def test_merging_stops_at_a_size_or_a_compression() -> None:
    texts = ["low lower newest widest"]
    alphabet = 4 + 1 + len(set("lowernstid"))
    assert train(TokenizerConfig(kind="bpe", size=alphabet + 2), texts).size == alphabet + 2
    assert train(TokenizerConfig(kind="bpe", bytes_per_token=1.3), texts).size == alphabet + 3


def test_a_piece_is_never_spelled_as_a_special() -> None:
    tokenizer = train(TokenizerConfig(kind="bpe"), ["<pad> <pad> <pad>"])
    assert tokenizer.pad not in tokenizer.encode("<pad>")
    assert tokenizer.decode(tokenizer.encode("<pad>")) == "<pad>"
