"""Models are measured on the meta device: exact sizes, early refusal, and no import of torch's compiler."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from seqwright import build
from seqwright.core.config import UserError
from seqwright.core.storage import save_tensors
from seqwright.training.model_size import ModelSize, on_meta, refuse_larger
from tests.contract.kinds import SMALL, VOCABULARY

NETWORKS = [name for name, row in SMALL.items() if row["kind"] not in build.LANGUAGE_MODELS]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_on_meta_has_the_shapes_of_the_model(name: str) -> None:
    config = build.model_config(SMALL[name])
    sizes: list[ModelSize] = []
    model = on_meta(lambda: build.model(config, VOCABULARY), sizes.append)
    real = build.model(config, VOCABULARY)
    assert {n: p.shape for n, p in model.named_parameters()} == {n: p.shape for n, p in real.named_parameters()}
    assert all(parameter.is_meta for parameter in model.parameters())
    parameters = sum(p.numel() for p in real.parameters())
    assert parameters <= sizes[-1].parameters <= 2 * parameters


def test_a_model_of_its_weights_is_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_tensors(path, nn.Linear(2000, 1000).state_dict())
    refuse_larger(lambda: nn.Linear(2000, 1000), path)
    with pytest.raises(UserError, match=r"is larger than model\.safetensors, which has 2,001,000 parameters in 2 tens"):
        refuse_larger(lambda: nn.Linear(2000, 3000), path)
    with pytest.raises(UserError, match="no model of these sizes can be built"):
        refuse_larger(lambda: nn.Linear(1 << 40, 1 << 40), path)


def test_models_of_other_threads_are_not_measured() -> None:
    sizes: list[ModelSize] = []

    def make() -> nn.Module:
        other = threading.Thread(target=nn.Linear, args=(5, 5))
        other.start()
        other.join()
        return nn.Linear(2, 3)

    on_meta(make, sizes.append)
    assert (sizes[-1].tensors, sizes[-1].parameters) == (2, 9)
    assert nn.Linear(2, 3).weight.device == torch.device("cpu")
    assert len(sizes) == 2, "the hooks are removed"


def test_measuring_imports_no_compiler() -> None:
    """It takes 2 s, which every command that opens a run would pay."""
    program = (
        "import sys; from tests.training.test_model_size import *\n"
        "for config in (build.model_config(SMALL[name]) for name in NETWORKS):\n"
        "    on_meta(lambda: build.model(config, VOCABULARY), lambda size: None)\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
