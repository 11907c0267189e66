"""Mixtures: rows by weight, every corpus in its own order, epochs as in GPT-3's table 2.2."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqwright.core.batch import IGNORE
from seqwright.data.text.mixture import PERIOD, Mixture, apportion, epochs
from seqwright.data.text.stream import Stream
from seqwright.data.text.windows import Windows


def stream_of(first: int, count: int) -> Stream:
    ids = np.array([0, *range(first, first + count)], np.uint16)
    return Stream(ids=ids, sos=0, pad=1, documents=1, unknown=0, surfaces=np.ones((first + count, 3), np.int64))


SMALL, LARGE = stream_of(1000, 20), stream_of(2000, 400)


def test_epochs_match_gpt3_table() -> None:
    weights, sizes = (0.60, 0.22, 0.08, 0.08, 0.03), (410e9, 19e9, 12e9, 55e9, 3e9)
    computed = [epochs(weight, 300e9, size) for weight, size in zip(weights, sizes, strict=True)]
    assert computed == pytest.approx([0.44, 3.47, 2.0, 0.44, 3.0], abs=0.005)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=9))
def test_apportioned_shares_sum_to_the_total_and_are_positive(weights: list[float]) -> None:
    shares = apportion(weights, PERIOD)
    assert shares.sum() == PERIOD
    assert shares.min() >= 1


def test_mixture_rows_follow_the_weights() -> None:
    feed = Mixture([SMALL, LARGE], [3, 1], context=4, batch=8, seed=1)
    rows = torch.cat([feed.batch(step).target for step in range(PERIOD // 8)])
    small = sum(bool(((row >= 1000) & (row < 2000)).any()) for row in rows)
    assert small == 3 * PERIOD // 4


def test_mixture_reads_each_corpus_in_its_own_order() -> None:
    feed = Mixture([SMALL, LARGE], [1, 1], context=4, batch=6, seed=3)
    alone = Windows(SMALL, context=4, batch=1, seed=3)
    seen = [row.tolist() for step in range(40) for row in feed.batch(step).target if 1000 <= max(row.tolist()) < 2000]
    assert seen == [alone.batch(step).target[0].tolist() for step in range(len(seen))]
    first_epoch = Counter(id for row in seen[: alone.windows] for id in row if id != IGNORE)
    assert first_epoch == Counter(range(1000, 1020))


def test_mixture_has_random_access_to_steps() -> None:
    forwards = [Mixture([SMALL, LARGE], [2, 1], context=4, batch=6, seed=3).batch(step) for step in range(9)]
    again = Mixture([SMALL, LARGE], [2, 1], context=4, batch=6, seed=3)
    for step in reversed(range(9)):
        assert torch.equal(again.batch(step).input, forwards[step].input)
