"""Topics: the table agrees with the functions, every topic is shown in every form, wrong input is named."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.core.storage import to_json
from seqwright.studies.explain.catalog import TOPICS, _imported
from seqwright.studies.explain.figures import Branch, Tree, matrix, number, table, visible

from .test_worked_examples import explained

PROMPT = "the cat"
RUNS = ("ngram", "gpt", "lstm", "gru", "rnn", "bert", "vit", "translator", "transformer", "tagger")


@pytest.mark.parametrize("name", TOPICS)
def test_the_table_says_what_a_topic_takes(name: str) -> None:
    function, topic = _imported(TOPICS[name].home), TOPICS[name]
    options = get_type_hints(function)["options"]
    assert ("run" in inspect.signature(function).parameters) == bool(topic.run)
    assert "text" in {f.name for f in fields(options)} or not topic.on


@pytest.mark.parametrize("name", TOPICS)
def test_every_topic_is_shown_as_text_json_and_page(name: str) -> None:
    explanation = explained(name)
    text, page = explanation.text(), explanation.html()
    for number_of, step in enumerate(explanation.steps, 1):
        assert f"{number_of}. {step.heading}" in text
        assert f'id="step-{number_of}"' in page
    assert max(map(len, text.split("\n"))) <= 200
    assert "Content-Security-Policy" in page
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)  # nothing is loaded
    parsed = json.loads(to_json(explanation.as_json()))
    assert [step["heading"] for step in parsed["steps"]] == [step.heading for step in explanation.steps]
    assert "<section" in explanation._repr_html_()


@pytest.mark.parametrize("name", [name for name, topic in TOPICS.items() if topic.on and not topic.image])
@pytest.mark.parametrize("text", ["một hai một ba", "🙂", "<script>alert(1)</script> \x1b[31m & more"])
def test_topics_on_a_text_escape_it(name: str, text: str) -> None:
    page = sw.explain(name, on=f"{text}\n{text}\n{text}").html()  # of bleu and f1, the other lines are references
    assert "<script>alert" not in page
    assert "\x1b" not in page


@pytest.mark.parametrize(
    ("topic", "options", "message"),
    [
        ("attentiom", {}, "Did you mean 'attention'?"),
        ("tricks", {"on": "text"}, "takes no text; these do: vocabulary"),
        ("sgd", {"on": "text"}, "three words or more make pairs"),
        ("search", {"on": "text"}, "takes a text together with a run only"),
        ("bleu", {"on": "the cat"}, "give references, too"),
        ("bleu", {"on": "the cat\nthe cat", "set": ['references=["a"]']}, "not both"),
        ("masking", {"set": ["text=a"]}, "--on TEXT sets the text"),
        ("lstm", {"set": ["unit=1"]}, "'unit' is of a trained run: add --run RUN. Of the example --set changes x, W"),
        ("bpe", {"on": " \n"}, "the text is empty"),
        ("rnn", {"set": ["W_hhh=1"]}, "has no value 'W_hhh'. Did you mean 'W_hh'?"),
        ("rnn", {"set": ["W_hh[0,4]=1"]}, "indices go from 0 to 3, not to 4"),
        ("rnn", {"set": ["ids=[1]"]}, "ids has 4 entries; give as many numbers, or one: ids[0]=1."),
        ("rnn", {"set": ["W_hh=[[1]]"]}, "W_hh is 4 × 4; give as many numbers, or one: W_hh[0,0]=1."),
        ("rnn", {"set": ["W_hh[0,0,0]=1"]}, "it has 2 indices, not 3"),
        ("rnn", {"set": ["learning_rate=fast"]}, "must be a number"),
        ("attention", {"set": ["X=[[1,2]]"]}, "each row of X has 3 numbers"),
        ("layer-norm", {"set": ["x=[]"]}, "give 1 to 64 entries"),
        ("search", {"set": ["p[0,0]=-1"]}, "none below 0"),
        ("search", {"set": ["length_alpha=1e9"]}, "length_alpha is at most 10"),
        ("sgd", {"set": ["seed=-1"]}, "seed"),
        ("bert", {"set": ["seed=-1"]}, "seed"),
        ("sampling", {"set": ["temperature=0"]}, "temperature must be above 0"),
        ("sampling", {"set": ["top_p=2"]}, "top_p is a probability"),
        ("seq2seq", {"set": ['source=""']}, 'must be a list of whole numbers, as in [1], not "".'),
    ],
)
def test_wrong_input_is_a_user_error(topic: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        sw.explain(topic, **options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_a_figure_or_step_that_does_not_exist() -> None:
    with pytest.raises(UserError, match="Did you mean 'P'"):
        explained("attention")["p"]
    with pytest.raises(UserError, match="has steps 1 to 10, not 11"):
        explained("attention").text(11)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text("the cat sat on the mat\nthe dog sat on the cat\n" * 20)
    tiny = ["model.layers=1", "model.width=8", "model.heads=2", "model.context=8", "training.steps=2"]
    small = [*tiny, "training.batch_size=2", "tokenizer.kind=words", "model.qk_norm=true"]
    recurrent = [key for key in small if not any(word in key for word in ("heads", "context", "qk_norm"))]
    for kind, options in (
        ("ngram", ["tokenizer.kind=words"]),
        ("gpt", small),
        ("lstm", recurrent),
        ("gru", recurrent),
        ("rnn", recurrent),
    ):
        sw.train(text=str(folder / "text.txt"), model=kind, set=options, run=folder / kind)
    pairs = [str(folder / "text.txt")] * 2
    sw.train(pairs=pairs, model="lstm", set=[*recurrent, "data.split=tail 10%"], run=folder / "translator")
    blocks = [key for key in small if "qk_norm" not in key]
    sw.train(pairs=pairs, set=[*blocks, "data.split=tail 10%"], run=folder / "transformer")
    (folder / "tags.tsv").write_text("the\tD\ncat\tN\n\n" * 10)
    sw.train(
        tagged=str(folder / "tags.tsv"), model="gru", set=["model.width=8", "training.steps=2"], run=folder / "tagger"
    )
    sw.train(masked=str(folder / "text.txt"), set=small, run=folder / "bert")
    pixels = np.random.default_rng(1).integers(0, 256, (20, 4, 4), np.uint8)
    np.savez(folder / "images.npz", images=pixels, labels=np.array(["a", "b"] * 10))
    images = [key for key in tiny if "context" not in key]
    sw.train(images=str(folder / "images.npz"), set=images, run=folder / "vit")
    return {kind: folder / kind for kind in RUNS}


@pytest.mark.parametrize(
    ("topic", "kind", "figure"),
    [
        ("vocabulary", "gpt", "vocabulary"),
        ("pairs", "gpt", "pairs"),
        ("ngram", "ngram", "back-off"),
        ("sampling", "gpt", "draws"),
        ("sampling", "ngram", "draws"),
        ("search", "ngram", "beam tree"),
        ("search", "transformer", "beam tree"),
        ("attention", "gpt", "layer 0, head 1"),
        ("attention", "bert", "layer 0, head 1"),
        ("attention", "transformer", "layer 1, head 1"),
        ("layer-norm", "bert", "features of each token"),
        ("transformer", "transformer", "root mean squares"),
        ("gru", "tagger", "means over the units"),
        ("seq2seq", "transformer", "shifted"),
        ("lstm", "lstm", "unit 0"),
        ("gru", "gru", "means over the units"),
        ("bert", "bert", "predictions"),
        ("cross-attention", "translator", "P"),
        ("multi-head", "gpt", "P of head 1"),
        ("layer-norm", "gpt", "features of each token"),
        ("transformer", "gpt", "root mean squares"),
        ("rnn", "rnn", "unit 0"),
    ],
)
def test_topics_on_a_run(runs: dict[str, Path], topic: str, kind: str, figure: str) -> None:
    explanation = sw.explain(topic, run=runs[kind], on=PROMPT)
    assert explanation[figure].as_json()
    assert explanation.html()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_gates_of_a_run_give_the_states_of_the_fused_kernel(runs: dict[str, Path], kind: str) -> None:
    explanation = sw.explain(kind, run=runs[kind], on=PROMPT, set=["unit=7"])
    assert explanation["largest difference from the fused kernel's h"].values < 1e-6
    with pytest.raises(UserError, match="units go from 0 to 7"):
        sw.explain(kind, run=runs[kind], on=PROMPT, set=["unit=8"])


def test_layers_of_a_run(runs: dict[str, Path]) -> None:
    states = sw.explain("rnn", run=runs["rnn"], on=PROMPT)
    assert states["largest difference from the network's own h"].values < 1e-6
    model = sw.open(runs["gpt"])
    weights = model.inspect(PROMPT).attention[0, 1]
    shown = sw.explain("multi-head", run=runs["gpt"], on=PROMPT)["P of head 1"].values
    assert np.allclose(shown, weights.values[: len(shown), : len(shown)].numpy(), atol=1e-6)
    for kind in ("bert", "transformer"):
        heads = sw.open(runs[kind], device="cpu").inspect(PROMPT).attention["self" if kind == "bert" else "encoder"]
        shown = sw.explain("attention", run=runs[kind], on=PROMPT)["layer 0, head 1"]
        assert np.allclose(shown.values, heads[0, 1].values.numpy(), atol=1e-6)
        assert shown.rows == heads.rows
    predicted = sw.explain("transformer", run=runs["gpt"], on=PROMPT)["next token"].rows
    assert predicted[0][1] >= predicted[1][1]
    for topic in ("multi-head", "layer-norm"):
        with pytest.raises(UserError, match="go from 0 to"):
            sw.explain(topic, run=runs["gpt"], on=PROMPT, set=["layer=9"])


def test_an_ngram_run_shows_what_follows_a_context_without_a_text(runs: dict[str, Path]) -> None:
    explanation = sw.explain("ngram", run=runs["ngram"], set=["context=sat on"])
    assert [step.heading for step in explanation.steps] == ["The most probable tokens after “sat on”"]
    (token, probability, *_), *_ = explanation["next"].rows
    scored = sw.open(runs["ngram"]).inspect("sat on the")["tokens"].tokens[2]
    assert token == scored.token == "the"
    assert probability == pytest.approx(scored.probability, rel=1e-4)
    both = sw.explain("ngram", run=runs["ngram"], on="the dog", set=["context=the cat"])
    assert len(both.steps) == 2
    with pytest.raises(UserError, match="name the text"):
        sw.explain("ngram", run=runs["ngram"])


def test_masks_positions_and_gradients_of_a_run(runs: dict[str, Path]) -> None:
    causal, both = (np.array(sw.explain("masking", run=runs[kind], on=PROMPT)["M"].values) for kind in ("gpt", "bert"))
    assert np.array_equal(causal, np.tril(np.ones_like(causal)))
    assert both.all()
    similarity = sw.explain("positions", run=runs["gpt"])["similarity by distance"].rows
    assert similarity[0] == (0, pytest.approx(1.0))
    with pytest.raises(UserError, match="takes no text"):
        sw.explain("positions", run=runs["gpt"], on=PROMPT)
    with pytest.raises(UserError, match="encodes no positions"):
        sw.explain("positions", run=runs["lstm"])
    model, text = sw.open(runs["lstm"], device="cpu"), "the cat sat on the mat"
    rows = sw.explain("gradients", run=model, on=text)["g"].rows
    assert [row[1] for row in rows] == ["the", "on", "sat", "cat", "the", "<sos>"]
    assert max(row[2] for row in rows) == 1.0


def test_pairs_of_a_text_have_their_own_bound() -> None:
    explanation = sw.explain("sgd", on="the cat saw the dog and the cat")
    assert "accuracy 6/7 and 0.2728 nats" in explanation.steps[-1].prose
    assert "can reach accuracy 2/2 and 0.0000 nats" in sw.explain("sgd", on="a b c").steps[-1].prose


def test_patches_of_an_image_file(runs: dict[str, Path], tmp_path: Path) -> None:
    pixels = np.full((1, 12, 12), 200, np.uint8)
    np.savez(tmp_path / "one.npz", images=pixels)
    assert sw.explain("vit", on=str(tmp_path / "one.npz"))["image"].values == pixels[0].tolist()
    np.savez(tmp_path / "four.npz", images=pixels[:, :4, :4])
    classes = sw.explain("vit", run=runs["vit"], on=str(tmp_path / "four.npz"))["most probable classes"]
    (predicted,) = sw.open(runs["vit"]).classify(str(tmp_path / "four.npz"), temperature=1.0)
    assert classes.rows[0] == (predicted.label, pytest.approx(predicted.probability))


def test_a_run_that_cannot_show_a_topic(runs: dict[str, Path]) -> None:
    for topic, kind, message in (
        ("ngram", "gpt", "which does not back off"),
        ("attention", "ngram", "which has no self-attention"),
        ("sgd", "gpt", "takes no run; these do: vocabulary"),
        ("gradients", "ngram", "which has no embedding"),
        ("seq2seq", "gpt", "is what translators do"),
        ("rnn", "gpt", "which has no Elman network"),
        ("transformer", "lstm", "which has no Transformer block"),
        ("lstm", "gru", "which has no LSTM"),
        ("bert", "gpt", "name a masked language model"),
        ("vit", "gpt", "holds no ViT that classifies"),
        ("cross-attention", "gpt", "is that of translators"),
    ):
        with pytest.raises(UserError, match=message):
            sw.explain(topic, run=runs[kind], on=PROMPT)
    with pytest.raises(UserError, match=r"'x' is of the example; with --run --set changes unit\."):
        sw.explain("lstm", run=runs["lstm"], on=PROMPT, set=["x=[1]"])
    with pytest.raises(UserError, match="does not fit the context of 8"):
        sw.explain("sampling", run=runs["gpt"], on="the cat " * 8)
    assert len(sw.explain("attention", run=runs["gpt"], on="the cat " * 8)["tokens"].as_json()["rows"]) == 8
    with pytest.raises(UserError, match="name the text"):
        sw.explain("sampling", run=runs["gpt"])


def test_numbers_in_four_decimals() -> None:
    shown = [number(value) for value in (0.0, 1.0, -0.5, 1e-7, float("-inf"), 12345, 0.99999)]
    assert shown == ["0", "1", "-0.5000", "1.00e-07", "-∞", "12,345", "1.0000"]


def test_wide_matrices_continue_below_and_long_tables_say_what_is_left_out() -> None:
    text = matrix("m", [[0.12345] * 40]).text()
    assert max(map(len, text.split("\n"))) <= 100
    assert "… from column" in text
    assert "… 40 more rows" in table("t", ["n"], [(n,) for n in range(100)]).text()
    assert matrix("m", [[0.0]] * 100).text().endswith("… 40 more rows")


def test_tokens_that_differ_in_white_space_look_different() -> None:
    tokens = ["a", " a", "a ", "\n", "\n ", " ", "  ", "\r\n", "\t", "\u00a0", "\x00", "\u200b", "a b"]
    tokens += [f"a{chr(code)}b" for code in (0xA0, 0xAD, 0x2003, 0x2009, 0x202F, 0x205F, 0x2060, 0x3000)]
    assert len({visible(token) for token in tokens}) == len(tokens)
    assert [visible(token) for token in tokens[:5]] == ["a", "␣a", "a␣", "↵", "↵␣"]


def test_texts_of_the_user_are_not_scored_against_the_lectures_references() -> None:
    explanation = sw.explain("bleu", on="the cat sat down\nthe cat sat up")
    assert [row[1] for row in explanation["precisions of reference 1"].rows] == ["3/4", "2/3", "1/2", "0/1"]
    assert not any(step.errata for step in explanation.steps)
    short = sw.explain("bleu", on="the cat", set=['references=["the cat"]'])
    assert "0/0 counts as 0" in short.steps[2].prose
    assert "F1 = 0.75" in explained("f1").text()


def test_slips_of_the_slides_are_named_beside_the_lectures_numbers_only() -> None:
    assert any("[0.441, 0.272, 0.201]" in erratum for step in explained("attention").steps for erratum in step.errata)
    changed = sw.explain("attention", set=["X[1,0]=0.9"])
    assert not any(step.errata for step in changed.steps)


def test_a_text_through_the_layers_of_a_classifier(tmp_path: Path, runs: dict[str, Path]) -> None:
    (tmp_path / "labels.tsv").write_text("".join(f"good\tthe good cat {n}\nbad\tthe bad dog {n}\n" for n in range(20)))
    keys = ("training.steps=2", "model.width=8", "model.embedding=6")
    run = sw.train(labeled=str(tmp_path / "labels.tsv"), model="lstm", set=keys, run=tmp_path / "run")
    explanation = sw.explain("imdb", run=run, on="the good dog")
    layers = {row["module"]: row for row in explanation["layers"].as_json()["rows"]}
    tokens = explanation["ids"].as_json()["columns"]
    assert layers["embedding"]["output"] == f"1 × {len(tokens)} × 6"
    assert sum(row["parameters"] for row in layers.values()) == explanation["parameters"].as_json()["values"]
    classified = run.classify("the good dog")
    p = dict(zip(explanation["p"].as_json()["columns"], explanation["p"].as_json()["values"], strict=True))
    assert p[classified.label] == pytest.approx(classified.probabilities[classified.label], abs=1e-5)
    with pytest.raises(UserError, match="name a neural classifier"):
        sw.explain("imdb", run=runs["gpt"], on="the cat")


def test_the_new_word_of_bpe_is_of_the_text() -> None:
    assert "“lowest”" in explained("bpe").text(5)
    assert "“catmat”" in sw.explain("bpe", on="cat sat mat").text(5)


def test_matrix_and_table_align_wide_characters() -> None:
    lines = table("t", ["token", "n"], [("中文", 1), ("a", 2)]).text().split("\n")
    assert lines[2:] == ["中文   1", "a      2"]


def test_tree_marks_what_was_pruned() -> None:
    tree = Tree("t", (Branch("a", "-1", True, (Branch("b", "-2", False),)), Branch("c")))
    assert tree.text() == "t\n├─ a  -1\n│  └─ b  -2  ✗\n└─ c"
    assert 'class="pruned"' in tree.html()


def test_json_of_figures_has_raw_tokens_where_their_white_space_is_shown() -> None:
    """A program that reads the JSON needs the token, a reader sees its white space."""
    shown = table("t", ["token"], [[" a"], ["\n"]]), matrix("m", [[1.0]], rows=[" a"], columns=["\n"])
    assert shown[0].as_json()["rows"] == [{"token": " a"}, {"token": "\n"}]
    assert (shown[1].as_json()["rows"], shown[1].as_json()["columns"]) == ([" a"], ["\n"])
    assert all("␣a" in figure.text() and "↵" in figure.text() and "␣a" in str(figure.html()) for figure in shown)
