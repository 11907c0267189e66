"""Layers, heads and spans that select what an inspection shows, and those that are refused; tokenizers that differ."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.inspection import saliency
from seqwright.inspection.gain import tokenizer_difference
from seqwright.text.trainers import TokenizerConfig, train

from .conftest import SOURCES, TEXT, Runs


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("gpt", {"views": ["attentiom"]}, "Did you mean 'attention'?"),
        ("ngram", {"views": ["attention"]}, "which has no view 'attention'; it has tokens, back-off, beam."),
        ("gpt", {"views": ["gain"]}, "Name another run with --against."),
        ("gpt", {"text": " \n"}, "the text is empty"),
        ("gpt", {"target": "x"}, "has no target beside its text"),
        ("gpt", {"image": 1}, "--image is for runs of images"),
        ("vit", {"text": "no.png"}, "no.png"),
        ("vit", {"text": None, "beside": "x"}, "are for texts"),
    ],
)
def test_wrong_input_is_a_user_error(runs: Runs, kind: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        sw.inspect(runs[kind], **({"text": TEXT} | options))  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_views_say_what_counts_and_rows_are(runs: Runs) -> None:
    assert "continuation count" in runs["ngram"].inspect(TEXT).result("back-off").step.prose
    prose = {
        kind: runs[kind].inspect(text).result("attention").step.prose
        for kind, text in (("gpt", TEXT), ("transformer", "the cat sat"), ("seq2seq", "the cat sat"))
    }
    assert "that is predicted there, a row of self-attention for the token that is read" in prose["transformer"]
    assert prose["seq2seq"].endswith("cross-attention is named for the token that is predicted there.")
    assert "cross" not in prose["gpt"]


def approximately(value: Any) -> Any:
    """Equal to JSON whose numbers differ by rounding: other numbers of rows take other kernels."""
    if isinstance(value, dict):
        return {key: approximately(one) for key, one in value.items()}
    if isinstance(value, list):
        return [approximately(one) for one in value]
    return pytest.approx(value, rel=1e-3, abs=1e-5) if isinstance(value, float) else value


@pytest.mark.parametrize("kind", ["gpt", "ngram", "gru", "seq2seq", "classifier"])
def test_span_selects_rows_by_their_numbers(runs: Runs, kind: str) -> None:
    text, target = SOURCES.get(kind, TEXT), {"target": "die Katze sass"} if kind == "seq2seq" else {}
    everything, part = (runs[kind].inspect(text, span=span, **target) for span in (None, (2, 4)))
    for view in set(everything.views) & {"tokens", "back-off", "attention", "gates", "logit-lens", "saliency"}:
        for figure, shown in zip(everything.result(view).step.figures, part.result(view).step.figures, strict=True):
            both = [one.as_json() for one in (figure, shown)]
            rows, kept = (one.get("tokens") or one["rows"] for one in both)
            from_zero = both[0]["name"] in ("self attention", "encoder attention") or (kind, view) == (
                "classifier",
                "saliency",
            )
            first = 0 if view == "gates" or from_zero else 1
            expected = rows[2 - first : 4 - first]
            assert kept == approximately(expected)
    with pytest.raises(UserError, match="no tokens 90:99: the last has the number"):
        runs[kind].inspect(text, span=(90, 99), **target)
    with pytest.raises(UserError, match="a span goes from a token to a later one"):
        runs[kind].inspect(text, span=(4, 2), **target)


def test_saliency_and_gates_of_a_classifier_count_tokens_alike(runs: Runs) -> None:
    part = runs["classifier"].inspect(SOURCES["classifier"], span=(1, 3))
    strip, gates = (part.result(view).step.figures[0].as_json() for view in ("saliency", "gates"))
    assert [one["token"] for one in strip["tokens"]] == gates["rows"] == list(part.tokens[1:3])
    assert strip["first"] == 1
    assert runs["vit"].inspect(span=(1, 3)).result("saliency").step.figures[0].as_json()["tokens"][0]["token"] == "0,0"


def test_saliency_of_a_long_sentence_is_bounded(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["the", "cat", "sat"] * 3
    complete = runs["tagger"].inspect(" ".join(words))["saliency"].integrated_gradients
    monkeypatch.setattr(saliency, "MAX_WORDS", 4)
    monkeypatch.setattr(saliency, "PASS_TOKENS", 40)  # the line in several passes
    short = runs["tagger"].inspect(" ".join(words)).result("saliency")
    assert "The first 4 words are shown" in short.step.prose
    assert short.value.integrated_gradients.rows == complete.rows[:4]
    torch.testing.assert_close(short.value.integrated_gradients.values, complete.values[:4])
    part = runs["tagger"].inspect(" ".join(words), span=(2, 4)).result("saliency")
    assert part.value.integrated_gradients.rows == complete.rows[1:3]
    perceptron = runs["perceptron"].inspect(" ".join(words), span=(2, 4))["saliency"]
    assert [one.word for one in perceptron] == words[1:3]


def test_a_span_without_tokens_of_a_view_is_refused(runs: Runs) -> None:
    with pytest.raises(UserError, match="no tokens 0:1 here: they have the numbers 1 to"):
        runs["gpt"].inspect(TEXT, span=(0, 1)).text()
    page = runs["gpt"].inspect(TEXT, span=(0, 1)).html()
    assert "Attention by layer and head" in page
    assert "next-token distribution" not in page
    decoded = runs["seq2seq"].inspect("the cat", target="die Katze sass die Katze", span=(5, 6))
    assert {figure.name for figure in decoded.result("gates").step.figures} == {"decoder, layer 0", "decoder, layer 1"}
    assert len(decoded.gates) > 2  # values have all layers and tokens


def test_layers_and_heads_that_do_not_exist(runs: Runs) -> None:
    assert "self attention, layer 1, head 0" in runs["gpt"].inspect(TEXT, layer=1, head=0).text()
    with pytest.raises(UserError, match=r"whose views have no layers \(tokens, back-off, beam\)"):
        runs["ngram"].inspect(TEXT, layer=0)
    with pytest.raises(UserError, match="tokens has no heads; choose --view attention"):
        runs["gpt"].inspect(TEXT, head=0, views=["tokens"])
    with pytest.raises(UserError, match="no layer 2: layers go from 0 to 1"):
        runs["gpt"].inspect(TEXT, layer=2, views=["attention"]).text()
    with pytest.raises(UserError, match="no head 5: heads go from 0 to 1"):
        _ = runs["gpt"].inspect(TEXT).attention[0, 5]
    with pytest.raises(UserError, match="--against compares language models"):
        runs["gpt"].inspect(TEXT, against=runs["masked"])


def test_tokenizers_of_other_texts_are_told_apart() -> None:
    ours, theirs, longer = (train(TokenizerConfig(kind="words"), [text]) for text in ("a b", "a c", "a b c"))
    assert re.match(r"its id \d is “b”, not “c”", tokenizer_difference(ours, theirs))
    assert tokenizer_difference(ours, longer) == f"words of {ours.size} tokens, not words of {ours.size + 1}"
    lowered = train(TokenizerConfig(kind="words", lowercase=True), ["a b"])
    assert tokenizer_difference(ours, lowered) == "the same tokens, but normalized or split otherwise"
