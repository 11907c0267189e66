"""A received [model] of enormous sizes is refused in one sentence, before any memory is allocated for it."""

from __future__ import annotations

import re
import resource
import shutil
from pathlib import Path

import pytest

import seqwright as sw
from seqwright.runs.directory import RunDirectory
from tests.journeys.commands import synthetic_text
from tests.journeys.conftest import Command, adopt

HUGE = 10**9
NETWORK = ["tokenizer.kind=characters", "training.steps=2", "training.batch_size=4", "training.sample_every=0"]


def received(run: Path, copy: Path, **keys: object) -> Path:
    """A copy of a run with other keys of its recipe and a manifest that fits, as an attacker makes it."""
    shutil.copytree(run, copy)
    text = (copy / "recipe.toml").read_text()
    for key, value in keys.items():
        text, found = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
        assert found, key
    (copy / "recipe.toml").write_text(text)
    adopt(copy)
    RunDirectory(copy).seal()
    return copy


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text(synthetic_text(60))
    (folder / "labeled.tsv").write_text("cat\tthe cat sat\ndog\tdogs run by\n" * 20)
    text, labeled = str(folder / "text.txt"), str(folder / "labeled.tsv")
    gpt = ["model.layers=1", "model.width=16", "model.heads=2", "model.context=16", *NETWORK]
    made = {
        "gpt": sw.train(text=text, set=gpt, run=folder / "gpt"),
        "rope": sw.train(text=text, set=[*gpt, "model.positions=rope"], run=folder / "rope"),
        "lstm": sw.train(text=text, model="lstm", set=["model.width=8", *NETWORK], run=folder / "lstm"),
        "ngram": sw.train(text=text, model="ngram", run=folder / "ngram"),
        "bag": sw.train(labeled=labeled, model="bag", run=folder / "bag"),
    }
    mixed = sw.mix([folder / "gpt", folder / "rope"], folder / "mixed", on=text)
    return {name: run.path for name, run in made.items()} | {"mixed": mixed.path}


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("gpt", {"width": HUGE}, "SEQWRIGHT_MAX_BUFFER_BYTES"),
        ("gpt", {"width": 2**62}, "width must be at most"),
        ("gpt", {"layers": HUGE}, "is larger than model.safetensors"),
        ("gpt", {"context": HUGE}, "SEQWRIGHT_MAX_BUFFER_BYTES"),
        ("rope", {"context": HUGE}, "SEQWRIGHT_MAX_BUFFER_BYTES"),
        ("lstm", {"width": HUGE}, "no model of these sizes"),
        ("lstm", {"layers": HUGE}, "is larger than model.safetensors"),
        ("ngram", {"order": HUGE}, "order must be 1 to 100"),
        ("bag", {"order": HUGE}, "at most 100"),
        ("mixed", {"layers": HUGE}, "is larger than model.safetensors"),
        ("mixed", {"width": HUGE}, "SEQWRIGHT_MAX_BUFFER_BYTES"),
    ],
    ids=str,
)
def test_sizes_beyond_the_weights_are_refused_before_memory_is_allocated(
    seqwright: Command, runs: dict[str, Path], workdir: Path, name: str, keys: dict[str, object], message: str
) -> None:
    copy = received(runs[name], workdir / "received", **keys)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = seqwright("generate" if name != "bag" else "classify", copy, "the cat")
    assert result.status == 2
    assert re.search(message, result.err), result.err
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18, "more than 256 MiB were allocated"


def test_a_billion_layers_are_refused_when_training_resumes(
    seqwright: Command, runs: dict[str, Path], workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQWRIGHT_MAX_PARAMETER_TENSORS", "1000")
    copy = received(runs["gpt"], workdir / "received", layers=HUGE, steps=4)
    result = seqwright("train", "--run", copy)
    assert result.status == 2
    assert "recipe.toml [model] is not what step" in result.err  # before anything of that size is built
