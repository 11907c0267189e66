"""Texts as sources: frames, the four policies for what is too long, pairs, and batches of like length."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from seqwright.core.config import UserError
from seqwright.data.bucketing import ByLength, cuts
from seqwright.data.labeled.labels import MOST_REPEATED, LabeledTexts
from seqwright.data.labeled.sources import Sources, encode, frame
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TokenizerConfig(kind="words"), ["a b c d e f g h"])


def framed(tokenizer: Tokenizer, *texts: tuple[str, ...], **options: object) -> Sources:
    settings = {"longest": None, "long": "head", "framed": True} | options
    return frame(encode(texts, tokenizer), tokenizer, **settings)  # type: ignore[arg-type]


def shown(tokenizer: Tokenizer, sources: Sources) -> list[str]:
    source = sources.padded(np.arange(len(sources)))
    assert source.ids is not None
    return [" ".join(tokenizer.tokens(ids[mask].tolist())) for ids, mask in zip(source.ids, source.mask, strict=True)]


@pytest.mark.parametrize(
    ("long", "kept", "lost"),
    [
        ("head", ["<sos> a b c d e f <eos>"], 2),
        ("tail", ["<sos> c d e f g h <eos>"], 2),
        ("head+tail", ["<sos> a d e f g h <eos>"], 2),
        ("windows", ["<sos> a b c d e f <eos>", "<sos> c d e f g h <eos>"], 0),
    ],
)
def test_each_policy_for_texts_that_are_too_long(tokenizer: Tokenizer, long: str, kept: list[str], lost: int) -> None:
    sources = framed(tokenizer, ("a b c d e f g h",), ("a b",), longest=8, long=long)
    assert shown(tokenizer, sources) == [*kept, "<sos> a b <eos>"]
    assert (sources.cut, sources.lost.tolist()) == (1, [lost, 0])
    assert sources.origin.tolist() == [0] * len(kept) + [1]


def test_windows_cover_every_token_of_a_long_text(tokenizer: Tokenizer) -> None:
    sources = framed(tokenizer, ("a b c d e f g h",), longest=5, long="windows")
    assert set(" ".join(shown(tokenizer, sources)).split()) >= set("abcdefgh")
    assert sources.lengths.max() == 5


def test_pairs_have_segments_and_the_longer_text_gives_way(tokenizer: Tokenizer) -> None:
    sources = framed(tokenizer, ("a b c d e f", "g h"), longest=8)
    assert shown(tokenizer, sources) == ["<sos> a b c <eos> g h <eos>"]
    source = sources.padded(np.array([0]))
    assert source.segments is not None
    assert source.segments.tolist() == [[0, 0, 0, 0, 0, 1, 1, 1]]
    assert (sources.cut, sources.lost.tolist()) == (1, [3])


def test_bare_texts_have_no_frame_and_empty_ones_a_place(tokenizer: Tokenizer) -> None:
    sources = framed(tokenizer, ("a b",), ("",), framed=False)
    assert shown(tokenizer, sources) == ["a b", "<pad>"]
    assert sources.lengths.tolist() == [2, 1]


def test_no_room_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"data\.max_length"):
        framed(tokenizer, ("a",), longest=2)


@pytest.fixture
def examples(tokenizer: Tokenizer) -> LabeledTexts:
    lengths = np.random.default_rng(0).integers(1, 60, 300)
    sources = framed(tokenizer, *[(" ".join("abcdefgh"[n % 8] for n in range(length)),) for length in lengths])
    return LabeledTexts(sources=sources, targets=np.arange(300) % 7 // 6)


@pytest.mark.parametrize("tokens", [None, 256])
def test_every_example_once_an_epoch_among_its_like(examples: LabeledTexts, tokens: int | None) -> None:
    feed = ByLength(examples, seed=1, batch=16, tokens=tokens)
    for epoch in range(2):
        steps = range(epoch * feed.steps_per_epoch, (epoch + 1) * feed.steps_per_epoch)
        seen = [feed.rows(step) for step in steps]
        assert sorted(np.concatenate(seen).tolist()) == list(range(300))
        real = sum(int(examples.lengths[rows].sum()) for rows in seen)
        assert real / sum(len(rows) * int(examples.lengths[rows].max()) for rows in seen) > 0.85
        if tokens is not None:
            assert max(len(rows) * int(examples.lengths[rows].max()) for rows in seen) <= tokens


def test_where_batches_are_cut() -> None:
    assert cuts(np.array([1, 2, 3, 4, 5]), None, 2) == [0, 2, 4, 5]
    assert cuts(np.array([2, 2, 2, 4]), 6, 1) == [0, 3, 4]  # exactly as many as there is room for
    assert cuts(np.array([9, 9]), 4, 1) == [0, 1, 2]  # one that is too long stands alone
    assert cuts(np.array([2, 8, 3, 3, 3]), 9, 1) == [0, 1, 2, 5]  # pairs are not sorted by their longer side


def test_texts_without_a_token_have_a_place() -> None:
    feed = ByLength(SimpleNamespace(lengths=np.array([0, 3, 0, 1])), seed=1, batch=2)  # type: ignore[arg-type]
    assert sorted(np.concatenate([feed.rows(0), feed.rows(1)]).tolist()) == [0, 1, 2, 3]


def test_batches_are_a_function_of_seed_and_step_and_change_with_the_epoch(examples: LabeledTexts) -> None:
    one, other = (ByLength(examples, seed=1, batch=16) for _ in range(2))
    assert one.rows(7).tolist() == other.rows(7).tolist()
    first = {tuple(sorted(one.rows(step).tolist())) for step in range(one.steps_per_epoch)}
    second = {tuple(sorted(one.rows(step + one.steps_per_epoch).tolist())) for step in range(one.steps_per_epoch)}
    assert len(first & second) < len(first) / 2


def test_repeating_rare_classes_evens_them_out(examples: LabeledTexts) -> None:
    feed = ByLength(examples, seed=1, batch=16, times=examples.evening())
    seen = np.concatenate([feed.rows(step) for step in range(feed.steps_per_epoch)])
    counts = np.bincount(examples.targets[seen])
    assert counts.max() / counts.min() < 1.1
    lonely = LabeledTexts(sources=examples.sources, targets=(np.arange(300) == 0).astype(np.int64))
    assert lonely.evening().tolist() == [MOST_REPEATED] + [1] * 299


def test_words_are_marked_where_ids_are_characters() -> None:
    """Runs of letters, digits and marks written with them, and each sign; a text never goes on with another's word."""
    texts = ["no, e\u0301t\u00e9 2x", "ab"]
    tokenizer = train(TokenizerConfig(kind="characters"), texts)
    sources = frame(encode([(text,) for text in texts], tokenizer), tokenizer, longest=None, long="head", framed=False)
    assert sources.words is not None
    assert "".join(map(str, sources.words)) == "1210122201212"
    assert sources.padded(np.array([1])).words.tolist() == [[1, 2]]  # type: ignore[union-attr]
    words = train(TokenizerConfig(kind="words"), texts)
    assert frame(encode([("ab",)], words), words, longest=None, long="head", framed=False).words is None
