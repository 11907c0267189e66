"""What taggers answer, word by word, and what the answers are worth: numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwright.core.config import UserError
from seqwright.data.tagged.sentences import encode_sentences
from seqwright.tasks.tagging.scores import TaggingEvaluationConfig, TagPredictions, answers, quick_scores, tag_scores
from seqwright.tasks.tagging.task import tag

from ..contract.taggers import NAMES, WORKED, tagger, tokenizer, worked

TAGS = {name: n for n, name in enumerate(NAMES)}


def test_answers_are_those_of_each_sentence_alone_and_without_dropout() -> None:
    sentences = worked("wings/n", WORKED[2], "an/unheard arrow/n", WORKED[0])
    encoded = encode_sentences(sentences, tokenizer(), TAGS)
    model = tagger("lstm")
    with torch.no_grad():
        alone = [model(encoded.batch(np.array([n])))[0].softmax(-1) for n in range(4)]  # (W, C) each
    reports: list[tuple[int, int]] = []
    found = answers(model.train(), encoded, "cpu", lambda done, of: reports.append((done, of)))
    assert found.tags.tolist() == [tag for row in alone for tag in row.argmax(-1).tolist()]
    assert found.probabilities == pytest.approx([share for row in alone for share in row.amax(-1).tolist()])
    own = [float(alone[n][w, TAGS[tag]].log()) for n in (0, 1, 3) for w, tag in enumerate(sentences[n].tags)]
    assert found.nll == pytest.approx(-sum(own) / 11)  # a sentence with a tag that was not learned tells nothing
    assert reports[-1] == (4, 4)
    known = encoded.tags >= 0
    right = 100 * (found.tags == encoded.tags)[known].mean()
    assert quick_scores(found, encoded) == {"nll": found.nll, "accuracy": pytest.approx(right)}


@pytest.mark.parametrize("at_once", [1, 2, 10])
def test_sentences_are_tagged_in_order_however_many_at_once(at_once: int) -> None:
    given = [("time", "flies"), (), ("an", "arrow", "flies"), ("wings",)]
    for name in ("lstm", "perceptron"):
        model = tagger(name)
        said = list(tag(model, tokenizer(), NAMES, given, at_once=at_once))
        assert [one.words for one in said] == given
        for one in said:
            (alone,) = tag(model, tokenizer(), NAMES, [one.words])
            assert one.tags == alone.tags
            assert len(one.tags) == len(one.words)
            if one.probabilities is not None:
                assert one.probabilities == pytest.approx(alone.probabilities)
                assert len(one.probabilities) == len(one.words)


def test_without_known_tags_there_is_no_likelihood() -> None:
    encoded = encode_sentences(worked("wings/unheard"), tokenizer(), TAGS)
    found = answers(tagger("lstm"), encoded, "cpu")
    assert found.nll is None
    assert quick_scores(found, encoded) == {"accuracy": 0.0}


def test_scores_by_hand() -> None:
    sentences = worked("in/O new/B-loc york/I-loc", "paris/B-loc sleeps/O", "oslo/B-town")
    names = ["O", "B-loc", "I-loc"]
    encoded = encode_sentences(sentences, tokenizer("words"), {name: n for n, name in enumerate(names)})
    said = TagPredictions(tags=np.array([0, 1, 2, 0, 0, 1]), probabilities=None, nll=0.25)
    known = {"in", "new", "york", "sleeps"}
    found = tag_scores(said, sentences, encoded, names, known, TaggingEvaluationConfig(resamples=0))
    assert found["accuracy"] == pytest.approx(100 * 4 / 6)
    assert found["unknown_accuracy"] == 0.0  # neither paris nor oslo
    assert found["sentence_accuracy"] == pytest.approx(100 / 3)
    assert (found["precision"], found["recall"], found["f1"]) == pytest.approx((50, 100 / 3, 40))
    assert (found["nll"], found["words"], found["unlearned_tags"]) == (0.25, 6, {"B-town": 1})
    assert next(iter(found["scores"])) == "nll"
    for name, score in found["scores"].items():
        assert score["signature"].startswith(f"{name}|of:")
        assert "|sentences:3|words:6|unknown:2|unlearned_tags:1|" in score["signature"]
        assert score["low"] is None
    assert [row["class"] for row in found["details"]["per_span"]] == ["loc", "town"]


def test_words_without_spans_and_without_strangers() -> None:
    sentences = worked("time/n flies/v")
    encoded = encode_sentences(sentences, tokenizer(), TAGS)
    said = TagPredictions(tags=np.array([0, 0]), probabilities=None, nll=None)
    found = tag_scores(said, sentences, encoded, NAMES, {"time", "flies"}, TaggingEvaluationConfig(seed=0))
    assert set(found["scores"]) == {"accuracy", "sentence_accuracy"}
    assert set(found["details"]) == {"per_class"}
    assert "unlearned" not in found["scores"]["accuracy"]["signature"]


@pytest.mark.parametrize("name", ["resamples", "seed"])
def test_numbers_below_zero_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} must not be below 0, but is -1"):
        TaggingEvaluationConfig(**{name: -1})
