"""Denoising: spans, noising functions, targets, and (seed, step) as the only source of randomness."""

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


def uniform(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(count)


def test_poisson_samples_have_their_mean_and_variance() -> None:
    samples = noise.poisson(uniform(100_000), 3.0)
    assert samples.mean() == pytest.approx(3.0, abs=0.05)
    assert samples.var() == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("seed", range(20))
def test_span_lengths_sum_to_the_total_and_spans_do_not_touch(seed: int) -> None:
    for lengths in (
        noise.poisson_lengths(12, 3.0, uniform(50, seed)),
        noise.random_partition(12, 3.0, uniform(50, seed)),
    ):
        assert lengths.sum() == 12
        assert (lengths >= 0).all()
        ids = np.arange(100, 140)
        text = noise.remove_spans(ids, lengths, uniform(50, seed + 99))
        assert text.lengths.tolist() == lengths.tolist()
        assert (np.diff(text.before) > 0).all(), "two spans touch"
        spans = np.split(text.removed, np.cumsum(lengths)[:-1])
        pieces = np.split(text.kept, text.before)
        parts = [part for pair in zip(pieces, [*spans, np.zeros(0, int)], strict=True) for part in pair]
        assert np.array_equal(np.concatenate(parts), ids)
    assert len(noise.random_partition(12, 3.0, uniform(50, seed))) == 4


def test_poisson_samples_match_scipy() -> None:
    oracle = pytest.importorskip("scipy.stats", reason="scipy comes with scikit-learn, the oracle")
    for mean in (1.0, 3.0, 20.0):
        assert np.array_equal(noise.poisson(uniform(5000), mean), oracle.poisson.ppf(uniform(5000), mean))


def test_random_partition_of_few_tokens_is_one_span() -> None:
    assert noise.random_partition(4, 10.0, uniform(5)).tolist() == [4]


@pytest.mark.parametrize("lengths", [[1] * 18, [0, 3, 2, 1, 9, 3], [18]], ids=str)
def test_spans_without_a_free_position_are_joined(lengths: list[int]) -> None:
    """Two tokens of twenty are kept, which separate at most three spans."""
    ids = np.arange(100, 120)
    text = noise.remove_spans(ids, np.array(lengths), uniform(20))
    assert len(text.removed) == text.lengths.sum() == 18
    assert len(text.lengths) == min(3, len(lengths))
    assert (np.diff(text.before) > 0).all(), "two spans touch"
    assert sorted(np.concatenate([text.kept, text.removed]).tolist()) == ids.tolist()


def target_of(batch, row: int) -> list[int]:
    return batch.target[row][batch.target[row] != IGNORE].tolist()


def source_of(batch, row: int) -> list[int]:
    return batch.source.ids[row][batch.source.mask[row]].tolist()


def test_text_infilling_targets_are_the_whole_text() -> None:
    feed = rows(noise="infilling")
    mask, read = feed.tokenizer.mask, []
    for step in range(feed.steps_per_epoch):
        batch = feed.batch(step)
        for row in range(batch.rows):
            *source, end = source_of(batch, row)
            *text, stop = target_of(batch, row)
            assert end == stop == feed.tokenizer.eos
            read += text
            shown = iter(text)
            assert all(id in shown for id in source if id != mask), "kept tokens stay in order"
            assert len(text) < 4 or mask in source
            assert batch.input[row, : len(text) + 1].tolist() == [feed.tokenizer.sos, *text]
    assert sorted(read) == sorted(feed.ids.tolist()), "every token once per epoch"


def test_span_corruption_source_and_target_make_up_the_text() -> None:
    feed = rows(noise="spans")
    sentinels, read = set(feed.sentinels), []
    for step in range(feed.steps_per_epoch):
        batch = feed.batch(step)
        for row in range(batch.rows):
            spans: dict[int, list[int]] = {}
            for id in target_of(batch, row)[:-1]:
                spans.setdefault(id, []) if id in sentinels else spans[list(spans)[-1]].append(id)
            assert list(spans) == feed.sentinels[: len(spans)], "sentinels come in order"
            for id in source_of(batch, row)[:-1]:
                read += spans[id] if id in sentinels else [id]
    assert sorted(read) == sorted(feed.ids.tolist())


def test_token_deletion() -> None:
    feed = rows(noise="deletion")
    batch = feed.batch(0)
    for row in range(batch.rows):
        text, kept = target_of(batch, row), source_of(batch, row)
        assert len(kept) - 1 == len(text) - 1 - feed.config.noised_tokens(len(text) - 1)
        assert set(kept) <= set(text)


def test_prefix_targets_are_the_continuation() -> None:
    feed = rows(noise="prefix")
    read, ends = [], set()
    for step in range(feed.steps_per_epoch):
        batch = feed.batch(step)
        for row in range(batch.rows):
            read += [*source_of(batch, row)[:-1], *target_of(batch, row)[:-1]]
            ends.add(len(source_of(batch, row)) - 1)
    assert sorted(read) == sorted(feed.ids.tolist())
    assert min(ends) == 1
    assert len(ends) > 10


def test_sentence_permutation() -> None:
    ends = np.array([False, True, False, False, True, False])
    ids = np.arange(6)
    orders = {tuple(noise.permute_sentences(ids, ends, uniform(6, seed)).tolist()) for seed in range(40)}
    assert (2, 3, 4, 5, 0, 1) in orders
    assert len(orders) == 6
    batch = rows(noise="deletion", permute_sentences=True).batch(0)
    assert any(sorted(source_of(batch, row)) != source_of(batch, row) for row in range(batch.rows))


def test_noise_is_a_function_of_seed_and_step() -> None:
    one, again, other = (rows().batch(step) for step in (1, 1, 2))
    assert torch.equal(one.source.ids, again.source.ids)
    assert torch.equal(one.target, again.target)
    assert one.source.ids.shape != other.source.ids.shape or not torch.equal(one.source.ids, other.source.ids)


def test_number_of_noised_tokens() -> None:
    """Density × length, rounded; at least one token, and never all."""
    config = DenoisingConfig(train="a", noise_density=0.3)
    assert [config.noised_tokens(length) for length in (1, 2, 3, 4, 5, 10, 100)] == [0, 1, 1, 1, 2, 3, 30]
    assert DenoisingConfig(train="a", noise_density=0.9).noised_tokens(4) == 3
    configs = [
        DenoisingConfig(train="a", noise="spans", length=100, mean_span_length=span) for span in (1.0, 3.0, 100.0)
    ]
    assert [len(config.special_tokens) for config in configs] == [15, 5, 1]  # one sentinel per span


def test_id_0_is_not_treated_as_padding() -> None:
    feed = rows()
    batch = feed._to_batch([(np.array([0, 5]), np.array([0])), (np.array([0]), np.array([0, 0, 7]))])
    assert [source_of(batch, row) for row in (0, 1)] == [[0, 5, feed.eos], [0, feed.eos]]
    assert [target_of(batch, row) for row in (0, 1)] == [[0, feed.eos], [0, 0, 7, feed.eos]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_density": 1.0}, "noise_density must be between 0 and 1"),
        ({"mean_span_length": 0.5}, "mean_span_length must be at least 1"),
        ({"noise": "spans", "permute_sentences": True}, "leave permute_sentences out"),
        ({"noise": "prefix", "noise_density": 0.2}, "leave noise_density out"),
    ],
)
def test_invalid_denoising_config_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        DenoisingConfig(train="a", **options)  # type: ignore[arg-type]
