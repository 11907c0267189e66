"""Training on two gloo ranks equals training on one process: DDP, FSDP2, carried states, resume, stop signals."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch._C._distributed_c10d import HashStore, Store
from torch.testing import assert_close

from seqwright.core.config import UserError
from seqwright.core.ranks import SINGLE, Ranks
from seqwright.core.storage import load_tensors, read_json, save_tensors, write_json
from seqwright.training import process_group
from seqwright.training.accumulation import refuse_idle_ranks, split_rows
from seqwright.training.process_group import environment_ranks, joined
from seqwright.training.trainer import Trainer

from . import rank_cases
from .rank_cases import CASES, START, STEPS, adamw, evaluations, small_gpt, train
from .test_trainer import shuffled, slices
from .tiny import MemoryStore

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def start_rank(rank: int, port: int, *arguments: str) -> subprocess.Popen[str]:
    named = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environment = os.environ | {key: str(value) for key, value in named.items()} | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which two ranks have left the results of all cases."""
    folder = tmp_path_factory.mktemp("ranks")
    store = MemoryStore()
    Trainer(small_gpt(), shuffled(), adamw(), store).fit()
    groups, progress = store.saved[START]
    for group, tensors in groups.items():
        save_tensors(folder / f"start.{group}.safetensors", tensors)
    write_json(folder / "start.json", progress)
    port = free_port()
    other = start_rank(1, port, "-m", "tests.training.rank_cases", str(folder))
    with pytest.MonkeyPatch.context() as monkeypatch:
        set_variables(monkeypatch, RANK=0, LOCAL_RANK=0, WORLD_SIZE=2, MASTER_PORT=port)
        rank_cases.main(folder)  # rank 0 is this process, which has its imports behind it
    output, _ = other.communicate(timeout=60)
    assert other.returncode == 0, output
    return folder


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_equal_one_process(name: str, results: Path) -> None:
    """Losses, gradient norms (from the first step on), weights, optimizer state, EMA and carried states."""
    tolerance = CASES[name].tolerance
    _, one = train(CASES[name], SINGLE, results)
    ranks = read_json(results / f"{name}.json")
    assert ranks["step"] == max(one.saved)
    groups, progress = one.saved[ranks["step"]]
    for group, tensors in groups.items():
        ours = load_tensors(results / f"{name}.{group}.safetensors")[0]
        assert_close(ours, tensors, rtol=0, atol=tolerance)
    early = load_tensors(results / f"{name}.early.safetensors")[0]  # kept in memory while training continued
    assert_close(early, one.saved[min(one.saved)][0]["model"], rtol=0, atol=tolerance)
    skipped = {"seconds", "tokens_per_second"}
    assert len(ranks["records"]) == len(one.records)
    for ours, theirs in zip(ranks["records"], one.records, strict=True):
        assert ours.keys() == theirs.keys()
        for key in ours.keys() - skipped:
            expected = pytest.approx(theirs[key], abs=tolerance) if isinstance(theirs[key], float) else theirs[key]
            assert ours[key] == expected, key
    assert ranks["progress"]["tokens"] == progress["tokens"]


@pytest.mark.parametrize("name", ["ddp resumed", "fsdp resumed", "tensor resumed"])
def test_a_run_resumes_on_another_number_of_ranks(name: str, results: Path) -> None:
    """1 → 2 → 1: three steps of one process, four of two ranks, three of one process again."""
    uninterrupted, resumed = MemoryStore(), MemoryStore()
    Trainer(small_gpt(), shuffled(), adamw(STEPS + 3), uninterrupted).fit()
    trainer = Trainer(small_gpt(), shuffled(), adamw(STEPS + 3), resumed)
    groups = {group: load_tensors(results / f"{name}.{group}.safetensors")[0] for group in ("model", "optimizer")}
    trainer.restore(groups, read_json(results / f"{name}.json")["progress"])
    trainer.fit()
    for group, tensors in uninterrupted.saved[STEPS + 3][0].items():
        assert_close(resumed.saved[STEPS + 3][0][group], tensors, rtol=0, atol=1e-9)


@pytest.mark.parametrize("rank", [0, 1])
def test_stepping_shards_equals_stepping_dtensors(rank: int, results: Path) -> None:
    """Weights and optimizer state bit for bit, norms up to the order of sums."""
    for kind, differences in read_json(results / f"shards.{rank}.json").items():
        assert differences[0::2] == pytest.approx([0.0] * 3, abs=1e-6), kind
        assert differences[1::2] == [0.0] * 3, kind


@pytest.mark.parametrize("rank", [0, 1])
def test_an_evaluation_shared_by_ranks_equals_that_of_one(rank: int, results: Path) -> None:
    shared, alone = read_json(results / f"evaluations.{rank}.json"), evaluations()
    assert_close(torch.tensor(shared["text"]), torch.tensor(alone["text"]), rtol=0, atol=1e-12)
    assert_close(torch.tensor(shared["epoch"]), torch.tensor(alone["epoch"]), rtol=0, atol=1e-12)
    assert shared["tags"] == alone["tags"]
    assert shared["nll"] == pytest.approx(alone["nll"], abs=1e-12)


def test_a_signal_to_one_rank_stops_all_at_the_same_step(results: Path) -> None:
    assert [(results / f"stopped.{rank}").read_text() for rank in range(2)] == ["SIGTERM at 3"] * 2


def test_a_full_disk_of_rank_0_is_the_error_of_every_rank(results: Path) -> None:
    """Within a checkpoint, which is gathered or streamed, and before it; the ranks go on to meet afterwards."""
    expected = [f"no room after {tensors} tensors." for tensors in (0, 2) * 3]
    for rank in range(2):
        assert read_json(results / f"full.{rank}.json") == [*expected, "integer division or modulo by zero"]


def test_fewer_carried_rows_than_ranks_are_refused() -> None:
    refuse_idle_ranks(slices(), Ranks(0, 5))
    refuse_idle_ranks(shuffled(), Ranks(0, 6))
    with pytest.raises(UserError, match=r"5 rows with carried state .* fewer than 6 ranks"):
        refuse_idle_ranks(slices(), Ranks(0, 6))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 2, 5, 12])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_ranks_share_all_rows_in_equally_many_micro_batches(size: int, count: int, rows: int) -> None:
    parts = [split_rows(count, rows, Ranks(rank, size)) for rank in range(size)]
    assert len({len(part) for part in parts}) == 1
    taken = [row for part in parts for indices, weight in part if weight for row in indices.tolist()]
    assert taken == list(range(count))


def test_ranks_with_another_recipe_are_refused() -> None:
    store = HashStore()
    store.set("identity/1", json.dumps({"recipe": "xyz"}))
    with pytest.raises(UserError, match="rank 1 has another recipe than rank 0 \\(xyz, not abc\\)"):
        process_group._meet(Ranks(0, 2), store, {"recipe": "abc"}, timedelta(seconds=1))


def meet(rank: int, store: Store) -> Store:
    ranks, patience = Ranks(rank, 2), timedelta(seconds=20)
    session = process_group._session_store(ranks, store, patience)
    process_group._meet(ranks, session, {}, patience)
    return session


def test_ranks_that_are_started_again_do_not_meet_those_before() -> None:
    """torchrun's store outlives the ranks that it starts again, and has the addresses of those that died."""
    store = HashStore()
    for start in ("first", "second"):
        with ThreadPoolExecutor(1) as thread:
            joining = thread.submit(meet, 1, store)
            session = meet(0, store)
        assert not session.check(["address"])
        joining.result().set("address", start)
        assert session.get("address").decode() == start


def test_a_rank_that_never_comes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    store.set("identity/2", "{}")
    with pytest.raises(UserError, match="of 4 ranks, 1, 3 did not come within 1 s"):
        process_group._meet(Ranks(0, 4), store, {}, timedelta(seconds=1))
    with pytest.raises(process_group.RankLostError):  # rank 0 alone reports it
        process_group._meet(Ranks(2, 4), store, {}, timedelta(milliseconds=1))
    set_variables(monkeypatch, RANK=0, WORLD_SIZE=2, MASTER_PORT=free_port(), SEQWRIGHT_JOIN_SECONDS=1)
    with pytest.raises(UserError, match="Start all 2 ranks with the same address"), joined(torch.device("cpu"), {}):
        pass


def set_variables(monkeypatch: pytest.MonkeyPatch, **variables: object) -> None:
    """The environment variables of a launcher, and no others of them."""
    for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.delenv(key, raising=False)
    for key, value in {"MASTER_ADDR": "127.0.0.1", **variables}.items():
        monkeypatch.setenv(key, str(value))


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'"),
        ({"WORLD_SIZE": "2"}, "RANK is not set; start all ranks with torchrun"),
    ],
)
def test_wrong_variables_of_a_launcher_are_refused(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(monkeypatch)
    assert environment_ranks() == SINGLE
    set_variables(monkeypatch, **variables)
    with pytest.raises(UserError, match=message), joined(torch.device("cpu"), {}):
        pass


def test_a_port_in_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        port = bound.getsockname()[1]
        set_variables(monkeypatch, RANK=0, WORLD_SIZE=2, MASTER_PORT=port)
        with pytest.raises(UserError, match=f"127.0.0.1:{port} is in use"), joined(torch.device("cpu"), {}):
            pass
