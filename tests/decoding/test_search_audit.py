"""The search audit separates search errors from model errors."""

from __future__ import annotations

import pytest

from seqwright.core.batch import Source
from seqwright.decoding.exact import Found
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.search_audit import _summary, search_audit
from tests.contract.kinds import VOCABULARY, small
from tests.worked.test_beam import END, START, Toy


def test_search_audit_counts_the_search_errors_of_narrow_beams() -> None:
    options = SearchOptions(max_tokens=4, length_penalty="none")
    audit = search_audit(Toy(), Source.empty(1), options, [1, 2, 3], sos=START, eos=END)  # type: ignore[arg-type]
    assert [(w.width, w.missed) for w in audit.widths] == [(1, 1), (2, 1), (3, 0)]
    assert [w.gap for w in audit.widths] == pytest.approx([3.0366 - 1.8971, 2.3434 - 1.8971, 0], abs=1e-4)
    assert (audit.sources, audit.proven, audit.empty) == (1, 1, 0)


def test_search_audit_with_references_counts_search_and_model_errors() -> None:
    inputs = {"sos": VOCABULARY.sos, "eos": VOCABULARY.eos, "banned": [0, 1, 2], "prompts": [[5], [6], [7, 8]]}
    model, source, options = small("gru"), Source.empty(3), SearchOptions(max_tokens=3, stopping="bound")
    exact = search_audit(model, source, options, [1], **inputs)
    best = [hypothesis.ids for hypothesis in exact.best if hypothesis is not None]
    assert [hypothesis.reason for hypothesis in exact.best if hypothesis is not None] == ["end"] * 3
    narrow, wide = search_audit(model, source, options, [1, 343], references=best, **inputs).widths
    assert (wide.search_errors, wide.model_errors) == (0, 0)
    assert (narrow.search_errors, narrow.model_errors) == (narrow.missed, 0)
    (wrong,) = search_audit(model, source, options, [343], references=[[9, 9], [10, 10], [4, 4]], **inputs).widths
    assert (wrong.search_errors, wrong.model_errors) == (0, 3)


def test_search_audit_of_a_wide_beam_and_of_an_unproven_optimum() -> None:
    inputs = {"sos": VOCABULARY.sos, "eos": VOCABULARY.eos, "banned": [0, 1, 2], "prompts": [[5], [6], [7, 8]]}
    model, source = small("gru"), Source.empty(3)
    audit = search_audit(model, source, SearchOptions(max_tokens=3, stopping="bound"), [1, 343], **inputs)
    assert audit.proven == 3
    assert audit.widths[1].missed == 0
    assert audit.widths[0].gap >= audit.widths[1].gap
    unproven = search_audit(model, source, SearchOptions(max_tokens=3, max_nodes=1), [1], **inputs)
    assert unproven.proven == 0
    assert unproven.best == [None] * 3


def test_an_unfinished_output_is_a_search_error_without_a_gap() -> None:
    ended = Hypothesis(ids=[5], log_prob=-1.0, score=-1.0, reason="end")
    cut_off = Hypothesis(ids=[5, 5], log_prob=-0.5, score=-0.5, reason="length")
    worse = Hypothesis(ids=[6], log_prob=-1.5, score=-1.5, reason="end")
    results = [Found([ended], proven=True, nodes=1) for _ in range(3)]
    (row,) = _summary(results, {1: [[cut_off], [worse], []]}).widths
    assert (row.missed, row.unfinished, row.gap) == (3, 2, 0.5)
