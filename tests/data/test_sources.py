"""Sources of a classifier: special tokens, truncation, pairs, length bucketing and oversampling."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from seqwright.core.config import UserError
from seqwright.data.bucketing import ByLength, batch_boundaries
from seqwright.data.labeled.labels import MAX_REPEATS, LabeledTexts
from seqwright.data.labeled.sources import Sources, encode, frame
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TokenizerConfig(kind="words"), ["a b c d e f g h"])


def framed(tokenizer: Tokenizer, *texts: tuple[str, ...], **options: object) -> Sources:
    settings = {"max_length": None, "truncation": "head", "add_special_tokens": True} | options
    return frame(encode(texts, tokenizer), tokenizer, **settings)  # type: ignore[arg-type]


def shown(tokenizer: Tokenizer, sources: Sources) -> list[str]:
    source = sources.padded(np.arange(len(sources)))
    assert source.ids is not None
    return [" ".join(tokenizer.tokens(ids[mask].tolist())) for ids, mask in zip(source.ids, source.mask, strict=True)]


@pytest.mark.parametrize(
    ("truncation", "kept", "lost"),
    [
        ("head", ["<sos> a b c d e f <eos>"], 2),
        ("tail", ["<sos> c d e f g h <eos>"], 2),
        ("head+tail", ["<sos> a d e f g h <eos>"], 2),
        ("windows", ["<sos> a b c d e f <eos>", "<sos> c d e f g h <eos>"], 0),
    ],
)
def test_each_truncation_of_long_texts(tokenizer: Tokenizer, truncation: str, kept: list[str], lost: int) -> None:
    sources = framed(tokenizer, ("a b c d e f g h",), ("a b",), max_length=8, truncation=truncation)
    assert shown(tokenizer, sources) == [*kept, "<sos> a b <eos>"]
    assert (sources.truncated, sources.lost.tolist()) == (1, [lost, 0])
    assert sources.origin.tolist() == [0] * len(kept) + [1]


def test_padding_that_is_read_as_tokens(tokenizer: Tokenizer) -> None:
    texts = [("a b c d e f g h",), ("a b",), ("",)]
    sources = framed(tokenizer, ("a b c",), ("a",), add_special_tokens=False, padding="longest")
    assert shown(tokenizer, sources) == ["a b c", "a <pad> <pad>"]
    assert sources.lengths.tolist() == [3, 1]
    sources = framed(tokenizer, *texts, max_length=5, add_special_tokens=False, padding="max_length")
    assert shown(tokenizer, sources) == ["a b c d e", "a b <pad> <pad> <pad>", "<pad> <pad> <pad> <pad> <pad>"]
    assert sources.lost.tolist() == [3, 0, 0]
    without = train(TokenizerConfig(kind="words", special_tokens=("<unk>",)), ["a b"])
    with pytest.raises(UserError, match="needs <pad>"):
        framed(without, ("a",), max_length=5, padding="max_length")


def test_windows_cover_every_token_of_a_long_text(tokenizer: Tokenizer) -> None:
    sources = framed(tokenizer, ("a b c d e f g h",), max_length=5, truncation="windows")
    assert set(" ".join(shown(tokenizer, sources)).split()) >= set("abcdefgh")
    assert sources.lengths.max() == 5


def test_pairs_have_segments_and_the_longer_text_is_truncated_first(tokenizer: Tokenizer) -> None:
    sources = framed(tokenizer, ("a b c d e f", "g h"), max_length=8)
    assert shown(tokenizer, sources) == ["<sos> a b c <eos> g h <eos>"]
    source = sources.padded(np.array([0]))
    assert source.segments is not None
    assert source.segments.tolist() == [[0, 0, 0, 0, 0, 1, 1, 1]]
    assert (sources.truncated, sources.lost.tolist()) == (1, [3])


def test_texts_without_special_tokens_and_empty_texts(tokenizer: Tokenizer) -> None:
    sources = framed(tokenizer, ("a b",), ("",), add_special_tokens=False)
    assert shown(tokenizer, sources) == ["a b", "<pad>"]
    assert sources.lengths.tolist() == [2, 1]


def test_max_length_without_room_for_text_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"data\.max_length"):
        framed(tokenizer, ("a",), max_length=2)


@pytest.fixture
def examples(tokenizer: Tokenizer) -> LabeledTexts:
    lengths = np.random.default_rng(0).integers(1, 60, 300)
    sources = framed(tokenizer, *[(" ".join("abcdefgh"[n % 8] for n in range(length)),) for length in lengths])
    return LabeledTexts(sources=sources, targets=np.arange(300) % 7 // 6)


@pytest.mark.parametrize("tokens", [None, 256])
def test_every_example_once_per_epoch_in_batches_of_similar_length(examples: LabeledTexts, tokens: int | None) -> None:
    feed = ByLength(examples, seed=1, batch=16, tokens=tokens)
    for epoch in range(2):
        steps = range(epoch * feed.steps_per_epoch, (epoch + 1) * feed.steps_per_epoch)
        seen = [feed.rows(step) for step in steps]
        assert sorted(np.concatenate(seen).tolist()) == list(range(300))
        real = sum(int(examples.lengths[rows].sum()) for rows in seen)
        assert real / sum(len(rows) * int(examples.lengths[rows].max()) for rows in seen) > 0.85
        if tokens is not None:
            assert max(len(rows) * int(examples.lengths[rows].max()) for rows in seen) <= tokens


def test_batch_boundaries() -> None:
    assert batch_boundaries(np.array([1, 2, 3, 4, 5]), None, 2) == [0, 2, 4, 5]
    assert batch_boundaries(np.array([2, 2, 2, 4]), 6, 1) == [0, 3, 4]  # exactly the token budget
    assert batch_boundaries(np.array([9, 9]), 4, 1) == [0, 1, 2]  # one over the budget is a batch of its own
    assert batch_boundaries(np.array([2, 8, 3, 3, 3]), 9, 1) == [
        0,
        1,
        2,
        5,
    ]  # pairs are not sorted by their longer side


def test_examples_of_length_zero_are_in_the_feed() -> None:
    feed = ByLength(SimpleNamespace(lengths=np.array([0, 3, 0, 1])), seed=1, batch=2)  # type: ignore[arg-type]
    assert sorted(np.concatenate([feed.rows(0), feed.rows(1)]).tolist()) == [0, 1, 2, 3]


def test_bucketed_batches_are_a_function_of_seed_and_step_and_change_with_the_epoch(examples: LabeledTexts) -> None:
    one, other = (ByLength(examples, seed=1, batch=16) for _ in range(2))
    assert one.rows(7).tolist() == other.rows(7).tolist()
    first = {tuple(sorted(one.rows(step).tolist())) for step in range(one.steps_per_epoch)}
    second = {tuple(sorted(one.rows(step + one.steps_per_epoch).tolist())) for step in range(one.steps_per_epoch)}
    assert len(first & second) < len(first) / 2


def test_oversampling_balances_classes(examples: LabeledTexts) -> None:
    feed = ByLength(examples, seed=1, batch=16, repeats=examples.oversampling())
    seen = np.concatenate([feed.rows(step) for step in range(feed.steps_per_epoch)])
    counts = np.bincount(examples.targets[seen])
    assert counts.max() / counts.min() < 1.1
    rare = LabeledTexts(sources=examples.sources, targets=(np.arange(300) == 0).astype(np.int64))
    assert rare.oversampling().tolist() == [MAX_REPEATS] + [1] * 299


def test_word_boundaries_of_character_ids() -> None:
    """Words are runs of letters, digits and combining marks, or single symbols; none spans two texts."""
    texts = ["no, e\u0301t\u00e9 2x", "ab"]
    tokenizer = train(TokenizerConfig(kind="characters"), texts)
    sources = frame(
        encode([(text,) for text in texts], tokenizer),
        tokenizer,
        max_length=None,
        truncation="head",
        add_special_tokens=False,
    )
    assert sources.words is not None
    assert "".join(map(str, sources.words)) == "1210122201212"
    assert sources.padded(np.array([1])).words.tolist() == [[1, 2]]  # type: ignore[union-attr]
    words = train(TokenizerConfig(kind="words"), texts)
    assert (
        frame(encode([("ab",)], words), words, max_length=None, truncation="head", add_special_tokens=False).words
        is None
    )
