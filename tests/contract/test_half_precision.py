"""Half precision: every network that says something can be held in it, and its log-probabilities stay float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seqwright.core.batch import Batch
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from seqwright.training.machine import DTYPES
from tests.decoding.test_search import SPECIAL_IDS

from .kinds import SMALL, batch, small
from .translators import TRANSLATORS, pairs, translator

NETWORKS = [name for name in SMALL if not name.startswith(("ngram", "arpa"))]


def step(model: Any, given: Batch) -> torch.Tensor:
    with torch.inference_mode():
        log_probs, _ = model.step(given.input, model.start(given.source, capacity=given.input.size(1)))
    return log_probs


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("name", [*NETWORKS, *TRANSLATORS])
def test_a_step_in_half_precision_is_near(name: str, precision: str) -> None:
    model, given = (translator(name), pairs()) if name in TRANSLATORS else (small(name), batch())
    wanted = step(model, given)
    found = step(model.to(DTYPES[precision]), given)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.exp().double(), wanted.exp(), atol=0.05, rtol=0.1)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(len(found)))


@pytest.mark.parametrize("name", ["transformer", "lstm"])
def test_a_search_in_half_precision_scores_in_float32(name: str) -> None:
    model, source = translator(name).to(torch.bfloat16), pairs().source
    for several in search(
        model, source, SearchOptions(beam_size=3, max_tokens=6, length_penalty="none"), **SPECIAL_IDS
    ):
        assert several[0].score == several[0].log_prob
        assert torch.tensor(several[0].log_prob, dtype=torch.bfloat16).item() != several[0].log_prob
