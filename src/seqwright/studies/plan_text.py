"""A plan, shown: a table of layers, its totals in lines, and a table of strategies on several GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from seqwright.reporting.numbers import count, duration, figure
from seqwright.reporting.terminal import Column, table

if TYPE_CHECKING:  # plans print themselves
    from seqwright.studies.layer_table import Layer
    from seqwright.studies.plan import Plan


def printed(made: Plan) -> Iterator[str | Table]:
    """Lines and tables for the terminal, in order."""
    yield _layers(made.layers)
    yield from _lines(made)
    if made.strategies:
        yield _strategies(made)
        rows = -(-made.rows // made.gpus)
        yield (
            f"on {made.gpus:,} × {made.gpu}, {rows:,} rows each: GB in the memory of one, GB that it"
            " sends in a step, seconds of both, and the training where they overlap; by data sheets and the share of"
            " them that an H200 reached."
        )


def _layers(layers: Sequence[Layer]) -> Table:
    """A table of layers; equal layers of a stack of blocks are one line."""
    equal: dict[tuple[object, ...], list[Layer]] = {}
    for layer in layers:
        stacked = re.sub(r"\.\d+\.", ".*.", layer.path, count=1)
        equal.setdefault((stacked, layer.output, layer.parameters, layer.mult_adds), []).append(layer)
    rows = [
        {
            "path": layer.path if len(group) == 1 else f"{stacked} ({len(group)})",
            "kind": layer.kind,
            "output": " × ".join(map(str, layer.output)),
            "parameters": sum(layer.parameters for layer in group),
            "mult_adds": sum(layer.mult_adds for layer in group),
            "megabytes": sum(layer.output_bytes for layer in group) / 1e6,
        }
        for (stacked, *_), group in equal.items()
        for layer in group[:1]
    ]
    columns = [Column("path", "module"), Column("kind", "kind"), Column("output", "output of a row", wrap=False)]
    columns += [Column("parameters", "parameters", "{:,}".format), Column("mult_adds", "mult-adds", count)]
    return table(rows, [*columns, Column("megabytes", "MB", "{:,.2f}".format)])


def _strategies(made: Plan) -> Table:
    """A table of DDP and FSDP2 on several GPUs."""
    parts = ("weights", "gradients", "optimizer", "activations", "memory", "communication")
    rows = [
        {
            "parallel": strategy.parallel,
            **{part: getattr(strategy, part) / 1e9 for part in parts},
            "fits": "yes" if strategy.fits else "no",
            "compute": duration(strategy.compute_seconds),
            "send": duration(strategy.communication_seconds),
            "total": "" if made.steps is None else duration(made.steps * strategy.step_seconds),
        }
        for strategy in made.strategies
    ]
    titles = dict(zip(parts, ("weights", "gradients", "optimizer", "activations", "memory", "sent"), strict=True))
    gigabytes = [Column(part, title, "{:,.2f}".format) for part, title in titles.items()]
    columns = [Column("parallel", "parallel"), *gigabytes[:-1], Column("fits", "fits"), gigabytes[-1]]
    columns += [Column(name, name, wrap=False) for name in ("compute", "send", "total")]
    return table(rows, columns)


def _lines(made: Plan) -> Iterator[str]:
    """Totals, training cost, memory and time."""
    shared = sum(layer.parameters for layer in made.layers) - made.parameters
    tied = f" ({shared:,} shared ones counted once)" if shared > 0 else ""
    yield (
        f"{made.name}: {made.kind}, {made.parameters:,} parameters{tied}, {made.weight_bytes / 1e6:,.1f} MB in float32."
    )
    yield f"a row of {made.length:,} tokens: {count(made.mult_adds)} mult-adds, {made.activation_bytes / 1e6:,.1f} MB."
    rows = f"{made.rows:,} rows" + (f", {made.micro_rows:,} at a time" if made.micro_rows < made.rows else "")
    yield f"a step of {rows}: {made.step_flops:.3g} FLOP forward and backward."
    yield (
        f"memory of training: at most about {made.training_bytes / 1e9:,.2f} GB (weights, optimizer state, and"
        " activations, which are freed while gradients are made)."
    )
    if made.training_flops is None or made.tokens is None or made.petaflops_days is None:
        yield "cost of training: its steps follow from the data; --measure reads them, or --set training.steps=N."
    else:
        yield (
            f"cost of training: 6·N·D = {made.training_flops:.3g} FLOP for {count(made.tokens)} tokens in"
            f" {made.steps:,} steps, {figure(made.petaflops_days)} petaflop/s-days."
        )
    if made.measured is not None:
        measured = f"peak memory measured {made.measured.peak_bytes / 1e9:,.2f} GB"
        if made.device == "cpu":
            measured += " (Python and PyTorch included)"
        yield (
            f"a step on this {made.device}: forecast {duration(made.step_seconds)}, measured"
            f" {duration(made.measured.step_seconds)}; {measured}."
        )
    elif made.seconds is not None:
        yield f"a step on this {made.device}: about {duration(made.step_seconds)}, by the speed of products and memory."
    if made.seconds is not None:
        yield f"in all: about {duration(made.seconds)}, evaluations not counted."
