"""Options of a search, and those that a user's changes imply."""

from __future__ import annotations

from typing import Any

import pytest

from seqwright.core.config import UserError
from seqwright.decoding.options import SearchOptions, search_options

GREEDY, EXACT, SAMPLE = SearchOptions(kind="greedy"), SearchOptions(kind="exact"), SearchOptions(kind="sample")


@pytest.mark.parametrize(
    ("options", "changes", "expected"),
    [
        (GREEDY, {}, ("greedy", 5, 1)),
        (GREEDY, {"n_best": 1}, ("greedy", 5, 1)),
        (GREEDY, {"n_best": 3}, ("beam", 5, 3)),
        (GREEDY, {"n_best": 8}, ("beam", 8, 8)),
        (GREEDY, {"beam_size": 4}, ("beam", 4, 1)),
        (GREEDY, {"beam_size": 4, "n_best": 2}, ("beam", 4, 2)),
        (EXACT, {"n_best": 8}, ("exact", 5, 8)),
        (EXACT, {"beam_size": 4}, ("beam", 4, 1)),
        (SAMPLE, {"n_best": 8}, ("sample", 5, 8)),
        (SearchOptions(), {"n_best": 8}, ("beam", 8, 8)),
        (GREEDY, {"kind": "sample", "n_best": 8}, ("sample", 5, 8)),
    ],
)
def test_several_outputs_and_a_beam_size_are_beam_search(
    options: SearchOptions, changes: dict[str, Any], expected: tuple[str, int, int]
) -> None:
    chosen = search_options(options, changes)
    assert (chosen.kind, chosen.beam_size, chosen.n_best) == expected


def test_contradictions_are_refused() -> None:
    with pytest.raises(UserError, match="a beam of 4 has no 8 best outputs"):
        search_options(GREEDY, {"beam_size": 4, "n_best": 8})
    with pytest.raises(UserError, match="greedy search has one output, not 3"):
        search_options(SearchOptions(), {"kind": "greedy", "n_best": 3})
    with pytest.raises(UserError, match="n_best"):
        search_options(GREEDY, {"n_best": "three"})
