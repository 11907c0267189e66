"""CPU threads: the waiting policy that is set before PyTorch is loaded, and `training.threads`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from seqwright.core.progress import Progress
from seqwright.pipeline import recipe, training

PRINT = "import os, seqwright; print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))"


@pytest.mark.parametrize(
    ("variables", "seen"),
    [
        ({}, "1000 None"),
        ({"GOMP_SPINCOUNT": "7"}, "7 None"),
        ({"OMP_WAIT_POLICY": "active"}, "None active"),
    ],
)
def test_idle_threads_do_not_spin_for_long_unless_the_user_says_so(variables: dict[str, str], seen: str) -> None:
    inherited = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    out = subprocess.run([sys.executable, "-c", PRINT], env=inherited | variables, capture_output=True, check=True)
    assert out.stdout.decode().strip() == seen


class ThreadsSeen(Progress):
    def stage(self, text: str) -> None:
        self.threads = torch.get_num_threads()


def test_training_threads_decides_for_that_training_only(tmp_path: Path) -> None:
    before, progress = torch.get_num_threads(), ThreadsSeen()
    table = {
        "data": {"train": "embedded:topics"},
        "tokenizer": {"kind": "characters"},
        "model": {"kind": "ngram", "order": 1},
        "training": {"threads": 3},
    }
    training.train(recipe.make(table), tmp_path / "run", progress)
    assert progress.threads == 3
    assert torch.get_num_threads() == before
