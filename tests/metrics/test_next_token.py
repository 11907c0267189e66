"""Next-token accuracy: the arg max with the same context as the likelihood, for models with windows and with state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwright.core.batch import Batch
from seqwright.core.protocols import Autoregressive
from seqwright.metrics import next_token
from seqwright.metrics.likelihood import EvaluationConfig, ScoredText, likelihood_scores
from seqwright.metrics.next_token import next_token_correct
from tests.contract.kinds import VOCABULARY, small

SOS, V = 2, VOCABULARY.size


def text(length: int) -> torch.Tensor:
    ids = torch.randint(SOS + 1, V, (length,), generator=torch.Generator().manual_seed(3))
    ids[[0, length // 2]] = SOS
    return ids


@pytest.mark.parametrize("name", ["gpt", "lstm", "ngram"])
def test_next_token_is_correct_where_it_is_the_arg_max(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_token, "CHUNK_LOGITS", 5 * V)  # several chunks
    model: Autoregressive = small(name)
    model.eval()
    ids = text(30)
    correct = next_token_correct(model, ids, V, sos=SOS, stride=1)
    for place in range(len(ids) - 1):
        known = ids[: place + 1]
        if model.context is not None:
            known = ids[: model.context] if place < model.context else known[-model.context :]
        row = known.unsqueeze(0)
        at = place if model.context is not None and place < model.context else -1
        with torch.inference_mode():
            predicted = model(Batch.of_text(row, row))[0, at].argmax()
        assert correct[place] == (bool(predicted == ids[place + 1]) and int(ids[place + 1]) != SOS)


def test_next_token_accuracy_is_a_percentage_of_predicted_tokens() -> None:
    mask = np.array([True] * 9 + [False])
    scored = ScoredText(log_probs=-1.0 * mask, mask=mask, correct=np.array([True] * 3 + [False] * 7))
    sizes = np.ones((10, 2), np.int64)
    result = likelihood_scores(scored, sizes=sizes, signature="", config=EvaluationConfig(resamples=0))
    assert result["next_token_accuracy"] == pytest.approx(100 / 3)
