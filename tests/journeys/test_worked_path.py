"""docs/scaling.md, from a folder of texts to a GPT-2: its lines, at a tiny size."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.journeys.commands import synthetic_text
from tests.journeys.conftest import Command

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
TINY = [
    *("model.layers=1", "model.width=16", "model.heads=2", "model.context=16", "training.batch_size=4"),
    *("training.micro_batch_size=2", "training.steps=4", "training.precision=fp32", "training.device=cpu"),
    "evaluation.baseline=false",
]
SMALLER = {
    "data": ["--set", "tokenizer.size=300"],
    "train": [part for setting in TINY for part in ("--set", setting)],
    "generate": ["--max-tokens", "5"],
}
"""Options added to the lines of the page, by command."""


def test_the_worked_path_of_the_page_runs(seqwright: Command, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(workdir / "cache"))
    (workdir / "texts").mkdir()
    for number in range(2):
        (workdir / "texts" / f"{number}.txt").write_text(synthetic_text(40, number))
    for name in ("valid.txt", "test.txt"):
        (workdir / name).write_text(synthetic_text(10, 9))
    lines = lines_of("From a folder of texts to a GPT-2")
    assert [line.split()[0] for line in lines] == ["data", "plan", "train", "evaluate", "generate"]
    for line in lines:
        line = re.sub(r" --(workers|processes) 8", "", line)  # starting processes is tested elsewhere
        command, *arguments = shlex.split(line)
        result = seqwright(command, *arguments, *SMALLER.get(command, ()))
        assert result.status == 0, result.err
    [line] = lines_of("Shards at a URL")
    command, *arguments = shlex.split(
        line.replace("s3://bucket", workdir.as_uri()).replace("runs/gpt2", "runs/streamed")
    )
    result = seqwright(command, *arguments, *SMALLER[command])
    assert result.status == 0, result.err


def lines_of(title: str) -> list[str]:
    """The commands of a section of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\$ seqwright (.*)$", section.replace("\\\n", ""), re.M)
