"""Logits processors: equal to those of transformers, and batch-invariant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers.generation import logits_process as theirs

from seqwright.core.config import UserError
from seqwright.decoding.filters import epsilon_cutoff, min_p, top_p, typical
from seqwright.decoding.generate import generate
from seqwright.decoding.options import SamplingOptions
from seqwright.decoding.processors import History, LogitsProcessors, RowOptions
from tests.contract.kinds import VOCABULARY, small

SIZE, ROWS, LENGTH = 12, 40, 9


def random_log_probs() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (2 * torch.randn(ROWS, SIZE, generator=generator, dtype=torch.float64)).log_softmax(-1)


def random_history() -> Tensor:
    return torch.randint(SIZE, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))


def processed(log_probs: Tensor, tokens: Tensor, prompt: int = 0, **options: Any) -> Tensor:
    """Log-probabilities under these options, where the first `prompt` tokens are the prompt, the others the output."""
    sampling, rows = SamplingOptions(**options), len(tokens)
    length = torch.full((rows,), tokens.size(1))
    return LogitsProcessors.of([sampling], eos=None, banned=[], device="cpu").process(
        log_probs,
        RowOptions.of([sampling] * rows, SIZE, "cpu", [0] * rows),
        length - prompt,
        History(tokens, length, torch.full_like(length, prompt)),
    )


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
def test_processors_equal_those_of_transformers(options: dict[str, Any], processor: Any) -> None:
    log_probs, history = random_log_probs(), random_history()
    expected = processor(history, log_probs.clone())
    assert not torch.equal(expected, log_probs)
    for prompt in (0, 4, LENGTH):  # these count the prompt and the output alike
        assert_close(processed(log_probs, history, prompt, **options), expected.log_softmax(-1))


@pytest.mark.parametrize("p", [0.05, 0.3, 0.9])
def test_truncation_equals_that_of_transformers(p: float) -> None:
    log_probs = random_log_probs()
    warpers = {
        min_p: theirs.MinPLogitsWarper(p),
        top_p: theirs.TopPLogitsWarper(p),
        typical: theirs.TypicalLogitsWarper(p),
        epsilon_cutoff: theirs.EpsilonLogitsWarper(p),
    }
    for ours, warper in warpers.items():
        assert_close(ours(log_probs, p), warper(random_history(), log_probs.clone()).log_softmax(-1))


def test_forced_ids_come_first_and_in_order() -> None:
    history = random_history()
    expected = theirs.ForcedBOSTokenLogitsProcessor(5)(history[:, :1], random_log_probs())
    assert_close(processed(random_log_probs(), history[:, :1], prompt=1, forced_ids=(5, 6)), expected)
    options = SamplingOptions(max_tokens=4, forced_ids=(9, 4), banned_ids=(9,))
    for row in generate(small("gpt"), [[2], [2, 5, 6]], options, seeds=[1, 2]):
        assert row.ids[:2] == [9, 4]
        assert row.ids[2] != 9


def test_presence_and_frequency_penalties_ignore_the_prompt() -> None:
    log_probs, history = random_log_probs(), random_history()
    changed = processed(log_probs, history, prompt=6, presence_penalty=0.5, frequency_penalty=0.25)
    for row, ids in enumerate(history[:, 6:].tolist()):
        penalty = torch.tensor([0.25 * ids.count(id) + 0.5 * (id in ids) for id in range(SIZE)])
        assert_close(changed[row], (log_probs[row] - penalty).log_softmax(-1))
    untouched = processed(log_probs, history, prompt=LENGTH, presence_penalty=0.5, frequency_penalty=0.25)
    assert_close(untouched, log_probs)


@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_processors_are_batch_invariant(temperature: float) -> None:
    options = SamplingOptions(
        max_tokens=20,
        temperature=temperature,
        min_p=0.02,
        typical_p=0.95,
        epsilon_cutoff=0.01,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.2,
        no_repeat_ngram=2,
        banned_ids=(7,),
        logit_bias=((4, 0.5),),
    )
    model = small("gru")
    prompts = [[2], [2, 4, 5, 4, 5, 6, 7], [2, 9, 9], [2, 4]]
    batched = generate(model, prompts, options, end=VOCABULARY.eos, banned=[0, 1, 2], seeds=[1, 2, 3, 4])
    for prompt, seed, row in zip(prompts, [1, 2, 3, 4], batched, strict=True):
        [alone] = generate(model, [prompt], options, end=VOCABULARY.eos, banned=[0, 1, 2], seeds=[seed])
        assert row.ids == alone.ids
        assert 7 not in row.ids
        bigrams = list(zip((prompt + row.ids)[:-1], (prompt + row.ids)[1:], strict=True))[len(prompt) - 1 :]
        assert len(set(bigrams)) == len(bigrams)


def test_neutral_options_change_nothing() -> None:
    options = SamplingOptions(max_tokens=12)
    plain = generate(small("lstm"), [[2, 4]], options)
    neutral = generate(small("lstm"), [[2, 4]], replace(options, no_repeat_ngram=40, min_p=1e-9, typical_p=1.0))
    assert plain[0].ids == neutral[0].ids


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"banned_ids": (3, VOCABULARY.size)}, f"banned_ids names the id {VOCABULARY.size}, but"),
        ({"forced_ids": (-1,)}, "forced_ids names the id -1"),
        ({"logit_bias": ((99, 1.0),)}, "logit_bias names the id 99"),
        ({"banned_ids": tuple(range(VOCABULARY.size))}, "every id is banned"),
    ],
)
def test_ids_outside_the_vocabulary_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        generate(small("gpt"), [[2]], SamplingOptions(**options))


@pytest.mark.parametrize(
    "options",
    [
        {"min_p": 0.0},
        {"typical_p": 1.5},
        {"epsilon_cutoff": 0.0},
        {"repetition_penalty": 0.0},
        {"no_repeat_ngram": -1},
        {"min_p": -1.0},
    ],
)
def test_out_of_range_sampling_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        SamplingOptions(**options)
