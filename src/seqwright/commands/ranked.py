"""Commands whose work several processes share: `--processes N`, or torchrun."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, TypeVar

import click

from seqwright.commands.common import ARGUMENTS, MultiValueCommand, echo

if TYPE_CHECKING:  # torch is imported by a command only when it runs
    from seqwright.core.ranks import Ranks

T = TypeVar("T")

RANKS = "seqwright.ranks"
"""Where a click context has the ranks of its command."""
PROCESSES = click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Share the file among N processes of this machine, one for each GPU; the output is in order.",
)


class RankedCommand(MultiValueCommand):
    """A command that takes `--processes N`: each rank runs it, and rank 0 alone prints and writes."""

    def invoke(self, ctx: click.Context) -> Any:
        processes = ctx.params.pop("processes")
        if processes is None and "WORLD_SIZE" not in os.environ:
            return super().invoke(ctx)
        from seqwright.training import launcher, machine
        from seqwright.training.process_group import environment_ranks

        ranks = environment_ranks()
        if processes in (None, ranks.size):
            return super().invoke(ctx) if ranks.size == 1 else self._invoke_rank(ctx)
        if ranks.size > 1:
            raise click.UsageError("torchrun has started the processes already; leave out --processes.")
        launcher.refuse_missing_devices(processes, machine.device(ctx.params["device"], option="--device"))
        # A rank that was killed is not started again: part of the output may be printed.
        return launcher.launch([str(self.name), *ctx.meta[ARGUMENTS]], processes, max_restarts=0)

    def _invoke_rank(self, ctx: click.Context) -> Any:
        """Runs the command as one of several ranks; the others than rank 0 are silent but for their own errors."""
        import torch

        from seqwright import __version__
        from seqwright.core.config import UserError
        from seqwright.training import machine
        from seqwright.training.process_group import RankLostError, environment_ranks, joined

        arguments = "\0".join(ctx.meta[ARGUMENTS]).encode()
        identity = {"version of seqwright": __version__, "version of torch": torch.__version__}
        identity["command line"] = hashlib.sha256(arguments).hexdigest()[:12]
        device = machine.device(ctx.params["device"], option="--device")
        if environment_ranks().first:
            with joined(device, identity, advice="Run the command again.") as ctx.meta[RANKS]:
                return super().invoke(ctx)
        try:
            silent = io.StringIO()
            with redirect_stdout(silent), redirect_stderr(silent), joined(device, identity) as ctx.meta[RANKS]:
                super().invoke(ctx)
            return 0
        except (RankLostError, click.ClickException):  # rank 0 reports it
            return 2
        except UserError as error:
            echo(f"error on rank {environment_ranks().rank}: {error}", err=True)
            return 2


def command_ranks() -> Ranks | None:
    """The ranks that share the running command; None where it has one process."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(RANKS)


def gathered(value: T) -> list[T]:
    """A value of every rank of the running command, in the order of ranks; of several, as JSON has it: a Counter comes
    back as a dict, a tuple as a list."""
    ranks = command_ranks()
    return [value] if ranks is None else list(ranks.gather(value))


def sum_over_ranks(count: int) -> int:
    """The sum of a count of every rank of the running command."""
    return sum(gathered(count))


def rank_part(values: list[T], ranks: Ranks | None) -> list[T]:
    """This rank's part of values that all ranks have."""
    mine = range(len(values)) if ranks is None else ranks.rows(len(values))
    return values[mine.start : mine.stop]


def together(ranks: Ranks | None, compute: Callable[[], T]) -> T:
    """What this rank computes of its part; raises the UserError of the first rank that has one, on all of them."""
    if ranks is None:
        return compute()
    from seqwright.core.config import UserError

    computed: list[T] = []
    error = ""
    try:
        computed.append(compute())
    except UserError as refused:
        error = str(refused)
    for refusal in filter(None, ranks.gather(error)):
        raise UserError(refusal)
    return computed[0]


def captured(write: Callable[[], None]) -> str:
    """What a function writes to standard output."""
    with redirect_stdout(io.StringIO()) as text:
        write()
    return text.getvalue()


def in_rank_order(ranks: Ranks, lines: Callable[[], Iterable[str]]) -> list[str]:
    """The lines of all ranks, in the order of ranks; what each wrote to standard error meanwhile is written by rank 0.

    Raises the UserError of the first rank that has one, on all of them.
    """
    from seqwright.core.config import UserError

    computed: list[str] = []
    error = ""
    with redirect_stderr(io.StringIO()) as messages:
        try:
            computed.extend(lines())
        except UserError as refused:
            error = str(refused)
    merged: list[str] = []
    for part, text, refusal in ranks.gather((computed, messages.getvalue(), error)):
        echo(text, nl=False, err=True)
        if refusal:
            raise UserError(refusal)
        merged += part
    return merged
