"""Reading a run beside a process that writes it: never a false report of damage, never files of two moments."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

from seqwright.core.config import UserError
from seqwright.core.lock import is_locked, lock
from seqwright.core.storage import load_tensors, write_text
from seqwright.runs import manifest
from seqwright.runs.directory import RunDirectory
from seqwright.runs.listing import listing
from seqwright.runs.manifest import settled

SUMMARY = {"kind": "gpt", "parameters": 10, "steps": 3, "seconds": 0.5}
READS = 60
WRITTEN = 5
"""States of a run that are read at least."""
PATIENCE = 60.0
"""Seconds in which a writer on a busy machine comes to write them."""


def write_again_and_again(path: Path) -> None:
    """What training a finished run further writes, with everything of another size each time."""
    run = RunDirectory(path)
    with run.writing():
        for number in range(1, 1_000_000):
            run.write_recipe(f'name = "{number}"\n[model]\nkind = "gpt"\n')
            run.rewind(0)
            run.save_model({"a": torch.full((1 + number % 7,), float(number))}, {"step": str(number)})
            run.log({"kind": "note", "text": "x" * (number % 50)})
            run.finish(SUMMARY | {"steps": number}, f"<p>{number}")
            time.sleep(0.01)  # as long as a reader needs: trainings write far less often


@pytest.fixture
def finished(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "runs" / "run", recipe='name = "0"\n[model]\nkind = "gpt"\n')
    write_text(run.tokenizer_path, "{}")
    run.save_model({"a": torch.zeros(3)}, {"step": "0"})
    run.finish(SUMMARY, "")
    return run


@pytest.fixture
def writer(finished: RunDirectory) -> Iterator[BaseProcess]:
    process = multiprocessing.get_context("fork").Process(target=write_again_and_again, args=(finished.path,))
    process.start()
    while not is_locked(finished.path):
        time.sleep(0.01)
    yield process
    process.kill()
    process.join()


def test_a_reader_beside_a_writer_sees_no_damage(finished: RunDirectory, writer: BaseProcess) -> None:
    seen: set[bytes] = set()
    reads, end = 0, time.monotonic() + PATIENCE
    while reads < READS or (len(seen) <= WRITTEN and time.monotonic() < end):
        reads += 1
        seen.add(RunDirectory.open(finished.path).manifest_path.read_bytes())
        [row] = listing(finished.path.parent)
        assert row["state"] == "finished", row
        time.sleep(random.uniform(0, 0.005))
    assert writer.is_alive()
    assert len(seen) > WRITTEN, "the writer has written nothing meanwhile"


def test_what_is_read_together_was_written_together(finished: RunDirectory, writer: BaseProcess) -> None:
    def read() -> tuple[int, float]:
        run = RunDirectory.open(finished.path)
        time.sleep(0.002)
        return int(run.recipe()["name"]), float(load_tensors(run.model_path)[0]["a"][0])

    numbers = []
    for _ in range(20):
        try:
            recipe, weight = settled(finished.path, read)
        except UserError as error:
            assert "is being written at this moment" in str(error)  # noqa: PT017
            continue
        assert 0 <= recipe - weight <= 1, "the recipe is announced and written before the weights"
        numbers.append(recipe)
    assert writer.is_alive()
    assert numbers == sorted(numbers)


def test_damage_beside_a_writer_is_reported(finished: RunDirectory) -> None:
    finished.summary_path.write_text(json.dumps(SUMMARY | {"steps": 9}))
    with lock(finished.path, ""):
        began = time.monotonic()
        with pytest.raises(UserError, match=r"summary\.json is damaged"):
            RunDirectory.open(finished.path)
        assert time.monotonic() - began >= sum(manifest.WAITS)
    began = time.monotonic()
    with pytest.raises(UserError, match=r"summary\.json is damaged"):
        RunDirectory.open(finished.path)
    assert time.monotonic() - began < sum(manifest.WAITS), "a run that nobody writes is read once"


def test_looking_at_a_lock_keeps_no_writer_away(finished: RunDirectory) -> None:
    assert not is_locked(finished.path)
    with finished.writing():
        assert is_locked(finished.path)
    assert not is_locked(finished.path / "nowhere")
    assert not is_locked(finished.recipe_path)
