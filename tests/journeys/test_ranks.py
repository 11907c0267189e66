"""Training on two processes through the command line: a killed rank, torchrun, resume, wrong input."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from seqwright.core.config import UserError
from seqwright.core.ranks import SINGLE, Ranks
from seqwright.pipeline.scaling import refuse_idle_offload, refuse_ranks, refuse_without_blocks
from seqwright.pipeline.training import train
from seqwright.pipeline.wanted import wanted_recipe
from seqwright.training.config import TrainingConfig
from seqwright.training.launcher import refuse_missing_devices
from tests.journeys.commands import finish, records, start, synthetic_text, wait_until
from tests.training.test_trainer import fresh, lstm

SETTINGS = [
    *("tokenizer.kind=characters", "model.kind=gpt", "model.layers=1", "model.width=16", "model.heads=2"),
    *("model.context=16", "model.dropout=0", "training.batch_size=4", "training.device=cpu", "training.optimizer=sgd"),
    *("training.schedule=constant", "training.warmup_steps=0", "training.learning_rate=0.1", "training.log_every=1"),
    *("training.evaluate_every=0", "training.sample_every=0", "training.checkpoint_every=10"),
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(synthetic_text(300))
    return path


def on_one_process(text: Path, run: Path, steps: int) -> None:
    train(wanted_recipe(None, text=[str(text)], set=[*SETTINGS, f"training.steps={steps}"], run=run), run)


def options(steps: int, *more: str) -> list[str]:
    return [part for setting in (*SETTINGS, f"training.steps={steps}", *more) for part in ("--set", setting)]


def worker(launcher: int, rank: int) -> int | None:
    """The process of a rank, by its environment."""
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        try:
            if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                return int(child)
        except OSError:
            pass
    return None


def assert_equal_losses(run: Path, other: Path, steps: int) -> None:
    ours, theirs = ({r["step"]: r["loss"] for r in records(path, "train")} for path in (run, other))
    assert ours.keys() == theirs.keys()
    for step in range(1, steps + 1):
        assert ours[step] == pytest.approx(theirs[step], abs=1e-6 if step < 50 else 1e-4), step


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds a rank's process in /proc")
@pytest.mark.parametrize(
    "strategy",
    [
        ("training.parallel=ddp",),
        pytest.param(("training.parallel=fsdp",), marks=pytest.mark.slow),
        pytest.param(("training.parallel=fsdp", "training.stream_checkpoints=true"), marks=pytest.mark.slow),
    ],
    ids=["ddp", "fsdp", "streamed"],
)
def test_a_killed_rank_is_restarted_and_the_run_resumes_on_one_process(
    strategy: tuple[str, ...], text: Path, tmp_path: Path
) -> None:
    """1 → 2 → 1 processes, and SIGKILL of a rank between, equal one process to the rounding of sums."""
    run, reference = tmp_path / "run", tmp_path / "reference"
    on_one_process(text, run, 10)
    settings = options(200, *strategy)
    launcher = start("train", "--text", text, "--run", run, "--processes", "2", "--json", *settings)
    wait_until(lambda: (run / "checkpoints" / "step-00000030").exists(), launcher)
    killed = worker(launcher.pid, 1)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    result = finish(launcher)
    assert result.status == 0, result.err
    assert "rank 1 was killed by SIGKILL; all ranks start again from the last checkpoint (1 of 3)" in result.err
    assert result.json["summary"]["ranks"] == 2
    assert "Traceback" not in result.err
    assert "error on rank" not in result.err
    assert len(records(run, "resume")) == 2
    on_one_process(text, run, 210)
    on_one_process(text, reference, 210)
    assert_equal_losses(run, reference, 210)


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_a_full_disk_ends_all_ranks_with_its_name(strategy: str, text: Path, tmp_path: Path) -> None:
    more = [f"training.parallel={strategy}", *(["training.stream_checkpoints=true"] if strategy == "fsdp" else [])]
    arguments = ("train", "--text", text, "--run", tmp_path / "run", "--processes", "2", *options(200, *more))
    small = 12_000  # bytes of a file: those of the log and the recipe are smaller, the weights are not
    result = finish(start(*arguments, preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (small, small))))
    assert result.status == 2
    assert result.err.count("no room to write") == 1
    assert "step-00000010/model.safetensors: File too large" in result.err
    assert "Traceback" not in result.err
    assert "another rank" not in result.err


@pytest.mark.slow
def test_torchrun_starts_the_ranks(text: Path, tmp_path: Path) -> None:
    run, reference = tmp_path / "run", tmp_path / "reference"
    # Without the dashes, torchrun takes --run for its own --run-path.
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
    arguments = ["seqwright", "train", "--text", str(text), "--run", str(run), *options(20)]
    done = subprocess.run([*launcher, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    on_one_process(text, reference, 20)
    assert_equal_losses(run, reference, 20)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds a rank's process in /proc")
def test_torchrun_restarts_a_killed_rank(text: Path, tmp_path: Path) -> None:
    run, reference = tmp_path / "run", tmp_path / "reference"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = ["seqwright", "train", "--text", str(text), "--run", str(run), *options(200)]
    agent = subprocess.Popen(
        [*launcher, "--max-restarts", "1", "-m", "--", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: (run / "checkpoints" / "step-00000030").exists(), agent)
    killed = worker(agent.pid, 1)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    result = finish(agent)
    assert result.status == 0, result.err
    assert len(records(run, "resume")) == 1
    on_one_process(text, reference, 200)
    assert_equal_losses(run, reference, 200)


@pytest.mark.parametrize(
    ("settings", "size", "message"),
    [
        (["model.kind=ngram"], 2, "ngram is counted in one pass, by one process; leave out --processes"),
        ([], 3, "training.batch_size is 4, which 3 ranks cannot share equally; try 3 or 6"),
        ([], 8, "which 8 ranks cannot share equally; try 8"),
        (['training.micro_batch_size="auto"'], 2, "Set it to a number of rows of one rank"),
        (["training.parallel=fsdp", "training.optimizer=adafactor"], 2, 'use "adamw", or parallel = "ddp"'),
        (["training.parallel=fsdp", "training.unfreeze_every=1"], 2, 'needs training.parallel = "ddp"'),
        (["training.tensor_parallel=2"], 2, 'cannot be used with parallel = "ddp"; set it to "fsdp"'),
        (["training.parallel=fsdp", "training.tensor_parallel=2"], 3, "3 ranks make no whole groups"),
        (["training.parallel=fsdp", "training.tensor_parallel=2"], 6, "which 3 groups of 2 ranks cannot share"),
        (["training.parallel=fsdp", "training.tensor_parallel=2", "training.optimizer=muon"], 2, '"adam" or "sgd"'),
    ],
)
def test_what_ranks_cannot_train_is_refused(settings: list[str], size: int, message: str, text: Path) -> None:
    overrides = settings if "model.kind=ngram" in settings else [*SETTINGS, *settings]
    wanted = wanted_recipe(None, text=[str(text)], set=overrides)
    refuse_ranks(wanted, 1)
    with pytest.raises(UserError, match=message):
        refuse_ranks(wanted, size)


@pytest.mark.parametrize(
    ("parallel", "size", "missing"),
    [("fsdp", 1, "several ranks"), ("ddp", 2, "not .ddp."), ("fsdp", 2, "a GPU, not cpu")],
)
def test_offload_without_effect_is_refused(parallel: str, size: int, missing: str, text: Path) -> None:
    settings = [*SETTINGS, "training.cpu_offload=true", f"training.parallel={parallel}", "training.device=cpu"]
    with pytest.raises(UserError, match=f"needs .*{missing}.*; set it to false"):
        refuse_idle_offload(wanted_recipe(None, text=[str(text)], set=settings).training, size)


def test_sharding_and_activation_checkpointing_need_transformer_blocks() -> None:
    for config in (lstm(), lstm(mogrifier_rounds=2)):
        with pytest.raises(UserError, match="recomputes Transformer blocks, and this model has none"):
            refuse_without_blocks(fresh(config), TrainingConfig(activation_checkpointing=True), SINGLE)
        with pytest.raises(UserError, match="shards Transformer blocks, and this model has none"):
            refuse_without_blocks(fresh(config), TrainingConfig(parallel="fsdp"), Ranks(0, 2))


def test_missing_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    refuse_missing_devices(1, torch.device("cuda"))
    refuse_missing_devices(2, torch.device("cpu"))
    with pytest.raises(UserError, match="--processes 2 needs as many GPUs, and this machine has 1"):
        refuse_missing_devices(2, torch.device("cuda"))
