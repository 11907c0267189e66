"""Training that is stopped, found finished, asked for more, or given something else under its name."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from seqwright.text import trainers as training
from tests.journeys.commands import TINY_GPT, ended, files, records, start, text_of, wait_until
from tests.journeys.conftest import Command

ENDLESS = [*TINY_GPT, "--set", "training.steps=1000000", "--set", "training.evaluate_every=0"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_asked_to_stop_it_saves_and_says_how_to_go_on(
    seqwright: Command, here: Path, number: signal.Signals, status: int
) -> None:
    run = here / "run"
    process = start("train", "--text", "text.txt", *ENDLESS, "--run", "run", cwd=here)
    wait_until(lambda: bool(records(run, "train")), process)
    process.send_signal(number)
    said = ended(process)
    assert said.status == status, said.err
    assert "and saved; `seqwright train --run run` goes on." in said.err
    assert "Traceback" not in said.err
    (stopped,) = records(run, "stop")
    assert stopped["step"] >= 20
    assert (run / "checkpoints" / f"step-{stopped['step']:08d}").is_dir()
    said = seqwright("generate", "run", "the")
    assert said.status == 2
    assert f"not finished: it is at step {stopped['step']:,}. Go on with `seqwright train --run run`" in said.err
    said = seqwright("train", "--run", "run", "--set", f"training.steps={stopped['step'] + 2}")
    assert said.status == 0, said.err
    assert f"going on from step {stopped['step']:,}." in said.err
    assert not {name for name in files(run) if "/.tmp" in name or name.startswith(".tmp")}


def test_stopped_while_it_reads_nothing_is_left(here: Path) -> None:
    (here / "long.txt").write_text(text_of(200_000))
    process = start("train", "--text", "long.txt", *TINY_GPT, "--run", "run", cwd=here)
    wait_until((here / "run" / "environment.json").exists, process)
    time.sleep(0.2)  # the text is being read and cut into tokens: that takes seconds
    process.send_signal(signal.SIGINT)
    said = ended(process)
    assert (said.status, said.err.split()[-1]) == (130, "stopped.")
    assert files(here) == {"text.txt", "long.txt"}


def test_stopped_while_the_vocabulary_is_learned_nothing_is_left(
    seqwright: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_sample", interrupted)
    assert seqwright("train", "--text", "text.txt", "--run", "run").status == 130
    assert files(here) == {"text.txt"}


def test_a_finished_run_says_so(seqwright: Command, copy: Path) -> None:
    before = {name: (copy / name).read_bytes() for name in ("model.safetensors", "log.jsonl", "summary.json")}
    for arguments in (["--run", "run"], ["--run", "run", "--set", "training.steps=6"]):
        said = seqwright("train", *arguments)
        assert said.status == 0
        assert "run was finished before" in said.out
    assert before == {name: (copy / name).read_bytes() for name in before}


def test_a_finished_run_can_be_asked_for_more(seqwright: Command, copy: Path) -> None:
    said = seqwright("train", "--run", "run", "--set", "training.steps=10", "--json")
    assert said.status == 0, said.err
    assert said.json["summary"]["steps"] == 10
    assert [record["step"] for record in records(copy, "resume")] == [6]
    assert seqwright("train", "--run", "run", "--json").json["already"]


def test_another_recipe_is_refused_with_what_differs(seqwright: Command, copy: Path, trained: Path) -> None:
    text = str(trained.parent / "text.txt")
    said = seqwright("train", "--text", text, *TINY_GPT, "--run", "run", "--set", "training.learning_rate=0.5")
    assert said.status == 2
    assert "run was begun with another recipe:" in said.err
    assert "now 0.5" in said.err
    assert "--run" in said.err
    said = seqwright("train", "--run", "run", "--set", "model.dropout=0.5", "--set", "training.batch_size=3")
    assert said.status == 2
    assert "model.dropout was 0.1, now 0.5" in said.err
    assert "training.batch_size was 4, now 3" in said.err


def test_another_text_is_refused(seqwright: Command, here: Path) -> None:
    assert seqwright("train", "--text", "text.txt", *TINY_GPT, "--run", "run").status == 0
    (here / "text.txt").write_text(text_of(60, seed=1))
    said = seqwright("train", "--run", "run", "--set", "training.steps=9")
    assert said.status == 2
    assert "the training or validation data is not what run was begun with" in said.err
    assert seqwright("generate", "run", "the", "--max-tokens", "3").status == 0


def test_another_validation_text_is_refused(seqwright: Command, here: Path) -> None:
    (here / "valid.txt").write_text(text_of(9, seed=1))
    assert seqwright("train", "--text", "text.txt", "--valid", "valid.txt", *TINY_GPT, "--run", "run").status == 0
    (here / "valid.txt").write_text(text_of(9, seed=2))
    said = seqwright("train", "--run", "run", "--set", "training.steps=9")
    assert said.status == 2
    assert "the training or validation data is not what run was begun with" in said.err


def test_what_failed_before_anything_was_learned_can_be_mended(seqwright: Command, here: Path) -> None:
    (here / "short.txt").write_text("just one line\n")
    said = seqwright("train", "--text", "short.txt", "--run", "run", *TINY_GPT)
    assert said.status == 2
    assert "set model.context to 3 or so" in said.err
    assert files(here) == {"text.txt", "short.txt"}
    assert seqwright("train", "--text", "short.txt", "--run", "run", *TINY_GPT, "--set", "model.context=3").status == 0


def test_killed_before_anything_was_learned_another_recipe_may_follow(seqwright: Command, here: Path) -> None:
    process = start("train", "--text", "text.txt", *ENDLESS, "--run", "run", "--set", "training.log_every=1", cwd=here)
    wait_until(lambda: bool(records(here / "run", "train")), process)
    process.kill()
    assert ended(process).status == -signal.SIGKILL
    said = seqwright("train", "--text", "text.txt", *TINY_GPT, "--set", "tokenizer.kind=bytes", "--run", "run")
    assert said.status == 0, said.err
    assert [record["step"] for record in records(here / "run", "train")] == [6]


def test_one_folder_has_one_trainer(seqwright: Command, here: Path) -> None:
    process = start("train", "--text", "text.txt", *ENDLESS, "--run", "run", cwd=here)
    wait_until(lambda: bool(records(here / "run", "train")), process)
    said = seqwright("train", "--run", "run")
    assert said.status == 2
    assert f"run is being written by process {process.pid}" in said.err
    assert "another folder with --run" in said.err
    process.terminate()
    assert ended(process).status == 143
