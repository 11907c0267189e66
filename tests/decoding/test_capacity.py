"""Buffers of decoding grow with the tokens that are generated, not with those that a request allows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seqwright.core.batch import Source
from seqwright.decoding import backpointers, beam
from seqwright.decoding.options import SamplingOptions, SearchOptions
from seqwright.decoding.processors import LogitsProcessors
from seqwright.decoding.requests import Request
from seqwright.decoding.search import search
from seqwright.layers import slot_cache
from seqwright.models.ngram import adaptive
from tests.contract.kinds import SMALL, VOCABULARY, batch, small
from tests.decoding.test_engine import engine_of, generate_alone, run_to_end
from tests.decoding.test_search import SPECIAL_IDS, assert_same

TRILLION = 10**12
KINDS = ["gpt", "gpt window alibi", "lstm", "ngram adaptive"]


@pytest.fixture
def tiny_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers that are outgrown after two tokens."""
    monkeypatch.setattr(slot_cache, "FIRST_SLOTS", 2)
    monkeypatch.setattr(adaptive, "FIRST_IDS", 2)
    monkeypatch.setattr(backpointers, "FIRST_STEPS", 2)


def generations(model: Any) -> list[tuple[list[int], float]]:
    engine = engine_of(model)
    options = [SamplingOptions(max_tokens=length, seed=length) for length in (3, 7, 5)]
    admitted = engine.admit([Request(prompt=[VOCABULARY.sos, 5], options=one) for one in options[:2]])
    engine.step()
    admitted += engine.admit([Request(prompt=[VOCABULARY.sos, 6, 7, 8], options=options[2])])
    run_to_end(engine)
    return [(own.ids, own.log_prob) for own in admitted]


@pytest.mark.parametrize("name", KINDS)
def test_outputs_do_not_depend_on_how_buffers_grow(name: str, request: pytest.FixtureRequest) -> None:
    model = small(name)
    allocated = generations(model)
    request.getfixturevalue("tiny_buffers")
    for (ids, log_prob), (expected, expected_log_prob) in zip(generations(model), allocated, strict=True):
        assert ids == expected
        assert log_prob == pytest.approx(expected_log_prob, abs=1e-6)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.2}, {"beam_groups": 2}], ids=str)
def test_beams_do_not_depend_on_how_buffers_grow(
    options: dict[str, Any], captured: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, source = small("gpt"), Source.empty(5)
    wanted = SearchOptions(max_tokens=8, beam_size=4, **options)
    allocated = search(model, source, wanted, **SPECIAL_IDS)
    request.getfixturevalue("tiny_buffers")
    if captured:
        monkeypatch.setattr(beam, "CAPTURED", {"cpu"})
        monkeypatch.setattr(beam.Captured, "__call__", lambda self: self.function())
    assert_same(search(model, source, wanted, **SPECIAL_IDS), allocated)


@pytest.mark.parametrize("name", SMALL)
def test_a_request_for_a_trillion_tokens_allocates_few(name: str) -> None:
    """It is stopped by its callback."""
    options = SamplingOptions(max_tokens=TRILLION, min_tokens=5)
    told: list[int] = []
    request = Request(
        prompt=[VOCABULARY.sos], options=options, on_token=lambda id: told.append(id) is None and len(told) > 4
    )
    assert generate_alone(small(name), request).ids == told
    assert len(told) == 5


def test_a_beam_of_up_to_a_trillion_tokens_allocates_few() -> None:
    source, options = Source.empty(2), SearchOptions(max_tokens=TRILLION, repetition_penalty=1.1)
    processors = LogitsProcessors.of([options], eos=VOCABULARY.eos, banned=[], device="cpu")
    prompts, limits = [[VOCABULARY.sos]] * 2, [TRILLION] * 2
    under_way = beam._BeamSearch(small("lstm"), source, options, processors, prompts, limits, None, None)
    for _ in range(5):
        under_way.advance()
    assert under_way.length == 6
    assert under_way.live.tokens.size(2) < 100
    assert len(under_way.back_pointers.ids) == backpointers.FIRST_STEPS


def test_a_cache_of_any_capacity_starts_small() -> None:
    model: Any = small("gpt window alibi")
    state = model.start(Source.empty(2), capacity=TRILLION)
    assert sum(tensor.numel() for _, tensor in state.named_tensors()) < 1e6
    inputs = batch(2)
    log_probs, _ = model.step(inputs.input, state)
    torch.testing.assert_close(log_probs, model(inputs).log_softmax(-1)[:, -1])
