"""Commands on files that two ranks share: the output is that of one process, in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.journeys.commands import Result, synthetic_text
from tests.journeys.conftest import Command
from tests.training.test_ranks import ROOT, free_port, set_variables

VARIABLES = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "SEQWRIGHT_JOIN_SECONDS": "60"}


class TwoRanks:
    """Runs a command as rank 0, while another process runs the same as rank 1."""

    def __init__(self, seqwright: Command, monkeypatch: pytest.MonkeyPatch):
        self.seqwright, self.monkeypatch, self.statuses = seqwright, monkeypatch, []  # type: ignore[var-annotated]
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        environment = os.environ | VARIABLES | {"RANK": "1", "LOCAL_RANK": "1", "PYTHONPATH": paths}
        self.other = subprocess.Popen(
            [sys.executable, "-m", "tests.journeys.rank_commands"],
            env=environment | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, *arguments: str | Path) -> Result:
        port = free_port()
        assert self.other.stdin is not None
        self.other.stdin.write(json.dumps([port, [str(part) for part in arguments]]) + "\n")
        self.other.stdin.flush()
        with self.monkeypatch.context() as context:
            set_variables(context, RANK=0, LOCAL_RANK=0, MASTER_PORT=port, **VARIABLES)
            result = self.seqwright(*arguments)
        if dist.is_initialized():  # rank 0 would end here with its error, and rank 1 with it
            dist.destroy_process_group()
        self.statuses.append(result.status)
        return result


@pytest.fixture
def two_ranks(seqwright: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoRanks]:
    ranks = TwoRanks(seqwright, monkeypatch)
    yield ranks
    output, _ = ranks.other.communicate(timeout=60)
    # Rank 1 ended as rank 0. Where it finds rank 0 gone already, it prints its error, too.
    assert output.splitlines()[-1] == str(ranks.statuses)


def test_files_shared_by_ranks_come_back_in_order(
    seqwright: Command, two_ranks: TwoRanks, trained: Path, workdir: Path
) -> None:
    (workdir / "lines.txt").write_text(f"{synthetic_text(5)}\nxin chào 🎉\r\n{'the cat ' * 20}\n")  # 8, one long line
    (workdir / "words.txt").write_text("the\ncat\nsat\n")
    commands = [
        ["score", trained, "lines.txt"],
        ["score", trained, "lines.txt", "--keep-below", "30"],
        ["evaluate", trained, "--on", "lines.txt", "--json"],
        ["generate", trained, "--prompts", "lines.txt", "--max-tokens", "4", "--samples", "2"],
        ["generate", trained, "--prompts", "words.txt", "--max-tokens", "4", "--beam", "2"],
    ]
    for command in commands:
        alone, shared = seqwright(*command), two_ranks(*command)
        assert alone.status == 0, alone.err
        assert shared == alone
    (workdir / "long.txt").write_text(f"the\n{'the cat ' * 20}\n")  # a prompt of rank 1 that is too long
    refused = seqwright("generate", trained, "--prompts", "long.txt", "--beam", "2")
    assert "does not fit the context" in refused.err
    assert two_ranks("generate", trained, "--prompts", "long.txt", "--beam", "2") == refused
    (workdir / "empty.txt").touch()
    assert two_ranks("score", trained, "empty.txt").err == "empty.txt is empty.\n"
    assert "standard input is one stream; name a file" in two_ranks("score", trained).err
    assert "give --prompts FILE or --samples N" in two_ranks("generate", trained, "the").err


def n_best_list(result: Result) -> list[list[str]]:
    """Number, output and scores of each line of `translate --n-best`."""
    assert result.status == 0, result.err
    return [line.split(" ||| ") for line in result.out.splitlines()]


def test_translations_shared_by_ranks_equal_those_of_one_process(
    seqwright: Command, two_ranks: TwoRanks, workdir: Path
) -> None:
    text = synthetic_text(40)
    (workdir / "a.en").write_text(text)
    (workdir / "a.de").write_text(text.upper())
    keys = [
        "tokenizer.kind=words",
        "model.kind=transformer",
        "model.layers=1",
        "model.width=16",
        "model.heads=2",
        "model.context=64",
    ]
    keys += ["training.steps=60", "training.batch_size=8", "training.learning_rate=0.01", "training.sample_every=0"]
    settings = [part for key in keys for part in ("--set", key)]
    trained = seqwright("train", "--pairs", "a.en", "a.de", "--valid", "a.en", "a.de", "--run", "run", *settings)
    assert trained.status == 0, trained.err
    translate = ["translate", "run", "a.en", "--beam", "2", "--n-best", "2"]
    alone, shared = (n_best_list(run(*translate)) for run in (seqwright, two_ranks))
    assert [line[:2] for line in shared] == [line[:2] for line in alone]
    scores, expected = ([float(score) for line in lines for score in line[2:]] for lines in (shared, alone))
    assert scores == pytest.approx(expected, abs=2e-4)  # printed to 1e-4; other rows of a batch change the rounding
    evaluate = ["evaluate", "run", "--on", "a.en", "a.de", "--json"]
    values = [
        {name: score["value"] for name, score in run(*evaluate).json["scores"].items()}
        for run in (seqwright, two_ranks)
    ]
    assert values[1] == pytest.approx(values[0], abs=1e-6)
    (workdir / "long.en").write_text(f"{'cat ' * 200}\nthe\n{'dog ' * 200}\n")
    refused = seqwright("translate", "run", "long.en")
    assert "source 1 has" in refused.err
    assert two_ranks("translate", "run", "long.en") == refused
