"""Compares searches whose beams are chosen by kernels with plain ones, for `test_fused_choice.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.testing import assert_close

from seqwright.core.batch import Source
from seqwright.decoding import beam, fused_choice
from seqwright.decoding.backpointers import BackPointers
from seqwright.decoding.beam import _BeamSearch
from seqwright.decoding.live_beams import Beams
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.processors import LogitsProcessors
from seqwright.decoding.search import search
from seqwright.layers.inference.availability import BEAM_KERNELS
from tests.contract.kinds import small
from tests.contract.translators import pairs, translator
from tests.decoding.test_search import SPECIAL_IDS, assert_same

OPTIONS: dict[str, dict[str, Any]] = {
    "beam": {"beam_size": 3, "n_best": 3},
    "one": {"beam_size": 1},
    "bound": {"beam_size": 2, "n_best": 2, "stopping": "bound", "length_penalty": "power", "length_alpha": 0.7},
    "now": {"beam_size": 3, "n_best": 2, "stopping": "now", "length_penalty": "average"},
    "reward": {"beam_size": 2, "stopping": "bound", "length_penalty": "reward", "length_alpha": 0.8, "finished": 1},
    "none": {"beam_size": 3, "length_penalty": "none", "finished": 5, "rank_unfinished": "among"},
    "min_tokens": {"beam_size": 2, "min_tokens": 4, "n_best": 2},
}


class Stub:
    """A search whose steps are given their log-probabilities."""


def searching(options: SearchOptions, vocabulary: int, limits: list[int]) -> _BeamSearch:
    """A search before its first choice, of a model that does not exist."""
    search: Any = object.__new__(_BeamSearch)
    groups, beams = len(limits), options.beam_size
    search.model, search.options, search.constraints, search.on_step = torch.nn.Identity(), options, None, None
    search.requiring = False
    search.processors = LogitsProcessors.of([options], eos=3, banned=[0, 2], device="cpu")
    search.beams, search.length, search.vocabulary = beams, 1, vocabulary
    search.place = torch.ones((), dtype=torch.float64)
    like = torch.zeros(1)
    search.back_pointers = BackPointers(limits, 1, beams, like)
    totals = torch.full((groups, beams), -torch.inf)
    totals[:, 0] = 0
    first = torch.zeros_like(totals, dtype=torch.long)
    search.live = Beams(
        group=torch.arange(groups),
        limit=torch.tensor(limits),
        totals=totals,
        rows=first.clone(),
        ids=first,
        pool=torch.full((groups, options.enough), -torch.inf),
        done=torch.zeros(groups, dtype=torch.bool),
        tokens=first.new_empty(groups, beams, 0),
        covered=totals.new_zeros(groups, beams, 0),
        progress=first.new_empty(groups, beams, 0),
        prompt=torch.ones(groups, dtype=torch.long),
        mask=torch.ones(groups, 0, dtype=torch.bool),
    )
    search.longest_prompt = 1
    return search


def assert_equal_steps(name: str, options: SearchOptions, vocabulary: int) -> None:
    """Live beams and tables after each of some steps over random log-probabilities, in which <eos> is probable."""
    limits = [4, 9, 12, 7]
    plain, fused = (searching(options, vocabulary, limits) for _ in range(2))
    plain.fused, fused.fused = False, True
    generator = torch.Generator().manual_seed(len(name))
    for step in range(max(limits)):
        logits = 2 * torch.randn(len(limits) * options.beam_size, vocabulary, generator=generator)
        logits[:, 3] += 3
        for one in (plain, fused):
            one._choose(logits.log_softmax(-1))
            one.place += 1
            one.length += 1
        for (field, a), (_, b) in zip(
            [*plain.live.named_tensors(), *plain.back_pointers.tables()],
            [*fused.live.named_tensors(), *fused.back_pointers.tables()],
            strict=True,
        ):
            assert_close(b, a, rtol=3e-7, atol=0, msg=lambda text: f"{name}, step {step}, {field}: {text}")  # noqa: B023
    assert plain.live.done.all()


def main() -> None:
    BEAM_KERNELS.add("cpu")
    fused_choice.PART = 64
    for name, table in OPTIONS.items():
        for vocabulary in (40, 200):
            assert_equal_steps(name, SearchOptions(**table), vocabulary)
    print("steps", flush=True)
    beam.CAPTURED = {"cpu"}
    beam.STATIC_STEPS = 5
    for kind in ("gpt", "gpt as llama", "lstm", "transformer", "gru additive"):
        model, source = (translator(kind), pairs().source) if kind in ("transformer", "gru additive") else (small(kind), Source.empty(5))
        for name, table in OPTIONS.items():
            options = SearchOptions(max_tokens=8, **table)
            BEAM_KERNELS.discard("cpu")
            plain = search(model, source, options, **SPECIAL_IDS)
            BEAM_KERNELS.add("cpu")
            for _ in range(2):  # the second replays what the first has captured
                assert_same(search(model, source, options, **SPECIAL_IDS), plain)
        print(kind, flush=True)


if __name__ == "__main__":
    main()
