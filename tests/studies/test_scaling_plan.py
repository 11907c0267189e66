"""`plan --gpus`: memory and communication of DDP and FSDP2 follow the ZeRO paper; blocks, passes and refusals."""

from __future__ import annotations

import pytest

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.studies.device_speed import GPUS
from seqwright.studies.layer_table import Layer
from seqwright.studies.scaling_plan import RankSizes, Strategy, strategies
from seqwright.studies.step_cost import StepCost
from seqwright.studies.step_trace import Operation
from seqwright.training.config import TrainingConfig

PARAMETERS = 7_500_000_000


def layers(blocks: int = 1000) -> list[Layer]:
    """Equal blocks of two layers."""
    made = []
    for number in range(blocks):
        for name in ("attention", "feed_forward"):
            path = f"encoder.blocks.{number}.{name}"
            share = PARAMETERS // blocks // 2
            made.append(
                Layer(path=path, kind="Linear", output=(1, 8), parameters=share, mult_adds=share, output_bytes=1000)
            )
    return made


def on(gpus: int, rows: int = 64, **options: object) -> dict[str, Strategy]:
    config = TrainingConfig(**options)  # type: ignore[arg-type]
    rank = RankSizes.of(config, rows=rows, gpus=gpus)
    cost = StepCost(operations=(Operation("mm", 10**15, 0),), activations=2000 * rank.micro, weight_copies=0, peak=0)
    optimizer = 8 * PARAMETERS
    made = strategies(layers(), PARAMETERS, config, rank, cost, optimizer_bytes=optimizer, gpus=gpus, gpu="H100")
    return {strategy.parallel: strategy for strategy in made}


def test_model_states_are_those_of_the_zero_paper() -> None:
    """Rajbhandari et al. (2020), figure 1: 7.5 billion parameters on 64 GPUs take 120 GB each, sharded 1.9 GB."""
    ddp, fsdp = on(64)["ddp"], on(64)["fsdp"]
    assert ddp.memory - ddp.activations == pytest.approx(120e9)
    gathered = 2 * 6 * PARAMETERS / 1000 * (4 + 4)  # weights and gradients of two groups of six blocks of 1,000
    assert fsdp.memory - fsdp.activations - gathered == pytest.approx(1.9e9, rel=0.02)
    assert not ddp.fits
    assert fsdp.fits


def test_sharding_communicates_half_as_much_again() -> None:
    """§7: all-reduce sends 2 Ψ, all-gathers and reduce-scatter 3 Ψ; in bf16 weights are half."""
    assert on(64)["ddp"].communication == pytest.approx(2 * 4 * PARAMETERS * 63 / 64)
    assert on(64)["fsdp"].communication / on(64)["ddp"].communication == pytest.approx(1.5)
    assert on(64, precision="bf16")["fsdp"].communication == pytest.approx((2 * 2 + 4) * PARAMETERS * 63 / 64)
    assert on(1)["ddp"].communication == 0
    assert "fsdp" not in on(1)


def test_accumulation_gathers_weights_in_every_pass_and_keeps_whole_gradients() -> None:
    one, four = on(16, rows=64)["fsdp"], on(16, rows=64, micro_batch_size=1)["fsdp"]
    assert one.gradients < four.gradients == 4 * PARAMETERS
    assert four.communication == pytest.approx((4 * 8 + 4) / (8 + 4) * one.communication)
    assert four.activations == one.activations / 4


def test_weights_that_are_kept_are_gathered_once_a_step() -> None:
    again = on(16, rows=64, micro_batch_size=1, precision="bf16")["fsdp"]
    kept = on(16, rows=64, micro_batch_size=1, precision="bf16", reshard_after_forward=False)["fsdp"]
    assert again.communication == pytest.approx((8 * 2 + 4) * PARAMETERS * 15 / 16)
    assert kept.communication == pytest.approx((2 + 4) * PARAMETERS * 15 / 16)
    assert kept.weights == pytest.approx((4 / 16 + 2) * PARAMETERS)


def test_plan_of_a_recipe_on_gpus() -> None:
    plan = sw.plan("lecture-generation-transformer", vocabulary=100, set=["training.batch_size=64"], gpus=4)
    assert [strategy.parallel for strategy in plan.strategies] == ["ddp", "fsdp"]
    assert plan.strategies[0].weights == 4 * plan.parameters
    assert len(plan.as_json()["strategies"]) == 2
    recurrent = sw.plan("lecture-generation-lstm", vocabulary=100, gpus=4)
    assert [strategy.parallel for strategy in recurrent.strategies] == ["ddp"]


def test_unknown_gpus_and_too_few_rows_are_refused() -> None:
    with pytest.raises(UserError, match="no data sheet of 'H10'"):
        sw.plan("lecture-generation-transformer", vocabulary=100, gpus=4, gpu="H10")
    with pytest.raises(UserError, match="7 ranks cannot share equally; try 28 or 35"):  # as train does
        sw.plan("lecture-generation-transformer", vocabulary=100, gpus=7)
    with pytest.raises(UserError, match="100000 ranks cannot share equally; try 100000"):
        sw.plan("lecture-generation-transformer", vocabulary=100, gpus=100_000)
    assert set(GPUS) == {"A100", "H100", "H200"}
