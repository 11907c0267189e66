"""Fine-tuning pre-trained runs into classifiers, taggers and translators, through the command line."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest
import torch

import seqwright as api
from seqwright.core.storage import load_tensors
from seqwright.pipeline.defaults import kinds_of
from seqwright.pipeline.wanted import wanted_recipe
from tests.journeys.conftest import Command

LINES = [f"the {a} {v} on the {b}\n" for a in ("cat", "dog", "hen") for b in ("mat", "roof") for v in ("sat", "slept")]
ROWS = [f"{'high' if 'roof' in line else 'low'}\t{line}" for line in LINES]
TAGGED = ["".join(f"{word}\t{len(word)}\n" for word in line.split()) + "\n" for line in LINES]
SMALL = ("tokenizer.kind=words", "training.steps=4", "training.batch_size=4", "training.device=cpu")
SIZES = {
    "lstm": ("model.kind=lstm", "model.width=8", "model.layers=2", "training.sequence_length=8"),
    "gpt": ("model.kind=gpt", "model.width=8", "model.heads=2", "model.layers=2", "model.context=16"),
    "bert": ("model.width=8", "model.heads=2", "model.layers=2", "model.context=16"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, labeled and tagged lines, and a run of each kind pre-trained on the text for a few steps."""
    workdir = tmp_path_factory.mktemp("fine-tuning")
    (workdir / "text.txt").write_text("".join(LINES) * 4)
    (workdir / "rows.tsv").write_text("".join(ROWS) * 4)
    (workdir / "tags.tsv").write_text("".join(TAGGED) * 2)
    for kind, sizes in SIZES.items():
        given = {"masked" if kind == "bert" else "text": str(workdir / "text.txt")}
        api.train(**given, run=workdir / kind, set=[*SMALL, *sizes])
    return workdir


def fine_tune(
    seqwright: Command, folder: Path, kind: str, *more: str, given: tuple[str, str] = ("--labeled", "rows.tsv")
) -> tuple[dict[str, torch.Tensor], ...]:
    """Weights before and after fine-tuning for a few steps."""
    shutil.rmtree("tuned", ignore_errors=True)
    settings = [
        word
        for key in ("training.epochs=1", "training.weights=last", "training.device=cpu", *more)
        for word in ("--set", key)
    ]
    option, file = given
    result = seqwright("train", option, folder / file, "--from", folder / kind, "--run", "tuned", *settings)
    assert result.status == 0, result.err
    return tuple(load_tensors(path / "model.safetensors")[0] for path in (folder / kind, Path("tuned")))


@pytest.mark.parametrize("kind", SIZES)
def test_classifier_fine_tuned_from_any_kind(seqwright: Command, folder: Path, kind: str) -> None:
    before, after = fine_tune(seqwright, folder, kind, "training.learning_rate=1e-30", "training.weight_decay=0")
    shared = [name for name in after if name.startswith(("embedding.", "encoder."))]
    assert {name for name in before if name.startswith(("embedding.", "encoder."))} == set(shared)
    for name in shared:
        assert torch.allclose(after[name], before[name], atol=1e-12), name
    recipe = tomllib.loads(Path("tuned/recipe.toml").read_text())
    assert recipe["model"]["kind"] == kind
    assert recipe["model"]["width"] == 8
    assert recipe["training"]["init_from"] == str(folder / kind)
    assert "from" not in recipe["model"]
    log = [json.loads(line) for line in Path("tuned/log.jsonl").read_text().splitlines()]
    assert any("head.readout are new and begin fresh" in entry.get("text", "") for entry in log)
    assert seqwright("classify", "tuned", input=b"the cat sat on the roof\n").out.startswith(("high", "low"))


@pytest.mark.parametrize("kind", SIZES)
def test_tagger_fine_tuned_from_any_kind(seqwright: Command, folder: Path, kind: str) -> None:
    still = ("training.learning_rate=1e-30", "training.weight_decay=0")
    before, after = fine_tune(seqwright, folder, kind, *still, given=("--tagged", "tags.tsv"))
    shared = {name for name in before if name == "embedding.weight" or name.startswith("encoder.")}
    assert shared
    for name in shared:
        assert torch.allclose(after[name], before[name], atol=1e-12), name
    assert tomllib.loads(Path("tuned/recipe.toml").read_text())["model"]["kind"] == kind
    tags = seqwright("tag", "tuned", "--json", input=b"the cat slept\n").lines[0]["tags"]
    assert len(tags) == 3


def test_default_recipe_of_fine_tuning_keeps_model_and_tokenizer_kind(folder: Path, tmp_path: Path) -> None:
    """Not the bag of n-grams, the perceptron or the word tokenizer that are the defaults without a base run."""
    rows = tmp_path / "rows.tsv"
    rows.write_text("".join(ROWS) * 40)
    resolved = wanted_recipe(None, labeled=str(rows), base=folder / "gpt")
    assert resolved.data.split == "stratified 20%"
    assert resolved.training.epochs == 40
    pieces = {"model": {"kind": "gpt"}, "tokenizer": {"kind": "byte-bpe"}}
    assert kinds_of(pieces, "tagged") == {"kind": "gpt", "tokenizer": "byte-bpe"}
    assert kinds_of(pieces | {"model": {"kind": "ngram"}}, "text") == {"tokenizer": "byte-bpe"}


def test_frozen_layers_do_not_change(seqwright: Command, folder: Path) -> None:
    before, after = fine_tune(seqwright, folder, "gpt", "training.freeze=1", "training.learning_rate=0.01")
    moved = {name for name in after if name in before and not torch.equal(after[name], before[name])}
    still = {"embedding.weight", "encoder.positions.table.weight"}
    still |= {name for name in before if name.startswith("encoder.blocks.0.")}
    assert moved == {name for name in before if name.startswith(("encoder.blocks.1.", "encoder.norm."))}
    assert not moved & still


def test_freeze_all_trains_only_the_head(seqwright: Command, folder: Path) -> None:
    before, after = fine_tune(seqwright, folder, "lstm", "training.freeze=all", "training.learning_rate=0.01")
    for name in before.keys() & after.keys() - {"head.readout.weight", "head.readout.bias"}:
        assert torch.equal(after[name], before[name]), name


def test_gradual_unfreezing_from_the_top(seqwright: Command, folder: Path) -> None:
    before, after = fine_tune(
        seqwright, folder, "lstm", "training.epochs=4", "training.unfreeze_every=2", "training.learning_rate=0.01"
    )
    kept = [name for name in after if name in before and name.startswith(("embedding.", "encoder."))]
    moved = {name for name in kept if not torch.equal(after[name], before[name])}
    assert moved == {name for name in before if name.endswith("_l1")}


def test_auxiliary_language_model_loss(seqwright: Command, folder: Path) -> None:
    for kind in ("gpt", "lstm"):
        _, with_it = fine_tune(
            seqwright, folder, kind, "training.auxiliary_loss_weight=0.5", "training.learning_rate=0.01"
        )
        _, without = fine_tune(seqwright, folder, kind, "training.learning_rate=0.01")
        assert not torch.equal(with_it["embedding.weight"], without["embedding.weight"])
    settings = ("--set", "training.auxiliary_loss_weight=0.5", "--run", "refused")
    result = seqwright("train", "--labeled", folder / "rows.tsv", "--from", folder / "bert", *settings)
    assert result.status == 2
    assert "a causal encoder" in result.err


def test_incompatible_fine_tuning_is_rejected(seqwright: Command, folder: Path) -> None:
    rows = folder / "rows.tsv"
    result = seqwright("train", "--labeled", rows, "--from", folder / "gpt", "--model", "lstm", "--run", "x")
    assert result.status == 2
    assert "holds a model of kind 'gpt'; leave model.kind out" in result.err
    result = seqwright("train", "--masked", folder / "text.txt", "--from", folder / "gpt", "--run", "x")
    assert result.status == 2
    assert "what begins a model of masked is one of bert" in result.err
    result = seqwright("train", "--labeled", rows, "--from", folder / "gpt", "--set", "model.width=16", "--run", "x")
    assert result.status == 2
    assert "of another shape" in result.err
    result = seqwright("train", "--labeled", rows, "--from", folder / "gpt", "--set", "training.freeze=9", "--run", "x")
    assert result.status == 2
    assert "there are 2 layers" in result.err


def test_prefix_lm_translator_fine_tuned_from_a_gpt(seqwright: Command, folder: Path) -> None:
    for side in ("src", "tgt"):
        Path(f"a.{side}").write_text("the cat\nthe dog\n" * 4)
    files = ("a.src", "a.tgt")
    settings = [word for key in ("training.steps=2", "training.learning_rate=1e-30") for word in ("--set", key)]
    result = seqwright("train", "--pairs", *files, "--valid", *files, "--from", folder / "gpt", "--run", "x", *settings)
    assert result.status == 0, result.err
    before, after = (load_tensors(path / "model.safetensors")[0] for path in (folder / "gpt", Path("x")))
    assert before.keys() == after.keys()
    assert all(torch.allclose(after[name], before[name], atol=1e-12) for name in after)
    assert seqwright("translate", "x", input=b"the cat\n").status == 0


def test_continued_pretraining_on_user_text(seqwright: Command, folder: Path) -> None:
    for kind in SIZES:
        flag = "--masked" if kind == "bert" else "--text"
        result = seqwright(
            "train", flag, folder / "text.txt", "--from", folder / kind, "--run", kind, "--set", "training.steps=2"
        )
        assert result.status == 0, result.err
        assert "begun with the weights" in result.err
