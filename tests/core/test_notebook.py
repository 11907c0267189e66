"""Results as text and as HTML tables: readable, and escaped."""

from __future__ import annotations

from dataclasses import dataclass

from seqwright.core.notebook import NotebookTable, ResultList


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


@dataclass
class Shown(NotebookTable):
    text: str
    log_prob: float
    others: tuple[str, ...] = ()


def test_results_print_the_fields_that_are_set() -> None:
    assert str(Shown("a\x1b[0m", -1.23456)).split("\n") == ["text      a\\u001b[0m", "log_prob  -1.235"]
