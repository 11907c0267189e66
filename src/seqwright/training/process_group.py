"""The process group of a training: joining the ranks that torchrun or `--processes` started, and losing one."""

from __future__ import annotations

import json
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from seqwright.core.config import UserError
from seqwright.core.limits import limit
from seqwright.core.ranks import SINGLE, Ranks

LONGEST_WAIT = timedelta(hours=2)
"""Of a rank for the others in a collective: rank 0 learns the tokenizer, evaluates and saves while they wait. One that
ends is noticed at once, by its closed connection."""

REASON = re.compile(r"Connection \w+ by peer|[Tt]imed out")
"""What a user needs of a message of gloo or NCCL."""

SAME_ERROR = timedelta(seconds=5)
"""Ranks that meet the same error do so within this time."""


LAST_READ = timedelta(seconds=10)
"""Of rank 0, which hosts the store, for ranks to read why it ends."""
POLL_SECONDS = 0.02
"""Between looks of rank 0 at which ranks have come."""
RESUME = "Train again to resume from the last checkpoint."


class RankLostError(UserError):
    """Another rank ended or cannot be reached."""


def environment_ranks() -> Ranks:
    """This process among those of its launcher, by torchrun's environment variables; alone without them."""
    named = {key: os.environ[key] for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK") if key in os.environ}
    if wrong := [key for key, text in named.items() if not (text.isascii() and text.isdigit())]:
        raise UserError(
            f"{wrong[0]} is {named[wrong[0]][:40]!r}; torchrun sets it to a number. Unset it, or set it so."
        )
    size = int(named.get("WORLD_SIZE", 1))
    if size < 2:
        return SINGLE
    if missing := [key for key in ("RANK", "MASTER_ADDR", "MASTER_PORT") if key not in os.environ]:
        raise UserError(f"WORLD_SIZE is {size}, but {missing[0]} is not set; start all ranks with torchrun.")
    if int(named["RANK"]) >= size:
        raise UserError(f"RANK is {named['RANK']}, but {size} ranks have numbers up to {size - 1}; set it so.")
    if not os.environ["MASTER_PORT"].isdigit():
        raise UserError(f"MASTER_PORT is {os.environ['MASTER_PORT'][:40]!r}; set it to the number of a free port.")
    return Ranks(int(named["RANK"]), size)


@contextmanager
def joined(device: torch.device, identity: Mapping[str, str], *, advice: str = RESUME) -> Iterator[Ranks]:
    """The ranks of this training, or of this command, while the block runs.

    `identity` (versions, a hash of the recipe) must be that of rank 0 on every rank: ranks with different recipes
    would wait for each other, or train on different batches. `advice` is for a rank that is lost.
    """
    ranks = environment_ranks()
    if ranks.size == 1:
        yield ranks
        return
    if device.type == "mps":
        raise UserError("ranks cannot communicate on mps; train on one process, or set training.device to cpu.")
    if device.type == "cuda":
        _take_device()
    store = _connect(ranks, device, identity)
    try:
        yield ranks
    except UserError as error:
        if _is_reported(error, ranks, store):
            with suppress(RuntimeError):
                ranks.barrier()  # ends with rank 0, which still writes its report
            raise RankLostError("rank 0 reports the error.") from error
        raise
    except RuntimeError as error:
        if not _is_connection_error(error):
            raise
        found = REASON.search(str(error))
        reason = found[0] if found else str(error).split("\n")[0][:200]
        raise RankLostError(f"another rank ended or cannot be reached ({reason}). {advice}") from error
    dist.destroy_process_group()


def _take_device() -> None:
    """Makes the GPU of this rank the current one."""
    local, count = int(os.environ.get("LOCAL_RANK", os.environ["RANK"])), torch.cuda.device_count()
    if local >= count:
        raise UserError(
            f"this machine has {count} GPUs, and rank {os.environ['RANK']} needs number {local + 1}; start at most"
            f" {count} processes on it, or set training.device to cpu."
        )
    torch.cuda.set_device(local)


def _is_reported(error: UserError, ranks: Ranks, store: Store) -> bool:
    """Whether rank 0 ends with this very error, as all ranks do that meet it in the same step."""
    try:
        store.set(f"error/{ranks.rank}", str(error))
        if not ranks.first:
            store.wait(["error/0"], SAME_ERROR)
        return not ranks.first and store.get("error/0").decode() == str(error)
    except RuntimeError:
        return False


def _connect(ranks: Ranks, device: torch.device, identity: Mapping[str, str]) -> Store:
    """Joins the other ranks; their store."""
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    patience = timedelta(seconds=limit("SEQWRIGHT_JOIN_SECONDS"))
    try:
        if not ranks.first:
            _await_address(patience)
        store, _, _ = next(rendezvous("env://", timeout=patience))
        store = _session_store(ranks, store, patience)
        _meet(ranks, store, identity, patience)
        # Numbers that hosts agree on are on the CPU.
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=ranks.rank, world_size=ranks.size, timeout=LONGEST_WAIT)
        return store
    except (RuntimeError, ValueError, OSError) as error:
        reason = str(error).split("\n")[0][:200]
        used = "EADDRINUSE" in str(error) or "address already in use" in str(error).lower()
        advice = (
            f"{address} is in use: choose another --master-port (torchrun), or end the process that has it."
            if used
            else f"Start all {ranks.size} ranks with the same address, or give them longer with SEQWRIGHT_JOIN_SECONDS"
            f" (now {patience.seconds})."
        )
        raise UserError(f"rank {ranks.rank} could not join the others at {address} ({reason}). {advice}") from error


def _await_address(patience: timedelta) -> None:
    """Waits until rank 0 can be reached: PyTorch's own attempts end after twice the time, in pages of stack traces."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    deadline = time.monotonic() + patience.total_seconds()
    while True:
        try:
            with socket.create_connection(address, timeout=max(0.1, deadline - time.monotonic())):
                return
        except OSError:
            if time.monotonic() > deadline - POLL_SECONDS:
                raise
            time.sleep(POLL_SECONDS)


def _session_store(ranks: Ranks, store: Store, patience: timedelta) -> Store:
    """The store under a prefix that only the ranks of this start know.

    torchrun's store outlives the ranks that it starts again, with the addresses of those that died; the numbers of
    restarts that it counts may differ between machines. So rank 0 draws a name, and answers the nonce of each rank.
    """
    if not ranks.first:
        nonce = uuid.uuid4().hex
        store.set(f"seqwright/hello/{ranks.rank}", nonce)
        try:
            store.wait([f"seqwright/welcome/{nonce}"], patience)
        except dist.DistStoreError:
            raise _missing_error(ranks, "0", patience) from None
        return PrefixStore(store.get(f"seqwright/welcome/{nonce}").decode(), store)
    name = f"seqwright/{uuid.uuid4().hex}"
    session = PrefixStore(name, store)
    missing, deadline = set(range(1, ranks.size)), time.monotonic() + patience.total_seconds()
    while missing:
        if time.monotonic() > deadline:
            raise _missing_error(ranks, ", ".join(map(str, sorted(missing))), patience)
        for rank in missing:
            if store.check([f"seqwright/hello/{rank}"]):
                store.set(f"seqwright/welcome/{store.get(f'seqwright/hello/{rank}').decode()}", name)
        missing = {rank for rank in missing if not session.check([f"identity/{rank}"])}
        time.sleep(POLL_SECONDS)
    return session


def _missing_error(
    ranks: Ranks, missing: str, patience: timedelta, error_class: type[UserError] = UserError
) -> UserError:
    return error_class(
        f"of {ranks.size} ranks, {missing} did not come within {patience.seconds} s. Start all of them, or give"
        " them longer with SEQWRIGHT_JOIN_SECONDS."
    )


def _meet(ranks: Ranks, store: Store, identity: Mapping[str, str], patience: timedelta) -> None:
    """Waits until all ranks are there, and compares them; where they differ, rank 0 alone reports it."""
    error_class = UserError if ranks.first else RankLostError
    store.set(f"identity/{ranks.rank}", json.dumps(dict(identity)))
    keys = [f"identity/{rank}" for rank in range(ranks.size)]
    try:
        store.wait(keys, patience)
    except dist.DistStoreError:
        missing = ", ".join(str(rank) for rank, key in enumerate(keys) if not store.check([key]))
        raise _missing_error(ranks, missing, patience, error_class) from None
    others = [json.loads(store.get(key)) for key in keys]
    if not ranks.first:
        store.set(f"read/{ranks.rank}", "")
    for rank, other in enumerate(others):
        for name, value in others[0].items():
            if other.get(name) != value:
                if ranks.first:  # the store is its own, and ends with it: the others read first
                    with suppress(dist.DistError):
                        store.wait([f"read/{other}" for other in range(1, ranks.size)], min(patience, LAST_READ))
                raise error_class(
                    f"rank {rank} has another {name} than rank 0 ({other.get(name)}, not {value}); start all ranks with"
                    " the same version and the same command."
                )


def _is_connection_error(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or "gloo/" in str(error)
