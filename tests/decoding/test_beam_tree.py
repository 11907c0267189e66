"""The search tree of a beam contains its outputs, and recording it changes nothing; minimum Bayes risk."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seqwright.decoding.beam_tree import BeamTree
from seqwright.decoding.mbr import minimum_bayes_risk
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from tests.core.test_state import Translator, indices, sources
from tests.decoding.test_search import END, translator  # noqa: F401 - a fixture


@pytest.mark.parametrize("groups", [1, 2])
def test_beam_tree_contains_the_outputs_with_their_log_probs(translator: Translator, groups: int) -> None:  # noqa: F811
    options = SearchOptions(
        beam_size=4, n_best=4, beam_groups=groups, max_tokens=2, length_ratio=1.0, length_penalty="none"
    )
    recorder = BeamTree(groups)
    source = sources().select(indices(0, 1, 2, 0))
    outputs = search(translator, source, options, sos=1, eos=END, on_step=recorder)
    assert outputs == search(translator, source, options, sos=1, eos=END)
    assert recorder.as_json(0) == recorder.as_json(3)
    for n, hypotheses in enumerate(outputs):
        tree = recorder.trees[n]
        log_probs = {
            (*recorder.path(n, at),): node.log_prob
            for at, node in enumerate(tree)
            if node.fate == "finished" or node.fate == "kept"
        }
        for hypothesis in hypotheses:
            ids = (*hypothesis.ids, END) if hypothesis.reason == "end" else (*hypothesis.ids,)
            assert log_probs[ids] == pytest.approx(hypothesis.log_prob)
        assert {node.fate for node in tree} == {"kept", "finished", "dropped"}
        for node in tree:
            assert node.parent is None or tree[node.parent].log_prob >= node.log_prob


def test_minimum_bayes_risk_may_differ_from_the_most_probable_output() -> None:
    utilities = np.array([[1, 0, 0], [0, 1, 0.9], [0, 0.9, 1]])
    assert minimum_bayes_risk(utilities) == (1, pytest.approx(1.9 / 3))
    best, expected = minimum_bayes_risk(utilities, [math.log(p) for p in (0.4, 0.3, 0.3)])
    assert (best, expected) == (1, pytest.approx(0.57))
    assert minimum_bayes_risk(utilities, [0.0, -99.0, -99.0])[0] == 0
