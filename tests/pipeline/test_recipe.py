"""The recipes that ship: each loads, says what it shows, and builds the model whose size the lectures print."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import seqwright as sw
from seqwright import build
from seqwright.core.batch import EncoderSizes, OutputSpec, Vocabularies, Vocabulary
from seqwright.core.config import UserError, parse_override
from seqwright.core.progress import Progress
from seqwright.data.files import resolve
from seqwright.data.images.corpus import read_images, read_splits
from seqwright.pipeline.recipe import Recipe, load, make, override_list
from seqwright.pipeline.shipped import about, find, shipped
from seqwright.pipeline.wanted import wanted_recipe
from seqwright.tasks.images.codec import ImageCodec
from seqwright.training.schedule import schedule

TEXT = "embedded:topics"

# Worked example 11: parameters, tokens of a batch, learning rate.
GPTS = {
    "gpt": (116_534_784, 64 * 512, 2.5e-4),
    "gpt2": (1_557_611_200, 512 * 1024, 2e-4),
    "gpt2-124m": (124_439_808, 512 * 1024, 6e-4),
    "gpt3-small": (125_226_240, 0.5e6, 6e-4),
    "gpt3-medium": (355_871_744, 0.5e6, 3e-4),
    "gpt3-large": (760_300_032, 0.5e6, 2.5e-4),
    "gpt3-xl": (1_315_723_264, 1e6, 2e-4),
    "gpt3-2.7b": (2_651_553_280, 1e6, 1.6e-4),
    "gpt3-6.7b": (6_658_404_352, 2e6, 1.2e-4),
    "gpt3-13b": (12_853_386_240, 2e6, 1e-4),
    "gpt3-175b": (174_604_259_328, 3.2e6, 0.6e-4),
}

LENGTH, WIDTH, VOCABULARY = 40, 128, 1000
RNN = VOCABULARY * WIDTH + 2 * (WIDTH * WIDTH + WIDTH)
BLOCK = 4 * (WIDTH * WIDTH + WIDTH) + (WIDTH * 4 * WIDTH + 4 * WIDTH) + (4 * WIDTH * WIDTH + WIDTH) + 2 * 2 * WIDTH
TRANSFORMER = VOCABULARY * WIDTH + 2 * BLOCK
FLATTENED = LENGTH * WIDTH * VOCABULARY + VOCABULARY

LECTURES = {
    "lecture-generation": RNN + WIDTH * VOCABULARY + VOCABULARY,
    "lecture-generation-way1": RNN + WIDTH * VOCABULARY + VOCABULARY,
    "lecture-generation-way2": RNN + FLATTENED,
    "lecture-generation-transformer": TRANSFORMER + WIDTH * VOCABULARY,
    "lecture-generation-transformer-way1": TRANSFORMER + WIDTH * VOCABULARY,
    "lecture-generation-transformer-way2": TRANSFORMER + FLATTENED,
}


def translator_parameters(width: int, inner: int) -> int:
    """Four layers on each side, pre-LN: attention, feed-forward and norms of encoder and decoder."""
    attention, feed_forward, norm = 4 * (width * width + width), 2 * width * inner + inner + width, 2 * width
    return 10_000 * width + 4 * (3 * attention + 2 * feed_forward + 5 * norm) + 2 * norm


TINY, WIDE = translator_parameters(128, 256), translator_parameters(256, 512)

# Encoder-decoders: parameters, None where the vocabulary depends on the data.
TRANSLATORS = {
    "wmt14-base": 63_082_496,
    "wmt14-big": 214_245_376,
    "multi30k-en-de": WIDE,
    "multi30k-en-fr": TINY,
    "multi30k-de-en": TINY,
    "multi30k-de-en-lstm": None,
    "multi30k-de-en-gru": None,
    "multi30k-de-en-attention": None,
    "tatoeba-en-de": None,
    "vlsp-en-vi": None,
    "dates-en-vi": None,
    "scan-simple": None,
    "scan-length": None,
    "scan-jump": None,
    "lecture-seq2seq": None,
    "cmudict": None,
    "python-summaries": None,
    "python-trees": None,
    "python-signatures": None,
    "shakespeare-dialogue": None,
}

# Worked example 11: the lectures' classifiers of film reviews; None where the vocabulary depends on the data.
CLASSIFIERS = {
    "imdb-mlp": 68_228_482,
    "imdb-cnn": 4_641_538,
    "imdb-cnn-max": 2_806_402,
    "imdb-rnn": 2_572_546,
    "imdb-rnn-lecture": 2_572_546,
    "imdb-bilstm": 2_758_786,
    "imdb-bilstm-both": 2_759_426,
    "sst2": None,
    "sst5": None,
    "atis-intents": None,
    "cola": None,
    "glue-sst2": None,
    "mrpc": None,
    "rte": None,
    "languages": None,
}


def parameters(recipe: Recipe) -> int:
    """Counted without memory."""
    assert recipe.tokenizer.size is not None
    with torch.device("meta"):
        model = build.model(recipe.model, Vocabulary(size=recipe.tokenizer.size))
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", GPTS)
def test_recipes_have_the_hyperparameters_of_the_papers(name: str) -> None:
    recipe = wanted_recipe(name, text=TEXT)
    expected, tokens, rate = GPTS[name]
    assert parameters(recipe) == expected
    assert recipe.training.batch_size * recipe.model.config.context == pytest.approx(tokens, rel=0.05)
    assert recipe.training.learning_rate == rate


@pytest.mark.parametrize("name", LECTURES)
def test_recipes_have_the_parameter_counts_of_the_practice_sheet(name: str) -> None:
    recipe = load(name)
    assert recipe.tokenizer.size == VOCABULARY
    table = recipe.model.to_table()
    assert (recipe.training.sequence_length or table.get("context") or table["length"]) == LENGTH
    assert parameters(recipe) == LECTURES[name]
    assert f"{LECTURES[name]:,} parameters" in about(shipped()[name])


def test_parameter_counts_equal_those_in_the_practice_sheet() -> None:
    assert LECTURES["lecture-generation"] == LECTURES["lecture-generation-way1"] == 290_024
    assert LECTURES["lecture-generation-way2"] == 5_282_024


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_recipe_has_a_description_and_loads(name: str) -> None:
    assert len(about(shipped()[name])) > 40
    recipe = wanted_recipe(name, text=TEXT)
    assert recipe.name == name
    assert recipe.data.train == (TEXT,)


def test_the_results_page_names_shipped_recipes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row) if not name.startswith("-")}
    assert named <= shipped().keys()


@pytest.mark.parametrize("name", TRANSLATORS)
def test_parameter_counts_of_translators(name: str) -> None:
    recipe = wanted_recipe(name, pairs=["embedded:signatures"])
    size = TRANSLATORS[name]
    assert recipe.data.kind == "pairs"
    if size is None:  # its vocabulary is as large as the data makes it
        return
    side = Vocabulary(size=recipe.tokenizer.size)
    with torch.device("meta"):
        model = build.model(recipe.model, Vocabularies(source=side, target=side, joint=True), task="pairs")
    assert sum(parameter.numel() for parameter in model.parameters()) == size


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_parameter_counts_of_classifiers(name: str) -> None:
    recipe = wanted_recipe(name, labeled="embedded:languages")
    size = CLASSIFIERS[name]
    assert recipe.data.kind == "labeled"
    if size is None:  # its vocabulary is as large as the data makes it
        return
    sizes = EncoderSizes(answers=OutputSpec(kind="class", count=2), vocabulary=Vocabulary(size=recipe.tokenizer.size))
    with torch.device("meta"):
        model = build.model(recipe.model, sizes, task="labeled")
    assert sum(parameter.numel() for parameter in model.parameters()) == size


def test_the_translator_of_the_paper_has_its_schedule() -> None:
    training = wanted_recipe("wmt14-base", pairs=["embedded:signatures"]).training
    share = schedule(training.schedule, steps=100_000, warmup=training.warmup_steps, final=training.final_lr_ratio)
    for step in (0, 1000, 3999, 4000, 50_000):
        paper = 512**-0.5 * min((step + 1) ** -0.5, (step + 1) * 4000**-1.5)
        assert training.learning_rate * share(step) == pytest.approx(paper, rel=1e-3)


def test_a_recipe_without_data_asks_for_a_file() -> None:
    with pytest.raises(UserError, match=r"gpt2\.toml: \[data\] train names no file; give your own text with --text"):
        load("gpt2")


def test_resolved_files_move_with_the_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, text in (("here", "another\n"), ("one", "the text\n"), ("two", "the text\n")):
        (tmp_path / folder / "books").mkdir(parents=True)
        (tmp_path / folder / "books" / "a.txt").write_text(text)
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[data]\ntrain = "books/a.txt"\n')
    monkeypatch.setenv("SEQWRIGHT_DATA", str(tmp_path / "one"))
    settled = load(recipe)
    assert settled.data.train == "$SEQWRIGHT_DATA/books/a.txt"
    monkeypatch.setenv("SEQWRIGHT_DATA", str(tmp_path / "two"))
    monkeypatch.chdir(tmp_path / "here")
    again = make(settled.table(), settled=True)
    assert resolve(again.data.train).read_text() == "the text\n"
    assert load(recipe).data == settled.data


def test_users_files_replace_those_of_the_recipe_and_resolve_against_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train.txt", "valid.txt"):
        (tmp_path / name).write_text("text\n")
    (tmp_path / "recipes").mkdir()
    written = tmp_path / "recipes" / "mine.toml"
    written.write_text('[data]\ntrain = "elsewhere.txt"\nvalid = "elsewhere.txt"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEQWRIGHT_DATA", raising=False)
    own = wanted_recipe(written, text="train.txt")
    assert own.data.train == (str(tmp_path / "train.txt"),)
    assert own.data.valid is None
    both = wanted_recipe("gpt", text="train.txt", valid="valid.txt")
    assert both.data.valid == (str(tmp_path / "valid.txt"),)
    assert both.data.split is None
    with pytest.raises(UserError, match=r"no file .*recipes/elsewhere\.txt"):
        wanted_recipe(written)


@pytest.mark.parametrize("task", build.TASKS)
def test_users_files_are_split_by_a_method_of_their_kind(task: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("text\n")
    written = tmp_path / "mine.toml"
    written.write_text(f'[data]\nkind = "{task}"\ntrain = "elsewhere"\nvalid = "elsewhere"\n')
    own = load(written, train=[str(tmp_path / "one"), str(tmp_path / "two")])
    assert (own.data.valid, own.data.split) == (None, f"{build.TASKS[task].split_method} 5%")  # its [data] accepts it


def test_users_images_that_are_sorted_by_class_are_held_out_of_several_classes(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (100, 8, 8, 1), dtype=np.uint8)
    np.savez(tmp_path / "sorted.npz", images=pixels, labels=np.array([str(n // 10) for n in range(100)]))
    written = tmp_path / "mine.toml"
    written.write_text('[data]\nkind = "images"\ntrain = "elsewhere.npz"\nvalid = "elsewhere.npz"\n')
    _, valid = read_splits(load(written, train=[str(tmp_path / "sorted.npz")]).data)
    assert valid is not None
    assert len({*(valid.labels or ())}) > 1


IMAGE_ENCODERS = {
    "mnist": (28, 28, 1),
    "digits": (8, 8, 1),
    "digits-inpaint": (16, 16, 3),
    "digits-mae": (16, 16, 3),
    "digits-denoise": (16, 16, 3),
    "digits-colorize": (16, 16, 3),
    "digits-restore": (16, 16, 3),
    "digit-strips": (8, 48, 1),
    "moving-digits": (16, 160, 1),
}
"""The images that each is about."""


@pytest.mark.parametrize("name", IMAGE_ENCODERS)
def test_image_recipes_fit_their_images(name: str, tmp_path: Path) -> None:
    pixels = np.zeros((20, *IMAGE_ENCODERS[name]), np.uint8)
    labels = [" ".join("01234567890"[n : n + 6]) if name == "digit-strips" else str(n % 2) for n in range(20) if n < 5]
    np.savez(tmp_path / "some.npz", images=pixels[: len(labels)], labels=np.array(labels))
    recipe = load(name, train=[str(tmp_path / "some.npz")])
    images = read_images([str(tmp_path / "some.npz")], recipe.data)
    with torch.device("meta"):
        model = build.model(recipe.model, ImageCodec.learn(images, recipe.data).sizes, task="images")
    assert sum(parameter.numel() for parameter in model.parameters()) < 2_000_000


def test_a_recipe_that_was_loaded_without_its_data_is_trained_with_resolved_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SEQWRIGHT_DATA", raising=False)
    for folder in ("recipes", "elsewhere"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path)
    Path("recipes/mine.toml").write_text('[data]\ntrain = "a.txt"\nsplit = "tail 10%"\n[model]\nkind = "ngram"\n')
    recipe = sw.load("recipes/mine.toml")
    (tmp_path / "recipes" / "a.txt").write_text("the cat sat on the mat\n" * 30)
    sw.train(recipe, run="run")
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = sw.open("../run")
    assert run.settings.data.train == str(tmp_path / "recipes" / "a.txt")
    assert run.evaluate().as_json()["scores"]
    assert sw.train(run="../run").path == Path("../run")
    with pytest.raises(
        UserError, match=r"no file tiny_shakespeare/.*does not come with seqwright: put it into a folder"
    ):
        sw.train(sw.load("shakespeare-cpu"))
    assert not list(tmp_path.glob("elsewhere/*"))


class Notes(Progress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("name", ["texts/a.txt", "texts", "texts/*.txt"])
def test_data_modified_after_a_finished_run_is_pointed_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQWRIGHT_DATA", str(tmp_path / "root"))
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "root" / "texts" / "a.txt"
    text.parent.mkdir(parents=True)
    text.write_text("the cat sat on the mat\n" * 30)
    for later, notes in ((0, 0), (10, 1)):
        sw.train(text=name, model="ngram", run="run")
        summary = (tmp_path / "run" / "summary.json").stat().st_mtime
        os.utime(text, (summary + later - 5, summary + later - 5))
        progress = Notes()
        sw.train(text=name, model="ngram", run="run", progress=progress)
        assert len([note for note in progress.notes if "a.txt was modified after run was finished" in note]) == notes


def test_overrides_may_be_a_table_in_python() -> None:
    table = {
        "training.seed": 3,
        "training.learning_rate": 1e-5,
        "training.compile": True,
        "name": 'a "b" ế',
        "data.train": ["a b.txt", "c"],
        "data.valid": Path("v.txt"),
    }
    expected = table | {"data.valid": "v.txt"}
    assert dict(map(parse_override, override_list(table))) == expected
    assert override_list("a=1") == ["a=1"]
    assert override_list(("a=1", "b=2")) == ["a=1", "b=2"]
    for wrong in (5, [("a", 1)], None):
        with pytest.raises(UserError, match="is no override"):
            override_list(wrong)  # type: ignore[arg-type]
    for value in (None, {1, 2}):
        with pytest.raises(UserError, match=r"training\.seed cannot be"):
            override_list({"training.seed": value})


def test_a_path_that_is_neither_recipe_nor_run_is_said_to_be_so() -> None:
    with pytest.raises(UserError, match=r"^no recipe or run at runs/nothing\. `seqwright recipes` and"):
        find("runs/nothing")
