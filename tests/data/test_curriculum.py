"""Length curriculum: the first epoch sorted by length, every example still once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seqwright.data.text.prefixes import Documents, Prefixes
from seqwright.data.text.stream import Stream


def stream() -> Stream:
    """Documents of different lengths; 0 is <sos> and 1 <eos>."""
    generator = np.random.default_rng(0)
    ids: list[int] = []
    for length in generator.permutation(np.arange(1, 24)):
        ids += [0, *generator.integers(2, 9, length).tolist(), 1]
    sizes = np.ones((9, 3), np.int64)
    return Stream(ids=np.array(ids, np.uint16), sos=0, pad=0, documents=23, unknown=0, surfaces=sizes)


def rows(feed: Any, epoch: int) -> list[tuple[int, ...]]:
    """Every example of an epoch in order, without padding."""
    examples = []
    for number in range(feed.steps_per_epoch):
        batch = feed.batch(epoch * feed.steps_per_epoch + number)
        last = [int((row != -100).nonzero().max()) for row in batch.target]
        examples += [tuple(row[: stop + 1].tolist()) for row, stop in zip(batch.input, last, strict=True)]
    return examples


@pytest.mark.parametrize("kind", [Documents, Prefixes])
def test_curriculum_sorts_the_first_epoch_by_length(kind: Any) -> None:
    plain = kind(stream(), context=30, batch=4, seed=5)
    ordered = kind(stream(), context=30, batch=4, seed=5, curriculum=True)
    lengths = [len(row) for row in rows(ordered, 0)]
    assert lengths == sorted(lengths)
    assert lengths != [len(row) for row in rows(plain, 0)]
    assert sorted(rows(ordered, 0)) == sorted(rows(plain, 0))
    assert rows(ordered, 1) == rows(plain, 1)
