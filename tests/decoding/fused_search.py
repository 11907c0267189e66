"""Compares beams chosen by kernels with those of PyTorch's operations, for `test_fused_choice.py`."""

from __future__ import annotations

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
from seqwright.layers.inference import beam_kernel
from seqwright.layers.inference.availability import BEAM_KERNELS
from tests.contract.kinds import small
from tests.contract.translators import pairs, translator
from tests.decoding.test_search import SPECIAL_IDS, assert_same

OPTIONS: dict[str, dict[str, Any]] = {
    "finished": {"beam_size": 3},
    "greedy": {"beam_size": 1},
    "bound": {"beam_size": 4, "stopping": "bound", "length_penalty": "power", "length_alpha": 0.7},
    "now": {"beam_size": 3, "stopping": "now", "length_penalty": "average"},
    "reward": {"beam_size": 2, "stopping": "bound", "length_penalty": "reward", "length_alpha": 0.8, "finished": 1},
    "none": {"beam_size": 3, "length_penalty": "none", "finished": 5},
    "min_tokens": {"beam_size": 2, "min_tokens": 4},
}
SEARCHES: dict[str, dict[str, Any]] = {
    "beam": {"beam_size": 2, "n_best": 2},
    "bound": {"beam_size": 2, "stopping": "bound", "length_penalty": "power", "rank_unfinished": "among"},
    "min_tokens": {"beam_size": 2, "min_tokens": 3},
}


def before_first_step(options: SearchOptions, vocabulary: int, limits: list[int]) -> _BeamSearch:
    """A search without a model, to which steps give log-probabilities."""
    search: Any = object.__new__(_BeamSearch)
    groups, beams = len(limits), options.beam_size
    search.model, search.options, search.constraints, search.on_step = torch.nn.Identity(), options, None, None
    search.processors = LogitsProcessors.of([options], eos=3, banned=[0, 2], device="cpu")
    search.requiring, search.vocabulary, search.beams, search.length = False, vocabulary, beams, 1
    search.place = torch.ones((), dtype=torch.float64)
    search.back_pointers = BackPointers(limits, 1, beams, torch.zeros(1))
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
    return search


def check_steps(name: str, options: SearchOptions, vocabulary: int) -> None:
    """Live beams and tables after every step over random log-probabilities, in which <eos> is probable."""
    limits = [4, 9, 12, 7]
    plain, fused = (before_first_step(options, vocabulary, limits) for _ in range(2))
    plain.fused, fused.fused = False, True
    generator = torch.Generator().manual_seed(len(name))
    for step in range(max(limits)):
        logits = 2 * torch.randn(len(limits) * options.beam_size, vocabulary, generator=generator)
        logits[:, 3] += 3
        found = []
        for one in (plain, fused):
            one._choose(logits.log_softmax(-1))
            one.place += 1
            one.length += 1
            found.append(dict([*one.live.named_tensors(), *one.back_pointers.tables()]))
        for field, expected in found[0].items():
            assert_close(found[1][field], expected, rtol=3e-7, atol=0, msg=f"{name}, step {step}: {field}")
    assert plain.live.done.all()


def check_ties() -> None:
    """Of equal candidates the first beam's comes first, then the first id's."""
    search = before_first_step(SearchOptions(beam_size=3), 200, [5])
    search.fused = True
    search.live.totals.zero_()
    search._choose(torch.zeros(3, 200).index_fill(1, torch.tensor([9, 150]), 1.0))
    assert search.live.ids.tolist() == [[9, 150, 9]]
    assert search.live.rows.tolist() == [[0, 0, 1]]


def check_searches(kind: str, launches: list[int]) -> None:
    """Whole searches, the second of which replays the step that the first captured."""
    language = kind == "gpt"
    model, source = (small(kind), Source.empty(3)) if language else (translator(kind), pairs().source)
    model = model.float()
    for table in SEARCHES.values():
        options = SearchOptions(max_tokens=7, **table)
        BEAM_KERNELS.discard("cpu")
        plain = search(model, source, options, **SPECIAL_IDS)
        BEAM_KERNELS.add("cpu")
        launches.clear()
        for _ in range(2):
            assert_same(search(model, source, options, **SPECIAL_IDS), plain)
        assert launches


def main() -> None:
    BEAM_KERNELS.add("cpu")
    fused_choice.PART = 64  # so that rows have several
    check_ties()
    for name, table in OPTIONS.items():
        check_steps(name, SearchOptions(**table), 40 if table["beam_size"] == 4 else 100)
    beam.CAPTURED, beam.STATIC_STEPS = {"cpu"}, 4
    launches: list[int] = []
    choose = beam_kernel.choose_
    beam_kernel.choose_ = lambda *given, **more: (launches.append(1), choose(*given, **more))[1]
    for kind in ("gpt", "transformer", "gru additive"):
        check_searches(kind, launches)


if __name__ == "__main__":
    main()
