"""Texts cut otherwise each epoch: the same texts, functions of (seed, epoch), in streams and in pairs."""

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
from seqwright.data import subword_regularization as variation
from seqwright.data.parallel.buckets import Buckets, EncodedPairs, Tokenizers, encode_pairs
from seqwright.data.parallel.formats import Pair
from seqwright.data.subword_regularization import RegularizedTokenizerConfig, Varied, varied_pairs, varied_stream
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
SAMPLED = {"bpe": {"dropout": 0.3}, "byte-bpe": {"dropout": 0.3}, "unigram": {"sampling_alpha": 0.2}}


def config_of(kind: str, **options: float) -> RegularizedTokenizerConfig:
    return RegularizedTokenizerConfig(kind=kind, size=330, **(options or SAMPLED[kind]))  # type: ignore[arg-type]


TOKENIZERS = {kind: train(config_of(kind), LINES) for kind in SAMPLED}


def stream_and_cuts(
    kind: str, lines: list[str] = LINES, **options: float
) -> tuple[Stream, Tokenizer, Callable[[int], Stream]]:
    tokenizer = TOKENIZERS[kind]
    stream = make_stream(Corpus(documents=lines, kind="line"), tokenizer)
    return stream, tokenizer, varied_stream(stream, lines, tokenizer, config_of(kind, **options), seed=5)


def documents(stream: Stream, tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode(own) for own in np.split(stream.ids, np.flatnonzero(stream.ids == stream.sos)[1:])]


@pytest.mark.parametrize("kind", SAMPLED)
def test_every_epoch_says_the_same_otherwise(kind: str) -> None:
    stream, tokenizer, cuts = stream_and_cuts(kind)
    assert documents(cuts(0), tokenizer) == documents(stream, tokenizer)
    assert documents(cuts(1), tokenizer) == documents(stream, tokenizer)
    assert cuts(0).ids.tolist() != cuts(1).ids.tolist()
    assert cuts(1).ids.tolist() == stream_and_cuts(kind)[2](1).ids.tolist()


@pytest.mark.parametrize("kind", SAMPLED)
@given(lines=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_every_cut_of_any_text_decodes_to_it(kind: str, lines: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    stream = make_stream(Corpus(documents=lines, kind="line"), tokenizer)
    cut = varied_stream(stream, lines, tokenizer, config_of(kind), seed=0)(3)
    assert documents(cut, tokenizer) == documents(stream, tokenizer)
    assert cut.ids.dtype == stream.ids.dtype


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe"])
def test_all_overlooked_are_characters(kind: str) -> None:
    _, tokenizer, cuts = stream_and_cuts(kind, dropout=1.0)
    sizes = tokenizer.sizes[cuts(0).ids]
    assert (sizes[:, 0 if kind == "byte-bpe" else 1] <= 1).all()


def test_the_more_is_overlooked_the_more_tokens_there_are() -> None:
    counts = [len(stream_and_cuts("bpe", dropout=share)[2](0).ids) for share in (1e-9, 0.1, 0.3, 0.6, 1.0)]
    assert counts[0] == len(stream_and_cuts("bpe")[0].ids)
    assert counts == sorted(set(counts))


@pytest.mark.parametrize("kind", SAMPLED)
def test_a_run_without_white_space_is_cut_in_parts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variation, "LONGEST", 4)
    lines = ["lower" * 20, "lower"]
    stream, tokenizer, cuts = stream_and_cuts(kind, lines)
    assert documents(cuts(0), tokenizer) == documents(stream, tokenizer)
    if kind != "unigram":
        assert stream_and_cuts(kind, lines, dropout=1e-9)[2](0).ids.tolist() == stream.ids.tolist()


def test_words_that_occur_often_take_their_cuts_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variation, "CUTS", 2)
    _, tokenizer, cuts = stream_and_cuts("bpe", ["lower"] * 7)
    ids = cuts(0).ids
    own = [row.tolist() for row in np.split(ids, np.flatnonzero(ids == tokenizer.sos)[1:])]
    assert own[::2] == [own[0]] * 4
    assert own[1::2] == [own[1]] * 3


def test_any_step_can_be_asked_for_and_epochs_are_of_one_length() -> None:
    _, _, cuts = stream_and_cuts("bpe")

    def feed() -> Varied:
        return Varied(lambda epoch: Windows(cuts(epoch), context=8, batch=4, seed=1))

    whole = feed()
    steps = range(3 * whole.steps_per_epoch)
    batches = [whole.batch(step) for step in steps]
    assert whole.carried is False
    for step in reversed(steps):  # as a resumed training asks, and in the wrong order
        again = feed().batch(step)
        torch.testing.assert_close(again.input, batches[step].input)
        torch.testing.assert_close(again.target, batches[step].target)
    first = sum(int((batch.target != IGNORE).sum()) for batch in batches[: whole.steps_per_epoch])
    assert first == cuts(0).targets


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
    """The framing and the text of each row."""
    own, tokenizer = getattr(pairs, side), getattr(pairs.tokenizers, side)
    rows = [own.ids[start : start + length].tolist() for start, length in zip(own.starts, own.lengths, strict=True)]
    return [([id for id in row if id < 5], tokenizer.decode(row)) for row in rows]


@pytest.mark.parametrize("sides", [("source",), ("target",), ("source", "target")])
def test_pairs_say_the_same_otherwise(sides: tuple[str, ...]) -> None:
    plain, config = encoded_pairs()
    cuts = varied_pairs(plain, PAIRS, config, sides=sides, seed=3)
    for side in ("source", "target"):
        before, first, second = (getattr(pairs, side).ids.tolist() for pairs in (plain, cuts(0), cuts(1)))
        assert (first != second) == (before != first) == (side in sides)
        assert read_back(cuts(0), side) == read_back(plain, side)
    assert cuts(1).target.ids.tolist() == varied_pairs(plain, PAIRS, config, sides=sides, seed=3)(1).target.ids.tolist()


def test_every_pair_is_read_in_an_epoch_of_varied_buckets() -> None:
    plain, config = encoded_pairs()
    cuts = varied_pairs(plain, PAIRS, config, sides=("source", "target"), seed=3)
    feed = Varied(lambda epoch: Buckets(cuts(epoch), seed=0, tokens=None, batch=2, longest=100))
    for epoch in range(2):
        steps = range(epoch * feed.steps_per_epoch, (epoch + 1) * feed.steps_per_epoch)
        said = [plain.tokenizers.target.decode(row.tolist()) for step in steps for row in feed.batch(step).input]
        assert sorted(said) == sorted(text for pair in PAIRS for text in pair.targets)


def test_kinds_without_other_cuts_are_refused(tmp_path: Path) -> None:
    for wrong, said in (
        ({"kind": "words", "dropout": 0.1}, "dropout is for bpe and byte-bpe; this tokenizer is of kind words"),
        ({"kind": "bpe", "sampling_alpha": 0.1}, "sampling_alpha is for unigram; this tokenizer is of kind bpe"),
        ({"kind": "bpe", "dropout": 1.5}, "dropout is a probability, from 0 to 1, not 1.5"),
        ({"kind": "unigram", "sampling_alpha": -1.0}, "sampling_alpha is a power of 0 or more, not -1.0"),
    ):
        with pytest.raises(UserError, match=said):
            RegularizedTokenizerConfig(**wrong)  # type: ignore[arg-type]
    tokenizer = train(RegularizedTokenizerConfig(kind="words"), LINES)
    stream = make_stream(Corpus(documents=LINES, kind="line"), tokenizer)
    named = RegularizedTokenizerConfig(file=str(tmp_path / "tokenizer.json"), dropout=0.1)
    with pytest.raises(UserError, match="this tokenizer is of kind words"):
        varied_stream(stream, LINES, tokenizer, named, seed=0)
