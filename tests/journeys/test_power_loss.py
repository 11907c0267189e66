"""Training, preparing, mixing and exporting survive a power failure at any write-side call, bit for bit."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import seqwright as sw
from seqwright.data.text.prepare import prepare
from seqwright.interop.arpa import export_arpa
from seqwright.text.trainers import TokenizerConfig
from seqwright.text.trainers import train as train_tokenizer
from tests.journeys.commands import TINY_GPT, synthetic_text
from tests.journeys.power_loss import LOST, NEVER, calls_of, run_until_power_loss

SETTINGS = (*TINY_GPT[1::2], "training.checkpoint_every=2", "training.keep_last=2", "training.log_every=1")
SHORT = 3
"""Power failures per work in the short form."""


def train(folder: Path) -> None:
    torch.set_num_threads(1)
    sw.train(text=str(folder.parent / "text.txt"), set=SETTINGS, run=folder / "run")


def encode(folder: Path) -> None:
    text = folder.parent / "text.txt"
    tokenizer = train_tokenizer(TokenizerConfig(kind="characters"), [text.read_text()])
    prepare([text], folder / "ids", tokenizer, document="line", block=500)


def mix(folder: Path) -> None:
    runs = [folder.parent / "one", folder.parent / "other"]
    if not (folder / "mixed" / "summary.json").exists():
        sw.mix(runs, folder / "mixed", on=str(folder.parent / "text.txt"))


def export(folder: Path) -> None:
    export_arpa(sw.open(folder.parent / "one"), folder / "model.arpa")


WORKS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "train": (train, ("run/model.safetensors", "run/tokenizer.json", "run/recipe.toml")),
    "prepare": (encode, ("ids/ids.bin", "ids/tokenizer.json")),
    "mix": (mix, ("mixed/model.safetensors", "mixed/recipe.toml")),
    "export": (export, ("model.arpa",)),
}


def process(work: Callable[[Path], None], folder: Path, at: int) -> int:
    """The exit status of the work in a process whose power fails at the call of number `at`."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["seqwright.api", "torch._dynamo", "tests.journeys.test_power_loss"])
    child = processes.Process(target=run_until_power_loss, args=(work, (folder,), folder, at))
    child.start()
    child.join(120)
    assert child.exitcode in (0, LOST), (work, at, child.exitcode)
    return child.exitcode


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("power")
    (folder / "text.txt").write_text(synthetic_text(60))
    for name, order in (("one", 2), ("other", 3)):
        keys = (f"model.order={order}", "tokenizer.kind=characters")
        sw.train(text=str(folder / "text.txt"), model="ngram", set=keys, run=folder / name)
    return folder


def results(folder: Path, names: tuple[str, ...]) -> list[bytes]:
    return [(folder / name).read_bytes() for name in names]


def survives(name: str, base: Path, points: Callable[[int], list[int]]) -> None:
    """Loses power at each of these points of all calls, and once more while recovering; the results are the same."""
    work, names = WORKS[name]
    whole = base / f"{name}-{points.__name__}"
    whole.mkdir()
    assert process(work, whole, NEVER) == 0
    wanted, calls = results(whole, names), calls_of(whole)
    lost = 0
    for at in points(calls):
        folder = base / f"{whole.name}-{at}"
        folder.mkdir()
        lost += process(work, folder, at) == LOST
        process(work, folder, random.Random(at).randrange(2, calls))
        assert process(work, folder, NEVER) == 0, (name, at)
        assert results(folder, names) == wanted, (name, at)
        leftovers = [*folder.rglob(".tmp-*/*"), *folder.rglob(".old-*/*")]  # an empty folder may outlive the last call
        assert not leftovers, (name, at)
    assert lost


def some(calls: int) -> list[int]:
    return random.Random(calls).sample(range(1, calls), SHORT)


def every(calls: int) -> list[int]:
    return list(range(1, calls))


@pytest.mark.parametrize("name", WORKS)
def test_power_failures_lose_nothing(name: str, base: Path) -> None:
    survives(name, base, some)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_power_failures_at_every_call_lose_nothing(name: str, base: Path) -> None:
    survives(name, base, every)
