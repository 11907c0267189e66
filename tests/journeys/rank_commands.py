"""Rank 1 of several commands: `python -m tests.journeys.rank_commands`, with [port, arguments] as JSON lines."""

from __future__ import annotations

import json
import os
import sys

import torch.distributed as dist

from seqwright.cli import main


def exit_status(port: int, arguments: list[str]) -> int:
    os.environ["MASTER_PORT"] = str(port)
    sys.argv = ["seqwright", *arguments]
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    finally:
        if dist.is_initialized():  # the process of an ordinary rank would end
            dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.stdout.write(f"{[exit_status(*json.loads(line)) for line in sys.stdin]}\n")
