"""The result of a plan, and how it is shown: a table of layers, totals in lines, strategies on several GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from seqwright.core.notebook import html_text
from seqwright.reporting.numbers import count, duration, figure
from seqwright.reporting.terminal import Column, as_text, table
from seqwright.studies.layer_table import Layer
from seqwright.studies.scaling_plan import Strategy

PETAFLOPS_DAY = 1e15 * 86_400
"""Floating-point operations of a petaflop/s-day, the unit of Brown et al. (2020)."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A few optimizer steps, taken on the recipe's data with a copy of its model."""

    step_seconds: float
    peak_bytes: int
    """Peak memory: of the GPU, or of the process on a CPU."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The forecast of a training. Layers, multiply-adds and activations are of one row."""

    name: str
    kind: str
    layers: list[Layer]
    parameters: int
    length: int
    """Tokens (or patches) of a row."""
    rows: int
    """Rows of an optimizer step."""
    micro_rows: int
    """Rows in memory at a time (training.micro_batch_size)."""
    steps: int | None
    """None where the length of the training follows from the data (epochs) or from its speed (minutes)."""
    weight_bytes: int
    state_bytes: int
    """Of gradients and optimizer state."""
    kept_bytes: int
    """Activations of the rows in memory that are kept for the backward pass, with logits."""
    training_bytes: int
    """At most: weights, optimizer state, and activations, which are freed while gradients are made."""
    device: str
    flops_per_second: float
    """Speed of matrix products of the model's width on this machine: measured, or of a known GPU by its data sheet."""
    step_seconds: float
    """Forecast by the speed of matrix products and of memory (`step_cost`)."""
    measured: Measured | None = None
    gpus: int = 1
    gpu: str = ""
    """Kind of these GPUs."""
    strategies: tuple[Strategy, ...] = ()
    """The same training on several GPUs (`--gpus`)."""

    @property
    def mult_adds(self) -> int:
        return sum(layer.mult_adds for layer in self.layers)

    @property
    def activation_bytes(self) -> int:
        """Outputs of all layers for one row, in float32."""
        return sum(layer.output_bytes for layer in self.layers)

    @property
    def step_flops(self) -> int:
        """2 operations a multiply-add in the forward pass, 4 in the backward pass."""
        return 6 * self.mult_adds * self.rows

    @property
    def tokens(self) -> int | None:
        """Tokens of the training, padding included."""
        return None if self.steps is None else self.steps * self.rows * self.length

    @property
    def training_flops(self) -> int | None:
        return None if self.tokens is None else training_flops(self.parameters, self.tokens)

    @property
    def seconds(self) -> float | None:
        """Duration of the training, by the measured step where there is one."""
        step = self.measured.step_seconds if self.measured else self.step_seconds
        return None if self.steps is None else self.steps * step

    @property
    def petaflops_days(self) -> float | None:
        return None if self.training_flops is None else self.training_flops / PETAFLOPS_DAY

    def printed(self) -> Iterator[str | Table]:
        """Lines and tables for the terminal, in order."""
        yield _layers(self.layers)
        yield from _lines(self)
        if self.strategies:
            yield _strategies(self)
            rows = -(-self.rows // self.gpus)
            yield (
                f"on {self.gpus:,} × {self.gpu}, {rows:,} rows each: GB in the memory of one, GB that it"
                " sends in a step, seconds of both, and the training where they overlap; by data sheets and the share"
                " of them that an H200 reached."
            )

    def __str__(self) -> str:
        return as_text(self.printed())

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def as_json(self) -> dict[str, Any]:
        totals = ("mult_adds", "activation_bytes", "step_flops", "tokens", "training_flops", "seconds")
        derived = {name: getattr(self, name) for name in (*totals, "petaflops_days")}
        fields = vars(self) | {"layers": [vars(layer) for layer in self.layers]}
        derived["strategies"] = [strategy.as_json() for strategy in self.strategies]
        return fields | derived | {"measured": vars(self.measured) if self.measured else None}


def training_flops(parameters: int, tokens: int) -> int:
    """6·N·D: the operations of training N parameters on D tokens (Kaplan et al. 2020)."""
    return 6 * parameters * tokens


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
