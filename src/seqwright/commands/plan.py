"""`seqwright plan`: parameters, arithmetic, memory and time of a recipe before a step is taken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from seqwright.commands.common import JSON, echo, print_json, print_table

if TYPE_CHECKING:
    from seqwright.studies.layer_table import Layer
    from seqwright.studies.plan import Plan


@click.command("plan")
@click.argument("recipe")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a recipe key; may be repeated.")
@click.option("--vocabulary", type=click.IntRange(2), metavar="N", help="Vocabulary size, where only the data have it.")
@click.option("--labels", type=click.IntRange(1), metavar="N", help="Number of classes or tags; 2 by default.")
@click.option("--length", type=click.IntRange(1), metavar="N", help="Tokens of a row; by default the longest allowed.")
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="Also forecast training on N GPUs: DDP and FSDP2.")
@click.option("--gpu", default="H100", metavar="KIND", help="Kind of these GPUs: A100, H100 (default) or H200.")
@click.option("--measure", is_flag=True, help="Read the data and time a few steps beside the forecast.")
@JSON
def command(
    recipe: str,
    overrides: tuple[str, ...],
    vocabulary: int | None,
    labels: int | None,
    length: int | None,
    gpus: int | None,
    gpu: str,
    measure: bool,
    as_json: bool,
) -> None:
    """Plan RECIPE: layers with output shapes, parameters, multiply-adds and memory; training cost and time.

    Nothing is trained, and without --measure no data are read.

    \b
    seqwright plan imdb-cnn
    seqwright plan gpt3-175b
    seqwright plan gpt3-6.7b --gpus 64 --set training.precision=bf16
    seqwright plan lecture-generation --measure
    """
    from seqwright.api import plan
    from seqwright.reporting.progress import TerminalProgress

    sizes = {"vocabulary": vocabulary, "labels": labels, "length": length}
    with TerminalProgress(quiet=as_json or not measure) as progress:
        made = plan(recipe, set=overrides, **sizes, gpus=gpus, gpu=gpu, measured=measure, progress=progress)
    if as_json:
        print_json(made.as_json())
    else:
        _print_layers(made.layers)
        echo("\n".join(_lines(made)))
        if gpus is not None:
            _print_strategies(made, gpus, gpu)


def _print_layers(layers: Sequence[Layer]) -> None:
    """A table of layers; equal layers of a stack of blocks are one line."""
    from seqwright.reporting.numbers import count
    from seqwright.reporting.terminal import Column, table

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
    print_table(table(rows, [*columns, Column("megabytes", "MB", "{:,.2f}".format)]))


def _print_strategies(made: Plan, gpus: int, gpu: str) -> None:
    """A table of DDP and FSDP2 on several GPUs."""
    from seqwright.reporting.numbers import duration
    from seqwright.reporting.terminal import Column, table

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
    print_table(table(rows, columns))
    rows_each = -(-made.rows // gpus)
    echo(
        f"on {gpus:,} × {gpu}, {rows_each:,} rows each: GB in the memory of one, GB that it sends in a step, seconds of"
        " both, and the training where they overlap; by data sheets and the share of them that an H200 reached."
    )


def _lines(made: Plan) -> Iterator[str]:
    """Totals, training cost, memory and time."""
    from seqwright.reporting.numbers import count, duration, figure
    from seqwright.studies.plan import PETAFLOPS_DAY

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
    if made.training_flops is None or made.tokens is None:
        yield "cost of training: its steps follow from the data; --measure reads them, or --set training.steps=N."
    else:
        days = made.training_flops / PETAFLOPS_DAY
        yield (
            f"cost of training: 6·N·D = {made.training_flops:.3g} FLOP for {count(made.tokens)} tokens in"
            f" {made.steps:,} steps, {figure(days)} petaflop/s-days."
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
