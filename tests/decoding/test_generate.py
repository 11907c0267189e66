"""Generation: batch-invariant rows, greedy and sampled, beyond the model's context, with callbacks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqwright import build
from seqwright.core.batch import Batch, Source
from seqwright.decoding.generate import generate
from seqwright.decoding.options import SamplingOptions
from seqwright.decoding.requests import Generation
from seqwright.decoding.sampling import uniform
from tests.contract.kinds import CONTEXT, SMALL, VOCABULARY, small

KINDS = [name for name, row in SMALL.items() if row["kind"] in build.task_spec("text").models]
PROMPTS = [[2], [2, 4, 5, 6, 7], [2, 9, 9], [2, 4]]
LONG = [2, 5, 7, 4, 6, 8, 9, 10, 4, 5, 6, 7]
"""Longer than the context."""


def next_log_probs(model: Any, ids: list[int]) -> Tensor:
    """(V,) after these ids, prefilled as one chunk."""
    log_probs, _ = model.step(torch.tensor([ids]), model.start(Source.empty(1), capacity=len(ids)))
    return log_probs[0]


def assert_same(row: Generation, alone: Generation) -> None:
    assert (row.ids, row.reason) == (alone.ids, alone.reason)
    assert row.log_prob == pytest.approx(alone.log_prob, abs=1e-9)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(max_tokens=12, temperature=0),
        SamplingOptions(max_tokens=12),
        SamplingOptions(max_tokens=12, temperature=1.7, top_k=6, top_p=0.9),
    ],
    ids=["greedy", "plain", "filtered"],
)
def test_generation_is_batch_invariant(name: str, options: SamplingOptions) -> None:
    model = small(name)
    prompts, seeds = [*PROMPTS, LONG], [3, 1, 4, 1, 5]
    batched = generate(model, prompts, options, end=VOCABULARY.eos, banned=[0, 1, 2], seeds=seeds)
    for prompt, seed, row in zip(prompts, seeds, batched, strict=True):
        [alone] = generate(model, [prompt], options, end=VOCABULARY.eos, banned=[0, 1, 2], seeds=[seed])
        assert_same(row, alone)


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_greedy_takes_the_argmax_at_every_step(name: str) -> None:
    model = small(name)
    [row] = generate(model, [[2, 4]], SamplingOptions(max_tokens=CONTEXT - 2, temperature=0))
    ids, total = [2, 4], 0.0
    with torch.no_grad():
        for id in row.ids:
            log_probs = next_log_probs(model, ids)
            assert id == log_probs.argmax()
            total += log_probs[id].item()
            ids.append(id)
    assert len(row.ids) == CONTEXT - 2
    assert row.log_prob == pytest.approx(total)


def test_sampling_inverts_the_cdf_at_the_uniform_of_seed_and_position() -> None:
    model = small("gru")
    [row] = generate(model, [[2, 4]], SamplingOptions(max_tokens=10, seed=42))
    ids = [2, 4]
    with torch.no_grad():
        for position, id in enumerate(row.ids):
            below = next_log_probs(model, ids).exp().cumsum(-1)
            u = uniform(torch.tensor(42), torch.tensor(position))
            assert id == int((below <= u).sum())
            ids.append(id)


def test_equal_seeds_give_equal_samples() -> None:
    model, options = small("gpt"), SamplingOptions(max_tokens=12, temperature=1.5)
    rows = generate(model, [[2]] * 6, options, seeds=[1, 2, 3, 1, 2, 3])
    samples = [row.ids for row in rows]
    assert samples[:3] == samples[3:]
    assert samples[0] != samples[1] != samples[2]
    default = generate(model, [[2], [2]], SamplingOptions(max_tokens=12, temperature=1.5, seed=3))
    assert [row.ids for row in default] == [samples[2], samples[2]]


def greedy_sliding(model: Any, prompt: list[int], tokens: int) -> list[int]:
    """Greedy ids without a KV cache: a full context is replaced by its most recent half."""
    context, output = prompt[-CONTEXT:], []
    with torch.no_grad():
        while True:
            output.append(int(next_log_probs(model, context).argmax()))
            if len(output) == tokens:
                return output
            full = len(context) == CONTEXT
            context = (context + output[-1:])[-CONTEXT // 2 :] if full else context + output[-1:]


@pytest.mark.parametrize("name", ["gpt", "gpt sinusoidal", "gpt rotary", "gpt flatten", "rnn flatten"])
def test_full_context_slides_to_its_recent_half(name: str) -> None:
    model = small(name)
    prompts = [[2], LONG[:7], LONG[:CONTEXT], LONG, LONG[:4]]
    rows = generate(model, prompts, SamplingOptions(max_tokens=3 * CONTEXT, temperature=0))
    for prompt, row in zip(prompts, rows, strict=True):
        assert row.ids == greedy_sliding(model, prompt, 3 * CONTEXT)


def test_eos_ends_a_row_and_is_not_in_its_ids() -> None:
    model, options = small("lstm"), SamplingOptions(max_tokens=40, temperature=2.0)
    rows = generate(model, PROMPTS, options, end=VOCABULARY.eos, seeds=[1, 2, 3, 4])
    without_eos = generate(model, PROMPTS, options, seeds=[1, 2, 3, 4])
    assert any(row.reason == "end" for row in rows)
    for row, unbounded in zip(rows, without_eos, strict=True):
        assert VOCABULARY.eos not in row.ids
        assert unbounded.reason == "length"
        if row.reason == "end":
            assert unbounded.ids[: len(row.ids) + 1] == [*row.ids, VOCABULARY.eos]
            ids = torch.tensor([[*row.prompt, *row.ids, VOCABULARY.eos]])
            with torch.no_grad():
                scored, _ = model.score(Batch.of_text(ids[:, :-1], ids[:, 1:].contiguous()))
            # log_prob includes <eos>.
            assert row.log_prob == pytest.approx(scored[0, len(row.prompt) - 1 :].sum().item())


def test_banned_ids_are_never_generated() -> None:
    options = SamplingOptions(max_tokens=30, temperature=3.0)
    banned = [0, 1, 2, 3, 7]
    for row in generate(small("gru"), PROMPTS, options, banned=banned, seeds=[1, 2, 3, 4]):
        assert not set(row.ids) & set(banned)
        assert len(set(row.ids)) > 3


def test_on_token_callback_gets_every_id_and_may_stop_its_row() -> None:
    model, options = small("gpt"), SamplingOptions(max_tokens=20, temperature=2.0)
    unstopped = generate(model, PROMPTS, options, seeds=[1, 2, 3, 4])
    streamed: dict[int, list[int]] = {n: [] for n in range(len(PROMPTS))}

    def on_token(row: int, id: int) -> bool:
        streamed[row].append(id)
        return row % 2 == 0 and len(streamed[row]) == 5

    rows = generate(model, PROMPTS, options, seeds=[1, 2, 3, 4], on_token=on_token)
    for n, row in enumerate(rows):
        assert row.ids == streamed[n] == unstopped[n].ids[: 20 if n % 2 else 5]
        assert row.reason == ("length" if n % 2 else "stop")


def test_no_prompts_give_no_rows() -> None:
    assert generate(small("gpt"), [], SamplingOptions()) == []
