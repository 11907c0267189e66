"""CUDA graphs: captured searches have the same outputs, keep every tensor in place and never synchronize."""

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
