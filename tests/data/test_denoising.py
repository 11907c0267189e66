"""Damaged texts: what is left, what is to be said, and nothing but (seed, step) to decide."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.data.text import noise
from seqwright.data.text.corpus import corpus_of
from seqwright.data.text.denoising import DenoisingConfig, DenoisingRows
from seqwright.data.text.stream import make_stream
from seqwright.text.special_tokens import with_special_tokens
from seqwright.text.trainers import TokenizerConfig, train

TEXT = "".join(f"one two {n} . three four five ! {n} six ?\n" for n in range(60))


def rows(*, seed: int = 1, **options: object) -> DenoisingRows:
    config = DenoisingConfig(train="a", length=20, **options)  # type: ignore[arg-type]
    known = with_special_tokens(train(TokenizerConfig(kind="words"), [TEXT]), config.special_tokens)
    return DenoisingRows(make_stream(corpus_of(TEXT, "line"), known), known, config, batch=8, seed=seed)


def drawn(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(count)


def test_poisson_numbers_have_their_mean_and_variance() -> None:
    found = noise.poisson(drawn(100_000), 3.0)
    assert found.mean() == pytest.approx(3.0, abs=0.05)
    assert found.var() == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("seed", range(20))
def test_spans_hold_what_they_should(seed: int) -> None:
    for lengths in (noise.poisson_lengths(12, 3.0, drawn(50, seed)), noise.even_lengths(12, 3.0, drawn(50, seed))):
        assert lengths.sum() == 12
        assert (lengths >= 0).all()
        ids = np.arange(100, 140)
        text = noise.parted(ids, lengths, drawn(50, seed + 99))
        assert text.lengths.tolist() == lengths.tolist()
        assert (np.diff(text.before) > 0).all(), "two spans touch"
        spans = np.split(text.hidden, np.cumsum(lengths)[:-1])
        pieces = np.split(text.kept, text.before)
        parts = [part for pair in zip(pieces, [*spans, np.zeros(0, int)], strict=True) for part in pair]
        assert np.array_equal(np.concatenate(parts), ids)
    assert len(noise.even_lengths(12, 3.0, drawn(50, seed))) == 4


def test_poisson_numbers_are_those_of_scipy() -> None:
    oracle = pytest.importorskip("scipy.stats", reason="scipy comes with scikit-learn, the oracle")
    for mean in (1.0, 3.0, 20.0):
        assert np.array_equal(noise.poisson(drawn(5000), mean), oracle.poisson.ppf(drawn(5000), mean))


def test_few_tokens_are_one_span() -> None:
    assert noise.even_lengths(4, 10.0, drawn(5)).tolist() == [4]


@pytest.mark.parametrize("lengths", [[1] * 18, [0, 3, 2, 1, 9, 3], [18]], ids=str)
def test_as_much_is_hidden_as_asked_where_spans_would_touch(lengths: list[int]) -> None:
    """Two tokens of twenty are left, which part three spans at most."""
    ids = np.arange(100, 120)
    text = noise.parted(ids, np.array(lengths), drawn(20))
    assert len(text.hidden) == text.lengths.sum() == 18
    assert len(text.lengths) == min(3, len(lengths))
    assert (np.diff(text.before) > 0).all(), "two spans touch"
    assert sorted(np.concatenate([text.kept, text.hidden]).tolist()) == ids.tolist()


def said(batch, row: int) -> list[int]:
    return batch.target[row][batch.target[row] != IGNORE].tolist()


def given(batch, row: int) -> list[int]:
    return batch.source.ids[row][batch.source.mask[row]].tolist()


def test_infilling_says_the_whole_text() -> None:
    feed = rows(noise="infilling")
    mask, read = feed.tokenizer.mask, []
    for step in range(feed.steps_per_epoch):
        batch = feed.batch(step)
        for row in range(batch.rows):
            *source, end = given(batch, row)
            *text, stop = said(batch, row)
            assert end == stop == feed.tokenizer.eos
            read += text
            shown = iter(text)
            assert all(id in shown for id in source if id != mask), "what is left stands in its order"
            assert len(text) < 4 or mask in source
            assert batch.input[row, : len(text) + 1].tolist() == [feed.tokenizer.sos, *text]
    assert sorted(read) == sorted(feed.ids.tolist()), "every token once an epoch"


def test_spans_and_what_is_left_make_the_text() -> None:
    feed = rows(noise="spans")
    marks, read = set(feed.marks), []
    for step in range(feed.steps_per_epoch):
        batch = feed.batch(step)
        for row in range(batch.rows):
            spans: dict[int, list[int]] = {}
            for id in said(batch, row)[:-1]:
                spans.setdefault(id, []) if id in marks else spans[list(spans)[-1]].append(id)
            assert list(spans) == feed.marks[: len(spans)], "sentinels come in order"
            for id in given(batch, row)[:-1]:
                read += spans[id] if id in marks else [id]
    assert sorted(read) == sorted(feed.ids.tolist())


def test_deletion_leaves_no_trace() -> None:
    feed = rows(noise="deletion")
    batch = feed.batch(0)
    for row in range(batch.rows):
        text, left = said(batch, row), given(batch, row)
        assert len(left) - 1 == len(text) - 1 - feed.config.total(len(text) - 1)
        assert set(left) <= set(text)


def test_a_prefix_is_gone_on_with() -> None:
    feed = rows(noise="prefix")
    read, ends = [], set()
    for step in range(feed.steps_per_epoch):
        batch = feed.batch(step)
        for row in range(batch.rows):
            read += [*given(batch, row)[:-1], *said(batch, row)[:-1]]
            ends.add(len(given(batch, row)) - 1)
    assert sorted(read) == sorted(feed.ids.tolist())
    assert min(ends) == 1
    assert len(ends) > 10


def test_sentences_change_places() -> None:
    ends = np.array([False, True, False, False, True, False])
    ids = np.arange(6)
    found = {tuple(noise.permuted(ids, ends, drawn(6, seed)).tolist()) for seed in range(40)}
    assert (2, 3, 4, 5, 0, 1) in found
    assert len(found) == 6
    batch = rows(noise="deletion", permute_sentences=True).batch(0)
    assert any(sorted(given(batch, row)) != given(batch, row) for row in range(batch.rows))


def test_a_step_damages_the_same_and_another_step_otherwise() -> None:
    one, again, other = (rows().batch(step) for step in (1, 1, 2))
    assert torch.equal(one.source.ids, again.source.ids)
    assert torch.equal(one.target, again.target)
    assert one.source.ids.shape != other.source.ids.shape or not torch.equal(one.source.ids, other.source.ids)


def test_how_much_is_damaged() -> None:
    """The share, to the nearest whole; one token at least, and never all."""
    config = DenoisingConfig(train="a", noise_density=0.3)
    assert [config.total(length) for length in (1, 2, 3, 4, 5, 10, 100)] == [0, 1, 1, 1, 2, 3, 30]
    assert DenoisingConfig(train="a", noise_density=0.9).total(4) == 3
    spans = [DenoisingConfig(train="a", noise="spans", length=100, mean_span_length=span) for span in (1.0, 3.0, 100.0)]
    assert [len(one.special_tokens) for one in spans] == [15, 5, 1]  # a sentinel for each span


def test_the_first_id_is_no_padding() -> None:
    feed = rows()
    batch = feed._framed([(np.array([0, 5]), np.array([0])), (np.array([0]), np.array([0, 0, 7]))])
    assert [given(batch, row) for row in (0, 1)] == [[0, 5, feed.eos], [0, feed.eos]]
    assert [said(batch, row) for row in (0, 1)] == [[0, feed.eos], [0, 0, 7, feed.eos]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"noise_density": 1.0}, "between 0 and 1"),
        ({"mean_span_length": 0.5}, "span must be at least 1"),
        ({"noise": "spans", "permute_sentences": True}, "leave permute out"),
        ({"noise": "prefix", "noise_density": 0.2}, "leave share out"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        DenoisingConfig(train="a", **options)  # type: ignore[arg-type]
