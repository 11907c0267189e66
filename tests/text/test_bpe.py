"""BPE training: the worked example, a brute-force oracle that recounts all pairs, and the stopping criteria."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqwright.text.bpe import learn_merges, merge_pair
from seqwright.text.trainers import TokenizerConfig, train


def words(text: str) -> dict[tuple[str, ...], int]:
    return {(*word, "</w>"): count for word, count in Counter(text.split()).items()}


def oracle(text: str) -> list[tuple[tuple[str, str], int]]:
    """Brute force: all pairs are recounted before each merge."""
    segmented = [([*word], count) for word, count in words(text).items()]
    learned = []
    while True:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in segmented:
            for pair in pairwise(word):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            return learned
        learned.append((best, pairs[best]))
        segmented = [(merge_pair(word, best), count) for word, count in segmented]


def test_bpe_merges_of_worked_example_3() -> None:
    steps = list(learn_merges(words("low lower newest widest")))
    assert ["".join(step.pair) for step in steps] == ["es", "est", "est</w>", "lo", "low"]
    assert [step.count for step in steps] == [2, 2, 2, 2, 2]
    # 24 bytes with the white space; 24 symbols, two fewer after each merge.
    assert [step.bytes_per_token for step in steps] == pytest.approx([24 / n for n in (22, 20, 18, 16, 14)])


@given(st.text(alphabet="aab c", max_size=60))
def test_bpe_merges_equal_brute_force(text: str) -> None:
    assert [(step.pair, step.count) for step in learn_merges(words(text))] == oracle(text)


def test_bpe_tokenizer_applies_the_learned_merges() -> None:
    tokenizer = train(TokenizerConfig(kind="bpe"), ["low lower newest widest"])
    assert tokenizer.tokens(tokenizer.encode("lowest  new\n")) == ["low", "est</w>", "n", "e", "w", "</w>"]
    assert tokenizer.decode(tokenizer.encode("lowest  new\n")) == "lowest new"
    assert "5 merges; 1.71 bytes per token" in tokenizer.notes[0]


def test_bpe_stops_at_vocabulary_size_or_bytes_per_token() -> None:
    texts = ["low lower newest widest"]
    alphabet = 4 + 1 + len(set("lowernstid"))
    assert train(TokenizerConfig(kind="bpe", size=alphabet + 2), texts).size == alphabet + 2
    assert train(TokenizerConfig(kind="bpe", bytes_per_token=1.3), texts).size == alphabet + 3


def test_bpe_never_learns_a_special_token_as_a_piece() -> None:
    tokenizer = train(TokenizerConfig(kind="bpe"), ["<pad> <pad> <pad>"])
    assert tokenizer.pad not in tokenizer.encode("<pad>")
    assert tokenizer.decode(tokenizer.encode("<pad>")) == "<pad>"
