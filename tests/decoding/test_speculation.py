"""Speculative decoding: whatever a draft proposes, outputs are those without it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from seqwright.core.config import UserError
from seqwright.decoding.engine import Engine
from seqwright.decoding.options import SamplingOptions
from seqwright.decoding.requests import Request
from seqwright.decoding.speculation import Choose, Draft, ModelDraft, PromptLookup
from tests.contract.kinds import VOCABULARY, small
from tests.contract.translators import pairs
from tests.decoding.test_engine import assert_same, generate_alone, random_requests, run_to_end


class RandomDraft(Draft):
    """Proposes any ids, sometimes none."""

    def __init__(self, draw: random.Random):
        self.draw = draw

    def propose(self, ids: Sequence[int], count: int, choose: Choose) -> list[int]:
        return [self.draw.randrange(VOCABULARY.size) for _ in range(self.draw.randint(0, count + 2))]


def speculative_engine(model: Any, draft: Draft) -> Engine:
    return Engine(model, end=VOCABULARY.eos, banned=[0, 1, 2], draft=draft)


DRAFTS = {
    "random": lambda model, draw: RandomDraft(draw),
    "lookup": lambda model, draw: PromptLookup(),
    "ngram": lambda model, draw: ModelDraft(small("ngram kneser-ney")),
    "itself": lambda model, draw: ModelDraft(model),
}


@pytest.mark.parametrize("kind", DRAFTS)
@pytest.mark.parametrize("name", ["gpt", "gpt window alibi", "gpt as llama"])
def test_speculative_decoding_equals_plain_decoding(name: str, kind: str) -> None:
    """With any processors, beside other requests, and beyond the context."""
    model, draw = small(name), random.Random(f"{name} {kind}")
    engine, requests, rows = speculative_engine(model, DRAFTS[kind](model, draw)), random_requests(draw, 10), []
    for request in requests:
        rows += engine.admit([request])
        if draw.random() < 0.5:
            engine.step()
    run_to_end(engine)
    for row, request in zip(rows, requests, strict=True):
        assert_same(row, generate_alone(model, request))


def test_a_draft_that_is_the_model_is_accepted_and_saves_steps() -> None:
    model, options = small("gpt unplaced"), SamplingOptions(max_tokens=7, min_tokens=7)
    draft = ModelDraft(model)
    engine = speculative_engine(model, draft)
    engine.admit([Request(prompt=[2], options=options, seed=3)])
    steps = 0
    while engine.active:
        engine.step()
        steps += 1
    assert draft.accepted == draft.drafted == 4
    assert steps == 3  # the prompt, a draft of 4 with one more, and the last


def test_prompt_lookup_proposes_what_followed_the_longest_match() -> None:
    propose = PromptLookup().propose
    never: Any = None
    assert propose([1, 2, 3, 9, 9, 3, 7, 1, 2, 3], 2, never) == [9, 9]
    assert propose([5, 3, 7, 8, 3], 4, never) == [7, 8, 3]
    assert propose([1, 2, 3], 4, never) == []
    assert propose([1], 4, never) == []


def test_speculative_decoding_needs_a_state_that_can_be_truncated() -> None:
    with pytest.raises(UserError, match="only Transformers"):
        speculative_engine(small("lstm"), PromptLookup())
    engine = speculative_engine(small("gpt"), PromptLookup())
    with pytest.raises(UserError, match="no source"):
        engine.admit([Request(prompt=[2], options=SamplingOptions())] * 5, pairs().source)
