"""Laws of every feed: each target once per epoch, random access to steps, and the pairs of the lectures."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqwright.core.batch import IGNORE
from seqwright.core.protocols import Feed
from seqwright.data.text.bptt import BPTTRows
from seqwright.data.text.corpus import Corpus
from seqwright.data.text.mixture import Mixture
from seqwright.data.text.prefixes import Documents, Prefixes
from seqwright.data.text.stream import Stream, make_stream
from seqwright.data.text.windows import DocumentMasking, Windows
from seqwright.text.trainers import TokenizerConfig, train

FEEDS = [Windows, BPTTRows, partial(BPTTRows, jitter=2.0), Prefixes, Documents]
SOS, EOS, PAD = 0, 1, 2


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Documents whose ids are all distinct, so that each target identifies its position."""
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=8))
    following = iter(range(3, 1000))
    ids = [id for n in lengths for id in (SOS, *(next(following) for _ in range(n)), next(following))]
    return stream_of(ids)


def stream_of(ids: list[int]) -> Stream:
    array = np.array(ids, np.uint16)
    sizes = np.ones((array.max() + 1, 3), np.int64)
    return Stream(ids=array, sos=SOS, pad=PAD, documents=ids.count(SOS), unknown=0, surfaces=sizes)


def epoch(feed: Feed, number: int = 0) -> list:
    return [feed.batch(step) for step in range(number * feed.steps_per_epoch, (number + 1) * feed.steps_per_epoch)]


LONG = stream_of([SOS, *range(3, 40), SOS, *range(40, 101)])


@pytest.mark.parametrize("make", FEEDS)
@given(
    stream=streams(),
    context=st.integers(1, 9),
    rows=st.integers(1, 5),
    seed=st.integers(0, 99),
    number=st.integers(0, 3),
)
def test_every_target_once_per_epoch(make, stream, context, rows, seed, number) -> None:
    batches = epoch(make(stream, context=context, batch=rows, seed=seed), number)
    seen = Counter(int(id) for batch in batches for id in batch.target[batch.target != IGNORE])
    assert seen == Counter(id for id in stream.ids.tolist() if id != SOS)
    for batch in batches:
        assert batch.input.shape == batch.target.shape
        assert batch.rows <= rows
        assert batch.input.size(1) <= context or isinstance(make, partial)  # random lengths vary around it


@pytest.mark.parametrize("make", FEEDS)
@given(stream=streams(), context=st.integers(1, 9), seed=st.integers(0, 99))
def test_each_target_follows_its_input(make, stream, context, seed) -> None:
    successor = dict(pairwise(stream.ids.tolist()))
    feed = make(stream, context=context, batch=3, seed=seed)
    for batch in epoch(feed):
        for input, target in zip(batch.input.flatten().tolist(), batch.target.flatten().tolist(), strict=True):
            if target != IGNORE and input != SOS:  # <sos> has many successors
                assert successor[input] == target


@pytest.mark.parametrize("make", FEEDS)
def test_feeds_have_random_access_to_steps(make) -> None:
    feed = make(LONG, context=8, batch=3, seed=5)
    steps = 3 * feed.steps_per_epoch
    forwards = [feed.batch(step) for step in range(steps)]
    for step in reversed(range(steps)):
        again = make(LONG, context=8, batch=3, seed=5).batch(step)
        assert torch.equal(again.input, forwards[step].input)
        assert torch.equal(again.target, forwards[step].target)


@pytest.mark.parametrize("make", FEEDS)
def test_seeds_and_epochs_have_different_orders(make) -> None:
    stream = stream_of([SOS if place % 7 == 0 else 3 + place for place in range(150)])

    def target(seed: int, number: int) -> list[list[int]]:
        return [
            row for batch in epoch(make(stream, context=5, batch=4, seed=seed), number) for row in batch.target.tolist()
        ]

    assert target(1, 0) != target(2, 0)
    assert target(1, 0) != target(1, 1)


@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 5))
def test_no_window_is_empty_and_the_number_of_windows_is_fixed(positions: int, context: int, number: int) -> None:
    windows = Windows(stream_of([SOS, *range(3, 3 + positions)]), context=context, batch=1, seed=3)
    counts = [batch.count for batch in epoch(windows, number)]
    assert len(counts) == windows.windows
    assert min(counts) > 0


def test_windows_without_shift_lie_on_the_grid() -> None:
    windows = Windows(stream_of([SOS, *range(3, 10)]), context=3, batch=9, seed=0, shift=False)
    assert sorted(windows.batch(0).input.tolist()) == [[SOS, 3, 4], [5, 6, 7], [8, PAD, PAD]]


def test_a_text_shorter_than_the_context_is_one_padded_window() -> None:
    batch = Windows(stream_of([SOS, 5, 6]), context=8, batch=4, seed=0).batch(0)
    assert batch.input.tolist() == [[SOS, 5, *[PAD] * 6]]
    assert batch.target.tolist() == [[5, 6, *[IGNORE] * 6]]


def test_bptt_rows_are_contiguous_across_steps() -> None:
    rows = BPTTRows(LONG, context=8, batch=3, seed=1)
    assert rows.carried
    read = torch.cat([batch.input for batch in epoch(rows)], dim=1)  # (B, steps * T)
    ring = LONG.ids[:-1].tolist()
    for row in read.tolist():
        ids = [id for id in row if id != PAD]
        assert any((ring * 2)[place : place + len(ids)] == ids for place in range(len(ring)))


def test_bptt_rows_without_shift_are_slices_in_order() -> None:
    rows = BPTTRows(stream_of([SOS, *range(3, 10)]), context=2, batch=2, seed=0, shift=False)
    assert [batch.input.tolist() for batch in epoch(rows)] == [[[SOS, 3], [5, 6]], [[4, PAD], [7, 8]]]
    assert [batch.target.tolist() for batch in epoch(rows)] == [[[3, 4], [6, 7]], [[5, IGNORE], [8, 9]]]


def test_bptt_has_no_more_rows_than_positions() -> None:
    assert BPTTRows(stream_of([SOS, 3, 4]), context=4, batch=9, seed=0).batch(0).rows == 2


# Worked example 1


def proverbs(special_tokens: tuple[str, ...]) -> Stream:
    documents = ["Ăn quả nhớ kẻ trồng cây", "Có chí thì nên"]
    config = TokenizerConfig(kind="words", lowercase=True, unicode_normalization="nfc", special_tokens=special_tokens)
    return make_stream(Corpus(documents=documents, kind="line"), train(config, documents))


def test_prefixes_are_the_ten_pairs_of_the_lectures() -> None:
    prefixes = Prefixes(proverbs(("<unk>", "<pad>", "<sos>")), context=6, batch=4, seed=0)
    pairs = set()
    for batch in epoch(prefixes):
        for input, target in zip(batch.input.tolist(), batch.target.tolist(), strict=True):
            real = sum(id != 1 for id in input)
            assert [place for place, id in enumerate(target) if id != IGNORE] == [real - 1]
            pairs.add((tuple(input), target[real - 1]))
    assert pairs == {
        ((2, 1, 1, 1, 1, 1), 12),
        ((2, 12, 1, 1, 1, 1), 9),
        ((2, 12, 9, 1, 1, 1), 7),
        ((2, 12, 9, 7, 1, 1), 6),
        ((2, 12, 9, 7, 6, 1), 11),
        ((2, 12, 9, 7, 6, 11), 4),
        ((2, 1, 1, 1, 1, 1), 5),
        ((2, 5, 1, 1, 1, 1), 3),
        ((2, 5, 3, 1, 1, 1), 10),
        ((2, 5, 3, 10, 1, 1), 8),
    }
    assert [batch.rows for batch in epoch(prefixes)] == [4, 4, 2]
    assert prefixes.cut == 0


def test_long_prefixes_are_truncated_to_their_last_ids() -> None:
    prefixes = Prefixes(stream_of([SOS, 3, 4, 5]), context=2, batch=9, seed=0)
    batch = prefixes.batch(0)
    examples = sorted(zip(batch.input.tolist(), batch.target.tolist(), strict=True))
    assert examples == [([SOS, PAD], [3, IGNORE]), ([SOS, 3], [IGNORE, 4]), ([3, 4], [IGNORE, 5])]
    assert prefixes.cut == 1


def test_documents_have_a_target_at_every_position() -> None:
    stream = proverbs(("<unk>", "<pad>", "<sos>", "<eos>"))
    batch = Documents(stream, context=8, batch=2, seed=0).batch(0)
    first = batch.input[:, 1].tolist().index(13)  # one id later than above: <eos> is 3
    assert batch.input[first].tolist() == [2, 13, 10, 8, 7, 12, 5]
    assert batch.target[first].tolist() == [13, 10, 8, 7, 12, 5, 3]
    assert batch.input[1 - first].tolist() == [2, 6, 4, 11, 9, 1, 1]
    assert batch.target[1 - first].tolist() == [6, 4, 11, 9, 3, IGNORE, IGNORE]


def test_long_documents_are_split_into_chunks() -> None:
    documents = Documents(stream_of([SOS, *range(3, 8), SOS, 9]), context=2, batch=9, seed=0)
    assert documents.cut == 1
    assert sorted(documents.batch(0).input.tolist()) == [[SOS, PAD], [SOS, 3], [4, 5], [6, PAD]]


@given(stream=streams(), context=st.integers(1, 9), rows=st.integers(1, 5), step=st.integers(0, 20))
def test_document_masking_adds_document_ids_to_the_same_windows(stream, context, rows, step) -> None:
    options = {"context": context, "batch": rows, "seed": 3}
    for plain in (Windows(stream, **options), Mixture([stream, LONG], [1, 2], **options)):
        feed = DocumentMasking(plain, SOS)
        assert (feed.steps_per_epoch, feed.carried) == (plain.steps_per_epoch, False)
        batch, expected = feed.batch(step), plain.batch(step)
        assert torch.equal(batch.input, expected.input)
        assert torch.equal(batch.target, expected.target)
        for input, documents in zip(batch.input.tolist(), batch.documents.tolist(), strict=True):
            boundaries = [two > one for one, two in pairwise([0, *documents])]
            assert boundaries == [id == SOS for id in input]


def test_random_bptt_lengths_vary_around_the_length_and_half_of_it() -> None:
    feed = BPTTRows(stream_of([SOS, *([3] * 40_000)]), context=20, batch=2, seed=1, jitter=1.0)
    lengths = np.array([batch.input.size(1) for batch in epoch(feed)])
    assert lengths.sum() == 20_000
    halves = lengths < 15
    assert 0.03 < halves.mean() < 0.07
    assert abs(np.median(lengths[~halves]) - 20) <= 1
    assert 0.8 < lengths[~halves].std() < 1.3
    assert [batch.input.size(1) for batch in epoch(feed, 1)] != lengths.tolist()
