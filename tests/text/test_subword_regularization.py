"""Other cuts of words: BPE dropout and subword sampling against their definitions, word by word."""

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

from seqwright.text.bpe_dropout import Dropout
from seqwright.text.ragged import Ragged
from seqwright.text.subword_sampling import Lattice
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

TEXT = "low lower lowest slow slower slowest newer newest wide wider widest Việt tiếng 🙂 🙂🙂 naïve\n" * 3
DRAWS = 20_000
Cut = tuple[str, ...]


def trained(kind: str, size: int) -> Tokenizer:
    return train(TokenizerConfig(kind=kind, size=size), [TEXT])  # type: ignore[arg-type]


def drawn(cuts: type[Dropout] | type[Lattice], tokenizer: Tokenizer, word: str, amount: float) -> Counter[Cut]:
    """How often each cut of a word comes."""
    ids = np.array(tokenizer.encode(word))
    found = cuts(Ragged(ids, np.array([len(ids)])), np.array([DRAWS]), tokenizer, amount).draw(PCG64(7))
    names = {id: name for name, id in tokenizer._backend.get_vocab().items()}
    rows = np.split(found.ids, np.cumsum(found.lengths)[:-1])
    return Counter(tuple(names[id] for id in row.tolist()) for row in rows)


def dropout_by_definition(tokenizer: Tokenizer, word: str, share: float) -> dict[Cut, float]:
    """Algorithm 1 of Provilkov et al. (2020): exact probabilities, every outcome of every draw followed."""
    merges = json.loads(tokenizer.json)["model"]["merges"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
    ended: Counter[Cut] = Counter()

    def follow(symbols: Cut, probability: float) -> None:
        places = [(ranks[pair], place) for place, pair in enumerate(pairwise(symbols)) if pair in ranks]
        for kept in product((False, True), repeat=len(places)):
            chance = probability * math.prod(1 - share if keep else share for keep in kept)
            left = [place for place, keep in zip(places, kept, strict=True) if keep]
            if not left:
                ended[symbols] += chance  # type: ignore[assignment]
            else:
                _, at = min(left)
                follow((*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :]), chance)

    follow(tuple(word), 1.0)
    return dict(ended)


def sampling_by_definition(tokenizer: Tokenizer, word: str, power: float) -> dict[Cut, float]:
    """Kudo (2018): every cut of a word with its probability to a power, normalized."""
    scores = dict(json.loads(tokenizer.json)["model"]["vocab"])

    def all_cuts(text: str) -> list[Cut]:
        if not text:
            return [()]
        ends = [end for end in range(1, len(text) + 1) if text[:end] in scores]
        return [(text[:end], *rest) for end in ends for rest in all_cuts(text[end:])]

    weights = {cut: math.exp(power * sum(scores[piece] for piece in cut)) for cut in all_cuts(word)}
    return {cut: weight / sum(weights.values()) for cut, weight in weights.items()}


def assert_follows(counts: Counter[Cut], expected: dict[Cut, float]) -> None:
    """Every count lies within five standard deviations of what is expected, and nothing else comes."""
    assert counts.keys() <= expected.keys()
    for cut, probability in expected.items():
        spread = math.sqrt(DRAWS * probability * (1 - probability))
        assert abs(counts[cut] - DRAWS * probability) <= 5 * spread + 1, (cut, probability)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("word", ["lowest", "lolo", "slow"])
def test_dropout_follows_its_algorithm(word: str, share: float) -> None:
    tokenizer = trained("bpe", 60)
    counts = drawn(Dropout, tokenizer, word, share)
    assert_follows(counts, dropout_by_definition(tokenizer, word + "▁", share))
    assert len(counts) > 2


@pytest.mark.parametrize("power", [0.0, 0.2, 1.0])
def test_sampling_follows_its_distribution(power: float) -> None:
    tokenizer = trained("unigram", 70)
    counts = drawn(Lattice, tokenizer, " slower", power)
    assert_follows(counts, sampling_by_definition(tokenizer, "▁slower", power))
    assert len(counts) > 2


@pytest.mark.parametrize(
    ("kind", "cuts", "amount"), [("bpe", Dropout, 0.0), ("byte-bpe", Dropout, 0.0), ("unigram", Lattice, 1000.0)]
)
def test_nothing_overlooked_is_the_plain_cut(kind: str, cuts: Callable[..., Dropout | Lattice], amount: float) -> None:
    tokenizer = trained(kind, 400)
    words = [np.array(tokenizer.encode(word)) for word in TEXT.split(" ")]
    ragged = Ragged(np.concatenate(words), np.array([*map(len, words)]))
    found = cuts(ragged, np.full(len(words), 2), tokenizer, amount).draw(PCG64(7))
    twice = ragged.take(np.repeat(np.arange(len(words)), 2))
    assert found.lengths.tolist() == twice.lengths.tolist()
    assert found.ids.tolist() == twice.ids.tolist()


def test_merges_of_pieces_that_continue_a_word() -> None:
    vocabulary = {name: id for id, name in enumerate(["a", "##b", "##c", "##bc", "abc"])}
    model = models.BPE(vocabulary, [("##b", "##c"), ("a", "##bc")], continuing_subword_prefix="##")
    library = Library(model)
    library.pre_tokenizer, library.decoder = pre_tokenizers.WhitespaceSplit(), decoders.WordPiece("##")
    tokenizer = Tokenizer(library.to_str())
    assert tokenizer.encode("abc") == [4]
    found = drawn(Dropout, tokenizer, "abc", 0.5)
    assert found.keys() == {("abc",), ("a", "##bc"), ("a", "##b", "##c")}


def test_merges_written_as_one_string_are_read_too() -> None:
    table = json.loads(trained("bpe", 60).json)
    table["model"]["merges"] = [" ".join(pair) for pair in table["model"]["merges"]]
    old = Tokenizer(json.dumps(table))
    assert drawn(Dropout, old, "lowest", 0.3) == drawn(Dropout, trained("bpe", 60), "lowest", 0.3)
