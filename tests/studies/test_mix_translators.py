"""Mixtures (ensembles) of translators: translation, tuned weights, and runs that cannot be mixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.decoding.options import SearchOptions
from seqwright.runs.listing import listing
from seqwright.studies.check import check
from seqwright.studies.mix import mix
from tests.tasks.test_translation import write

TINY = [
    *("tokenizer.kind=words", "model.layers=1", "model.width=16", "data.batch_tokens=256", "training.steps=60"),
    *("training.learning_rate=6e-3", "training.evaluate_every=60", "evaluation.resamples=0"),
]
SEPARATE = ["tokenizer.joint=false"]


class Trained:
    """Two small translators with the same separate source and target vocabularies, and held-out pairs."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.train, self.valid = write(folder, "train", 300, 1), write(folder, "valid", 20, 2)
        self.held_out = write(folder, "held-out", 60, 3)
        self.first = self.train_run("first", "gru", SEPARATE)
        files = [f"tokenizer.file={self.first.directory.tokenizer_path}"]
        files += [f"tokenizer.source_file={self.first.directory.source_tokenizer_path}"]
        self.second = self.train_run("second", "transformer", [*SEPARATE, *files, "model.heads=2", "training.seed=3"])

    def train_run(self, name: str, model: str, overrides: list[str], pairs: list[str] | None = None) -> Any:
        settings = [*TINY, *overrides]
        return sw.train(pairs=pairs or self.train, valid=self.valid, model=model, set=settings, run=self.folder / name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("mixed"))


@pytest.mark.parametrize("geometric", [False, True])
def test_mixture_translates_scores_and_passes_the_laws(trained: Trained, geometric: bool) -> None:
    folder = trained.folder / f"equal-{geometric}"
    summary = mix([trained.first, trained.second], (), folder, geometric=geometric)
    assert [part["weight"] for part in summary["parts"]] == [0.5, 0.5]
    assert "tuned" not in summary
    assert summary["parameters"] == sum(
        run.directory.summary()["parameters"] for run in (trained.first, trained.second)
    )
    run = sw.open(folder)
    lines = ["the cat sat", "big dogs", "a mat and a mat"]
    batched = [(one.text, round(one.log_prob, 4)) for one in run.translate(lines)]
    assert batched == [(one.text, round(one.log_prob, 4)) for line in lines for one in run.translate([line])]
    assert all(result.holds for result in check(run))
    assert run.codec.typical == trained.first.codec.typical
    assert listing(trained.folder)
    audit = run.search_audit(lines, SearchOptions(max_tokens=6, max_nodes=200), [1, 4])
    assert audit.sources == 3


@pytest.mark.parametrize("geometric", [False, True])
def test_mixture_weights_maximize_held_out_likelihood(trained: Trained, geometric: bool) -> None:
    folder = trained.folder / f"tuned-{geometric}"
    summary = mix([trained.first, trained.second], trained.held_out, folder, geometric=geometric)
    perplexities = {part["run"]: part["perplexity"] for part in summary["parts"]}
    # EM approaches a weight of zero without reaching it.
    assert summary["tuned"]["perplexity"] <= min(perplexities.values()) * (1 + 1e-5)
    idle = [part["run"] for part in summary["parts"] if part["weight"] < 0.01]
    assert len(summary["warnings"]) == len(idle)
    assert all(run in warning for run, warning in zip(idle, summary["warnings"], strict=True))
    scores = sw.open(folder).evaluate(trained.held_out, metrics=("bleu",))
    assert scores["perplexity"] == pytest.approx(summary["tuned"]["perplexity"], rel=1e-4)
    for run in (trained.first, trained.second):
        alone = run.evaluate(trained.held_out, metrics=("bleu",))["perplexity"]
        assert alone == pytest.approx(perplexities[str(run.path)], rel=1e-4)


def test_tuning_on_training_pairs_is_warned_of(trained: Trained) -> None:
    """One warning for each side and run."""
    summary = mix([trained.first, trained.second], trained.train, trained.folder / "overlap")
    assert len(summary["warnings"]) == 4
    assert all("was trained on it" in warning for warning in summary["warnings"])


def test_mixing_different_tokenizers_is_refused(trained: Trained) -> None:
    other = trained.train_run("other", "gru", ["training.steps=1", *SEPARATE], write(trained.folder, "few", 20, 5))
    with pytest.raises(UserError, match="different target tokenizers") as refused:
        mix([trained.first, other], (), trained.folder / "no")
    message = str(refused.value)
    assert trained.first.tokenizer.hash[:12] in message
    assert other.tokenizer.hash[:12] in message
    assert f"--set tokenizer.file={trained.first.directory.tokenizer_path}" in message
    half = ["training.steps=1", *SEPARATE, f"tokenizer.file={trained.first.directory.tokenizer_path}"]
    with pytest.raises(
        UserError, match=r"different source tokenizers .* --set tokenizer.source_file=.*source-tokenizer"
    ):
        mix(
            [trained.first, trained.train_run("half", "gru", half, other.settings.data.train)],
            (),
            trained.folder / "no",
        )
    assert not (trained.folder / "no").exists()


def test_mixing_a_translator_with_another_task_is_refused(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat sat on a mat\n" * 30)
    ngram = sw.train(text=str(tmp_path / "a.txt"), model="ngram", run=tmp_path / "ngram", set=["tokenizer.kind=words"])
    with pytest.raises(
        UserError,
        match=r"pairs: turns sources into targets.*text: continues text.*Mix language models of one tokenizer",
    ):
        mix([trained.first, ngram], (), tmp_path / "no")
