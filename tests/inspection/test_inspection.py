"""Inspection: values equal what the model computes, every view in every form, wrong input is named."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import seqwright as sw
from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.core.storage import to_json
from seqwright.data.tagged.formats import Sentence
from seqwright.inspection import figures
from seqwright.inspection.catalog import VIEWS
from seqwright.inspection.embeddings import principal_components
from seqwright.inspection.figures import HeadFigure, ScoredToken, SignedStrip, TokenStrip
from seqwright.inspection.gates import unrolled
from seqwright.inspection.heads import distance, entropy
from seqwright.inspection.labeled import Heads
from seqwright.layers.attention import Attend
from seqwright.layers.recording import recorded_calls

from .conftest import SOURCES, TEXT, Runs

HAVE = {
    "ngram": {"tokens", "back-off", "beam"},
    "gpt": {"tokens", "saliency", "attention", "logit-lens", "beam", "heads", "positions", "neighbors", "map"},
    "gru": {"tokens", "saliency", "gates", "beam", "neighbors", "map"},
    "mogrifier": {"tokens", "saliency", "gates", "beam", "neighbors", "map"},
    "transformer": {"tokens", "saliency", "attention", "logit-lens", "beam", "heads", "positions", "neighbors", "map"},
    "prefix": {"tokens", "saliency", "attention", "logit-lens", "beam", "heads", "positions", "neighbors", "map"},
    "seq2seq": {"tokens", "saliency", "attention", "gates", "beam", "neighbors", "map"},
    "classifier": {"saliency", "gates", "neighbors", "map"},
    "bag": {"saliency"},
    "tagger": {"saliency", "gates", "neighbors", "map"},
    "crf": {"saliency", "transitions", "gates", "neighbors", "map"},
    "perceptron": {"saliency"},
    "masked": {"tokens", "attention", "logit-lens", "heads", "positions", "neighbors", "map"},
    "chat": {"tokens", "saliency", "attention", "logit-lens", "heads", "positions", "neighbors", "map"},
    "bart": {"tokens", "saliency", "attention", "logit-lens", "heads", "positions", "neighbors", "map"},
    "vit": {"image", "saliency", "attention", "heads", "positions"},
    "mae": {"image", "attention", "heads", "positions"},
    "captioner": {"tokens", "image", "saliency", "attention", "logit-lens", "beam", "heads", "positions"}
    | {"neighbors", "map"},
}
IMAGES = ("vit", "mae", "captioner")


@pytest.mark.parametrize("kind", HAVE)
def test_every_view_is_shown_as_text_json_and_page(runs: Runs, kind: str) -> None:
    source = None if kind in IMAGES else SOURCES.get(kind, TEXT)
    inspection = runs[kind].inspect(source, views=sorted(HAVE[kind]))
    assert set(inspection.views) == HAVE[kind]
    text, page, parsed = inspection.text(), inspection.html(), json.loads(to_json(inspection.as_json()))
    assert set(parsed["views"]) == HAVE[kind]
    for name in HAVE[kind]:
        assert inspection.result(name).step.heading in text
        assert inspection.result(name).step.heading in page
    assert "Content-Security-Policy" in page
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)  # nothing is loaded
    assert inspection._repr_html_()


@pytest.mark.parametrize("kind", ["gpt", "transformer", "prefix", "masked"])
def test_attention_weights_are_those_of_the_fused_kernel(runs: Runs, kind: str) -> None:
    run, inspection = runs[kind], runs[kind].inspect(TEXT)
    for heads in inspection.attention.kinds.values():
        for at in heads:
            labeled = heads[at]
            assert labeled.values.shape == (len(labeled.rows), len(labeled.columns))
            assert_close(labeled.values.sum(-1), torch.ones(len(labeled.rows)))
    layers = [layer for heads in inspection.attention.kinds.values() for layer in heads.layers]
    modules = [module for module in run.model.modules() if isinstance(module, Attend)]
    with torch.inference_mode(), recorded_calls(modules, lambda *call: call) as calls:
        run.model(inspection.subject.example.batch)
    for [(module, (query, key, value), options, output)] in calls:
        weights = module.weights(query, key, **options)
        assert_close(weights @ value, output)
        assert any(layer.shape == weights[0].shape and torch.equal(layer, weights[0]) for layer in layers)


def test_attention_of_two_texts_is_shown_beside_each_other(runs: Runs) -> None:
    texts = "the cat sat on the mat", "the cat sat on the dog"
    pair = runs["gpt"].inspect(texts[0], beside=texts[1], layer=1, head=0)
    first, second = pair.result("attention").step.figures
    assert (first.name, second.name) == ("self attention, first text", "self attention, second text")
    for figure, text in zip((first, second), texts, strict=True):
        assert figure.as_json()["weights"][0][0] == runs["gpt"].inspect(text).attention[1, 0].values.tolist()
    assert texts[1] in pair.text()


def test_recording_a_cached_step_equals_recording_a_forward_pass(runs: Runs) -> None:
    run, inspection = runs["gpt"], runs["gpt"].inspect(TEXT)
    batch = inspection.subject.example.batch
    modules = [module for module in run.model.modules() if isinstance(module, Attend)]
    state = run.model.start(batch.source, capacity=batch.input.size(1))
    with torch.inference_mode():
        _, state = run.model.step(batch.input[:, :-1], state)
        with recorded_calls(
            modules, lambda module, inputs, options, _: module.weights(*inputs[:2], **options)
        ) as calls:
            run.model.step(batch.input[:, -1:], state)
    for layer, [weights] in enumerate(calls):
        assert_close(weights[0, :, 0, : batch.input.size(1)], inspection.attention["self"].layers[layer][:, -1])


@pytest.mark.slow
def test_recording_a_compiled_model_equals_recording_a_plain_one(runs: Runs) -> None:
    """In a process of its own: the compiler takes seconds to import, and changes what is imported for others."""
    code = f"""
import torch, seqwright as sw
from seqwright.layers.attention import Attend
from seqwright.layers.recording import attention_weights, recorded_calls
run = sw.open({str(runs["gpt"].path)!r}, device="cpu")
batch = run.inspect({TEXT!r}).subject.example.batch
attend = [module for module in run.model.modules() if isinstance(module, Attend)]
compiled = torch.compile(run.model, backend="eager")
with torch.inference_mode():
    before = compiled(batch)
    with recorded_calls(attend, attention_weights) as plain:
        run.model(batch)
    with recorded_calls(attend, attention_weights) as recorded:
        after = compiled(batch)
assert len(recorded) == 2 and all(len(calls) == 1 for calls in recorded)
assert all(torch.equal(one[0], other[0]) for one, other in zip(plain, recorded))
assert torch.equal(before, after)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", ["ngram", "gpt", "gru"])
def test_surprisals_are_the_scores_of_the_run(runs: Runs, kind: str) -> None:
    inspection = runs[kind].inspect(TEXT)
    batch = inspection.subject.example.batch
    bits = -runs[kind].model.score(batch)[0][batch.target != IGNORE] / math.log(2)
    assert_close(torch.tensor(inspection["tokens"].bits), bits.float().cpu(), atol=1e-3, rtol=1e-3)
    first = inspection["tokens"].tokens[0]
    assert first.token == "the"
    assert first.rank == 1 + sum(p > first.probability for p in inspection["tokens"].log_probs[0].exp().tolist())
    assert inspection["tokens"].tokens[-1].bits is None  # what follows the text


@pytest.mark.parametrize("kind", ["gru", "mogrifier", "seq2seq", "classifier", "tagger"])
def test_unrolled_gates_reproduce_the_outputs_of_the_network(runs: Runs, kind: str) -> None:
    inspection = runs[kind].inspect(SOURCES.get(kind, TEXT))
    networks = inspection.subject.forward.recurrent
    assert networks
    for calls in networks:
        last = unrolled(calls)[-1]
        assert_close(torch.cat([values["hidden"] for values in last], -1), calls.outputs[0])
    numbers = [layer.layer for layer in inspection.gates]
    assert set(numbers) == ({0, 1} if kind in ("gru", "mogrifier", "seq2seq") else {0})
    gate = inspection.gates[0].values
    assert all(0 <= float(gate[name].values.min()) <= float(gate[name].values.max()) <= 1 for name in list(gate)[:2])


@pytest.mark.parametrize("kind", ["gpt", "transformer", "prefix"])
def test_the_last_layer_of_the_logit_lens_is_the_model(runs: Runs, kind: str) -> None:
    recorded = runs[kind].inspect(TEXT).subject.forward
    assert recorded.lens is not None
    with torch.inference_mode():
        assert_close(recorded.lens.log_probs(-1), recorded.log_probs)
    assert len(recorded.lens.hidden) == 3  # embedding and two blocks


def test_logit_lens_of_a_masked_language_model(runs: Runs) -> None:
    run = runs["masked"]
    subject = run.inspect("the <mask> sat").subject
    assert subject.forward.lens is not None
    with torch.inference_mode():
        expected = run.model.head.log_probs(run.model.hidden(subject.example.batch)[0][0])
        assert_close(subject.forward.lens.log_probs(-1), expected)
    inspection = run.inspect("the <mask> sat")  # each token is masked in turn: visible ones would be copied
    lens = inspection["logit-lens"]
    assert lens.rows == ("the", "sat")
    assert_close(lens.values[:, -1].tolist(), inspection["tokens"].bits)


@pytest.mark.parametrize("kind", ["classifier", "tagger", "gpt", "gru", "transformer", "prefix", "seq2seq"])
def test_integrated_gradients_are_complete(runs: Runs, kind: str) -> None:
    inspection = runs[kind].inspect(SOURCES.get(kind, TEXT))
    saliency = inspection["saliency"]
    totals = saliency.integrated_gradients.values.sum(-1)
    assert_close(totals, torch.tensor(saliency.differences), atol=1e-3, rtol=1e-2)
    assert saliency.integrated_gradients.columns == (inspection.subject.example.source or inspection.tokens)
    if kind == "gpt":  # no token adds to a prediction before it
        assert torch.equal(saliency.gradient_input.values.triu(1), torch.zeros_like(saliency.gradient_input.values))


@pytest.mark.parametrize("kind", ["vit", "captioner"])
def test_attention_and_saliency_of_patches(runs: Runs, kind: str) -> None:
    inspection = runs[kind].inspect(image=1, **({"target": "the left"} if kind == "captioner" else {}))
    maps = inspection["image"]
    if kind == "vit":
        assert inspection.attention[0, 0].columns[:3] == ("<cls>", "0,0", "0,1")
        expected = inspection.attention["self"].mean(1).values[0, 1:]
        assert_close(maps["layer 1"], expected.view(2, 3))
    else:
        assert list(maps) == ["1. the", "2. left", "3. <eos>"]
        assert_close(maps["2. left"].sum(), torch.tensor(1.0))
    saliency = inspection["saliency"]
    assert saliency.integrated_gradients.columns == ("0,0", "0,1", "0,2", "1,0", "1,1", "1,2")
    totals = saliency.integrated_gradients.values.sum(-1)
    assert_close(totals, torch.tensor(saliency.differences), atol=1e-2, rtol=1e-2)  # norms of small embeddings
    assert "data:image/png;base64," in inspection.html()
    with pytest.raises(UserError, match="no image 40"):
        runs[kind].inspect(str(runs["vit"].settings.data.train[0]), image=40)


def test_masked_autoencoder_attends_to_visible_patches(runs: Runs) -> None:
    inspection = runs["mae"].inspect()
    visible = inspection.subject.example.batch.source.visible
    assert len(inspection.attention[0, 0].columns) == 1 + visible.size(1) < 1 + 6
    assert [figure.name for figure in inspection.result("image").step.figures] == ["image", "input", "output"]


def test_a_text_with_a_mask_is_inspected_on_what_is_restored(runs: Runs) -> None:
    masked = runs["bart"].inspect("the <mask> sat")
    assert "<mask>" in masked.subject.example.source
    assert "<" not in masked.subject.example.targets  # the letters of "<mask>" are no target
    assert masked.notes[0].startswith("target, the output of the search: ")
    first = masked["tokens"].tokens[0]
    assert first.token == next(name for name, _ in first.alternatives if name[0] != "<"), "the search is greedy"
    assert runs["bart"].inspect("the cat sat").subject.example.targets == ("the", "cat", "sat", "<eos>")


def test_only_replies_of_an_assistant_are_scored(runs: Runs) -> None:
    scored = runs["chat"].inspect("cat?", target="dog.")["tokens"].tokens
    assert [token.token for token in scored if token.bits is not None] == ["dog.", "<|end|>"]


def test_masked_tokens_are_predicted_without_being_seen(runs: Runs) -> None:
    run = runs["masked"]
    scores = run.inspect("the cat sat")["tokens"]
    guesses = run.fill("the <mask> sat", top_k=3).blanks[0]
    allowed = [name for name, _ in scores.tokens[1].alternatives if not name.startswith("<")]
    assert allowed[0] == guesses[0].token
    assert [token.token for token in scores.tokens] == ["the", "cat", "sat"]


def test_mask_token_of_a_text_is_the_mask_of_fill(runs: Runs) -> None:
    run = runs["masked"]
    scores = run.inspect("the <mask> sat").result("tokens").value
    assert [(token.token, token.bits is None) for token in scores.tokens] == [
        ("the", False),
        ("<mask>", True),
        ("sat", False),
    ]
    (filled,) = run.fill(["the <mask> sat"], top_k=1)
    alternatives = [token for token, _ in scores.tokens[1].alternatives if not token.startswith("<")]
    assert alternatives[0] == filled.blanks[0][0].token
    assert "&lt;mask&gt;" in run.inspect("the <mask> sat").html()


def test_margins_of_a_perceptron_are_sums_of_weights(runs: Runs) -> None:
    run = runs["perceptron"]
    explanations = run.inspect("the cat sat").result("saliency").value
    (tagged,) = run.tag(["the cat sat"])
    assert [one.tag for one in explanations] == list(tagged.tags) == ["D", "N", "V"]
    for one in explanations:
        assert one.margin >= 0
        assert one.margin == pytest.approx(sum(weight for _, weight in one.features) + one.transitions)
        assert one.against != one.tag
    batch = run.codec.encode([Sentence(("the", "cat", "sat"), ())], None).batch(np.arange(1))
    assert_close(torch.from_numpy(run.model.feature_weights(batch.source).sum(1)), run.model(batch)[0])


def test_back_off_has_a_row_for_every_token_in_json(runs: Runs) -> None:
    inspection = runs["ngram"].inspect(" ".join(["the cat sat"] * 30), views=["back-off"])
    (figure,) = inspection.as_json()["views"]["back-off"]["figures"]
    assert len(figure["rows"]) == 90
    assert "… 30 more rows (--span A:B shows others)" in inspection.text()
    probabilities = torch.tensor([row["probability"] for row in figure["rows"]])
    expected = torch.tensor([token.probability for token in inspection["tokens"].tokens[:-1]])
    assert_close(probabilities, expected, atol=1e-6, rtol=1e-4)


def test_gain_over_a_run_with_other_documents_says_so(runs: Runs, tmp_path: Path) -> None:
    keys = [f"tokenizer.file={runs['ngram'].path}/tokenizer.json", "data.document=file"]
    whole = sw.train(text=str(runs["ngram"].settings.data.train[0]), model="ngram", set=keys, run=tmp_path / "whole")
    prose = runs["gpt"].inspect(TEXT, against=whole).result("gain").step.prose
    assert "A document was a line to gpt, a file to whole" in prose
    assert "A document" not in runs["gpt"].inspect(TEXT, against=runs["ngram"]).result("gain").step.prose


def test_gain_over_an_ngram_is_the_difference_of_surprisals(runs: Runs) -> None:
    inspection = runs["gpt"].inspect(TEXT, against=runs["ngram"])
    ours, theirs = (run.inspect(TEXT)["tokens"].bits for run in (runs["gpt"], runs["ngram"]))
    assert_close(
        inspection["gain"].values[:, 0],
        torch.tensor(theirs) - torch.tensor(ours),
        atol=1e-4,
        rtol=1e-4,
    )
    assert "gain of gpt over ngram" in inspection.text()


def test_statistics_of_heads() -> None:
    uniform, previous = torch.full((1, 4, 4), 0.25), torch.eye(4).roll(-1, 1).unsqueeze(0)
    assert_close(entropy(uniform), torch.tensor([2.0]))
    assert_close(entropy(previous), torch.tensor([0.0]))
    assert_close(distance(torch.eye(4).unsqueeze(0)), torch.tensor([0.0]))


def test_principal_components_find_the_plane_of_the_points() -> None:
    torch.manual_seed(1)
    plane = torch.randn(50, 2) * torch.tensor([3.0, 1.0])
    vectors = nn.functional.pad(plane, (0, 3)) @ torch.linalg.qr(torch.randn(5, 5))[0]
    points, share = principal_components(vectors, vectors)
    assert share == pytest.approx(1.0)
    assert_close(torch.pdist(points.float()), torch.pdist(vectors), atol=1e-4, rtol=1e-4)


def test_a_page_of_many_weights_keeps_the_strongest_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "PAGE_BYTES", 20_000)
    tokens = tuple(map(str, range(40)))
    heads = Heads("self", [torch.rand(2, 40, 40, generator=torch.manual_seed(1)).softmax(-1)] * 2, tokens, tokens)
    page = HeadFigure(heads, (0, 1), (0, 1)).html()
    assert "A row has 40 weights; the 15 strongest are kept" in page
    data = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    strongest = sorted(heads[0, 1].values[7].topk(15).indices.tolist())
    assert data["weights"][0][1][7][::2] == strongest
    assert len(page) < 20_000 + 4_000


def test_tokens_of_probability_zero_are_shown() -> None:
    impossible = ScoredToken("cat", 0.0, math.inf, 2, (("dog", 1.0),))
    likely = ScoredToken("dog", 0.5, 1.0, 1, (("dog", 0.5),))
    strip = TokenStrip("tokens", (likely, impossible))
    assert strip.text().startswith("dog█ cat█")
    assert "inf bits" in strip.html()
    gains = SignedStrip("gain", ("a", "b", "c"), (math.inf, -1.0, math.nan), "bits")
    assert "|██████████" in gains.text()
    assert "--weight: 0.000" in gains.html()


def test_a_text_longer_than_the_context_is_cut_and_said(runs: Runs) -> None:
    inspection = runs["gpt"].inspect(" ".join(["the cat"] * 20))
    assert len(inspection.tokens) == 16
    assert inspection.notes == ("the model sees at most 16 tokens at a time: the last 25 are left out.",)


def test_tokens_of_a_stranger_are_escaped(runs: Runs) -> None:
    inspection = sw.inspect(runs["masked"], "</script><script>alert(1)</script> \x1b[31m")
    assert "<script>alert" not in inspection.html()
    labels = ("</script><script>alert(1)", "\x1b[31m")
    figure = HeadFigure(Heads("self", [torch.eye(2).unsqueeze(0)], labels, labels), (0,), (0,))
    assert "</script><script>" not in figure.html()
    assert "\x1b" not in figure.html()


def test_without_a_text_the_validation_data_is_sampled(runs: Runs) -> None:
    assert runs["gpt"].inspect().subject.example.text.startswith("the")
    assert runs["transformer"].inspect(target="die Katze").subject.example.targets == ("die", "Katze", "<eos>")
    with pytest.raises(UserError, match="has no validation text to show; give a text"):
        runs["ngram"].inspect()


def test_one_view_is_named_by_a_string(runs: Runs) -> None:
    assert str(runs["gpt"].inspect(TEXT, views="attention")) == str(runs["gpt"].inspect(TEXT, views=["attention"]))
    with pytest.raises(UserError, match=r"no view 'attentions'\. Did you mean 'attention'\?"):
        runs["gpt"].inspect(TEXT, views="attentions")


def test_every_view_belongs_to_some_run() -> None:
    assert set().union(*HAVE.values()) | {"gain"} == set(VIEWS)
