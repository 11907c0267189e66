"""Inspections in notebooks: figures that need no script, in the colors of the pages."""

from __future__ import annotations

import re

import pytest

from .conftest import SOURCES, TEXT, Runs


def test_attention_is_a_matrix_where_no_script_draws_it(runs: Runs) -> None:
    cell = runs["gpt"].inspect(TEXT, views="attention", layer=1, head=0)._repr_html_()
    assert "<script" not in cell
    assert "self attention, layer 1, head 0" in cell
    weights = [[float(value) for value in re.findall(r">([\d.]+)</td>", row)] for row in cell.split("<tr>")[2:]]
    assert [sum(row) for row in weights] == pytest.approx([1.0] * len(weights), abs=1e-3)
    mean = runs["gpt"].inspect(TEXT, views="attention", layer=1)._repr_html_()
    assert "self attention, layer 1, mean of 2 heads" in mean


@pytest.mark.parametrize("kind", ["gpt", "classifier"])
def test_strips_and_tensors_have_their_colors(runs: Runs, kind: str) -> None:
    inspection = runs[kind].inspect(SOURCES.get(kind, TEXT))
    cell = inspection._repr_html_()
    assert 'class="chip' in cell
    assert ".seqwright .chip" in cell
    assert ".seqwright table.matrix" in inspection["saliency"].integrated_gradients._repr_html_()


def test_where_has_the_colors_of_its_matches(runs: Runs) -> None:
    cell = runs["ngram"].where("the dog sat on the cat", min_tokens=3)._repr_html_()
    assert 'class="chip' in cell
    assert ".seqwright .chip" in cell
