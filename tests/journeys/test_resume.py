"""Resuming: interrupted and finished runs, more steps, and rejected changes of recipe or data."""

from __future__ import annotations

import re
import shlex
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import seqwright as sw
from seqwright.runs.checkpoints import Checkpoints
from seqwright.runs.directory import RunDirectory
from seqwright.text import trainers as training
from seqwright.training.signals import StopRequest
from tests.journeys.commands import TINY_GPT, files, finish, records, start, synthetic_text, wait_until
from tests.journeys.conftest import Command

ENDLESS = [*TINY_GPT, "--set", "training.steps=1000000", "--set", "training.evaluate_every=0"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_saves_a_checkpoint_and_training_resumes(
    seqwright: Command, workdir: Path, number: signal.Signals, status: int
) -> None:
    run = workdir / "run"
    process = start("train", "--text", "text.txt", *ENDLESS, "--run", "run", cwd=workdir)
    wait_until(lambda: bool(records(run, "train")), process)
    process.send_signal(number)
    result = finish(process)
    assert result.status == status, result.err
    assert ", checkpoint saved; `seqwright train --run run` resumes." in result.err
    assert "Traceback" not in result.err
    (stopped,) = records(run, "stop")
    assert stopped["step"] >= 20
    assert (run / "checkpoints" / f"step-{stopped['step']:08d}").is_dir()
    result = seqwright("generate", "run", "the", "--max-tokens", "5")
    assert (result.status, result.err) == (
        0,
        f"run run is unfinished: using its checkpoint of step {stopped['step']:,}.\n",
    )
    with pytest.warns(sw.SeqwrightWarning, match="unfinished"):
        half = sw.open("run")
    assert half.evaluate()["bits_per_byte"] == seqwright("evaluate", "run", "--json").json["bits_per_byte"]
    result = seqwright("train", "--run", "run", "--set", f"training.steps={stopped['step'] + 2}")
    assert result.status == 0, result.err
    assert f"going on from step {stopped['step']:,}." in result.err
    assert not {name for name in files(run) if "/.tmp" in name or name.startswith(".tmp")}


def test_interrupt_while_reading_leaves_no_run(workdir: Path) -> None:
    (workdir / "long.txt").write_text(synthetic_text(200_000))
    process = start("train", "--text", "long.txt", *TINY_GPT, "--run", "run", cwd=workdir)
    wait_until((workdir / "run" / "environment.json").exists, process)
    time.sleep(0.2)  # the text is being read and tokenized, which takes seconds
    process.send_signal(signal.SIGINT)
    result = finish(process)
    # A shell reports 130 in both cases: Python dies of the signal where it came while a C extension ran Python code.
    assert result.status in (130, -signal.SIGINT)
    assert "stopped before the first checkpoint: nothing is lost but the time" in result.err.splitlines()[-1]
    assert files(workdir) == {"text.txt", "long.txt"}


def test_interrupt_of_the_wait_for_the_first_checkpoint_keeps_the_run(
    seqwright: Command, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C: the first one ended the steps, and its checkpoint is still being written."""
    save, main = Checkpoints.save, threading.main_thread().ident
    assert main is not None

    def interrupted(*arguments: Any, **options: Any) -> None:
        while isinstance(getattr(signal.getsignal(signal.SIGINT), "__self__", None), StopRequest):  # steps go on
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.2)
        save(*arguments, **options)

    monkeypatch.setattr(Checkpoints, "save", interrupted)
    once = ["--set", "training.evaluate_every=0", "--set", "training.steps=2"]  # only the last step saves a checkpoint
    assert seqwright("train", "--text", "text.txt", *TINY_GPT, *once, "--run", "run").status == 130
    assert RunDirectory.open(workdir / "run").checkpoints.latest() is not None


def test_interrupt_during_tokenizer_training_leaves_no_run(
    seqwright: Command, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_sample", interrupted)
    assert seqwright("train", "--text", "text.txt", "--run", "run").status == 130
    assert files(workdir) == {"text.txt"}


def test_train_of_a_finished_run_changes_nothing(seqwright: Command, run_copy: Path) -> None:
    before = {name: (run_copy / name).read_bytes() for name in ("model.safetensors", "log.jsonl", "summary.json")}
    for arguments in (["--run", "run"], ["--run", "run", "--set", "training.steps=6"]):
        result = seqwright("train", *arguments)
        assert result.status == 0
        assert "run was already finished" in result.out
    assert before == {name: (run_copy / name).read_bytes() for name in before}


def test_finished_run_resumes_with_more_steps(seqwright: Command, run_copy: Path) -> None:
    result = seqwright("train", "--run", "run", "--set", "training.steps=10", "--json")
    assert result.status == 0, result.err
    assert result.json["summary"]["steps"] == 10
    assert [record["step"] for record in records(run_copy, "resume")] == [6]
    assert seqwright("train", "--run", "run", "--json").json["already"]


def test_a_longer_training_that_was_stopped_has_a_warning_where_it_is_opened(
    seqwright: Command, workdir: Path, run_copy: Path
) -> None:
    longer = ["--set", "training.steps=1000000", "--set", "training.evaluate_every=0"]
    process = start("train", "--run", "run", *longer, cwd=workdir)
    wait_until(lambda: bool(records(run_copy, "resume")), process)
    process.send_signal(signal.SIGINT)
    assert finish(process).status == 130
    warning = "the weights of run are of 6 steps: the 1,000,000 of its recipe are not taken yet;"
    for arguments in (["generate", "run", "the", "--max-tokens", "3"], ["evaluate", "run"]):
        result = seqwright(*arguments)
        assert result.status == 0
        assert f"{warning} `seqwright train --run run` goes on.\n" in result.err
    with pytest.warns(sw.SeqwrightWarning, match=warning):
        sw.open("run")


def test_resume_rejects_another_recipe_with_the_differences(seqwright: Command, run_copy: Path, trained: Path) -> None:
    text = str(trained.parent / "text.txt")
    result = seqwright("train", "--text", text, *TINY_GPT, "--run", "run", "--set", "training.learning_rate=0.5")
    assert result.status == 2
    assert "run was begun with another recipe:" in result.err
    assert "now 0.5" in result.err
    again = "`seqwright train run/recipe.toml --run run-2 --set training.learning_rate=0.5`"
    assert f"in another folder: {again}, or go on with the old settings: `seqwright train --run run`." in result.err
    (run_copy.parent / "other.txt").write_text("another text\n" * 40)
    result = seqwright("train", "--text", "other.txt", *TINY_GPT, "--run", "run", "--set", "model.dropout=0.5")
    heading, first, *_ = result.err.splitlines()
    assert heading == "error: run was begun with another recipe:"
    assert first.startswith("  data.train was [")
    assert first.endswith(f", now ['{run_copy.parent}/other.txt']")
    assert "run/recipe.toml" not in result.err  # which would train the old text
    assert "or begin with the weights of the old one: --from run --run run-2" in result.err
    result = seqwright("train", "--text", "other.txt", "--model", "ngram", "--run", "run")
    assert result.err.splitlines()[1].startswith("  data.train was [")
    assert "model.kind was 'gpt', now 'ngram'" in result.err
    assert "not set" not in result.err
    assert " more keys\n" in result.err
    result = seqwright("train", "--run", "run", "--set", "model.dropout=0.5", "--set", "training.batch_size=3")
    assert result.status == 2
    assert re.search(r"model\.dropout was 0\.\d+, now 0\.5", result.err)  # the default follows the machine's speed
    assert "training.batch_size was 4, now 3" in result.err


def test_resume_rejects_another_training_text(seqwright: Command, workdir: Path) -> None:
    assert seqwright("train", "--text", "text.txt", *TINY_GPT, "--run", "run").status == 0
    (workdir / "text.txt").write_text(synthetic_text(60, seed=1))
    result = seqwright("train", "--run", "run", "--set", "training.steps=9")
    assert result.status == 2
    assert "the training or validation data is not what run was begun with" in result.err
    assert seqwright("generate", "run", "the", "--max-tokens", "3").status == 0


def test_resume_rejects_another_validation_text(seqwright: Command, workdir: Path) -> None:
    (workdir / "valid.txt").write_text(synthetic_text(9, seed=1))
    assert seqwright("train", "--text", "text.txt", "--valid", "valid.txt", *TINY_GPT, "--run", "run").status == 0
    (workdir / "valid.txt").write_text(synthetic_text(9, seed=2))
    result = seqwright("train", "--run", "run", "--set", "training.steps=9")
    assert result.status == 2
    assert "the training or validation data is not what run was begun with" in result.err


def test_resume_reads_moved_data_of_the_same_hash(seqwright: Command, workdir: Path) -> None:
    assert seqwright("train", "--text", "text.txt", *TINY_GPT, "--run", "run").status == 0
    (workdir / "text.txt").rename(workdir / "moved.txt")
    result = seqwright("evaluate", "run")
    assert result.status == 2
    again = "If it was moved to a folder NEW, say so: `seqwright train --run run --set data.train=NEW/text.txt`."
    assert "name others with --on FILE" in result.err
    assert again in result.err
    result = seqwright("train", "--run", "run", "--set", "training.steps=9")
    assert result.status == 2
    assert again in result.err
    (workdir / "other.txt").write_text(synthetic_text(60, seed=1))
    result = seqwright("train", "--run", "run", "--set", "data.train=other.txt")
    assert result.status == 2
    assert "its hash is another" in result.err
    assert RunDirectory.open("run").recipe()["data"]["train"] == [str(workdir / "text.txt")]
    assert seqwright("train", "--run", "run", "--set", "data.train=moved.txt", "--json").json["already"]
    assert seqwright("evaluate", "run", "--json").status == 0
    result = seqwright("train", "--run", "run", "--set", "training.steps=9", "--json")
    assert result.json["summary"]["steps"] == 9


def test_a_run_of_another_task_with_the_same_kind_of_model_is_named(seqwright: Command, workdir: Path) -> None:
    """Its sizes, which followed from a time budget, have keys that this task does not know."""
    (workdir / "labels.tsv").write_text("".join(f"{'ab'[n % 2]}\tword {n % 7} of {n}\n" for n in range(60)))
    budget = ("--model", "transformer", "--minutes", "0.02", "--run", "run", "-q")
    assert seqwright("train", "--labeled", "labels.tsv", *budget).status == 0
    result = seqwright("train", "--pairs", "labels.tsv", "--run", "run")
    assert result.status == 2
    assert result.err.splitlines()[0] == "error: run was begun with another recipe:"


@pytest.mark.parametrize("keys", [[], ["--set", "data.refit=false"]])
def test_counted_run_takes_moved_data_of_the_same_hash_alone(
    seqwright: Command, workdir: Path, keys: list[str]
) -> None:
    """That of a refitted model is all of its data."""
    assert seqwright("train", "--text", "text.txt", "--model", "ngram", *keys, "--run", "run").status == 0
    result = seqwright("train", "--text", "other.txt", "--model", "ngram", *keys, "--run", "run")
    assert result.status == 2
    (workdir / "other.txt").write_text(synthetic_text(60, seed=1))
    result = seqwright("train", "--text", "other.txt", "--model", "ngram", *keys, "--run", "run")
    assert result.err.splitlines()[0] == "error: run was begun with another recipe:"  # before anything is read
    assert f"data.train was ['{workdir}/text.txt'], now ['{workdir}/other.txt']" in result.err
    assert "Give the new one another folder: --run run-2, or go on with the old settings" in result.err
    assert "--from" not in result.err
    notes = RunDirectory.open("run").notes()
    (workdir / "text.txt").rename(workdir / "kept.txt")
    result = seqwright("train", "--run", "run", "--set", "data.train=other.txt")
    assert "its hash is another" in result.err
    assert "no score of its own" not in result.err
    assert RunDirectory.open("run").notes() == notes
    (workdir / "kept.txt").rename(workdir / "text.txt")
    assert RunDirectory.open("run").recipe()["data"]["train"] == [str(workdir / "text.txt")]
    (workdir / "text.txt").rename(workdir / "moved.txt")
    assert "data.train=NEW/text.txt" in seqwright("where", "run", "a b").err
    assert seqwright("train", "--run", "run", "--set", "data.train=moved.txt", "--json").json["already"]
    assert seqwright("where", "run", "a b").status == 0


def test_the_command_that_started_a_run_says_how_to_resume_it_with_moved_data(
    seqwright: Command, workdir: Path
) -> None:
    first = ["train", "--text", "text.txt", *TINY_GPT, "--run", "run"]
    assert seqwright(*first).status == 0
    (workdir / "text.txt").rename(workdir / "moved.txt")
    again = "If it was moved to a folder NEW, say so: `seqwright train --run run --set data.train=NEW/text.txt`."
    result = seqwright(*first)
    assert result.status == 2
    assert result.err.startswith("error: no file text.txt")
    assert again in result.err
    with pytest.raises(sw.UserError, match=re.escape(again)):
        sw.train(text="text.txt", run="run")
    assert "NEW" not in seqwright("train", "--text", "txet.txt", "--run", "run").err
    assert "NEW" not in seqwright("train", "--text", "text.txt", "--run", "other").err


def test_a_moved_side_of_pairs_is_named_among_both(seqwright: Command, workdir: Path) -> None:
    for name in ("a.en", "a.de", "v.en", "v.de"):
        (workdir / name).write_text("one two\nthree four\n" * 9)
    pairs = ["--pairs", "a.en", "a.de", "--valid", "v.en", "v.de", "--set", "training.steps=1"]
    assert seqwright("train", *pairs, "--run", "run").status == 0
    (workdir / "new").mkdir()
    for name in ("a.de", "v.en", "v.de"):
        (workdir / name).rename(workdir / "new" / name)
    result = seqwright("train", "--run", "run", "--set", "training.steps=2")
    _, command, _ = result.err.split("`")
    named = [argument.replace("NEW", "new") for argument in shlex.split(command)[1:]]
    assert f'data.train=["{workdir}/a.en", "new/a.de"]' in named
    assert seqwright(*named).status == 0
    assert seqwright("evaluate", "run").status == 0


def test_failure_before_training_leaves_no_run(seqwright: Command, workdir: Path) -> None:
    (workdir / "short.txt").write_text("just one line\n")
    result = seqwright("train", "--text", "short.txt", "--run", "run", *TINY_GPT)
    assert result.status == 2
    assert "set model.context to 3 or so" in result.err
    assert files(workdir) == {"text.txt", "short.txt"}
    assert seqwright("train", "--text", "short.txt", "--run", "run", *TINY_GPT, "--set", "model.context=3").status == 0


def test_kill_before_the_first_checkpoint_allows_another_recipe(seqwright: Command, workdir: Path) -> None:
    process = start(
        "train", "--text", "text.txt", *ENDLESS, "--run", "run", "--set", "training.log_every=1", cwd=workdir
    )
    wait_until(lambda: bool(records(workdir / "run", "train")), process)
    process.kill()
    assert finish(process).status == -signal.SIGKILL
    result = seqwright("train", "--text", "text.txt", *TINY_GPT, "--set", "tokenizer.kind=bytes", "--run", "run")
    assert result.status == 0, result.err
    assert [record["step"] for record in records(workdir / "run", "train")] == [6]


def test_run_folder_is_locked_by_one_process(seqwright: Command, workdir: Path) -> None:
    process = start("train", "--text", "text.txt", *ENDLESS, "--run", "run", cwd=workdir)
    wait_until(lambda: bool(records(workdir / "run", "train")), process)
    result = seqwright("train", "--run", "run")
    assert result.status == 2
    assert f"run is being written by process {process.pid}" in result.err
    assert "another folder with --run" in result.err
    process.terminate()
    assert finish(process).status == 143
