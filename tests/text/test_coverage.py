"""The coverage report, and the vocabulary of the lectures' IMDB practice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from seqwright.data.files import read_text
from seqwright.text.coverage import coverage, script
from seqwright.text.trainers import TokenizerConfig, train


def test_coverage_reports_unknown_characters() -> None:
    tokenizer = train(TokenizerConfig(kind="characters"), ["abc "])
    report = coverage(tokenizer, ["ab é", "éé c", "cab"])
    assert (report["unknown"], report["lines_not_exact"], report["unknown_kinds"]) == (3, 2, 1)
    assert report["unknown_examples"] == [
        {"text": "é", "count": 3, "name": "U+00E9 LATIN SMALL LETTER E WITH ACUTE"},
    ]
    assert report["known_share"] == round(8 / 11, 4)


def test_coverage_reports_fertility_by_script() -> None:
    tokenizer = train(TokenizerConfig(kind="bytes"), [])
    report = coverage(tokenizer, ["cat мир", "dog 12"])
    assert report["scripts"] == [
        {"script": "latin", "words": 2, "tokens": 6, "tokens_per_word": 3.0},
        {"script": "cyrillic", "words": 1, "tokens": 6, "tokens_per_word": 6.0},
        {"script": "none", "words": 1, "tokens": 2, "tokens_per_word": 2.0},
    ]
    assert report["bytes_per_token"] == 1.0
    assert (script("(日本)"), script("«ế»")) == ("cjk", "latin")


def test_basic_english_pretokenizer_makes_twelve_replacements() -> None:
    tokenizer = train(TokenizerConfig(kind="words", pretokenizer="basic-english"), ["x"])
    assert tokenizer.normalize('It\'s "good"; (A.B.),<br />yes: no!?').split() == [
        *("it", "'", "s", "good", "(", "a", ".", "b", ".", ")", ",", "yes", "no", "!", "?"),
    ]


@pytest.mark.slow
def test_imdb_vocabulary(data_root: Path) -> None:
    text, _ = read_text(data_root / "imdb/train.tsv.xz")
    reviews = [line.split("\t", 2)[2] for line in text.removesuffix("\n").split("\n")]
    special_tokens = ("<pad>", "<s>", "<unk>")
    config = TokenizerConfig(
        kind="words", pretokenizer="basic-english", min_frequency=3, size=20_000, special_tokens=special_tokens
    )
    tokenizer = train(config, reviews)
    encoded = tokenizer.encode_batch(reviews)
    lengths = np.array(encoded.lengths)
    counts = Counter(word for review in reviews for word in tokenizer.normalize(review).split())
    assert (len(encoded.ids), len(counts), sum(count >= 3 for count in counts.values())) == (6_767_187, 100_682, 40_250)
    assert (tokenizer.size, counts[tokenizer.tokens([19_999])[0]]) == (20_000, 10)
    assert 1 - encoded.unknown / len(encoded.ids) == pytest.approx(0.9742, abs=5e-5)
    assert np.mean(lengths > 500) == pytest.approx(0.1135, abs=5e-5)
    assert (lengths - 500).clip(0).sum() / lengths.sum() == pytest.approx(0.0930, abs=5e-5)
