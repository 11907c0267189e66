"""Run directories: made, opened, damaged, locked, killed at any moment."""

import fcntl
import multiprocessing
import os
import random
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO

import pytest
import torch

from seqwright.core.config import UserError
from seqwright.core.storage import load_tensors, read_json, write_json, write_text
from seqwright.runs.checkpoints import Checkpoints
from seqwright.runs.directory import FORMAT, RunDirectory
from seqwright.runs.environment import environment
from seqwright.runs.finding import find_runs

RECIPE = 'name = "tiny"\n\n[model]\nkind = "gpt"\n'
SUMMARY = {"kind": "gpt", "parameters": 10, "steps": 3, "seconds": 0.5, "perplexity": 141.19}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "runs" / "tiny", recipe=RECIPE)


@pytest.fixture
def finished(run: RunDirectory) -> RunDirectory:
    write_text(run.tokenizer_path, "{}")
    run.save_model({"a": torch.ones(10)}, {"step": "3"})
    run.log({"kind": "train", "step": 1, "loss": 2.5})
    run.finish(SUMMARY, "<!doctype html>")
    return run


def test_a_run_opens_as_it_was_made(run: RunDirectory) -> None:
    opened = RunDirectory.open(str(run.path))
    assert opened.recipe() == {"name": "tiny", "model": {"kind": "gpt"}}
    assert opened.environment()["format"] == FORMAT
    assert opened.records() == []
    assert not opened.finished
    assert find_runs(run.path.parent) == [run.path]


def test_the_summary_finishes_a_run(finished: RunDirectory) -> None:
    opened = RunDirectory.open(finished.path)
    assert opened.finished
    assert opened.summary() == SUMMARY
    assert load_tensors(opened.model_path)[1] == {"step": "3"}


def test_the_environment_tells_what_a_repetition_needs() -> None:
    facts = environment()
    assert facts.keys() - {"commit"} == {
        *("seqwright", "sources", "python", "torch", "platform", "cpu", "cores", "threads", "gpus", "command", "time")
    }
    assert facts["torch"] == torch.__version__
    assert facts["cpu"]


def test_notes_stay_and_later_steps_go_when_a_run_goes_back(run: RunDirectory) -> None:
    for step in (1, 2, 3):
        run.log({"kind": "train", "step": step})
    run.note("10 lines held out")
    run.rewind(2)
    assert [record.get("step") for record in run.records()] == [1, 2, None]
    assert run.notes() == ["10 lines held out"]


def test_create_keeps_off_what_is_not_its_own(run: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="already holds a run"):
        RunDirectory.create(run.path, recipe=RECIPE)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    with pytest.raises(UserError, match=r"not a run and holds other things \(chapter.tex\)"):
        RunDirectory.create(tmp_path / "thesis", recipe=RECIPE)
    assert [p.name for p in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]
    with pytest.raises(UserError, match=r"chapter\.tex is a file"):
        RunDirectory.create(tmp_path / "thesis" / "chapter.tex", recipe=RECIPE)


@pytest.mark.parametrize("name", ["recipe.toml", "environment.json", ".env", ".lock", ".tmp-mine"])
def test_create_keeps_off_a_single_file_of_somebody(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(UserError, match=rf"holds other things \({re.escape(name)}\)\. Choose an empty folder"):
        RunDirectory.create(tmp_path, recipe=RECIPE)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(name, '{"mine": 1}')]


def test_a_creation_that_was_killed_can_be_made_again(run: RunDirectory) -> None:
    run.recipe_path.unlink()
    (run.path / ".tmp-0a1b2c3d-recipe.toml").mkdir()
    with pytest.raises(UserError, match=r"not a run: all but environment\.json is missing"):
        RunDirectory.open(run.path)
    assert RunDirectory.create(run.path, recipe="name = 'again'").recipe() == {"name": "again"}
    assert sorted(p.name for p in run.path.iterdir()) == [".lock", "environment.json", "recipe.toml"]


@pytest.mark.parametrize("steps", range(6))
def test_a_creation_taken_back_half_can_be_made_again(
    run: RunDirectory, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.log({"kind": "note", "text": "begun"})
    run.checkpoints.path.mkdir()
    done = iter(range(steps))
    unlink = Path.unlink

    def killed(path: Path, missing_ok: bool = False) -> None:
        if next(done, None) is None:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", killed)
    with suppress(KeyboardInterrupt):
        run.discard()
    monkeypatch.undo()
    if find_runs(run.path.parent):
        assert RunDirectory.open(run.path).recipe()
    else:
        RunDirectory.create(run.path, recipe=RECIPE)


def test_what_is_taken_back_is_what_was_made(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "new", recipe=RECIPE).discard()
    (tmp_path / "mine").mkdir()
    run = RunDirectory.create(tmp_path / "mine", recipe=RECIPE)
    run.tensorboard_path.mkdir()
    run.discard()
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_a_folder_that_cannot_be_read_does_not_hide_the_runs_beside_it(run: RunDirectory) -> None:
    (run.path.parent / "a-loop").symlink_to("a-loop")  # following it is an OSError for every user
    assert find_runs(run.path.parent) == [run.path]


def test_a_missing_run_suggests_its_neighbor(run: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no run at .*tny\. Did you mean .*runs/tiny\?"):
        RunDirectory.open(run.path.parent / "tny")
    with pytest.raises(UserError, match=r"holds runs but is none itself.*runs/tiny"):
        RunDirectory.open(run.path.parent)
    deep = tmp_path / "far" / "off"
    deep.mkdir(parents=True)
    run.path.parent.rename(deep / "runs")  # three levels below: a hint does not walk a large folder
    with pytest.raises(UserError, match=r"is not a run"):
        RunDirectory.open(tmp_path)
    (deep / "runs").rename(run.path.parent)
    with pytest.raises(UserError, match=r"is a file. Name the folder of a run: .*tiny\."):
        RunDirectory.open(run.recipe_path)
    with pytest.raises(UserError, match=r"no run at .*Train one"):
        RunDirectory.open(tmp_path / "nowhere" / "x")


def test_a_run_of_a_newer_seqwright_asks_for_an_upgrade(run: RunDirectory) -> None:
    write_json(run.environment_path, {"format": FORMAT + 1, "seqwright": "9.1"})
    with pytest.raises(UserError, match=r"made by seqwright 9\.1, format 4; this is .*Upgrade"):
        RunDirectory.open(run.path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def spoil(path: Path) -> None:
    path.write_bytes(b'{"format" = \xff\n' + path.read_bytes())


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("environment.json", cut),
        ("environment.json", lambda path: path.write_text("[]")),
        ("environment.json", lambda path: path.write_text('{"format": "1"}')),
        ("recipe.toml", Path.unlink),
        ("recipe.toml", spoil),
        ("recipe.toml", lambda path: path.write_text("[model\n")),
        ("tokenizer.json", spoil),
        ("model.safetensors", Path.unlink),
        ("model.safetensors", cut),
        ("model.safetensors", spoil),
        ("summary.json", cut),
        ("log.jsonl", spoil),
    ],
)
def test_damage_is_named_on_opening(finished: RunDirectory, name: str, damage: Callable[[Path], object]) -> None:
    damage(finished.path / name)
    with pytest.raises(UserError, match=name.replace(".", r"\.")) as caught:
        RunDirectory.open(finished.path)
    assert "train again" in str(caught.value) or "Delete that line" in str(caught.value)


def test_two_writers_do_not_meet(run: RunDirectory) -> None:
    with run.writing(), pytest.raises(UserError, match=rf"being written by process {os.getpid()} on .*--run"):  # noqa: SIM117
        with RunDirectory.open(run.path).writing():
            pass
    with run.writing():
        pass


def test_a_lock_that_was_unlinked_guards_nothing(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opened the lock before `discard` unlinked it comes to hold the one that is there, or none."""
    flock = fcntl.flock
    waiting = iter([True])

    def late(file: IO[str], operation: int) -> None:
        if next(waiting, False):
            run.lock_path.unlink()  # as a holder that fails does, between our opening it and our locking it
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with run.writing(), pytest.raises(UserError, match="is being written by"), RunDirectory(run.path).writing():
        pass


def test_a_run_taken_back_while_one_waited_is_told(run: RunDirectory) -> None:
    waiting = RunDirectory.open(run.path)
    run.discard()
    for again in range(2):
        with pytest.raises(UserError, match=r"taken back by the process that made it.*Try again"), waiting.writing():
            pass
        if not again:
            run.path.mkdir(parents=True, exist_ok=True)


def hold(path: Path) -> None:
    with RunDirectory(path).writing() as run:
        run.log({"kind": "held"})
        time.sleep(60)


def groups_of(step: int) -> dict[str, dict[str, torch.Tensor]]:
    return {
        "model": {f"w{i}": torch.full((100,), float(step)) for i in range(3)},
        "optimizer": {"m": torch.full((2000,), float(step))},
        "carry": {},
    }


def state_of(step: int) -> dict[str, object]:
    return {"progress": {"step": step}, "corpus": "a fingerprint"}


def save_for_ever(path: Path) -> None:
    with RunDirectory(path).writing() as run:
        found = run.checkpoints.latest()
        step = found.step if found else 0
        run.log({"kind": "resume", "step": step})
        while True:
            step += 1
            run.checkpoints.save(step, groups_of(step), state_of(step), keep=2)
            run.log({"kind": "train", "step": step})
            if step % 3 == 0:  # a step saved twice takes the place of itself
                run.checkpoints.save(step, groups_of(step), state_of(step), keep=2)


def start_writer(target: Callable[[Path], None], run: RunDirectory) -> BaseProcess:
    """A process that has begun to write; forked from a server that has torch loaded, so that it is there at once."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["seqwright.runs.directory"])
    before = len(run.records())
    process = processes.Process(target=target, args=(run.path,), daemon=True)
    process.start()
    deadline = time.monotonic() + 60
    while len(run.records()) == before:
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return process


def kill(process: BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def test_a_dead_holder_frees_the_lock(run: RunDirectory) -> None:
    process = start_writer(hold, run)
    with pytest.raises(UserError, match=f"process {process.pid}"), run.writing():
        pass
    kill(process)
    with run.writing():
        pass


def test_killed_at_any_moment_a_complete_checkpoint_is_found(run: RunDirectory) -> None:
    moments = random.Random(0)
    step = 0
    for _ in range(8):
        process = start_writer(save_for_ever, run)
        time.sleep(moments.uniform(0.005, 0.3))
        kill(process)
        opened = RunDirectory.open(run.path)
        with opened.writing():
            found = opened.checkpoints.latest()
        logged = max((record.get("step", 0) for record in opened.records()), default=0)
        if logged:
            assert found is not None
            assert found.note == ""
            assert found.step >= max(step, logged)  # what was said to be saved is there
            assert found.state == state_of(found.step)
            wanted = groups_of(found.step)
            assert found.groups.keys() == wanted.keys()
            for name, tensors in wanted.items():
                assert found.groups[name].keys() == tensors.keys()
                assert all(torch.equal(found.groups[name][key], tensor) for key, tensor in tensors.items())
            step = found.step
        assert not list(opened.checkpoints.path.glob(".*"))
    assert step > 0


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def test_no_checkpoint_yet(checkpoints: Checkpoints) -> None:
    assert checkpoints.latest() is None
    assert checkpoints.steps() == []


def test_the_newest_and_those_still_needed_are_kept(checkpoints: Checkpoints) -> None:
    for step in (10, 20, 30, 40, 50):
        checkpoints.save(step, groups_of(step), state_of(step), keep=2, kept=[20, 99])
    assert checkpoints.steps() == [20, 40, 50]
    assert sorted(p.name for p in checkpoints.path.iterdir()) == [
        *("latest", "step-00000020", "step-00000040", "step-00000050")
    ]
    assert torch.equal(checkpoints.load(20).groups["optimizer"]["m"], torch.full((2000,), 20.0))


def test_going_on_from_an_earlier_step_gives_up_the_later_ones(checkpoints: Checkpoints) -> None:
    for step in (10, 20, 30):
        checkpoints.save(step, groups_of(step), state_of(step), keep=3)
    checkpoints.save(15, groups_of(15), state_of(15), keep=3)
    assert checkpoints.steps() == [10, 15]
    found = checkpoints.latest()
    assert found is not None
    assert found.step == 15


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", [Path.unlink, cut])
def test_a_damaged_checkpoint_is_passed_over_with_a_note(
    checkpoints: Checkpoints, name: str, damage: Callable[[Path], object]
) -> None:
    for step in (10, 20):
        checkpoints.save(step, groups_of(step), state_of(step), keep=2)
    damage(checkpoints.path / "step-00000020" / name)
    found = checkpoints.latest()
    assert found is not None
    assert (found.step, found.state) == (10, state_of(10))
    assert found.note.startswith("went back to step 10, because ")
    assert f"step-00000020/{name}" in found.note


@pytest.mark.parametrize(
    "about",
    [
        {"groups": ["model", "optimizer"], "state": {}},
        {"groups": ["model", "optimizer"], "state": {"progress": {}, "corpus": ""}},
        {"groups": ["model", "optimizer"], "state": state_of(10)},
        {"groups": [], "state": state_of(20)},
        {"groups": 3, "state": state_of(20)},
        {},
        [],
    ],
)
def test_a_state_that_does_not_say_enough_is_damage(checkpoints: Checkpoints, about: object) -> None:
    for step in (10, 20):
        checkpoints.save(step, groups_of(step), state_of(step), keep=2)
    write_json(checkpoints.path / "step-00000020" / "state.json", about)
    found = checkpoints.latest()
    assert found is not None
    assert found.note.startswith("went back to step 10, because ")


def test_a_lost_or_spoilt_pointer_does_no_harm(checkpoints: Checkpoints) -> None:
    for step in (10, 20):
        checkpoints.save(step, groups_of(step), state_of(step), keep=2)
    for damage in (b"", b"\xff", b"30\n"):
        checkpoints.pointer.write_bytes(damage)
        found = checkpoints.latest()
        assert found is not None
        assert found.step == 20
    checkpoints.pointer.unlink()
    found = checkpoints.latest()
    assert found is not None
    assert found.step == 20


def test_no_readable_checkpoint_is_an_error_and_not_a_fresh_start(checkpoints: Checkpoints) -> None:
    checkpoints.save(10, groups_of(10), state_of(10), keep=1)
    write_json(checkpoints.path / "step-00000010" / "state.json", [])
    with pytest.raises(UserError, match=r"no checkpoint can be read\. Delete .*checkpoints to start again"):
        checkpoints.latest()


@pytest.mark.parametrize("state", [{"best": float("inf")}, {"window": (1, 2)}, {"seen": {1: 2}}])
def test_state_that_would_come_back_changed_is_refused(checkpoints: Checkpoints, state: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="does not survive JSON"):
        checkpoints.save(10, groups_of(10), state, keep=1)
    assert checkpoints.steps() == []


def test_state_json_says_what_is_there(checkpoints: Checkpoints) -> None:
    checkpoints.save(10, groups_of(10), {"rate": 0.1}, keep=1)
    assert read_json(checkpoints.path / "step-00000010" / "state.json") == {
        "step": 10,
        "groups": ["carry", "model", "optimizer"],
        "state": {"rate": 0.1},
    }
