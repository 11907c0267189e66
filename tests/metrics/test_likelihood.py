"""Likelihood of texts: every token is scored once, with exactly the context of the sliding-window rule."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError
from seqwright.core.progress import Progress
from seqwright.metrics import likelihood
from seqwright.metrics.likelihood import EvaluationConfig, ScoredText, likelihood_scores, random_windows, score_text
from tests.contract.kinds import CONTEXT, VOCABULARY, small

SOS, EOS = 2, 3
RESAMPLED = EvaluationConfig(resamples=200)


def text(length: int, seed: int = 0) -> Tensor:
    """A text (N,) of documents between <sos> and <eos>."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, VOCABULARY.size, (length,), generator=generator)
    ids[::9] = SOS
    ids[8::9] = EOS
    return ids


def alone(model: Any, context: Tensor, id: int) -> float:
    """log p(id) after exactly this context."""
    with torch.no_grad():
        state = model.start(Source.empty(1), capacity=len(context))
        return model.step(context.unsqueeze(0), state)[0][0, id].item()


def brute_force(model: Any, ids: Tensor, stride: int) -> list[float]:
    """Token by token: the first window scores all its tokens; later ones move by the stride and score the new ones."""
    length = min(CONTEXT, len(ids) - 1)
    scores = []
    for position in range(len(ids) - 1):
        moves = math.ceil(max(0, position + 1 - length) / stride)
        end = min(length + moves * stride, len(ids) - 1)
        predicted = int(ids[position + 1])
        context = ids[end - length : position + 1]
        scores.append(0.0 if predicted == SOS else alone(model, context, predicted))
    return scores


@pytest.mark.parametrize("stride", [1, 3, CONTEXT // 2, CONTEXT, 50])
@pytest.mark.parametrize("length", [5, CONTEXT + 1, 31])
def test_sliding_windows_equal_brute_force(length: int, stride: int) -> None:
    model, ids = small("gpt"), text(length)
    scored = score_text(model, ids, sos=SOS, stride=stride, batch_size=3)
    np.testing.assert_allclose(scored.log_probs, brute_force(model, ids, min(stride, CONTEXT)), atol=1e-9)
    assert scored.tokens == int((ids[1:] != SOS).sum())


def test_default_stride_is_half_the_context() -> None:
    model, ids = small("gpt"), text(31)
    default = score_text(model, ids, sos=SOS)
    half = score_text(model, ids, sos=SOS, stride=CONTEXT // 2)
    np.testing.assert_array_equal(default.log_probs, half.log_probs)


def test_stride_1_gives_each_token_the_longest_context() -> None:
    model, ids = small("gpt rotary"), text(20)
    scored = score_text(model, ids, sos=None, stride=1)
    for position in range(len(ids) - 1):
        context = ids[max(0, position + 1 - CONTEXT) : position + 1]
        assert scored.log_probs[position] == pytest.approx(alone(model, context, int(ids[position + 1])), abs=1e-9)


@pytest.mark.parametrize("name", ["lstm", "feedforward", "rnn sigmoid"])
def test_carried_state_in_chunks_equals_one_window(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = small(name), text(33)
    with torch.no_grad():
        whole, _ = model.score(Batch.of_text(ids[None, :-1], ids[None, 1:].contiguous()))
    monkeypatch.setattr(likelihood, "CHUNK", 5)
    scored = score_text(model, ids, sos=None)
    np.testing.assert_allclose(scored.log_probs, whole[0].numpy(), atol=1e-9)


@pytest.mark.parametrize("rows", [2, 3, 7, 100])
def test_parallel_slices_equal_slices_alone(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "CHUNK", 4)
    model, ids = small("gru"), text(33)
    scored = score_text(model, ids, sos=SOS, rows=rows)
    size = math.ceil(32 / min(rows, 32))
    for start in range(0, 32, size):
        part = score_text(model, ids[start : start + size + 1], sos=SOS)
        np.testing.assert_allclose(scored.log_probs[start : start + size], part.log_probs, atol=1e-9)


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_progress_callback_ends_with_the_text(name: str) -> None:
    calls: list[tuple[int, int]] = []

    class Calls(Progress):
        def advance(self, done: int, total: int) -> None:
            calls.append((done, total))

    score_text(small(name), text(40), sos=SOS, rows=3, progress=Calls())
    assert calls[-1] == (39, 39)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})


def test_text_of_one_token_is_refused() -> None:
    with pytest.raises(UserError, match="at least one token"):
        score_text(small("gpt"), text(1), sos=SOS)


def scored(documents: int, length: int = 3) -> ScoredText:
    """Documents separated by <sos>; every token of document d has log-probability -(d + 1)."""
    log_probs, mask = [], []
    for document in range(documents):
        log_probs += [-(document + 1.0)] * length + [0.0]
        mask += [True] * length + [False]
    return ScoredText(log_probs=np.array(log_probs[:-1]), mask=np.array(mask[:-1]))


def sizes(documents: int, length: int = 3) -> NDArray[np.int64]:
    """Bytes and characters of the same tokens: 2, 3 or 4 and 1, 2 or 3 by document, none for <sos>."""
    by_document = [[[d % 3 + 2, d % 3 + 1]] * length + [[0, 0]] for d in range(documents)]
    return np.concatenate(by_document)[:-1]


def test_bootstrap_units_are_documents() -> None:
    units = scored(40).bootstrap_units(sizes(40))
    np.testing.assert_array_equal(units, [[3.0 * (d + 1), 3, 3 * (d % 3 + 2), 3 * (d % 3 + 1)] for d in range(40)])


def test_bootstrap_units_are_blocks_with_few_documents() -> None:
    one = ScoredText(log_probs=np.full(10_000, -1.0), mask=np.ones(10_000, bool))
    units = one.bootstrap_units(np.full((10_000, 2), [3, 2]))
    np.testing.assert_array_equal(units[:, 1], [*[256] * 39, 16])
    assert units.sum(0).tolist() == [10_000, 10_000, 30_000, 20_000]
    few = scored(29)
    assert few.bootstrap_units(sizes(29))[:, 1].sum() == few.tokens


def test_likelihood_scores_json() -> None:
    text = scored(40)
    byte_count, characters = sizes(40).sum(0)
    result = likelihood_scores(text, sizes=sizes(40), signature="valid|stride 4", config=RESAMPLED)
    assert json.loads(json.dumps(result)) == result
    assert result["tokens"] == 120
    assert result["nll"] == pytest.approx(20.5)
    assert result["perplexity"] == pytest.approx(math.exp(20.5))
    assert result["bits_per_byte"] == pytest.approx(20.5 * 120 / math.log(2) / byte_count)
    assert result["bits_per_character"] == pytest.approx(20.5 * 120 / math.log(2) / characters)
    for name, score in result["scores"].items():
        assert score["value"] == result[name]
        assert score["low"] < score["value"] < score["high"]
        assert score["signature"] == f"{name}|valid|stride 4"
    assert result["scores"]["nll"]["high"] - result["scores"]["nll"]["low"] < 15


def test_bits_per_byte_interval_resamples_bytes_with_tokens() -> None:
    """Every byte has the same nll in every document: nll per token varies, bits per byte do not."""
    length = np.random.default_rng(0).integers(1, 9, 60)
    bytes_of = np.column_stack([length, length])
    mask = np.tile([True, False], 30)
    text = ScoredText(log_probs=np.where(mask, -length * math.log(2), 0.0), mask=mask)
    scores = likelihood_scores(text, sizes=bytes_of * mask[:, None], signature="", config=RESAMPLED)["scores"]
    assert scores["nll"]["high"] - scores["nll"]["low"] > 0.5
    for name in ("bits_per_byte", "bits_per_character"):
        assert [scores[name][key] for key in ("low", "value", "high")] == pytest.approx([1, 1, 1])


def test_bits_per_byte_are_refused_for_a_lossy_tokenizer() -> None:
    result = likelihood_scores(
        scored(40), sizes=sizes(40), signature="", lossy="words are lower-cased", config=EvaluationConfig()
    )
    assert result["bits_per_byte"] is None
    assert result["bits_per_character"] is None
    assert result["refused"] == dict.fromkeys(("bits_per_byte", "bits_per_character"), "words are lower-cased")
    assert set(result["scores"]) == {"nll", "perplexity"}


def test_short_text_has_scores_without_intervals() -> None:
    result = likelihood_scores(scored(2), sizes=sizes(2), signature="", config=RESAMPLED)
    assert result["scores"]["nll"]["low"] is None
    assert result["nll"] == pytest.approx(1.5)


def test_random_windows_equal_brute_force() -> None:
    model, ids = small("gpt"), text(40)
    mean = random_windows(model, ids, sos=SOS, context=6, batch_size=4, batches=3, seed=5, device="cpu")
    generator = torch.Generator().manual_seed(5)
    surprisals = []
    for _ in range(3):
        for start in torch.randint(len(ids) - 6, (4,), generator=generator).tolist():
            for end in range(start + 1, start + 7):
                if ids[end] != SOS:
                    surprisals.append(-alone(model, ids[start:end], int(ids[end])))
    assert len(surprisals) < 3 * 4 * 6
    assert mean == pytest.approx(np.mean(surprisals))


def test_random_windows_longer_than_the_text_are_refused() -> None:
    with pytest.raises(UserError, match="random_batches = 0"):
        random_windows(small("gpt"), text(6), sos=SOS, context=6, batch_size=1, batches=1, seed=1, device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 0}, "stride"),
        ({"batch_size": 0}, "batch_size"),
        ({"resamples": -1}, "resamples"),
        ({"random_batch_size": 0}, "ran"),
    ],
)
def test_invalid_evaluation_config_is_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        EvaluationConfig(**options)  # type: ignore[arg-type]


def test_short_texts_have_small_blocks_and_so_an_interval() -> None:
    def units(tokens: int) -> int:
        scored = ScoredText(log_probs=np.zeros(tokens), mask=np.ones(tokens, bool))
        return len(scored.bootstrap_units(np.ones((tokens, 2), np.int64)))

    assert [units(tokens) for tokens in (64, 640, 2_129, 8_192, 100_000)] == [2, 20, 33, 32, 391]
