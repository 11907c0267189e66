"""Ranks that cannot train together, through the command line: each ends by itself, in time, and says why."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.journeys.commands import TINY_GPT, synthetic_text
from tests.training.test_ranks import free_port, start_rank

MAIN = "from seqwright.cli import main; import sys; sys.argv[0] = 'seqwright'; main()"
OTHER_VERSION = f"import seqwright; seqwright.__version__ = '0.0.9'; {MAIN}"


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "text.txt").write_text(synthetic_text(300))
    return ["train", "--text", str(tmp_path / "text.txt"), "--run", str(tmp_path / "run"), "--quiet", *TINY_GPT]


@pytest.mark.parametrize(
    ("code", "more", "message"),
    [
        (MAIN, ["--set", "training.learning_rate=0.5"], "rank 1 has another recipe than rank 0"),
        (OTHER_VERSION, [], "rank 1 has another version of seqwright than rank 0 (0.0.9, not"),
    ],
    ids=["recipe", "version"],
)
def test_a_rank_with_another_recipe_or_version_is_named(
    code: str, more: list[str], message: str, arguments: list[str]
) -> None:
    port = free_port()
    ranks = [start_rank(0, port, "-c", MAIN, *arguments), start_rank(1, port, "-c", code, *arguments, *more)]
    outputs = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, 2]
    assert message in outputs[0]
    assert "start all ranks with the same version and the same command" in outputs[0]
    assert not outputs[1]  # rank 0 reports it


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_alone_says_how_long_it_waited(rank: int, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQWRIGHT_JOIN_SECONDS", "2")
    start = time.monotonic()
    process = start_rank(rank, free_port(), "-c", MAIN, *arguments)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"rank {rank} could not join the others at 127.0.0.1" in output
    assert "give them longer with SEQWRIGHT_JOIN_SECONDS (now 2)" in output
    assert len(output.splitlines()) == 1  # no stack trace of PyTorch
    assert time.monotonic() - start < 30


def test_a_port_in_use_is_named(arguments: list[str]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        port = bound.getsockname()[1]
        process = start_rank(0, port, "-c", MAIN, *arguments)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"127.0.0.1:{port} is in use: choose another --master-port" in output
