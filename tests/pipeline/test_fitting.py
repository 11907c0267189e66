"""Fits in steps: stopped, killed and resumed fits end with the same weights, and a time budget shortens them."""

from __future__ import annotations

import os
import signal
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from seqwright.core.progress import Progress
from seqwright.pipeline import fitting
from seqwright.pipeline.training import train
from seqwright.pipeline.wanted import wanted_recipe
from tests.journeys.commands import records

SENTENCES = [("the DT", "dog NN", "barks VB"), ("a DT", "cat NN", "sleeps VB"), ("dogs NN", "bark VB")]
EPOCHS = 4


class At(Progress):
    """Calls a function at a step and at those after it."""

    def __init__(self, step: int, action: Callable[[], None]):
        self.wanted, self.action = step, action

    def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None:
        if step >= self.wanted:
            self.action()


@pytest.fixture
def tagged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tagged.tsv"
    path.write_text("".join("".join(w.replace(" ", "\t") + "\n" for w in s) + "\n" for s in SENTENCES * 30))
    return path


def fit(tagged: Path, run: str, progress: Progress, minutes: float | None = None) -> str | None:
    wanted = wanted_recipe(
        None, tagged=[str(tagged)], set=[f"model.epochs={EPOCHS}", "model.averaged_models=2"], run=run, minutes=minutes
    )
    return train(wanted, Path(run), progress).stopped


def weights(run: str) -> bytes:
    return Path(run, "model.safetensors").read_bytes()


def test_a_stopped_fit_resumes_to_the_same_weights(tagged: Path) -> None:
    assert fit(tagged, "uninterrupted", Progress()) is None
    interrupt = At(32, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert fit(tagged, "stopped", interrupt) == "SIGTERM"
    (stop,) = records(Path("stopped"), "stop")
    assert [folder.name for folder in Path("stopped/checkpoints").glob("step-*")] == [f"step-{stop['step']:08d}"]
    assert fit(tagged, "stopped", Progress()) is None
    assert [record["step"] for record in records(Path("stopped"), "resume")] == [stop["step"]]
    assert weights("stopped") == weights("uninterrupted")
    assert not list(Path("stopped/checkpoints").iterdir())


def test_a_killed_fit_resumes_from_its_last_checkpoint(tagged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(fitting, "SAVING_SHARE", 1e9)

    def crash() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fit(tagged, "killed", At(200, crash))
    assert fit(tagged, "killed", Progress()) is None
    (resumed,) = records(Path("killed"), "resume")
    assert 0 < resumed["step"] < 200
    fit(tagged, "uninterrupted", Progress())
    assert weights("killed") == weights("uninterrupted")


def test_a_budget_shortens_a_fit(tagged: Path) -> None:
    assert fit(tagged, "short", Progress(), minutes=1e-6) is None
    model = tomllib.loads(Path("short/recipe.toml").read_text())["model"]
    assert (model["epochs"], model["averaged_models"]) == (1, 1)
    assert any("would take about" in record["text"] for record in records(Path("short"), "note"))
    before = weights("short")
    assert fit(tagged, "short", Progress(), minutes=1e-6) is None  # the same command: decided once
    assert weights("short") == before
    noted: list[str] = []
    progress = Progress()
    progress.note = noted.append  # type: ignore[method-assign]
    assert fit(tagged, "short", progress, minutes=5) is None
    assert weights("short") == before
    assert "model.epochs = 1 instead of 4, model.averaged_models = 1 instead of 2" in noted[0]
    assert "another --run has a budget of its own" in noted[1]
    assert fit(tagged, "ample", Progress(), minutes=5) is None
    assert tomllib.loads(Path("ample/recipe.toml").read_text())["model"]["epochs"] == EPOCHS
