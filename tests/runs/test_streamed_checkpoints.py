"""Checkpoints that are gathered while they are written: the same files, and a kill within a save loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor

from seqwright.core.safetensors_chunks import StreamedTensors
from seqwright.runs.checkpoints import Checkpoints

TENSORS = {name: torch.full((4, 3), number + 0.5) for number, name in enumerate("abc")} | {"step": torch.tensor(7)}


def save(path: Path, step: int, *, killed_at: str = "") -> None:
    def read(name: str) -> Tensor:
        if name == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return TENSORS[name]

    streamed = StreamedTensors(TENSORS, read)
    state = {"progress": {"step": step}, "corpus": ""}
    Checkpoints(path).save(step, {"model": streamed, "optimizer": streamed}, state, keep=1)


def test_streamed_files_are_those_of_gathered_tensors(tmp_path: Path) -> None:
    save(tmp_path / "streamed", 1)
    state = {"progress": {"step": 1}, "corpus": ""}
    Checkpoints(tmp_path / "gathered").save(1, {"model": TENSORS, "optimizer": TENSORS}, state, keep=1)
    for name in ("model", "optimizer"):
        streamed, gathered = (
            tmp_path / way / "step-00000001" / f"{name}.safetensors" for way in ("streamed", "gathered")
        )
        assert streamed.read_bytes() == gathered.read_bytes()


def test_a_kill_within_a_save_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    save(tmp_path / "run", 1)
    call = f"save(Path({str(tmp_path / 'run')!r}), 2, killed_at='b')"
    code = f"from pathlib import Path; from {__name__} import save; {call}"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    assert Checkpoints(tmp_path / "run").steps() == [1]
    latest = Checkpoints(tmp_path / "run").latest()
    assert latest is not None
    assert torch.equal(latest.weights["c"], TENSORS["c"])
