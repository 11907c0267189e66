"""CUDA graphs: captured steps of searches and of the engine have the same outputs, keep every tensor in place and never
synchronize."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seqwright.core.batch import Source
from seqwright.decoding import beam, decoding_step
from seqwright.decoding.decoding_step import DecodingStep
from seqwright.decoding.engine import Engine
from seqwright.decoding.options import SamplingOptions, SearchOptions
from seqwright.decoding.processors import LogitsProcessors
from seqwright.decoding.requests import Request
from seqwright.decoding.search import search
from seqwright.layers import slot_cache
from seqwright.models.mixture import Mixture
from tests.contract.kinds import SMALL, VOCABULARY, small
from tests.contract.translators import pairs, translator
from tests.decoding import test_engine
from tests.decoding.test_search import SPECIAL_IDS, assert_same

STATIC = [
    "transformer",
    "transformer post",
    "transformer rotary",
    "gpt",
    "gpt relative",
    "gpt as llama",
    "gpt window alibi",
    "lstm",
    "gru",
    "rnn flatten",
    "gru additive",
    "lstm fed",
]


def model_and_source(name: str) -> tuple[Any, Source]:
    if name in SMALL:
        return small(name), Source.empty(5)
    return translator(name), pairs().source


@pytest.mark.parametrize("stop", ["finished", "bound"])
@pytest.mark.parametrize(
    "options",
    [{"beam_size": 4}, {"kind": "greedy"}, {"beam_size": 4, "beam_groups": 2}, {"beam_size": 3, "min_tokens": 4}],
)
@pytest.mark.parametrize("name", STATIC)
def test_cuda_graph_search_equals_plain_search(name: str, options: dict[str, Any], stop: str, monkeypatch: Any) -> None:
    model, source = model_and_source(name)
    wanted = SearchOptions(max_tokens=8, stopping=stop, **options)
    plain = search(model, source, wanted, **SPECIAL_IDS)
    steps = []
    monkeypatch.setattr(beam, "CAPTURED", {"cpu"})
    monkeypatch.setattr(beam, "STATIC_STEPS", 3)
    monkeypatch.setattr(beam.Captured, "__call__", lambda self: (steps.append(1), self.function()))
    assert_same(search(model, source, wanted, **SPECIAL_IDS), plain)
    assert steps or wanted.kind == "greedy"  # greedy outputs may end at once


def start_search(model: Any, source: Source) -> beam._BeamSearch:
    """A beam search after its first step."""
    options = SearchOptions(beam_size=3)
    processors = LogitsProcessors.of([options], eos=VOCABULARY.eos, banned=[VOCABULARY.pad], device=source.device)
    prompts = [[VOCABULARY.sos]] * source.rows
    return beam._BeamSearch(model, source, options, processors, prompts, [8] * source.rows, None, None)


@pytest.mark.parametrize("name", STATIC)
def test_cuda_graph_step_keeps_every_tensor_in_place(name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(beam, "CAPTURED", {"cpu"})
    with torch.inference_mode():
        search = start_search(*model_and_source(name))
        tensors = [tensor for state in (search.state, search.live) for _, tensor in state.named_tensors()]
        before = [(id(tensor), tensor.shape) for tensor in tensors]
        search.advance()
        search.advance()
    after = [tensor for state in (search.state, search.live) for _, tensor in state.named_tensors()]
    assert [(id(tensor), tensor.shape) for tensor in after] == before
    assert int(search.place) == search.length == 3


class NoDeviceCopies(TorchDispatchMode):
    """Fails on copies between host and device; reading a value fails by itself, since `meta` tensors have no data."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        inputs = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            assert len({tensor.device for tensor in [*inputs, out]}) == 1, func
        return out


@pytest.mark.parametrize("name", [name for name in STATIC if name.startswith(("gpt", "transformer"))])
def test_cuda_graph_step_has_no_device_synchronization(name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(beam, "CAPTURED", {"meta"})
    model, source = model_and_source(name)
    with torch.inference_mode():
        search = start_search(model.to("meta"), source.to("meta"))
        with NoDeviceCopies():
            search.advance()
            search.advance()
    assert search.captured is not None


@pytest.fixture
def captured_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose device runs 3 steps ahead."""
    monkeypatch.setattr(decoding_step, "CAPTURED", {"cpu", "meta"})
    monkeypatch.setattr(decoding_step, "LOOK_EVERY", 3)


@pytest.mark.parametrize(
    ("name", "slots"),
    [*((name, 2) for name in [*STATIC, "mixture", "ngram adaptive"]), ("gpt", 256), ("transformer", 256)],
)
def test_captured_engine_equals_plain_engine(
    name: str, slots: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside others, admitted and canceled while the device runs ahead; greedy, and sampled with any processors."""
    model, draw = small(name) if name in SMALL else translator(name), random.Random(name)
    requests = test_engine.random_requests(draw, 10, prompts=name in SMALL)
    source = None if name in SMALL else pairs().source.select(torch.arange(10) % pairs().source.rows)
    alone = [
        test_engine.generate_alone(model, one, None if source is None else source.select(torch.tensor([n])))
        for n, one in enumerate(requests)
    ]
    request.getfixturevalue("captured_engine")
    monkeypatch.setattr(slot_cache, "STATIC_SLOTS", slots)
    for row, expected in zip(test_engine.continuous_batching(model, requests, draw, source), alone, strict=True):
        test_engine.assert_same(row, expected)


@pytest.mark.usefixtures("captured_engine")
def test_captured_engine_captures_once_for_requests_in_free_slots() -> None:
    engine, options = test_engine.engine_of(small("gpt")), SamplingOptions(max_tokens=20, min_tokens=20)
    rows = engine.admit([Request(prompt=[2, 5], options=options, seed=n) for n in range(4)])
    engine.step()
    engine.step()
    graphs = dict(engine.decoder.graphs)
    assert len(graphs) == 1
    engine.cancel(rows[1].id)
    late = engine.admit([Request(prompt=[2, 9], options=options, seed=7)])
    engine.step()
    engine.step()
    assert engine.decoder.graphs == graphs
    test_engine.run_to_end(engine)
    assert len(late[0].ids) == 20


@pytest.mark.usefixtures("captured_engine")
def test_captured_engine_discards_what_was_generated_after_a_stop() -> None:
    told: list[int] = []

    def stop_after_four(id: int) -> bool:
        told.append(id)
        return len(told) == 4

    options = SamplingOptions(max_tokens=20, min_tokens=20)
    request = Request(prompt=[2], options=options, on_token=stop_after_four)
    generation = test_engine.generate_alone(small("gru"), request)
    assert (generation.reason, generation.ids) == ("stop", told)
    assert len(told) == 4


@pytest.mark.usefixtures("captured_engine")
def test_captured_engine_continues_after_callbacks_that_raise_or_cancel_while_outputs_are_pending() -> None:
    model, options = small("gpt"), SamplingOptions(max_tokens=30, min_tokens=30)  # longer than the context
    alone = [test_engine.generate_alone(model, Request(prompt=[2], options=options, seed=n)) for n in range(8)]
    engine, generated = test_engine.engine_of(model), []

    def callback(n: int) -> Callable[[int], bool]:
        def on_token(id: int) -> bool:
            generated.append(n)
            if n == 1 and generated.count(1) == 5:
                raise KeyError(n)
            if n == 2 and generated.count(2) == 8:  # so few remain that the state is compacted
                for other in rows[2:7]:
                    engine.cancel(other.id)
            return False

        return on_token

    rows = engine.admit([Request(prompt=[2], options=options, seed=n, on_token=callback(n)) for n in range(8)])
    for _ in range(2):
        engine.step()
    assert engine.pending is not None
    with pytest.raises(KeyError):
        test_engine.run_to_end(engine)
    test_engine.run_to_end(engine)
    assert [row.reason for row in rows] == ["length", "stop", *["canceled"] * 5, "length"]
    assert [len(row.ids) for row in rows[:3]] == [30, 5, 8]
    for row, expected in zip(rows, alone, strict=True):
        assert row.ids == expected.ids[: len(row.ids)]


@pytest.mark.usefixtures("captured_engine")
@pytest.mark.parametrize("name", ["gpt", "gpt window alibi", "transformer", "mixture of networks"])
def test_captured_engine_step_has_no_device_synchronization(name: str) -> None:
    if name == "mixture of networks":
        networks: list[Any] = [small("gpt"), small("gpt rotary")]
        model, source = Mixture(networks, [0.3, 0.7]), Source.empty(5)
    else:
        model, source = model_and_source(name)
    model.to("meta")
    options = [one for one in test_engine.OPTIONS if not one.forced_ids][: source.rows]
    engine = Engine(model, end=VOCABULARY.eos, banned=[0, 1, 2], device="meta")
    with torch.inference_mode():
        prefilled = model.step(
            torch.full((len(options), 2), 5, device="meta"), model.start(source.to("meta"), capacity=20)
        )[1]
        generations = engine.admit([Request(prompt=[2, 5], options=one) for one in options])
        rows, processors = engine._new_rows(generations, VOCABULARY.size), engine._processors(generations)
        rows.history = rows.history.widened(20)
        step = DecodingStep(model, torch.device("meta"))
        outputs, state, _ = step.run(prefilled, rows, processors, generations, 1)
        before = [(id(tensor), tensor.shape) for part in (state, rows) for _, tensor in part.named_tensors()]
        with NoDeviceCopies():
            outputs, state, rows = step.run(state, rows, processors, generations, 3)
    assert outputs.values.tensor.shape == (3, 2, len(options))
    assert [(id(tensor), tensor.shape) for part in (state, rows) for _, tensor in part.named_tensors()] == before
