"""Starts the ranks of a training on this machine with PyTorch's elastic agent, and starts them again where one dies."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence

import torch

from seqwright.core.config import UserError

MAX_RESTARTS = 3
"""How often ranks are started again after one was killed; they resume from the last checkpoint."""
SHUTDOWN_SECONDS = 600
"""Ranks that are stopped have this long to finish their step and save, before they are killed."""
RUN_ID = "seqwright-"
"""What the ids of our elastic agents start with, before the number of their process."""


def is_launched() -> bool:
    """Whether `launch` started this process, rather than torchrun or a user."""
    return re.fullmatch(rf"{RUN_ID}\d+-\d+", os.environ.get("TORCHELASTIC_RUN_ID", "")) is not None


def launcher_pid() -> int | None:
    """The process that started this rank, which may have ended by now; None without a launcher."""
    if is_launched():
        return int(os.environ["TORCHELASTIC_RUN_ID"].split("-")[1])
    return os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None


def refuse_missing_devices(processes: int, device: torch.device) -> None:
    """Raises where there are fewer GPUs than processes."""
    count = torch.cuda.device_count()
    if device.type == "cuda" and processes > count:
        raise UserError(
            f"--processes {processes} needs as many GPUs, and this machine has {count}; give --processes {count}, or"
            " set training.device to cpu."
        )


def launch(
    arguments: Sequence[str],
    processes: int,
    note: Callable[[str], None] = lambda text: None,
    *,
    max_restarts: int = MAX_RESTARTS,
) -> int:
    """Runs `seqwright` with these arguments in several processes, one for each rank; the exit status.

    Ranks that a signal killed (the machine ran out of memory, a GPU failed) are started again with the others; what
    ends with an error of its own would end so again.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))  # cores are shared
    logging.disable(logging.ERROR)  # the agent's own account of what we report
    for restarts in range(max_restarts + 1):
        with tempfile.TemporaryDirectory() as folder:
            config = LaunchConfig(
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=processes,
                run_id=f"{RUN_ID}{os.getpid()}-{restarts}",
                rdzv_backend="c10d",
                rdzv_endpoint="localhost:0",  # a free port
                local_addr="localhost",
                max_restarts=0,
                shutdown_timeout=SHUTDOWN_SECONDS,
                logs_specs=DefaultLogsSpecs(log_dir=folder),
            )
            try:
                elastic_launch(config, sys.executable)("-m", "seqwright", *arguments)
                return 0
            except SignalException as stop:
                return 128 + stop.sigval
            except ChildFailedError as error:
                failures = error.failures
        # The agent ends the others by SIGTERM, and after a while by SIGKILL: only the first ones to end count.
        first = min(failure.timestamp for failure in failures.values())
        codes = {rank: failure.exitcode for rank, failure in failures.items() if failure.timestamp == first}
        killed = {rank: -code for rank, code in codes.items() if code < 0 and -code != signal.SIGTERM}
        if not killed:
            return next((failure.exitcode for failure in failures.values() if failure.exitcode > 0), 1)
        rank, number = min(killed.items())
        cause = f"rank {rank} was killed by {signal.Signals(number).name}"
        if restarts == max_restarts:
            again = f", as before; {max_restarts} restarts did not help" if max_restarts else ""
            raise UserError(f"{cause}{again}. See its memory, or its GPU.")
        note(f"{cause}; all ranks start again from the last checkpoint ({restarts + 1} of {max_restarts}).")
    raise AssertionError("unreachable")
