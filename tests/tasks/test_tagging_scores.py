"""Predictions of taggers and their scores, against numbers computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwright.core.config import UserError
from seqwright.core.progress import Progress
from seqwright.data.tagged.sentences import encode_sentences
from seqwright.tasks.tagging.codec import TaggingCodec
from seqwright.tasks.tagging.scores import TaggingEvaluationConfig, TagPredictions, predict, quick_scores, tag_scores
from seqwright.tasks.tagging.task import tag

from ..contract.taggers import NAMES, WORKED, tagger, tokenizer, worked

TAGS = {name: n for n, name in enumerate(NAMES)}


def codec(tags: list[str], words: set[str], kind: str = "words") -> TaggingCodec:
    return TaggingCodec(tokenizer=tokenizer(kind), tags=tuple(tags), words=frozenset(words))


class Calls(Progress):
    """Records how far the work is."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def advance(self, done: int, total: int) -> None:
        self.calls.append((done, total))


def test_predictions_equal_those_of_each_sentence_alone_without_dropout() -> None:
    sentences = worked("wings/n", WORKED[2], "an/unknown arrow/n", WORKED[0])
    encoded = encode_sentences(sentences, tokenizer(), TAGS)
    model = tagger("lstm")
    with torch.no_grad():
        alone = [model(encoded.batch(np.array([n])))[0].softmax(-1) for n in range(4)]  # (W, C) each
    progress = Calls()
    predictions = predict(model.train(), encoded, progress=progress)
    assert predictions.tags.tolist() == [tag for row in alone for tag in row.argmax(-1).tolist()]
    assert predictions.probabilities == pytest.approx([p for row in alone for p in row.amax(-1).tolist()])
    log_probs = [float(alone[n][w, TAGS[tag]].log()) for n in (0, 1, 3) for w, tag in enumerate(sentences[n].tags)]
    assert predictions.nll == pytest.approx(-sum(log_probs) / 11)  # a sentence with an unknown tag has no likelihood
    done, total = progress.calls[-1]
    assert done == total == len(progress.calls)
    known = encoded.tags >= 0
    accuracy = 100 * (predictions.tags == encoded.tags)[known].mean()
    assert quick_scores(predictions, encoded) == {"nll": predictions.nll, "accuracy": pytest.approx(accuracy)}


@pytest.mark.parametrize("read_ahead", [1, 2, 10])
def test_sentences_are_tagged_in_order_whatever_is_read_ahead(read_ahead: int) -> None:
    sentences = [("time", "flies"), (), ("an", "arrow", "flies"), ("wings",)]
    shared = TaggingCodec(tokenizer=tokenizer(), tags=tuple(NAMES), words=frozenset())
    for name in ("lstm", "perceptron"):
        model = tagger(name)
        tagged = list(tag(model, shared, sentences, read_ahead=read_ahead))
        assert [one.words for one in tagged] == sentences
        for one in tagged:
            (alone,) = tag(model, shared, [one.words])
            assert one.tags == alone.tags
            assert len(one.tags) == len(one.words)
            if one.probabilities is not None:
                assert one.probabilities == pytest.approx(alone.probabilities)
                assert len(one.probabilities) == len(one.words)


def test_without_known_tags_there_is_no_likelihood() -> None:
    encoded = encode_sentences(worked("wings/unknown"), tokenizer(), TAGS)
    predictions = predict(tagger("lstm"), encoded)
    assert predictions.nll is None
    assert quick_scores(predictions, encoded) == {"accuracy": 0.0}


def test_scores_of_tags_and_spans() -> None:
    sentences = worked("in/O new/B-loc york/I-loc", "paris/B-loc sleeps/O", "oslo/B-town")
    names = ["O", "B-loc", "I-loc"]
    encoded = encode_sentences(sentences, tokenizer("words"), {name: n for n, name in enumerate(names)})
    predictions = TagPredictions(tags=np.array([0, 1, 2, 0, 0, 1]), probabilities=None, nll=0.25)
    shared = codec(names, {"in", "new", "york", "sleeps"})
    found = tag_scores(predictions, shared, sentences, encoded, TaggingEvaluationConfig(resamples=0))
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
    assert found["details"]["classes"] == ["B-loc", "O", "B-town", "I-loc"]
    assert found["details"]["confusion"] == [[1, 1, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    *_, per_class, confused, per_span, unknown = found.printed("")
    titles = [table.columns[0].header.plain for table in (per_class, confused, per_span)]
    assert titles == ["class", "true", "span"]
    assert next(iter(confused.columns[1].cells)).plain == "O"
    assert unknown == "tags not seen in training, counted as wrong: B-town (1)."


def test_scores_without_spans_and_without_unknown_words() -> None:
    sentences = worked("time/n flies/v")
    encoded = encode_sentences(sentences, tokenizer(), TAGS)
    predictions = TagPredictions(tags=np.array([0, 0]), probabilities=None, nll=None)
    shared = codec(NAMES, {"time", "flies"})
    found = tag_scores(predictions, shared, sentences, encoded, TaggingEvaluationConfig(seed=0))
    assert set(found["scores"]) == {"accuracy", "sentence_accuracy"}
    assert set(found["details"]) == {"per_class", "classes", "confusion"}
    assert "unlearned" not in found["scores"]["accuracy"]["signature"]


@pytest.mark.parametrize("name", ["resamples", "seed"])
def test_negative_evaluation_options_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} must not be below 0, but is -1"):
        TaggingEvaluationConfig(**{name: -1})
