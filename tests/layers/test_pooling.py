"""Poolings of an encoder output with known values."""

from __future__ import annotations

import torch

from seqwright.core.batch import Source
from seqwright.layers.encoder import EncoderOutput
from seqwright.layers.pooling import POOLINGS, ConcatPooling, FirstSubword, Flatten, NoPooling

MASK = torch.tensor([[True, True, True], [True, False, False]])
SOURCE = Source(mask=MASK, word_starts=torch.tensor([[False, True, True], [True, False, False]]))
VECTORS = torch.tensor([[[1.0, -4], [2, -5], [3, -6]], [[-7, 8], [90, 90], [90, 90]]])
FINAL = torch.arange(16.0).view(2, 2, 2, 2)  # hidden and cell, two layers, one feature per direction
ENCODED = EncoderOutput(VECTORS, MASK, FINAL)


def test_poolings_to_one_vector_per_text() -> None:
    cases = {
        "first": [[1, -4], [-7, 8]],
        "final": [[3, -6], [-7, 8]],
        "last": [[2, 3], [10, 11]],
        "backward": [[3], [11]],
        "mean": [[2, -5], [-7, 8]],
        "max": [[3, -4], [-7, 8]],
    }
    for name, expected in cases.items():
        pooling = POOLINGS[name](2)
        assert pooling(ENCODED, SOURCE).tolist() == expected, name
        assert pooling.width == len(expected[0])
    both = ConcatPooling(POOLINGS["first"](2), POOLINGS["backward"](2))
    assert both(ENCODED, SOURCE).tolist() == [[1, -4, 3], [-7, 8, 11]]
    assert both.width == 3


def test_attention_pooling_weighs_real_positions_by_score() -> None:
    pooling = POOLINGS["attention"](2)
    with torch.no_grad():
        pooling.hidden.weight.zero_()  # type: ignore[union-attr]
        assert torch.allclose(pooling(ENCODED, SOURCE), POOLINGS["mean"](2)(ENCODED, SOURCE))
        pooling.hidden.weight.copy_(torch.eye(2))  # type: ignore[union-attr,operator]
        pooling.hidden.bias.zero_()  # type: ignore[union-attr]
        pooling.score.weight.copy_(torch.tensor([[1000.0, 0]]))  # type: ignore[union-attr,operator]
        assert torch.allclose(pooling(ENCODED, SOURCE), POOLINGS["final"](2)(ENCODED, SOURCE))  # tanh(3) is the largest


def test_pooling_of_an_empty_text_is_zero_or_finite() -> None:
    empty = EncoderOutput(VECTORS, torch.zeros_like(MASK))
    for name in ("mean", "max"):
        assert POOLINGS[name](2)(empty, SOURCE).tolist() == [[0, 0], [0, 0]]
    assert POOLINGS["attention"](2)(empty, SOURCE).isfinite().all()


def test_first_subword_pooling_and_no_pooling() -> None:
    assert FirstSubword(2)(ENCODED, SOURCE).tolist() == [[[2, -5], [3, -6]], [[-7, 8], [0, 0]]]
    shorter = Source(mask=MASK[:, 1:])  # a class token is prepended
    assert NoPooling(2)(ENCODED, shorter).tolist() == VECTORS[:, 1:].tolist()


def test_flatten_pooling_pads_and_truncates() -> None:
    assert Flatten(2, 2)(ENCODED, SOURCE).tolist() == [[1, -4, 2, -5], [-7, 8, 0, 0]]
    assert Flatten(2, 4)(ENCODED, SOURCE).tolist() == [[1, -4, 2, -5, 3, -6, 0, 0], [-7, 8, 0, 0, 0, 0, 0, 0]]
    assert Flatten(2, 4).width == 8
