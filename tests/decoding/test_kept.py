"""Captured steps that outlive a call: later calls have the outputs that they would have alone."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from typing import Any

import pytest
import torch

from seqwright.core.batch import Source
from seqwright.decoding import beam, decoding_step, kept
from seqwright.decoding.generate import generate
from seqwright.decoding.options import SamplingOptions, SearchOptions
from seqwright.decoding.search import search
from seqwright.models.language_model import LanguageModel
from tests.contract.kinds import SMALL, small
from tests.contract.translators import pairs, translator
from tests.decoding.test_search import SPECIAL_IDS, assert_same
from tests.test_build import GatedCNN, GatedCNNConfig

NAMES = ["gpt", "gpt as llama", "lstm"]
OPTIONS = SamplingOptions(max_tokens=9, temperature=0.8, top_k=5)


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that count as captured on a CPU, where a capture just calls its function."""
    monkeypatch.setattr(decoding_step, "CAPTURED", {"cpu"})
    monkeypatch.setattr(beam, "CAPTURED", {"cpu"})


def continued(model: Any, prompts: list[list[int]], options: SamplingOptions = OPTIONS, **more: Any) -> Any:
    rows = generate(model, prompts, options, seeds=range(len(prompts)), **more)
    return [(row.ids, pytest.approx(row.log_prob)) for row in rows]


def entries(model: Any) -> dict[Any, Any]:
    return getattr(model, kept.ATTRIBUTE).entries


def kinds(model: Any) -> set[str]:
    return {key[0][0] for key in entries(model)}


@pytest.mark.parametrize("name", NAMES)
def test_repeated_calls_equal_the_first(name: str, captured: None) -> None:
    model, prompts = small(name), [[2, 5, 6], [2, 7, 8]]
    alone = continued(copy.deepcopy(model), prompts)
    others = continued(copy.deepcopy(model), prompts[::-1])
    for _ in range(4):
        assert continued(model, prompts) == alone
        assert continued(model, prompts[::-1]) == others
    assert kinds(model) == ({"generation"} if name == "lstm" else {"generation", "prefill"})


def test_the_same_graphs_are_replayed(captured: None) -> None:
    model = small("gpt")
    continued(model, [[2, 5, 6]])
    ((key, entry),) = [one for one in entries(model).items() if one[0][0][0] == "generation"]
    (graph,) = entry.value.graphs.values()
    calls = graph.calls
    continued(model, [[2, 9, 4]])
    assert entries(model)[key].value is entry.value
    assert [*entry.value.graphs.values()] == [graph]
    assert graph.calls == 2 * calls


def test_calls_of_other_shapes_and_options_come_between(captured: None) -> None:
    model = small("gpt")
    calls: list[tuple[list[list[int]], SamplingOptions, dict[str, Any]]] = [
        ([[2, 5, 6]], OPTIONS, {}),
        ([[2, 5, 6], [2, 7]], OPTIONS, {"banned": [5, 6]}),
        ([[2, 5, 6]], OPTIONS, {"banned": [5, 6]}),
        ([[2, 5, 6]], SamplingOptions(max_tokens=9, temperature=0, repetition_penalty=1.5), {"end": 3}),
        ([[2, 5, 6]], SamplingOptions(max_tokens=5, top_p=0.9), {}),
    ]
    alone = [continued(copy.deepcopy(model), prompts, options, **more) for prompts, options, more in calls]
    for _ in range(3):
        for (prompts, options, more), expected in zip(calls, alone, strict=True):
            assert continued(model, prompts, options, **more) == expected


def test_weights_that_change_are_read_and_those_that_move_are_captured_anew(captured: None) -> None:
    model, prompts = small("gpt"), [[2, 5, 6]]
    continued(model, prompts)
    with torch.no_grad():
        model.head.readout.weight.mul_(-1)
    assert continued(model, prompts) == continued(copy.deepcopy(model), prompts)
    model.head.readout.weight = torch.nn.Parameter(-2 * model.head.readout.weight.detach())
    (before,) = {key[1].weights for key in entries(model)}
    assert continued(model, prompts) == continued(copy.deepcopy(model), prompts)
    (after,) = {key[1].weights for key in entries(model)}  # what can never be taken again is dropped
    assert after != before


def test_threads_do_not_share_what_they_captured(captured: None) -> None:
    model, prompts = small("gpt"), [[2, 5, 6]]
    alone, outputs = continued(model, prompts), []
    threads = [threading.Thread(target=lambda: outputs.append(continued(model, prompts))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == [alone] * 3


def test_large_tensors_are_not_kept(captured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_BYTES", 100)
    model = small("gpt")
    for _ in range(3):
        continued(model, [[2, 5, 6]])
    assert not entries(model)


def test_nothing_is_replayed_while_hooks_listen(captured: None) -> None:
    model, prompts, heard = small("gpt"), [[2, 5, 6]], []
    for _ in range(4):
        continued(model, prompts)
    handle = model.encoder.register_forward_hook(lambda *_: heard.append(1))
    before = {id(entry) for entry in entries(model).values()}
    continued(model, prompts)
    assert len(heard) > 1
    handle.remove()
    assert {id(entry) for entry in entries(model).values()} == before


def test_a_model_is_freed_with_what_it_keeps(captured: None) -> None:
    model = small("gpt")
    for _ in range(4):
        continued(model, [[2, 5, 6]])
    alive = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()


def test_the_oldest_are_dropped(captured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_ENTRIES", 3)
    model = small("gpt")
    for length in range(1, 6):
        continued(model, [[2, *[5] * length]])
    assert len(entries(model)) == 3


@pytest.mark.parametrize("steps", [3, 128])
@pytest.mark.parametrize(
    "options", [{"beam_size": 4}, {"beam_size": 4, "beam_groups": 2}, {"beam_size": 3, "min_tokens": 4}]
)
@pytest.mark.parametrize("name", ["gpt", "lstm", "transformer", "gru additive"])
def test_repeated_searches_equal_the_first(
    name: str, options: dict[str, Any], steps: int, captured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, source = (small(name), Source.empty(5)) if name in SMALL else (translator(name), pairs().source)
    wanted = SearchOptions(max_tokens=12, stopping="bound", length_penalty="none", **options)
    turned = source.select(torch.arange(source.rows).flip(0))
    before = [tensor.clone() for tensor in (source.mask, turned.mask)]
    alone = [search(copy.deepcopy(model), one, wanted, **SPECIAL_IDS) for one in (source, turned)]
    monkeypatch.setattr(beam, "STATIC_STEPS", steps)
    for _ in range(3):
        for one, expected in zip((source, turned), alone, strict=True):
            assert_same(search(model, one, wanted, **SPECIAL_IDS), expected)
    assert all(torch.equal(one.mask, mask) for one, mask in zip((source, turned), before, strict=True))


def test_a_kept_step_holds_the_banned_ids_that_it_reads(captured: None) -> None:
    model, wanted, held = small("gpt"), SearchOptions(max_tokens=12, beam_size=2, length_penalty="none"), []
    for _ in range(2):
        search(model, Source.empty(2), wanted, sos=2, eos=None, banned=[0, 1])
        (entry,) = [one for key, one in entries(model).items() if key[0][0] == "search"]
        held.append(entry.tensors["banned"])
    assert held[0] is held[1]
    assert held[0].tolist() == [0, 1]


def test_prompts_of_models_that_encode_their_input_again_are_not_captured(captured: None) -> None:
    model = LanguageModel(12, 16, GatedCNN(GatedCNNConfig())).eval()  # its steps read lengths from the device
    for _ in range(4):
        continued(model, [[2, 5, 6]])
    assert not [key for key in vars(model).get(kept.ATTRIBUTE, kept.Kept()).entries if key[0][0] == "prefill"]


def test_a_search_replays_the_step_of_the_last(captured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model, source, made = translator("transformer"), pairs().source, []
    monkeypatch.setattr(beam.Captured, "again", lambda *given: made.append(given) or beam.Captured(*given[:2]))
    wanted = SearchOptions(max_tokens=12, beam_size=4, length_penalty="none")
    search(model, source, wanted, sos=1, eos=None, banned=[0, 1])
    assert not made
    search(model, source, wanted, sos=1, eos=None, banned=[0, 1])
    assert len(made) == 1
    search(model, source, wanted, sos=1, eos=None, banned=[0])
    assert len(made) == 1
