"""Numbers of views that a reader can check by hand: n-gram totals, CRF paths, empty cells, two texts."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch

import seqwright as sw
from seqwright.decoding.beam_tree import Node
from seqwright.inspection import beam
from seqwright.inspection.beam import lost_hypotheses, node_steps

from .conftest import TEXT, Runs


def test_counts_and_totals_give_the_probability(runs: Runs) -> None:
    run = runs["ngram"]
    for one in run.inspect(TEXT)["back-off"]:
        assert one.total is not None
        own = (one.count - one.discount) / one.total + one.interpolated
        assert own * math.prod(one.weights) == pytest.approx(one.probability, rel=1e-4)
        assert 0 < one.followers <= one.total


@pytest.mark.parametrize("smoothing", ["add-k", "mle", "witten-bell", "absolute", "stupid-backoff", "kneser-ney"])
def test_totals_are_shown_only_where_they_give_the_probability(smoothing: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat sat on the mat\nthe dog sat on the cat\n" * 20)
    options = ["tokenizer.kind=words", f"model.smoothing={smoothing}"]
    run = sw.train(text=str(tmp_path / "a.txt"), model="ngram", set=options, run=tmp_path / "run")
    traced = run.inspect(TEXT)["back-off"]
    for one in traced:
        if one.total is not None:
            own = (one.count - one.discount) / one.total + one.interpolated
            assert own * math.prod(one.weights) == pytest.approx(one.probability, rel=1e-4)
    if smoothing in ("absolute", "kneser-ney"):
        assert all(one.total is not None for one in traced)


def test_the_path_of_a_crf_is_the_best_of_all_and_its_sum(runs: Runs) -> None:
    run = runs["crf"]
    with torch.no_grad():
        run.model.head.transitions.copy_(torch.randn(run.model.head.transitions.shape, generator=torch.manual_seed(1)))
    found = run.inspect("the cat sat")["transitions"]
    assert sum(found.emissions) + sum(found.transitions) + found.last == pytest.approx(found.path_score, abs=1e-5)
    batch = run.inspect("the cat sat").subject.example.batch
    with torch.no_grad():
        emissions = run.model.head(run.model.hidden(batch)[0])[:, :3]
        paths = list(itertools.product(range(emissions.size(-1)), repeat=3))
        real = torch.ones(1, 3, dtype=torch.bool)
        scores = torch.stack([run.model.head.path_score(emissions, torch.tensor([path]), real)[0] for path in paths])
    names = run.codec.tags
    assert found.tags == tuple(names[id] for id in paths[int(scores.argmax())])
    assert math.exp(found.log_prob) == pytest.approx(float(scores.softmax(0).max()), abs=1e-5)
    assert run.tag("the cat sat").tags == found.tags


def test_tokens_behind_a_prediction_have_empty_cells(runs: Runs) -> None:
    saliency = runs["gpt"].inspect(TEXT, views="saliency")
    _, figure, sums = saliency.as_json()["views"]["saliency"]["figures"]
    for n, row in enumerate(figure["values"]):
        assert [value is None for value in row] == [column > n for column in range(len(row))]
    for row in sums["rows"]:
        assert row["sum"] == pytest.approx(row["score minus that of zeros"], rel=0.01, abs=1e-3)


def test_attention_prints_its_sizes_and_how_to_select(runs: Runs) -> None:
    attention = runs["transformer"].inspect(TEXT).attention
    assert "2 layers × 2 heads" in str(attention)
    assert 'attention["self"][layer, head]' in repr(attention)


def test_a_page_of_two_texts_has_every_view_of_both(runs: Runs) -> None:
    pair = runs["gpt"].inspect("the cat sat", beside="the dog")
    page = pair.html()
    for name in pair.views:
        heading = pair.result(name).step.heading
        assert (f"{heading} (second text)" in page) == (name != "attention")
    assert "the dog" in pair.notes[0]
    assert list(pair.as_json()["views"]) == ["attention"]
    assert runs["ngram"].inspect("the cat", beside="the dog").text().count("(second text)") == 1


def test_a_lost_end_that_was_more_probable_than_a_kept_candidate_is_explained() -> None:
    """With one finished hypothesis among the best two, the beam is filled up with a less probable candidate that goes
    on; an end that ranked between them is lost although it lacked nothing."""
    nodes = [
        Node(None, 0, -1.0, "kept"),
        Node(None, 1, -1.1, "kept"),
        Node(0, 2, -1.5, "finished"),
        Node(0, 3, -1.6, "kept"),
        Node(1, 2, -1.7, "dropped"),
        Node(0, 4, -1.9, "kept"),
    ]
    ((index, step, behind),) = lost_hypotheses(nodes, node_steps(nodes))
    assert (index, step) == (1, 2)
    assert behind == pytest.approx(-0.2)


def test_an_empty_output_and_a_negative_distance_are_named(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beam, "lost_hypotheses", lambda nodes, steps: [(0, 2, -0.5)])
    view = runs["ngram"].inspect("the cat sat on the mat").result("beam")
    assert "Below zero: an <eos> counts only among the best 4" in view.step.prose
    assert view.value.outputs[0][0] == ""
    assert view.step.figures[1].as_json()["rows"][0]["output"] == "(empty)"
