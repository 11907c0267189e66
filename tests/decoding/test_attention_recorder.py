"""Recorded attention: steps equal teacher forcing; the coverage penalty equals brute force on every translator."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqwright.core.config import UserError
from seqwright.decoding.attention_recorder import RecordingModel, alignments, attends_source, coverage
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from seqwright.models.mixture import Mixture, Product
from tests.contract.kinds import VOCABULARY
from tests.contract.translators import TRANSLATORS, pairs, translator

WITHOUT_ATTENTION = {"gru bottleneck", "gpt", "gpt rotary"}
"""A bottleneck has no attention; prefix LMs attend to source and target alike."""
WITH_ATTENTION = [name for name in TRANSLATORS if name not in WITHOUT_ATTENTION]
SPECIAL_IDS = {"sos": VOCABULARY.sos, "eos": VOCABULARY.eos}


@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_attention_of_steps_equals_teacher_forcing(name: str) -> None:
    model, batch = translator(name), pairs()
    outputs = [[4, 5, 6], [7], []]
    forced = alignments(model, batch.source, outputs, **SPECIAL_IDS)
    recording = RecordingModel(model)
    for n, ids in enumerate(outputs):
        source = batch.source.select(torch.tensor([n]))
        state = recording.start(source, capacity=9)
        for t, id in enumerate([VOCABULARY.sos, *ids]):
            log_probs, state = recording.step(torch.tensor([[id]]), state)
            assert_close(state.weights[0, : forced[n].size(1)], forced[n][t])
        assert_close(forced[n].sum(1), torch.ones(len(ids) + 1, dtype=torch.float64))
        plain, _ = model.step(torch.tensor([[VOCABULARY.sos, *ids]]), model.start(source, capacity=9))
        assert_close(log_probs, plain)


@pytest.mark.parametrize("kind", [Mixture, Product])
def test_attention_of_an_ensemble_is_the_mean_of_its_models(kind: type[Mixture]) -> None:
    models, batch, outputs = (
        [translator(name) for name in ("gru additive", "gru bottleneck", "lstm fed")],
        pairs(),
        [[4], [5, 6], []],
    )
    ensemble = alignments(kind(models, [0.5, 0.3, 0.2]), batch.source, outputs, **SPECIAL_IDS)
    first, second = (alignments(model, batch.source, outputs, **SPECIAL_IDS) for model in (models[0], models[2]))
    for mean, one, other in zip(ensemble, first, second, strict=True):
        assert_close(mean, (one + other) / 2)
    assert not attends_source(kind([models[1], models[1]], [0.5, 0.5]))


@pytest.mark.parametrize("name", ["transformer", "gru additive", "lstm fed"])
def test_attention_of_a_ragged_prompt_is_that_of_its_last_real_id(name: str) -> None:
    recording, batch = RecordingModel(translator(name)), pairs()
    ids, count = torch.tensor([[2, 4, 5], [2, 6, 6], [2, 2, 2]]), torch.tensor([3, 2, 1])
    _, batched = recording.step(ids, recording.start(batch.source, capacity=9), count)
    for n in range(3):
        source = batch.source.select(torch.tensor([n]))
        _, alone = recording.step(ids[n : n + 1, : count[n]], recording.start(source, capacity=9))
        assert_close(batched.weights[n], alone.weights[0])


@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_coverage_penalty_equals_brute_force(name: str) -> None:
    model, batch = translator(name), pairs()
    options = SearchOptions(
        beam_size=40, n_best=6, max_tokens=4, coverage_penalty=0.7, length_penalty="none", stopping="bound"
    )
    penalties = []
    for n, hypotheses in enumerate(search(model, batch.source, options, **SPECIAL_IDS)):
        source = batch.source.select(torch.tensor([n]))
        for hypothesis in hypotheses:
            if hypothesis.reason == "end":
                (weights,) = alignments(model, source, [hypothesis.ids], **SPECIAL_IDS)
                penalties.append(0.7 * weights.sum(0).clamp(max=1).log().sum().item())
                assert hypothesis.score == pytest.approx(hypothesis.log_prob + penalties[-1])
    assert penalties
    assert min(penalties) < -0.1


@pytest.mark.parametrize("name", sorted(WITHOUT_ATTENTION))
def test_coverage_penalty_needs_a_model_with_source_attention(name: str) -> None:
    model = translator(name)
    assert not attends_source(model)
    with pytest.raises(UserError, match="coverage_penalty = 0"):
        search(model, pairs().source, SearchOptions(coverage_penalty=0.1), **SPECIAL_IDS)


def test_coverage_counts_each_position_once() -> None:
    assert coverage(torch.tensor([[1.0, 0.0], [1.0, 0.0]])) == 0.5
    assert coverage(torch.tensor([[0.5, 0.5], [0.5, 0.5]])) == 1.0
