"""Neural cache and dynamic evaluation against plain loops; weights stay as they were; other models are refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.metrics import neural_cache
from seqwright.metrics.dynamic_evaluation import score_dynamically
from seqwright.metrics.likelihood import score_text
from seqwright.metrics.neural_cache import score_with_cache
from tests.contract.kinds import VOCABULARY, small

SOS = VOCABULARY.sos
TEXT = torch.tensor([SOS, 5, 6, 5, 6, 7, 3, SOS, 5, 6, 8, 5, 6, 7, 3])


def test_neural_cache_equals_a_loop_over_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small("lstm", dtype=torch.float32)
    size, theta, weight = 4, 0.7, 0.2
    monkeypatch.setattr(neural_cache, "CHUNK", 3)  # the cache is carried over chunks
    scored = score_with_cache(model, TEXT, sos=SOS, size=size, theta=theta, weight=weight, device="cpu")
    static = score_text(model, TEXT, sos=SOS).log_probs
    hidden = model.hidden(Batch.of_text(TEXT[:-1].unsqueeze(0), TEXT[1:].unsqueeze(0)))[0][0].detach()
    for t, target in enumerate(TEXT[1:].tolist()):
        if target == SOS:
            assert scored.log_probs[t] == 0
            continue
        places = [i for i in range(max(0, t - size), t) if TEXT[i + 1] != SOS]
        scores = [math.exp(theta * float(hidden[t] @ hidden[i])) for i in places]
        hits = sum(score for i, score in zip(places, scores, strict=True) if TEXT[i + 1] == target)
        expected = math.exp(static[t])
        if places:
            expected = (1 - weight) * expected + weight * hits / sum(scores)
        assert scored.log_probs[t] == pytest.approx(math.log(expected), abs=1e-5)


def test_a_cache_of_weight_zero_is_the_static_model() -> None:
    model = small("gru", dtype=torch.float32)
    scored = score_with_cache(model, TEXT, sos=SOS, size=5, theta=1.0, weight=0.0, device="cpu")
    assert scored.log_probs == pytest.approx(score_text(model, TEXT, sos=SOS).log_probs, abs=1e-6)


def test_dynamic_evaluation_equals_sgd_after_each_segment_and_restores_the_weights() -> None:
    model, reference = small("lstm tied", dtype=torch.float32), small("lstm tied", dtype=torch.float32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    scored = score_dynamically(model, TEXT, sos=SOS, rate=0.5, decay=0.1, segment=4, device="cpu")
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.5)
    state = reference.start(Batch.of_text(TEXT[:1].unsqueeze(0), TEXT[:1].unsqueeze(0)).source, capacity=0)
    target = TEXT[1:].masked_fill(TEXT[1:] == SOS, IGNORE)
    for start in range(0, len(target), 4):
        span = slice(start, start + 4)
        log_probs, state = reference.score(Batch.of_text(TEXT[:-1][None, span], target[None, span]), state)
        state = state.detach()
        assert scored.log_probs[span] == pytest.approx(log_probs[0].tolist(), abs=1e-5)
        optimizer.zero_grad()
        (-log_probs.sum() / (target[span] != IGNORE).sum()).backward()
        optimizer.step()
        with torch.no_grad():
            for name, parameter in reference.named_parameters():
                parameter += 0.1 * (before[name] - parameter)


def test_a_rate_of_zero_is_the_static_model() -> None:
    model = small("rnn", dtype=torch.float32)
    scored = score_dynamically(model, TEXT, sos=SOS, rate=0.0, decay=0.0, segment=3, device="cpu")
    assert scored.log_probs == pytest.approx(score_text(model, TEXT, sos=SOS).log_probs, abs=1e-6)


@pytest.mark.parametrize("name", ["gpt", "ngram", "rnn flatten"])
def test_models_without_recurrence_are_refused(name: str) -> None:
    model: Autoregressive = small(name, dtype=torch.float32)
    with pytest.raises(UserError, match="rnn, lstm and gru"):
        score_with_cache(model, TEXT, sos=SOS, size=4, theta=1.0, weight=0.1, device="cpu")
    with pytest.raises(UserError, match="rnn, lstm and gru"):
        score_dynamically(model, TEXT, sos=SOS, rate=0.1, decay=0.0, segment=4, device="cpu")
