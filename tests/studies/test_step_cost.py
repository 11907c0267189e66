"""Forecasts of memory and time: within 15 % of what an H200 measured (benchmarks/plan_check.py)."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.layers import softmax_loss
from seqwright.studies.device_speed import GPUS, DeviceSpeed, measured_speed
from seqwright.studies.plan import step_bytes
from seqwright.studies.step_cost import StepCost, needs_values, step_cost
from seqwright.studies.step_trace import Operation
from seqwright.training.config import TrainingConfig
from tests.contract.kinds import configured

MEASURED = json.loads((Path(__file__).parents[2] / "benchmarks/results/plan-h200.json").read_text(encoding="utf-8"))
ON_CPU = json.loads((Path(__file__).parents[2] / "benchmarks/results/plan-cpu.json").read_text(encoding="utf-8"))
NAMES = list(dict.fromkeys(row["training"] for row in MEASURED["rows"]))
IDS = torch.full((1, 16), 2)


@functools.cache
def cost_of(training: str) -> StepCost:
    case = next(row["case"] for row in MEASURED["rows"] if row["training"] == training)
    return cost(**case, precision=MEASURED["precision"], vocabulary=50257)


def cost(*, vocabulary: int, batch_size: int = 4, on: str = "cuda", **options: Any) -> StepCost:
    names = ("precision", "activation_checkpointing")
    training = TrainingConfig(**{name: options.pop(name) for name in names if name in options})
    model = configured("gpt", **options)
    ids = torch.full((1, options["context"]), 2)
    made = functools.partial(build.model, model, Vocabulary(size=vocabulary))
    return step_cost(made, [], Batch.of_text(ids, ids), batch_size, training, on)


@pytest.mark.parametrize("name", NAMES)
def test_forecasts_are_within_15_percent_of_an_h200(name: str) -> None:
    speed = GPUS["H200"].speed(MEASURED["precision"])
    for row in MEASURED["rows"]:
        if row["training"] != name:
            continue
        made, parameters = cost_of(name), row["parameters"]
        memory = 12 * parameters + made.memory(parameters, passes=1)
        seconds = speed.update_seconds(parameters) + speed.seconds(
            made.operations, captured=row["mode"] != "off", compiled=row["mode"] == "inductor"
        )
        assert memory == pytest.approx(row["peak_bytes"], rel=0.15), row["mode"]
        assert seconds == pytest.approx(row["step_seconds"], rel=0.15), row["mode"]


@pytest.mark.parametrize("name", ON_CPU["cases"])
def test_forecasts_of_memory_are_within_15_percent_of_a_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax_loss, "kernels", object)  # as where it was measured
    (row,) = ON_CPU["cases"][name]
    parameters = row["measured"]["parameters"]
    made = cost(**row["case"], precision=ON_CPU["precision"], on="cpu")
    memory = 12 * parameters + step_bytes(made, parameters, 1, "cpu")
    assert memory == pytest.approx(row["measured"]["peak_bytes"], rel=0.15)


def test_the_compiled_loss_holds_fewer_copies_of_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"layers": 1, "width": 16, "heads": 2, "context": 16, "vocabulary": 10_000, "on": "cpu"}
    made = []
    for kernels in (object, lambda: None):
        monkeypatch.setattr(softmax_loss, "kernels", kernels)
        made.append(cost(**sizes).activations)
    assert made[1] - made[0] == 4 * 4 * 16 * 10_000


def test_several_passes_keep_all_gradients_beside_activations() -> None:
    made = cost(layers=2, width=16, heads=2, context=16, vocabulary=50)
    assert made.memory(1000, passes=2) == 4000 + made.activations + made.weight_copies
    assert made.memory(1000, passes=1) == made.peak
    assert made.memory(10**9, passes=1) == 4 * 10**9


def test_logits_of_large_vocabularies_are_bounded() -> None:
    sizes = {"layers": 1, "width": 16, "heads": 2, "context": 512, "on": "cpu"}
    chunked, whole = (cost(vocabulary=300_000, batch_size=rows, **sizes) for rows in (2, 4))
    assert whole.activations - chunked.activations < 4 * 2 * 512 * 300_000 / 4


def test_an_operation_takes_its_arithmetic_or_its_traffic() -> None:
    speed = DeviceSpeed(products=10, attention=5, bandwidth=100, update_bandwidth=1, kernel=1, launch=5)
    operations = [Operation("mm", 40, 100), Operation("mm", 10, 600), Operation("add", 0, 200), Operation("add", 0, 0)]
    assert speed.seconds(operations, captured=True) == 4 + 6 + 2 + 1
    assert speed.seconds(operations) == 20
    assert speed.seconds(operations, captured=True, compiled=True) == pytest.approx(4 + 6 + 0.6 * 3)
    assert speed.seconds([Operation("_scaled_dot_product_flash_attention", 40, 100)], captured=True) == 8


def test_speed_of_this_machine_is_measured() -> None:
    speed = measured_speed(torch.device("cpu"), "fp32", 16, 8)
    assert 1e6 < speed.products < 1e14
    assert 1e6 < speed.attention < 1e14
    assert 1e6 < speed.bandwidth < 1e14


def test_a_real_error_of_a_trace_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only shapes that depend on values, which the meta device lacks, are forecast by the outputs of layers."""

    def failing(*arguments: object, **options: object) -> None:
        torch.zeros(2, 3, device="meta") @ torch.zeros(2, 3, device="meta")

    monkeypatch.setattr("seqwright.studies.step_cost.trace_step", failing)
    with pytest.raises(RuntimeError, match=r"size mismatch|reduction dim"):
        cost(vocabulary=100, layers=1, width=8, heads=2, context=8)
    assert needs_values(error_of(lambda: torch.zeros(1, device="meta").item()))
    assert needs_values(error_of(lambda: torch.zeros(1, device="meta").nonzero()))


def error_of(compute: Callable[[], object]) -> RuntimeError:
    with pytest.raises(RuntimeError) as raised:
        compute()
    return raised.value
