"""Buckets: every pair once per epoch, similar lengths together, within the token budget, by (seed, step)."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.data.parallel.buckets import Buckets, EncodedPairs, Tokenizers, encode_pairs
from seqwright.data.parallel.formats import Pair
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

WORDS = ["a", "b", "c", "d", "e", "f", "g"]


def random_pairs(count: int, seed: int = 0) -> list[Pair]:
    generator = random.Random(seed)
    lines = [" ".join(generator.choices(WORDS, k=generator.randint(1, 12))) for _ in range(2 * count)]
    return [Pair((one,), (other,)) for one, other in zip(lines[::2], lines[1::2], strict=True)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    config = TokenizerConfig(kind="words", special_tokens=("<unk>", "<pad>", "<sos>", "<eos>", "<de>"))
    return train(config, [" ".join(WORDS)])


@pytest.fixture
def pairs(tokenizer: Tokenizer) -> EncodedPairs:
    return encode_pairs(random_pairs(301), Tokenizers(source=tokenizer, target=tokenizer))


def texts(tokenizer: Tokenizer, feed: Buckets, steps: range) -> list[tuple[str, str]]:
    """Source and target texts of the batches of these steps, row by row."""
    rows = []
    for step in steps:
        batch = feed.batch(step)
        for row in range(batch.rows):
            source = batch.source.ids[row][batch.source.mask[row]].tolist()
            target = batch.target[row][batch.target[row] != IGNORE].tolist()
            assert source[-1] == target[-1] == tokenizer.eos
            assert batch.input[row, : len(target)].tolist() == [tokenizer.sos, *target[:-1]]
            rows.append((tokenizer.decode(source), tokenizer.decode(target)))
    return rows


@pytest.mark.parametrize("tokens", [None, 64])
def test_every_pair_once_per_epoch(tokenizer: Tokenizer, pairs: EncodedPairs, tokens: int | None) -> None:
    feed = Buckets(pairs, seed=3, tokens=tokens, batch=16, max_length=99)
    expected = sorted((pair.sources[0], pair.targets[0]) for pair in random_pairs(301))
    for epoch in (0, 1, 5):
        steps = range(epoch * feed.steps_per_epoch, (epoch + 1) * feed.steps_per_epoch)
        assert sorted(texts(tokenizer, feed, steps)) == expected


def test_batches_stay_within_the_token_budget_with_little_padding(pairs: EncodedPairs) -> None:
    feed = Buckets(pairs, seed=3, tokens=64, batch=1, max_length=99)
    real = whole = 0
    for step in range(feed.steps_per_epoch):
        batch = feed.batch(step)
        longest = max(batch.target.size(1), batch.source.mask.size(1))
        assert batch.rows * longest <= 64
        real += batch.count
        whole += batch.target.numel()
    assert real / whole > 0.9


def test_bucket_order_is_a_function_of_seed_and_step(pairs: EncodedPairs) -> None:
    feed, again, other = (Buckets(pairs, seed=seed, tokens=64, batch=1, max_length=99) for seed in (3, 3, 4))
    last = feed.steps_per_epoch * 2 + 1
    assert torch.equal(feed.batch(last).target, again.batch(last).target)
    same = [
        torch.equal(feed.batch(n).target, other.batch(n).target)
        for n in range(feed.steps_per_epoch)
        if feed.batch(n).target.shape == other.batch(n).target.shape
    ]
    assert not all(same)
    epochs = [feed.batch(n).target for n in (0, feed.steps_per_epoch)]
    assert epochs[0].shape != epochs[1].shape or not torch.equal(*epochs)


def test_pairs_over_max_length_are_skipped_and_counted(pairs: EncodedPairs) -> None:
    longest = np.maximum(pairs.source.lengths, pairs.target.lengths)
    feed = Buckets(pairs, seed=1, tokens=None, batch=8, max_length=6)
    assert feed.skipped == int((longest > 6).sum()) > 0
    with pytest.raises(UserError, match=r"data\.max_length"):
        Buckets(pairs, seed=1, tokens=None, batch=8, max_length=1)


def test_several_sources_references_and_tags(tokenizer: Tokenizer) -> None:
    originals = [Pair(("a b", "c"), ("d", "e e"), "<de>"), Pair(("f",), ("g",))]
    pairs = encode_pairs(originals, Tokenizers(source=tokenizer, target=tokenizer))
    assert pairs.origin.tolist() == [0, 0, 1]
    batch = pairs.batch(np.array([1, 2]))
    tag, eos = tokenizer.special_tokens["<de>"], tokenizer.eos
    assert batch.source.ids[0].tolist() == [tag, *tokenizer.encode("a b"), eos, *tokenizer.encode("c"), eos]
    assert batch.target[0].tolist() == [*tokenizer.encode("e e"), eos]
    assert batch.source.ids[1][batch.source.mask[1]].tolist() == [*tokenizer.encode("f"), eos]
    with pytest.raises(UserError, match="<fr> is no special token"):
        encode_pairs([Pair(("a",), ("b",), "<fr>")], pairs.tokenizers)
