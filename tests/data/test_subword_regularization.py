"""Subword regularization: the same texts re-segmented each epoch by (seed, epoch), in streams and in pairs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.data import subword_regularization as module
from seqwright.data.parallel.buckets import Buckets, EncodedPairs, Tokenizers, encode_pairs
from seqwright.data.parallel.formats import Pair
from seqwright.data.subword_regularization import (
    RegularizedFeed,
    RegularizedTokenizerConfig,
    regularized_pairs,
    regularized_stream,
)
from seqwright.data.text.corpus import Corpus
from seqwright.data.text.stream import Stream, make_stream
from seqwright.data.text.windows import Windows
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import train

LINES = [
    "the lower the slower, the newer the wider",
    "người Việt nói tiếng Việt, naïve café",
    "🙂 👩‍👩‍👧‍👦 done! <eos> <unk>",
    "",
    "it's 1,234.5 o'clock\u2003and\tso on",
] * 4
REGULARIZED = {"bpe": {"dropout": 0.3}, "byte-bpe": {"dropout": 0.3}, "unigram": {"sampling_alpha": 0.2}}


def config_of(kind: str, **options: float) -> RegularizedTokenizerConfig:
    return RegularizedTokenizerConfig(kind=kind, size=330, **(options or REGULARIZED[kind]))  # type: ignore[arg-type]


TOKENIZERS = {kind: train(config_of(kind), LINES) for kind in REGULARIZED}


def stream_and_epochs(
    kind: str, lines: list[str] = LINES, **options: float
) -> tuple[Stream, Tokenizer, Callable[[int], Stream]]:
    tokenizer = TOKENIZERS[kind]
    stream = make_stream(Corpus(documents=lines, kind="line"), tokenizer)
    return stream, tokenizer, regularized_stream(stream, lines, tokenizer, config_of(kind, **options), seed=5)


def documents(stream: Stream, tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode(ids) for ids in np.split(stream.ids, np.flatnonzero(stream.ids == stream.sos)[1:])]


@pytest.mark.parametrize("kind", REGULARIZED)
def test_every_epoch_is_another_segmentation_of_the_same_text(kind: str) -> None:
    stream, tokenizer, epochs = stream_and_epochs(kind)
    assert documents(epochs(0), tokenizer) == documents(stream, tokenizer)
    assert documents(epochs(1), tokenizer) == documents(stream, tokenizer)
    assert epochs(0).ids.tolist() != epochs(1).ids.tolist()
    assert epochs(1).ids.tolist() == stream_and_epochs(kind)[2](1).ids.tolist()


@pytest.mark.parametrize("kind", REGULARIZED)
@given(lines=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_segmentations_of_any_text_decode_to_it(kind: str, lines: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    stream = make_stream(Corpus(documents=lines, kind="line"), tokenizer)
    cut = regularized_stream(stream, lines, tokenizer, config_of(kind), seed=0)(3)
    assert documents(cut, tokenizer) == documents(stream, tokenizer)
    assert cut.ids.dtype == stream.ids.dtype


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe"])
def test_dropout_of_1_segments_into_characters(kind: str) -> None:
    _, tokenizer, epochs = stream_and_epochs(kind, dropout=1.0)
    sizes = tokenizer.sizes[epochs(0).ids]
    assert (sizes[:, 0 if kind == "byte-bpe" else 1] <= 1).all()


def test_more_dropout_makes_more_tokens() -> None:
    counts = [len(stream_and_epochs("bpe", dropout=rate)[2](0).ids) for rate in (1e-9, 0.1, 0.3, 0.6, 1.0)]
    assert counts[0] == len(stream_and_epochs("bpe")[0].ids)
    assert counts == sorted(set(counts))


@pytest.mark.parametrize("kind", REGULARIZED)
def test_long_runs_without_white_space_are_split(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WORD", 4)
    lines = ["lower" * 20, "lower"]
    stream, tokenizer, epochs = stream_and_epochs(kind, lines)
    assert documents(epochs(0), tokenizer) == documents(stream, tokenizer)
    if kind != "unigram":
        assert stream_and_epochs(kind, lines, dropout=1e-9)[2](0).ids.tolist() == stream.ids.tolist()


def test_frequent_words_take_their_segmentations_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SEGMENTATIONS", 2)
    _, tokenizer, epochs = stream_and_epochs("bpe", ["lower"] * 7)
    ids = epochs(0).ids
    words = [row.tolist() for row in np.split(ids, np.flatnonzero(ids == tokenizer.sos)[1:])]
    assert words[::2] == [words[0]] * 4
    assert words[1::2] == [words[1]] * 3


def test_regularized_feed_has_random_access_to_steps() -> None:
    _, _, epochs = stream_and_epochs("bpe")

    def make_feed() -> RegularizedFeed:
        return RegularizedFeed(lambda epoch: Windows(epochs(epoch), context=8, batch=4, seed=1))

    feed = make_feed()
    steps = range(3 * feed.steps_per_epoch)
    batches = [feed.batch(step) for step in steps]
    assert feed.carried is False
    for step in reversed(steps):  # as after a resume, and in reverse order
        again = make_feed().batch(step)
        torch.testing.assert_close(again.input, batches[step].input)
        torch.testing.assert_close(again.target, batches[step].target)
    first = sum(int((batch.target != IGNORE).sum()) for batch in batches[: feed.steps_per_epoch])
    assert first == epochs(0).targets


PAIRS = [
    Pair(("the lower way", "and the newer"), ("der tiefere Weg",), "<de>"),
    Pair(("slow",), ("langsam", "träge"), "<de>"),
    Pair(("người Việt 🙂",), ("Vietnamesin",)),
    Pair(("",), ("nichts",)),
]


def encoded_pairs() -> tuple[EncodedPairs, RegularizedTokenizerConfig]:
    config = RegularizedTokenizerConfig(
        kind="bpe", dropout=0.6, special_tokens=("<unk>", "<pad>", "<sos>", "<eos>", "<de>")
    )
    texts = [text for pair in PAIRS for text in (*pair.sources, *pair.targets)] * 2
    tokenizer = train(config, texts)
    return encode_pairs(PAIRS, Tokenizers(source=tokenizer, target=tokenizer)), config


def read_back(pairs: EncodedPairs, side: str) -> list[tuple[list[int], str]]:
    """The special tokens and the text of each row."""
    encoded, tokenizer = getattr(pairs, side), getattr(pairs.tokenizers, side)
    rows = [
        encoded.ids[start : start + length].tolist()
        for start, length in zip(encoded.starts, encoded.lengths, strict=True)
    ]
    return [([id for id in row if id < 5], tokenizer.decode(row)) for row in rows]


@pytest.mark.parametrize("sides", [("source",), ("target",), ("source", "target")])
def test_pairs_are_resegmented_on_the_named_sides_only(sides: tuple[str, ...]) -> None:
    plain, config = encoded_pairs()
    epochs = regularized_pairs(plain, PAIRS, config, sides=sides, seed=3)
    for side in ("source", "target"):
        before, first, second = (getattr(pairs, side).ids.tolist() for pairs in (plain, epochs(0), epochs(1)))
        assert (first != second) == (before != first) == (side in sides)
        assert read_back(epochs(0), side) == read_back(plain, side)
    assert (
        epochs(1).target.ids.tolist()
        == regularized_pairs(plain, PAIRS, config, sides=sides, seed=3)(1).target.ids.tolist()
    )


def test_every_pair_once_per_epoch_of_regularized_buckets() -> None:
    plain, config = encoded_pairs()
    epochs = regularized_pairs(plain, PAIRS, config, sides=("source", "target"), seed=3)
    feed = RegularizedFeed(lambda epoch: Buckets(epochs(epoch), seed=0, tokens=None, batch=2, max_length=100))
    for epoch in range(2):
        steps = range(epoch * feed.steps_per_epoch, (epoch + 1) * feed.steps_per_epoch)
        targets = [plain.tokenizers.target.decode(row.tolist()) for step in steps for row in feed.batch(step).input]
        assert sorted(targets) == sorted(text for pair in PAIRS for text in pair.targets)


def test_unsupported_tokenizer_kinds_are_refused(tmp_path: Path) -> None:
    for options, message in (
        ({"kind": "words", "dropout": 0.1}, "dropout is for bpe and byte-bpe; this tokenizer is of kind words"),
        ({"kind": "bpe", "sampling_alpha": 0.1}, "sampling_alpha is for unigram; this tokenizer is of kind bpe"),
        ({"kind": "bpe", "dropout": 1.5}, "dropout is a probability, from 0 to 1, not 1.5"),
        ({"kind": "unigram", "sampling_alpha": -1.0}, "sampling_alpha is an exponent of 0 or more, not -1.0"),
    ):
        with pytest.raises(UserError, match=message):
            RegularizedTokenizerConfig(**options)  # type: ignore[arg-type]
    tokenizer = train(RegularizedTokenizerConfig(kind="words"), LINES)
    stream = make_stream(Corpus(documents=LINES, kind="line"), tokenizer)
    named = RegularizedTokenizerConfig(file=str(tmp_path / "tokenizer.json"), dropout=0.1)
    with pytest.raises(UserError, match="this tokenizer is of kind words"):
        regularized_stream(stream, LINES, tokenizer, named, seed=0)
