"""Results as text and as HTML tables: readable, and escaped."""

from __future__ import annotations

from dataclasses import dataclass

from seqwright.core.notebook import ResultList


@dataclass
class Result:
    name: str
    value: float
    note: str | None = None


def test_lists_of_results_print_as_tables_of_the_columns_that_have_values() -> None:
    results = ResultList([Result("a", 1.25), Result("longer", 10.0)])
    assert str(results).split("\n") == ["name    value", "a        1.25", "longer     10"]
    assert results == [Result("a", 1.25), Result("longer", 10.0)]
    assert str(ResultList([])) == ""


def test_html_of_results_is_escaped_and_cut() -> None:
    shown = ResultList([{"text": "<b>" + "x" * 100}])._repr_html_()
    assert shown.startswith("<table><tr><th>text</th></tr><tr><td>&lt;b&gt;xxx")
    assert "x…</td>" in shown
