"""Generation: each row as if alone, whatever its prompt, seed and neighbors, and past the model's context."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqwright import build
from seqwright.core.batch import Batch, Source
from seqwright.decoding.engine import Generation
from seqwright.decoding.generate import generate
from seqwright.decoding.options import SamplingOptions
from seqwright.decoding.sampling import uniform
from tests.contract.kinds import CONTEXT, SMALL, VOCABULARY, small

KINDS = [name for name, row in SMALL.items() if row["kind"] in build.task_spec("text").models]
PROMPTS = [[2], [2, 4, 5, 6, 7], [2, 9, 9], [2, 4]]
LONG = [2, 5, 7, 4, 6, 8, 9, 10, 4, 5, 6, 7]
"""Longer than the context."""


def next_log_probs(model: Any, ids: list[int]) -> Tensor:
    """(V,) after these ids, read afresh as one chunk."""
    log_probs, _ = model.step(torch.tensor([ids]), model.start(Source.empty(1), capacity=len(ids)))
    return log_probs[0]


def same(row: Generation, alone: Generation) -> None:
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
def test_a_row_in_a_batch_is_the_row_alone(name: str, options: SamplingOptions) -> None:
    model = small(name)
    prompts, seeds = [*PROMPTS, LONG], [3, 1, 4, 1, 5]
    together = generate(model, prompts, options, end=VOCABULARY.eos, banned=[0, 1, 2], seeds=seeds)
    for prompt, seed, row in zip(prompts, seeds, together, strict=True):
        [alone] = generate(model, [prompt], options, end=VOCABULARY.eos, banned=[0, 1, 2], seeds=[seed])
        same(row, alone)


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_greedy_is_the_best_at_every_step(name: str) -> None:
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


def test_sampling_inverts_the_distribution_at_the_uniform_of_seed_and_position() -> None:
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
    texts = [row.ids for row in rows]
    assert texts[:3] == texts[3:]
    assert texts[0] != texts[1] != texts[2]
    default = generate(model, [[2], [2]], SamplingOptions(max_tokens=12, temperature=1.5, seed=3))
    assert [row.ids for row in default] == [texts[2], texts[2]]


def slid(model: Any, prompt: list[int], tokens: int) -> list[int]:
    """Greedy ids by the rule itself: a full context goes on from its most recent half."""
    held, said = prompt[-CONTEXT:], []
    with torch.no_grad():
        while True:
            said.append(int(next_log_probs(model, held).argmax()))
            if len(said) == tokens:
                return said
            held = (held + said[-1:])[-CONTEXT // 2 :] if len(held) == CONTEXT else held + said[-1:]


@pytest.mark.parametrize("name", ["gpt", "gpt sinusoidal", "gpt rotary", "gpt flatten", "rnn flatten"])
def test_a_full_context_continues_from_its_recent_half(name: str) -> None:
    model = small(name)
    prompts = [[2], LONG[:7], LONG[:CONTEXT], LONG, LONG[:4]]
    rows = generate(model, prompts, SamplingOptions(max_tokens=3 * CONTEXT, temperature=0))
    for prompt, row in zip(prompts, rows, strict=True):
        assert row.ids == slid(model, prompt, 3 * CONTEXT)


def test_the_end_id_ends_a_row_and_is_not_part_of_it() -> None:
    model, options = small("lstm"), SamplingOptions(max_tokens=40, temperature=2.0)
    rows = generate(model, PROMPTS, options, end=VOCABULARY.eos, seeds=[1, 2, 3, 4])
    free = generate(model, PROMPTS, options, seeds=[1, 2, 3, 4])
    assert any(row.reason == "end" for row in rows)
    for row, unbounded in zip(rows, free, strict=True):
        assert VOCABULARY.eos not in row.ids
        assert unbounded.reason == "length"
        if row.reason == "end":
            assert unbounded.ids[: len(row.ids) + 1] == [*row.ids, VOCABULARY.eos]
            given = torch.tensor([[*row.prompt, *row.ids, VOCABULARY.eos]])
            with torch.no_grad():
                scored, _ = model.score(Batch.of_text(given[:, :-1], given[:, 1:].contiguous()))
            # The probability is that of the whole text, its end included.
            assert row.log_prob == pytest.approx(scored[0, len(row.prompt) - 1 :].sum().item())


def test_banned_ids_are_never_generated() -> None:
    options = SamplingOptions(max_tokens=30, temperature=3.0)
    banned = [0, 1, 2, 3, 7]
    for row in generate(small("gru"), PROMPTS, options, banned=banned, seeds=[1, 2, 3, 4]):
        assert not set(row.ids) & set(banned)
        assert len(set(row.ids)) > 3


def test_on_token_sees_every_id_and_may_stop_its_row() -> None:
    model, options = small("gpt"), SamplingOptions(max_tokens=20, temperature=2.0)
    free = generate(model, PROMPTS, options, seeds=[1, 2, 3, 4])
    streamed: dict[int, list[int]] = {n: [] for n in range(len(PROMPTS))}

    def on_token(row: int, id: int) -> bool:
        streamed[row].append(id)
        return row % 2 == 0 and len(streamed[row]) == 5

    rows = generate(model, PROMPTS, options, seeds=[1, 2, 3, 4], on_token=on_token)
    for n, row in enumerate(rows):
        assert row.ids == streamed[n] == free[n].ids[: 20 if n % 2 else 5]
        assert row.reason == ("length" if n % 2 else "stop")


def test_no_prompts_no_rows() -> None:
    assert generate(small("gpt"), [], SamplingOptions()) == []
