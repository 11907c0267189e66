"""Blocks of text: the same units whatever the tokenizer, and all bits accounted for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqwright.metrics.blocks import MAX_BYTES, MIN_BYTES, block_examples, text_blocks


@given(st.text(max_size=600).map(str.encode))
def test_blocks_are_a_partition_of_bounded_size(text: bytes) -> None:
    starts = text_blocks(text)
    assert starts[0] == 0
    sizes = np.diff(np.append(starts, len(text)))
    assert (sizes[:-1] > 0).all()
    assert (sizes < 2 * MAX_BYTES).all()
    assert (sizes[:-1] >= MIN_BYTES).all()


def test_blocks_end_with_lines() -> None:
    text = b"".join(b"line %d of a longer text\n" % n for n in range(4000))
    starts = text_blocks(text)
    assert len(starts) > 32
    assert all(text[start - 1 : start] == b"\n" for start in starts[1:])


def test_tokenizations_of_a_text_have_the_same_blocks_and_bits() -> None:
    text = ("đi một ngày đàng, học một sàng khôn\n" * 80).encode()
    fine = block_examples(text, np.ones(len(text), np.int64), np.full(len(text), math.log(2)))
    coarse_sizes = np.full(len(text) // 4 + 1, 4)
    coarse_sizes[-1] = len(text) % 4
    coarse = block_examples(text, coarse_sizes, coarse_sizes * math.log(2))
    assert fine.fingerprint == coarse.fingerprint
    assert "".join(fine.inputs) == text.decode()
    for examples in (fine, coarse):
        (counts,) = examples.counts
        assert counts.value == pytest.approx(1)
        assert (counts.rows[:, 1] == fine.counts[0].rows[:, 1]).all()
    assert fine.outputs[0] == "1.000 bits per byte"
