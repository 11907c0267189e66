"""LogitsProcessors: the same answers as transformers' processors, and no row that looks at its neighbors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers.generation import logits_process as theirs

from seqwright.core.config import UserError
from seqwright.decoding.filters import min_p, top_p, typical
from seqwright.decoding.generate import generate
from seqwright.decoding.processors import LogitsProcessors
from seqwright.decoding.sampling import SamplingOptions
from tests.contract.kinds import VOCABULARY, small

SIZE, ROWS, LENGTH = 12, 40, 9


def some_log_probs() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (2 * torch.randn(ROWS, SIZE, generator=generator, dtype=torch.float64)).log_softmax(-1)


def some_history() -> Tensor:
    return torch.randint(SIZE, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))


def steered(log_probs: Tensor, history: Tensor, given: int = 0, **options: Any) -> Tensor:
    """What our options make of it when the first `given` ids are the prompt and the others were said."""
    rows = history.tolist()
    steering = LogitsProcessors(SamplingOptions(**options), SIZE, [])
    return steering(log_probs, [row[:given] for row in rows], [row[given:] for row in rows])


PROCESSORS = [
    ({"repetition_penalty": 1.7}, theirs.RepetitionPenaltyLogitsProcessor(1.7)),
    ({"repetition_penalty": 0.6}, theirs.RepetitionPenaltyLogitsProcessor(0.6)),
    ({"no_repeat_ngram": 1}, theirs.NoRepeatNGramLogitsProcessor(1)),
    ({"no_repeat_ngram": 2}, theirs.NoRepeatNGramLogitsProcessor(2)),
    ({"no_repeat_ngram": 3}, theirs.NoRepeatNGramLogitsProcessor(3)),
    ({"banned_ids": (3, 5)}, theirs.SuppressTokensLogitsProcessor([3, 5])),
    ({"logit_bias": ((3, 2.5), (7, -1.0))}, theirs.SequenceBiasLogitsProcessor([[[3], 2.5], [[7], -1.0]])),
]


@pytest.mark.parametrize(("options", "processor"), PROCESSORS, ids=[str(options) for options, _ in PROCESSORS])
def test_it_does_what_transformers_does(options: dict[str, Any], processor: Any) -> None:
    log_probs, history = some_log_probs(), some_history()
    expected = processor(history, log_probs.clone())
    assert not torch.equal(expected, log_probs)
    for given in (0, 4, LENGTH):  # these look at the prompt as at what was said
        assert_close(steered(log_probs, history, given, **options), expected.log_softmax(-1))


@pytest.mark.parametrize("p", [0.05, 0.3, 0.9])
def test_truncations_are_those_of_transformers(p: float) -> None:
    log_probs = some_log_probs()
    warpers = {
        min_p: theirs.MinPLogitsWarper(p),
        top_p: theirs.TopPLogitsWarper(p),
        typical: theirs.TypicalLogitsWarper(p),
    }
    for ours, warper in warpers.items():
        assert_close(ours(log_probs, p), warper(some_history(), log_probs.clone()).log_softmax(-1))


def test_forced_ids_come_first_and_in_order() -> None:
    history = some_history()
    begun = theirs.ForcedBOSTokenLogitsProcessor(5)(history[:, :1], some_log_probs())
    assert_close(steered(some_log_probs(), history[:, :1], given=1, forced_ids=(5, 6)), begun)
    options = SamplingOptions(max_tokens=4, forced_ids=(9, 4), banned_ids=(9,))
    for row in generate(small("gpt"), [[2], [2, 5, 6]], options, seeds=[1, 2]):
        assert row.ids[:2] == [9, 4]
        assert row.ids[2] != 9


def test_presence_and_frequency_count_the_output_alone() -> None:
    log_probs, history = some_log_probs(), some_history()
    changed = steered(log_probs, history, given=6, presence_penalty=0.5, frequency_penalty=0.25)
    for row, ids in enumerate(history[:, 6:].tolist()):
        off = torch.tensor([0.25 * ids.count(id) + 0.5 * (id in ids) for id in range(SIZE)])
        assert_close(changed[row], (log_probs[row] - off).log_softmax(-1))
    untouched = steered(log_probs, history, given=LENGTH, presence_penalty=0.5, frequency_penalty=0.25)
    assert_close(untouched, log_probs)


@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_a_steered_row_in_a_batch_is_the_row_alone(temperature: float) -> None:
    options = SamplingOptions(
        max_tokens=20,
        temperature=temperature,
        min_p=0.02,
        typical_p=0.95,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        no_repeat_ngram=2,
        banned_ids=(7,),
        logit_bias=((4, 0.5),),
    )
    model = small("gru")
    prompts = [[2], [2, 4, 5, 4, 5, 6, 7], [2, 9, 9], [2, 4]]
    together = generate(model, prompts, options, end=VOCABULARY.eos, banned=[0, 1, 2], seeds=[1, 2, 3, 4])
    for prompt, seed, row in zip(prompts, [1, 2, 3, 4], together, strict=True):
        [alone] = generate(model, [prompt], options, end=VOCABULARY.eos, banned=[0, 1, 2], seeds=[seed])
        assert row.ids == alone.ids
        assert 7 not in row.ids
        pairs = list(zip((prompt + row.ids)[:-1], (prompt + row.ids)[1:], strict=True))[len(prompt) - 1 :]
        assert len(set(pairs)) == len(pairs)


def test_what_looks_at_nothing_changes_nothing() -> None:
    options = SamplingOptions(max_tokens=12)
    plain = generate(small("lstm"), [[2, 4]], options)
    same = generate(small("lstm"), [[2, 4]], replace(options, no_repeat_ngram=40, min_p=1e-9, typical_p=1.0))
    assert plain[0].ids == same[0].ids


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"banned_ids": (3, SIZE)}, "banned names the id 12, but the vocabulary ends at 11"),
        ({"forced_ids": (-1,)}, "forced names the id -1"),
        ({"logit_bias": ((99, 1.0),)}, "bias names the id 99"),
        ({"banned_ids": tuple(range(SIZE))}, "every id is banned"),
    ],
)
def test_ids_that_are_not_there_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        LogitsProcessors(SamplingOptions(**options), SIZE, [])


@pytest.mark.parametrize(
    "options",
    [{"min_p": 0.0}, {"typical_p": 1.5}, {"repetition_penalty": 0.0}, {"no_repeat_ngram": 0}, {"min_p": -1.0}],
)
def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        SamplingOptions(**options)
