"""The audit tells errors of the search from errors of the model."""

from __future__ import annotations

import pytest

from seqwright.core.batch import Source
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search_audit import search_audit
from tests.contract.kinds import VOCABULARY, small
from tests.worked.test_beam import END, START, Toy


def test_the_toy_table_fools_narrow_beams() -> None:
    options = SearchOptions(max_tokens=4, length_penalty="none")
    found = search_audit(Toy(), Source.empty(1), options, [1, 2, 3], sos=START, eos=END)  # type: ignore[arg-type]
    assert [(w.width, w.missed) for w in found.widths] == [(1, 1), (2, 1), (3, 0)]
    assert [w.gap for w in found.widths] == pytest.approx([3.0366 - 1.8971, 2.3434 - 1.8971, 0], abs=1e-4)
    assert (found.sources, found.proven, found.empty) == (1, 1, 0)


def test_references_tell_whom_to_blame() -> None:
    facts = {"sos": VOCABULARY.sos, "eos": VOCABULARY.eos, "banned": [0, 1, 2], "prompts": [[5], [6], [7, 8]]}
    model, source, options = small("gru"), Source.empty(3), SearchOptions(max_tokens=3, stopping="bound")
    exact = search_audit(model, source, options, [1], **facts)
    best = [one.ids for one in exact.best if one is not None]
    assert [one.reason for one in exact.best if one is not None] == ["end"] * 3
    narrow, wide = search_audit(model, source, options, [1, 343], references=best, **facts).widths
    assert (wide.search_errors, wide.model_errors) == (0, 0)
    assert (narrow.search_errors, narrow.model_errors) == (narrow.missed, 0)
    (wrong,) = search_audit(model, source, options, [343], references=[[9, 9], [10, 10], [4, 4]], **facts).widths
    assert (wrong.search_errors, wrong.model_errors) == (0, 3)


def test_a_wide_beam_misses_nothing_and_a_short_proof_is_none() -> None:
    facts = {"sos": VOCABULARY.sos, "eos": VOCABULARY.eos, "banned": [0, 1, 2], "prompts": [[5], [6], [7, 8]]}
    model, source = small("gru"), Source.empty(3)
    found = search_audit(model, source, SearchOptions(max_tokens=3, stopping="bound"), [1, 343], **facts)
    assert found.proven == 3
    assert found.widths[1].missed == 0
    assert found.widths[0].gap >= found.widths[1].gap
    short = search_audit(model, source, SearchOptions(max_tokens=3, max_nodes=1), [1], **facts)
    assert short.proven == 0
    assert short.best == [None] * 3
