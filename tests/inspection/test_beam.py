"""Beam view: outputs are those of the search, and a hypothesis is lost where none of its continuations was kept."""

from __future__ import annotations

import pytest
import torch

from seqwright.decoding.beam_tree import Node
from seqwright.decoding.length_penalty import normalize
from seqwright.decoding.options import SearchOptions
from seqwright.inspection.beam import BEAM_SIZE, NEW_TOKENS, lost_hypotheses, node_steps, score_formula

from .conftest import Runs


@pytest.mark.parametrize("kind", ["ngram", "gpt", "gru"])
def test_outputs_are_those_of_the_search(runs: Runs, kind: str) -> None:
    searched = runs[kind].inspect("the cat", views=["beam"])["beam"]
    options = {"beam_size": BEAM_SIZE, "n_best": BEAM_SIZE, "max_tokens": NEW_TOKENS, "length_penalty": "none"}
    outputs = runs[kind].search("the cat", **options)
    assert [text for text, *_ in searched.outputs] == [one.text.lstrip() for one in outputs]
    assert [log_prob for _, log_prob, _ in searched.outputs] == pytest.approx([one.log_prob for one in outputs])


@pytest.mark.parametrize("kind", ["transformer", "prefix", "seq2seq"])
def test_best_output_is_the_translation(runs: Runs, kind: str) -> None:
    searched = runs[kind].inspect("the cat sat", views=["beam"])["beam"]
    assert searched.outputs[0][0] == runs[kind].translate("the cat sat").text


def test_lost_hypotheses_have_the_step_of_their_dropped_continuations() -> None:
    nodes = [
        Node(None, 1, -1.0, "kept"),
        Node(None, 2, -2.0, "kept"),
        Node(None, 3, -3.0, "dropped"),
        Node(0, 4, -2.0, "kept"),
        Node(0, 5, -2.5, "kept"),
        Node(1, 6, -2.75, "dropped"),
        Node(3, 0, -3.0, "finished"),
        Node(3, 7, -3.5, "kept"),
    ]
    steps = node_steps(nodes)
    assert steps == [1, 1, 1, 2, 2, 2, 3, 3]
    assert lost_hypotheses(nodes, steps) == [(1, 2, 0.25), (4, 3, None)]


@pytest.mark.parametrize("penalty", ["none", "power", "gnmt", "average", "reward"])
def test_formula_of_the_score_is_that_of_the_search(penalty: str) -> None:
    options = SearchOptions(length_penalty=penalty, length_alpha=0.7)
    formula = score_formula(options).removeprefix("score(y) = ")
    for old, new in (("log p(y)", "(-4.0)"), ("0.7 |y|", "0.7 * |y|"), ("|y|", "7"), ("^", "**")):
        formula = formula.replace(old, new)
    assert eval(formula) == pytest.approx(normalize(torch.tensor(-4.0), 7, options).item())
