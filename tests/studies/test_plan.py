"""`plan`: worked example 11's sizes, multiply-adds and training cost; a measured step beside the forecast."""

from __future__ import annotations

from pathlib import Path

import pytest

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.studies.plan_result import PETAFLOPS_DAY, training_flops


@pytest.mark.parametrize(
    ("recipe", "parameters", "millions"),
    [
        ("imdb-mlp", 68_228_482, 68.23),
        ("imdb-cnn", 4_641_538, 35.38),
        ("imdb-cnn-max", 2_806_402, 27.58),
        ("imdb-rnn", 2_572_546, None),
        ("imdb-bilstm", 2_758_786, None),
    ],
)
def test_plan_of_the_imdb_ladder(recipe: str, parameters: int, millions: float | None) -> None:
    plan = sw.plan(recipe)
    assert plan.parameters == parameters == sum(layer.parameters for layer in plan.layers)
    if millions is not None:
        # The lectures' tool counts weights of embeddings and biases of linear layers as multiply-adds, and its
        # convolutions are not padded, as those of imdb-cnn-max are here: 165 and 53 positions remain.
        convolutions = [layer for layer in plan.layers if layer.kind == "Conv1d"]
        linear = sum(layer.parameters for layer in plan.layers if layer.kind in ("Tokens", "Linear"))
        products = sum(
            layer.mult_adds // layer.output[-1] * length for layer, length in zip(convolutions, (165, 53), strict=False)
        )
        assert round((products + linear) / 1e6, 2) == millions
        assert plan.mult_adds < 1e6 * millions


def test_plan_of_convolutions_shows_output_shapes() -> None:
    shapes = {layer.path: layer.output for layer in sw.plan("imdb-cnn").layers}
    assert shapes["encoder.towers.0.0"] == (1, 128, 165)
    assert shapes["pooling"] == (1, 13_568)


@pytest.mark.parametrize(
    ("recipe", "parameters", "tokens"),
    [
        ("gpt3-small", 125_226_240, 300e9),
        pytest.param("gpt", 116_534_784, None, marks=pytest.mark.slow),
        pytest.param("wmt14-base", 63_082_496, None, marks=pytest.mark.slow),
        # transformers' BertForMaskedLM has 2 × 768 segment embeddings besides, which a single text does not need.
        ("bert-base", 109_514_298 - 2 * 768, 131e9),
        pytest.param("roformer", 109_514_298 - 2 * 768 - 512 * 768, 131e9, marks=pytest.mark.slow),
        ("llama-7b", 6_738_415_616, 1e12),
        pytest.param("llama2-70b", 68_976_648_192, 2e12, marks=pytest.mark.slow),
    ],
)
def test_plan_of_recipes_without_data(recipe: str, parameters: int, tokens: float | None) -> None:
    plan = sw.plan(recipe)
    assert plan.parameters == parameters
    assert 12 * parameters + plan.kept_bytes <= plan.training_bytes <= 16 * parameters + 1.5 * plan.kept_bytes
    if tokens is not None:
        assert plan.tokens == pytest.approx(tokens, rel=1e-3)
        assert plan.training_flops == 6 * parameters * plan.tokens


def test_plan_of_a_tagger_whose_shapes_depend_on_words() -> None:
    assert sw.plan("pronouns", vocabulary=100).step_seconds > 0  # its step cannot be traced on the meta device


def test_training_cost_of_gpt_3_in_petaflop_days() -> None:
    flops = training_flops(175_000_000_000, 300_000_000_000)
    assert flops == pytest.approx(3.15e23)
    assert round(flops / PETAFLOPS_DAY) == 3646


def test_attention_has_two_products_of_all_positions() -> None:
    plan = sw.plan("lecture-generation-transformer")
    [attend, _] = [layer for layer in plan.layers if layer.kind == "Attend"]
    assert attend.mult_adds == 2 * 40 * 40 * 128
    linear = [layer for layer in plan.layers if layer.path.endswith("feed_forward.up")]
    assert [layer.mult_adds for layer in linear] == [40 * 128 * 512] * 2


def test_plan_of_a_run_takes_its_vocabulary_and_labels(tmp_path: Path) -> None:
    rows = [f"{'abc'[n % 3]}\tthe word{n % 7} of text {n}" for n in range(30)]
    (tmp_path / "rows.tsv").write_text("\n".join(rows) + "\n")
    keys = ["tokenizer.kind=words", "training.steps=1", "model.width=8"]
    run = sw.train(labeled=str(tmp_path / "rows.tsv"), model="lstm", set=keys, run=tmp_path / "run")
    parameters = run.summary["parameters"]
    assert sw.plan(run.path).parameters == sw.plan(run.path / "recipe.toml").parameters == parameters
    assert sw.plan(run.path, set=["model.width=16"]).parameters > parameters
    assert sw.plan(run.path, vocabulary=1000, labels=3).parameters > parameters
    assert sw.plan(run.path, set=["tokenizer.size=1000"]).parameters > parameters  # another, which is not learned yet


def test_plan_beside_measured_steps(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\n" * 50)
    options = [f"data.train={text}", "tokenizer.size=300", "model.width=8", "model.layers=1", "training.steps=5"]
    plan = sw.plan("gpt", set=[*options, "model.context=8", "model.heads=2"], measured=True)
    assert plan.measured is not None
    assert plan.seconds == 5 * plan.measured.step_seconds
    assert plan.measured.peak_bytes > plan.training_bytes
    assert plan.layers[0].output == (1, 8, 8)


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("ptb-ngram", {}, "has no layers to plan"),
        ("shakespeare-cpu", {}, "give --vocabulary N, or --measure"),
        ("digits", {}, "sizes of images follow from the data; add --measure"),
        ("gpt2", {"measured": True}, "names no data to measure on"),
        ("gpt2", {"measured": True, "set": ["data.train=nowhere.txt"]}, "nowhere.txt"),
        ("imdb-cnn", {"measured": True, "length": 64}, "leave --vocabulary, --labels and --length out"),
        ("imdb-cn", {}, "Did you mean 'imdb-cnn'"),
        ("imdb-cnn", {"set": ["model.kernel=3"]}, "Did you mean 'kernels'"),
    ],
)
def test_recipes_that_cannot_be_planned(recipe: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        sw.plan(recipe, **options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_files_that_are_no_recipes_cannot_be_planned(tmp_path: Path) -> None:
    for name, text, message in (
        ("list.toml", "data = 3", "'data' is a section"),
        ("story.txt", "Ngày xửa ngày xưa 🙂", "is no recipe"),
        ("width.toml", "[model]\r\nkind = 'gpt'\r\nwidth = 3\r\n", "width 3 cannot be split"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(UserError) as caught:
            sw.plan(tmp_path / name)
        assert message in str(caught.value)
    (tmp_path / "empty.toml").write_text("")
    assert sw.plan(tmp_path / "empty.toml").kind == "gpt"


def test_plans_and_recipes_print_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEQWRIGHT_DATA", raising=False)
    plan = sw.plan("gpt3-small", gpus=8, set="training.steps=10")
    text = str(plan)
    assert "encoder.blocks.*.attention.query_key_value (12)" in text
    assert "cost of training: 6·N·D = " in text
    assert "on 8 × H100" in text
    assert plan._repr_html_().startswith("<pre>")
    recipe = sw.load("tatoeba-en-de")  # whose data are not there
    assert 'train = "tatoeba_en_de/deu-eng.tsv.xz"' in str(recipe)
    with pytest.raises(UserError, match=r"no file tatoeba_en_de/deu-eng\.tsv\.xz"):
        sw.train(recipe)
    with pytest.raises(UserError, match=r"no file missing\.tsv") as missing:
        sw.load("tatoeba-en-de", set="data.train=missing.tsv")
    assert "does not come with seqwright" not in str(missing.value)
