"""Subword regularization: BPE dropout and unigram sampling against their exact distributions, word by word."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import pytest
from numpy.random import PCG64
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from seqwright.text.bpe_dropout import BPEDropout
from seqwright.text.ragged import Ragged
from seqwright.text.subword_sampling import Lattice
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

TEXT = "low lower lowest slow slower slowest newer newest wide wider widest Việt tiếng 🙂 🙂🙂 naïve\n" * 3
DRAWS = 20_000
Segmentation = tuple[str, ...]


def trained(kind: str, size: int) -> Tokenizer:
    return train(TokenizerConfig(kind=kind, size=size), [TEXT])  # type: ignore[arg-type]


def sampled(
    sampler: type[BPEDropout] | type[Lattice], tokenizer: Tokenizer, word: str, amount: float
) -> Counter[Segmentation]:
    """Counts of the sampled segmentations of a word."""
    ids = np.array(tokenizer.encode(word))
    segmentations = sampler(Ragged(ids, np.array([len(ids)])), np.array([DRAWS]), tokenizer, amount).draw(PCG64(7))
    names = {id: name for name, id in tokenizer._backend.get_vocab().items()}
    rows = np.split(segmentations.ids, np.cumsum(segmentations.lengths)[:-1])
    return Counter(tuple(names[id] for id in row.tolist()) for row in rows)


def exact_dropout(tokenizer: Tokenizer, word: str, dropout: float) -> dict[Segmentation, float]:
    """Algorithm 1 of Provilkov et al. (2020): exact probabilities, by enumerating every outcome of every draw."""
    merges = json.loads(tokenizer.json)["model"]["merges"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
    outcomes: Counter[Segmentation] = Counter()

    def expand(symbols: Segmentation, probability: float) -> None:
        merges_left = [(ranks[pair], position) for position, pair in enumerate(pairwise(symbols)) if pair in ranks]
        for choices in product((False, True), repeat=len(merges_left)):
            chance = probability * math.prod(1 - dropout if kept else dropout for kept in choices)
            applicable = [position for position, kept in zip(merges_left, choices, strict=True) if kept]
            if not applicable:
                outcomes[symbols] += chance  # type: ignore[assignment]
            else:
                _, at = min(applicable)
                expand((*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :]), chance)

    expand(tuple(word), 1.0)
    return dict(outcomes)


def exact_sampling(tokenizer: Tokenizer, word: str, alpha: float) -> dict[Segmentation, float]:
    """Kudo (2018): every segmentation of a word with p ** alpha, normalized."""
    scores = dict(json.loads(tokenizer.json)["model"]["vocab"])

    def all_segmentations(text: str) -> list[Segmentation]:
        if not text:
            return [()]
        ends = [end for end in range(1, len(text) + 1) if text[:end] in scores]
        return [(text[:end], *rest) for end in ends for rest in all_segmentations(text[end:])]

    weights = {
        segmentation: math.exp(alpha * sum(scores[piece] for piece in segmentation))
        for segmentation in all_segmentations(word)
    }
    return {segmentation: weight / sum(weights.values()) for segmentation, weight in weights.items()}


def assert_follows(counts: Counter[Segmentation], expected: dict[Segmentation, float]) -> None:
    """Every count is within five standard deviations of its expectation, and nothing impossible is sampled."""
    assert counts.keys() <= expected.keys()
    for segmentation, probability in expected.items():
        deviation = math.sqrt(DRAWS * probability * (1 - probability))
        assert abs(counts[segmentation] - DRAWS * probability) <= 5 * deviation + 1, (segmentation, probability)


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("word", ["lowest", "lolo", "slow"])
def test_bpe_dropout_follows_algorithm_1(word: str, dropout: float) -> None:
    tokenizer = trained("bpe", 60)
    counts = sampled(BPEDropout, tokenizer, word, dropout)
    assert_follows(counts, exact_dropout(tokenizer, word + "▁", dropout))
    assert len(counts) > 2


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0])
def test_unigram_sampling_follows_its_distribution(alpha: float) -> None:
    tokenizer = trained("unigram", 70)
    counts = sampled(Lattice, tokenizer, " slower", alpha)
    assert_follows(counts, exact_sampling(tokenizer, "▁slower", alpha))
    assert len(counts) > 2


@pytest.mark.parametrize(
    ("kind", "sampler", "amount"),
    [("bpe", BPEDropout, 0.0), ("byte-bpe", BPEDropout, 0.0), ("unigram", Lattice, 1000.0)],
)
def test_no_dropout_or_large_alpha_is_the_deterministic_segmentation(
    kind: str, sampler: Callable[..., BPEDropout | Lattice], amount: float
) -> None:
    tokenizer = trained(kind, 400)
    words = [np.array(tokenizer.encode(word)) for word in TEXT.split(" ")]
    ragged = Ragged(np.concatenate(words), np.array([*map(len, words)]))
    segmentations = sampler(ragged, np.full(len(words), 2), tokenizer, amount).draw(PCG64(7))
    twice = ragged.take(np.repeat(np.arange(len(words)), 2))
    assert segmentations.lengths.tolist() == twice.lengths.tolist()
    assert segmentations.ids.tolist() == twice.ids.tolist()


def test_bpe_dropout_with_a_continuing_subword_prefix() -> None:
    vocabulary = {name: id for id, name in enumerate(["a", "##b", "##c", "##bc", "abc"])}
    model = models.BPE(vocabulary, [("##b", "##c"), ("a", "##bc")], continuing_subword_prefix="##")
    library = Library(model)
    library.pre_tokenizer, library.decoder = pre_tokenizers.WhitespaceSplit(), decoders.WordPiece("##")
    tokenizer = Tokenizer(library.to_str())
    assert tokenizer.encode("abc") == [4]
    counts = sampled(BPEDropout, tokenizer, "abc", 0.5)
    assert counts.keys() == {("abc",), ("a", "##bc"), ("a", "##b", "##c")}


def test_bpe_dropout_reads_merges_written_as_strings() -> None:
    table = json.loads(trained("bpe", 60).json)
    table["model"]["merges"] = [" ".join(pair) for pair in table["model"]["merges"]]
    old = Tokenizer(json.dumps(table))
    assert sampled(BPEDropout, old, "lowest", 0.3) == sampled(BPEDropout, trained("bpe", 60), "lowest", 0.3)
