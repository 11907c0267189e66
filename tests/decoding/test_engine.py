"""The decoding engine: continuous batching is batch-invariant, whatever is admitted, finished or canceled meanwhile."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from seqwright import build
from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.decoding.engine import Engine
from seqwright.decoding.options import SamplingOptions
from seqwright.decoding.requests import Generation, Request
from tests.contract.kinds import SMALL, VOCABULARY, small
from tests.contract.translators import TRANSLATORS, pairs, translator

KINDS = [name for name, row in SMALL.items() if row["kind"] in build.LANGUAGE_MODELS]
OPTIONS = [
    SamplingOptions(max_tokens=9, temperature=0),
    SamplingOptions(max_tokens=14),
    SamplingOptions(max_tokens=3, temperature=1.7, top_k=6),
    SamplingOptions(max_tokens=12, top_p=0.8, min_tokens=4),
    SamplingOptions(max_tokens=6, temperature=0.7, min_p=0.05, typical_p=0.9, epsilon_cutoff=0.02, banned_ids=(7,)),
    SamplingOptions(max_tokens=11, repetition_penalty=1.3, no_repeat_ngram=2),
    SamplingOptions(max_tokens=8, presence_penalty=0.4, frequency_penalty=0.2, logit_bias=((4, 1.5), (5, -1.0))),
    SamplingOptions(max_tokens=5, forced_ids=(6, 8), no_repeat_ngram=3),
]


def engine_of(model: Any) -> Engine:
    return Engine(model, end=VOCABULARY.eos, banned=[0, 1, 2])


def run_to_end(engine: Engine) -> None:
    while engine.active:
        engine.step()


def generate_alone(model: Any, request: Request, source: Source | None = None) -> Generation:
    engine = engine_of(model)
    [generation] = engine.admit([request], source)
    run_to_end(engine)
    return generation


def random_requests(draw: random.Random, count: int, *, prompts: bool = True) -> list[Request]:
    """Requests with prompts of 1 to 12 ids, some longer than the context, each with its options and seed."""
    lengths = [draw.randrange(0, 12) if prompts else 0 for _ in range(count)]
    return [
        Request(
            prompt=[VOCABULARY.sos, *(draw.randrange(4, VOCABULARY.size) for _ in range(length))],
            options=draw.choice(OPTIONS),
            seed=draw.randrange(100),
        )
        for length in lengths
    ]


def continuous_batching(
    model: Any, all_requests: list[Request], draw: random.Random, source: Source | None
) -> list[Generation]:
    """Generations of all requests by one engine: admitted in random groups at random steps, some canceled."""
    engine, admitted, next_request = engine_of(model), [], 0
    while engine.active or next_request < len(all_requests):
        if next_request < len(all_requests) and (not engine.active or draw.random() < 0.4):
            size = draw.randint(1, 3)
            group = all_requests[next_request : next_request + size]
            rows = torch.arange(next_request, next_request + len(group))
            admitted += engine.admit(group, None if source is None else source.select(rows))
            next_request += len(group)
        if draw.random() < 0.15:
            engine.cancel(draw.choice(admitted).id)
        engine.step()
    return admitted


def assert_same(row: Generation, expected: Generation) -> None:
    if row.reason == "canceled":
        assert row.ids == expected.ids[: len(row.ids)]
        return
    assert (row.ids, row.reason) == (expected.ids, expected.reason)
    assert row.log_prob == pytest.approx(expected.log_prob, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", KINDS)
def test_engine_rows_are_batch_invariant(name: str, seed: int) -> None:
    model, draw = small(name), random.Random(f"{name} {seed}")
    all_requests = random_requests(draw, 9)
    for request, row in zip(all_requests, continuous_batching(model, all_requests, draw, None), strict=True):
        assert_same(row, generate_alone(model, request))


@pytest.mark.parametrize("name", TRANSLATORS)
def test_engine_rows_with_sources_are_batch_invariant(name: str) -> None:
    model, draw = translator(name), random.Random(name)
    all_requests = random_requests(draw, 8, prompts=False)
    source = pairs().source
    source = source.select(torch.arange(len(all_requests)) % source.rows)
    for n, row in enumerate(continuous_batching(model, all_requests, draw, source)):
        one = source.select(torch.tensor([n]))
        assert_same(row, generate_alone(model, all_requests[n], one))


def test_engine_finished_rows_free_their_slots_without_copies() -> None:
    model, engine = small("gpt"), engine_of(small("gpt"))
    short, long = SamplingOptions(max_tokens=2, min_tokens=2), SamplingOptions(max_tokens=6, min_tokens=6)
    engine.admit([Request(prompt=[2], options=long, seed=n) for n in range(4)])
    engine.admit([Request(prompt=[2, 5], options=short)])
    engine.step()
    address = dict(engine.state.named_tensors())["key"].data_ptr()  # type: ignore[union-attr]
    engine.step()
    assert [slot is None for slot in engine.slots] == [False] * 4 + [True]
    [late] = engine.admit([Request(prompt=[2, 9], options=short, seed=7)])
    engine.step()
    assert late in engine.slots  # in the slot that was freed
    assert len(engine.slots) == 5
    assert dict(engine.state.named_tensors())["key"].data_ptr() == address  # type: ignore[union-attr]
    run_to_end(engine)
    assert_same(late, generate_alone(model, Request(prompt=[2, 9], options=short, seed=7)))


def test_engine_step_returns_the_generations_it_extended() -> None:
    engine = engine_of(small("lstm"))
    one, two = engine.admit([Request(prompt=[2], options=SamplingOptions(max_tokens=4), seed=n) for n in range(2)])
    assert engine.step() == [one, two]
    engine.cancel(one.id)
    engine.cancel(one.id)  # again: nothing happens
    assert engine.step() == [two]
    assert (one.reason, len(one.ids)) == ("canceled", 1)
    run_to_end(engine)
    assert engine.step() == []


def test_engine_rejects_invalid_requests_on_admission() -> None:
    engine = engine_of(small("gru"))
    with pytest.raises(UserError, match="at least one id"):
        engine.admit([Request(prompt=[], options=SamplingOptions())])
    with pytest.raises(UserError, match="64 bits"):
        engine.admit([Request(prompt=[2], options=SamplingOptions(), seed=1 << 64)])
    assert not engine.active


def test_engine_synchronizes_once_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """One transfer from the device per step, for any number of rows."""
    calls = []
    original = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: (calls.append(1), original(tensor))[1])
    engine = engine_of(small("gru"))
    engine.admit([Request(prompt=[2], options=one, seed=n) for n, one in enumerate(OPTIONS)])
    engine.step()
    calls.clear()
    engine.step()
    assert len(calls) == 1


def test_engine_rows_with_and_without_history_share_slots() -> None:
    """N-gram blocking looks at histories; rows that need none, and free slots, outgrow the table of tokens."""
    model = small("gru")
    engine = engine_of(model)
    plain = Request(prompt=[2], options=SamplingOptions(max_tokens=40, min_tokens=40))
    blocked = Request(prompt=[2, 5], options=SamplingOptions(max_tokens=5, no_repeat_ngram=2), seed=3)
    rows, wanted = engine.admit([plain]), [plain]
    for _ in range(6):
        rows += engine.admit([blocked])
        wanted.append(blocked)
        for _ in range(4):
            engine.step()
    run_to_end(engine)
    for row, request in zip(rows, wanted, strict=True):
        assert_same(row, generate_alone(model, request))


@pytest.mark.parametrize("bad", [{"banned_ids": (999,)}, {"banned_ids": tuple(range(3, VOCABULARY.size))}])
def test_engine_drops_requests_that_cannot_be_read_and_leaves_the_others(bad: dict[str, Any]) -> None:
    model = small("lstm")
    engine, running = engine_of(model), Request(prompt=[2], options=SamplingOptions(max_tokens=10), seed=1)
    [row] = engine.admit([running])
    engine.step()
    [refused] = engine.admit([Request(prompt=[2], options=SamplingOptions(**bad, min_tokens=1))])
    with pytest.raises(UserError):
        engine.step()
    assert (refused.reason, refused.ids) == ("refused", [])
    good = Request(prompt=[2, 4], options=SamplingOptions(max_tokens=4, forced_ids=(5, 6)))
    [late] = engine.admit([good])
    run_to_end(engine)
    assert_same(row, generate_alone(model, running))
    assert_same(late, generate_alone(model, good))


def test_engine_row_whose_callback_raises_ends_and_the_others_continue() -> None:
    model, options = small("gpt"), SamplingOptions(max_tokens=6, min_tokens=6)

    def fail(id: int) -> bool:
        raise ValueError("closed")

    engine = engine_of(model)
    first, second = engine.admit(
        [Request(prompt=[2], options=options, on_token=fail), Request(prompt=[5], options=options)]
    )
    with pytest.raises(ValueError, match="closed"):
        engine.step()
    run_to_end(engine)
    assert (first.reason, len(first.ids)) == ("stop", 1)
    assert_same(second, generate_alone(model, Request(prompt=[5], options=options)))


def test_engine_rows_may_be_canceled_in_a_callback() -> None:
    engine, options = engine_of(small("gpt")), SamplingOptions(max_tokens=6, min_tokens=6)
    streamed: list[int] = []
    rows: list[Generation] = []
    rows += engine.admit(
        [
            Request(prompt=[2], options=options, on_token=lambda id: engine.cancel(rows[1].id) is not None),
            Request(prompt=[5], options=options, on_token=lambda id: bool(streamed.append(id))),
        ]
    )
    run_to_end(engine)
    assert (rows[0].reason, rows[1].reason, streamed) == ("length", "canceled", [])


def test_engine_sources_are_as_many_as_requests() -> None:
    engine = engine_of(translator("gru additive"))
    with pytest.raises(UserError, match="as many sources"):
        engine.admit([Request(prompt=[2], options=SamplingOptions())] * 2, pairs().source)


@pytest.mark.parametrize(
    "options",
    [{"repetition_penalty": float("nan")}, {"presence_penalty": float("inf")}, {"logit_bias": ((3, float("-inf")),)}],
)
def test_engine_options_are_finite(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="finite"):
        SamplingOptions(**options)
