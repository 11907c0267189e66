"""Captured searches: the same outputs, tensors that stay where they are, and nothing read from the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seqwright.core.batch import Source
from seqwright.decoding import beam
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.processors import LogitsProcessors
from seqwright.decoding.search import search
from tests.contract.kinds import SMALL, VOCABULARY, small
from tests.contract.translators import pairs, translator
from tests.decoding.test_search import FACTS, same

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
def test_a_captured_search_equals_an_uncaptured_one(
    name: str, options: dict[str, Any], stop: str, monkeypatch: Any
) -> None:
    model, source = model_and_source(name)
    wanted = SearchOptions(max_tokens=8, stopping=stop, **options)
    plain = search(model, source, wanted, **FACTS)
    steps = []
    monkeypatch.setattr(beam, "CAPTURED", {"cpu"})
    monkeypatch.setattr(beam, "STATIC_STEPS", 3)
    monkeypatch.setattr(beam.Captured, "__call__", lambda self: (steps.append(1), self.work()))
    same(search(model, source, wanted, **FACTS), plain)
    assert steps or wanted.kind == "greedy"  # greedy outputs may end at once


def started(model: Any, source: Source) -> beam._BeamSearch:
    """A search after its first choice."""
    options = SearchOptions(beam_size=3)
    processors = LogitsProcessors.of([options], eos=VOCABULARY.eos, banned=[VOCABULARY.pad], device=source.device)
    prompts = [[VOCABULARY.sos]] * source.rows
    return beam._BeamSearch(model, source, options, processors, prompts, [8] * source.rows, None, None)


@pytest.mark.parametrize("name", STATIC)
def test_a_captured_step_keeps_every_tensor_in_place(name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(beam, "CAPTURED", {"cpu"})
    with torch.inference_mode():
        search = started(*model_and_source(name))
        tensors = [tensor for state in (search.state, search.live) for _, tensor in state.named_tensors()]
        held = [(id(tensor), tensor.shape) for tensor in tensors]
        search.advance()
        search.advance()
    after = [tensor for state in (search.state, search.live) for _, tensor in state.named_tensors()]
    assert [(id(tensor), tensor.shape) for tensor in after] == held
    assert int(search.place) == search.length == 3


class NothingCrosses(TorchDispatchMode):
    """Refuses what would copy numbers from the host to the device; a tensor on `meta` has none to be read back."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            assert len({tensor.device for tensor in [*given, out]}) == 1, func
        return out


@pytest.mark.parametrize("name", [name for name in STATIC if name.startswith(("gpt", "transformer"))])
def test_a_step_reads_nothing_from_the_device_and_sends_nothing(name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(beam, "CAPTURED", {"meta"})
    model, source = model_and_source(name)
    with torch.inference_mode():
        search = started(model.to("meta"), source.to("meta"))
        with NothingCrosses():
            search.advance()
            search.advance()
    assert search.captured is not None
