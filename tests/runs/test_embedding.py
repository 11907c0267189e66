"""Vectors of texts: those of the tokens themselves, whatever else is in the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.runs.embedding import embed, pooled
from tests.contract.kinds import small
from tests.contract.translators import translator

TEXTS = ["3456", "5", "45678", "6789345", "77"]


def ids_of(text: str) -> list[int]:
    return [2, *map(int, text)]


@pytest.mark.parametrize("pooling", ["mean", "first", "last", "max"])
@pytest.mark.parametrize("kind", ["gpt", "gpt alibi", "lstm", "feedforward", "transformer", "gru additive"])
def test_a_text_in_a_batch_is_the_text_alone(kind: str, pooling: str) -> None:
    model = translator(kind) if kind in ("transformer", "gru additive") else small(kind)
    together = [one.vector for one in embed(model, TEXTS, ids_of, pooling=pooling)]  # type: ignore[arg-type]
    for text, vector in zip(TEXTS, together, strict=True):
        ids = torch.tensor([ids_of(text)])
        vectors = model.encode(Source(mask=torch.ones_like(ids, dtype=torch.bool), ids=ids))[0].detach()
        expected = {"mean": vectors.mean(0), "first": vectors[0], "last": vectors[-1], "max": vectors.amax(0)}
        assert np.allclose(vector, expected[pooling].numpy(), atol=1e-6)


def test_what_does_not_fit_is_counted() -> None:
    model = small("gpt")
    found = list(embed(model, ["3" * 20, "4"], ids_of, read_ahead=1))
    assert [one.unread for one in found] == [21 - model.context, 0]
    whole = next(embed(model, ["3" * (model.context - 1)], ids_of))
    assert np.allclose(found[0].vector, whole.vector, atol=1e-6)


def test_an_unknown_pooling_is_refused() -> None:
    with pytest.raises(UserError, match="choose mean, first"):
        pooled(torch.zeros(1, 2, 3), torch.ones(1, 2, dtype=torch.bool), "median")  # type: ignore[arg-type]
