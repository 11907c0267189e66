"""`plan`: what a recipe costs before a step is taken: parameters, arithmetic, memory and time."""

from __future__ import annotations

import math
import resource
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqwright import build
from seqwright.core.batch import Batch, EncoderSizes, OutputSpec, Source, Vocabularies, Vocabulary
from seqwright.core.config import UserError, parse_override
from seqwright.core.progress import SILENT, Progress
from seqwright.pipeline import recipe as recipes
from seqwright.pipeline.budget import measure
from seqwright.pipeline.compilation import compile_choice
from seqwright.pipeline.recipe import Recipe
from seqwright.pipeline.scaling import refuse_ranks
from seqwright.pipeline.shipped import find
from seqwright.runs.directory import RunDirectory
from seqwright.runs.finding import is_run
from seqwright.studies.device_speed import DeviceSpeed, device_speed
from seqwright.studies.layer_table import layer_table
from seqwright.studies.plan_result import Measured, Plan
from seqwright.studies.scaling_plan import RankSizes, strategies
from seqwright.studies.step_cost import StepCost, step_cost
from seqwright.training import machine
from seqwright.training.trainer import total_steps

OPTIMIZER_BYTES = {"adamw": 8, "muon": 8, "adam": 8, "sgd": 4, "adafactor": 0}
"""Bytes of optimizer state for each parameter, at most; sgd has a momentum or none."""
DEFAULT_LENGTH = 128
"""Tokens of a row of models without a context, as in training."""
HEAP = 1.2
"""Memory of a process on a CPU by what the activations of a step take: freed memory is kept (decision 191), in pieces
that not every later tensor fits into. Gradients have the same sizes in every step."""
MEASURED_STEPS = 20
"""Optimizer steps that are timed, at most."""
NO_FILES = {"pairs": ["SOURCE", "TARGET"]}
"""Training files that stand for the user's in recipes that name none, by kind of data."""
SUBWORDS = 8000
"""Default size of subword vocabularies."""


def plan(
    recipe: str | Path,
    overrides: Sequence[str] = (),
    *,
    vocabulary: int | None = None,
    labels: int | None = None,
    length: int | None = None,
    gpus: int | None = None,
    gpu: str = "H100",
    measured: bool = False,
    progress: Progress = SILENT,
) -> Plan:
    """The plan of a recipe. Sizes come from the recipe alone: `vocabulary` and `labels` where only the data have them,
    `length` for rows of another length. `measured` reads the data, and takes a few steps on them. `gpus` adds the
    forecast for so many GPUs of a kind."""
    run = _run_of(Path(recipe))
    recipe = recipe if run is None else run.recipe_path
    table = _table(recipe)
    data = table["data"] if isinstance(table["data"], dict) else {"train": None}  # otherwise `make` reports it
    named = "train" in data or any(parse_override(each)[0] == "data.train" for each in overrides)
    if measured and not named:
        raise UserError(f"{recipe} names no data to measure on; add --set data.train=FILE, or leave --measure out.")
    if measured and any(size is not None for size in (vocabulary, labels, length)):
        raise UserError(
            "with --measure all sizes are those of the data; leave --vocabulary, --labels and --length out."
        )
    if not named:
        data["train"] = NO_FILES.get(str(data.get("kind")), "TEXT")
    wanted = recipes.make(table, overrides, origin=str(recipe), settled=True)
    if wanted.kind in (*build.COUNTED, *build.DERIVED):
        raise UserError(f"a model of kind '{wanted.kind}' has no layers to plan: it is counted, or made of others.")
    refuse_ranks(wanted, gpus or 1)
    if measured:
        made = _measured(recipes.load(recipe, overrides), progress, gpus=gpus, gpu=gpu)
    else:
        known = None if run is None or _cuts_otherwise(overrides) else _learned_sizes(wanted, run)
        sizes, row = _synthetic(wanted, vocabulary, labels, length, known)
        made = _plan(wanted, sizes, row, rows=_rows(wanted, row), gpus=gpus, gpu=gpu)
    return made


def _run_of(path: Path) -> RunDirectory | None:
    """The run that is planned again: the folder, or that of its recipe."""
    folder = path.parent if path.name == RunDirectory(path.parent).recipe_path.name else path
    return RunDirectory.open(folder, contents=False) if is_run(folder) else None


def _cuts_otherwise(overrides: Sequence[str]) -> bool:
    """Whether vocabulary and labels would not be those of the run whose recipe is changed so."""
    return any(parse_override(override)[0].startswith(("data.", "tokenizer.")) for override in overrides)


def _learned_sizes(wanted: Recipe, run: RunDirectory) -> Any:
    """Sizes of vocabularies and labels that a run has learned from its data; None before it has."""
    return build.task_spec(wanted.data.kind).run.codec_class.open(run).sizes if run.learned else None


def _table(recipe: str | Path) -> dict[str, Any]:
    """The plain tables of a recipe file, whose data need not be there."""
    path = find(recipe)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # no TOML, or no UTF-8
        raise UserError(f"{path} is no recipe: {error}.") from error
    return {"name": path.stem, "data": {}} | table


def _plan(
    wanted: Recipe,
    sizes: Any,
    row: Batch,
    *,
    rows: int,
    steps: int | None = None,
    gpus: int | None = None,
    gpu: str = "H100",
) -> Plan:
    """The plan for rows like a batch of one row."""
    training = wanted.training

    def make() -> nn.Module:
        return build.model(wanted.model, sizes, task=wanted.data.kind)

    layers, parameters = layer_table(make, row)
    on = machine.device(training.device)
    micro = training.micro_batch_size if isinstance(training.micro_batch_size, int) else rows
    micro = min(micro, rows)
    cost = step_cost(make, layers, row, micro, training, on.type)
    passes = math.ceil(rows / micro)
    optimizer = OPTIMIZER_BYTES[training.optimizer] * parameters
    speed = device_speed(on, training.precision, *_sizes(wanted))
    if training.steps is None and training.epochs is None and training.minutes is None:
        steps = steps or 2000
    made = Plan(
        name=wanted.name,
        kind=wanted.kind,
        layers=layers,
        parameters=parameters,
        length=max(row.source.mask.size(1), row.input.size(1)),
        rows=rows,
        micro_rows=micro,
        steps=training.steps or steps,
        weight_bytes=4 * parameters,
        state_bytes=4 * parameters + optimizer,
        kept_bytes=cost.activations + cost.weight_copies,
        training_bytes=4 * parameters + optimizer + step_bytes(cost, parameters, passes, on.type),
        device=on.type,
        flops_per_second=speed.products,
        step_seconds=passes * _pass_seconds(wanted, cost, speed, training.steps or steps)
        + speed.update_seconds(parameters),
    )
    if gpus is None:
        return made
    if gpus > 1 and training.tensor_parallel > 1:
        raise UserError("--gpus does not forecast training.tensor_parallel; plan without it, for ddp and fsdp.")
    rank = RankSizes.of(training, rows=rows, gpus=gpus)
    shared = step_cost(make, layers, row, rank.micro, training, "cuda")
    forecast = strategies(layers, parameters, training, rank, shared, optimizer_bytes=optimizer, gpus=gpus, gpu=gpu)
    return replace(made, gpus=gpus, gpu=gpu, strategies=tuple(forecast))


def step_bytes(cost: StepCost, parameters: int, passes: int, on: str) -> int:
    """Bytes that a step allocates at most, or on a CPU those that the process holds for it."""
    allocated, gradients = cost.memory(parameters, passes), 4 * parameters
    return allocated if on != "cpu" else allocated + int((HEAP - 1) * max(0, allocated - gradients))


def _pass_seconds(wanted: Recipe, cost: StepCost, speed: DeviceSpeed, steps: int | None) -> float:
    """Seconds of forward and backward pass as training runs them on one device: captured or compiled on a GPU."""
    config = wanted.training
    captured = machine.captures(config, machine.device(config.device)) and config.micro_batch_size is None
    seconds, choice = speed.seconds(cost.operations, captured=captured), config.compile
    if choice == "auto" and captured:
        choice, _ = compile_choice(vars(wanted.model.config).get("layers", 0), (steps or 0) * seconds)
    return speed.seconds(cost.operations, captured=captured, compiled=choice == "inductor")


def _sizes(wanted: Recipe) -> tuple[int, int]:
    """The width of the products that are timed, and of the heads of attention."""
    options = vars(wanted.model.config)
    width = int(options.get("width") or DEFAULT_LENGTH)
    return width, max(1, width // int(options.get("heads") or 1))


def _rows(wanted: Recipe, batch: Batch) -> int:
    """Rows of a step: those of the recipe, or as many as make up the tokens of a batch."""
    tokens = vars(wanted.data).get("batch_tokens")
    length = max(batch.source.mask.size(1), batch.input.size(1))
    return max(1, tokens // length) if tokens else wanted.training.batch_size


def _measured(wanted: Recipe, progress: Progress, *, gpus: int | None, gpu: str) -> Plan:
    """The plan with the sizes and the first row of the data, beside steps that are taken on them."""
    training = wanted.training
    with tempfile.TemporaryDirectory() as folder, machine.threads(training.threads):
        directory = RunDirectory.create(Path(folder) / "plan", recipe=wanted.toml())
        task = build.task_spec(wanted.data.kind).task(wanted, directory, progress)
        sizes = task.codec.sizes
        model = build.model(wanted.model, sizes, task=wanted.data.kind)
        feed = task.feed(model)
        batch = feed.batch(0)
        steps = None if training.minutes and not training.steps else total_steps(training, feed)
        row = batch.rows_of(slice(1))
        forecast = _plan(wanted, sizes, row, rows=batch.rows, steps=steps, gpus=gpus, gpu=gpu)
        on = machine.device(training.device)
        if on.type == "cuda":
            torch.cuda.reset_peak_memory_stats(on)
        speed = measure(model, feed, training, evaluations=(), max_steps=MEASURED_STEPS)
    return replace(forecast, measured=Measured(step_seconds=speed.step, peak_bytes=_peak_bytes(on)))


def _peak_bytes(on: torch.device) -> int:
    if on.type == "cuda":
        return torch.cuda.max_memory_allocated(on)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used  # macOS counts bytes, Linux kilobytes


def _synthetic(
    wanted: Recipe, vocabulary: int | None, labels: int | None, length: int | None, known: Any = None
) -> tuple[Any, Batch]:
    """Sizes as the recipe has them, or those `known` from a run, and a row of the longest length that it allows."""
    kind = wanted.data.kind
    if kind in ("images", "captions"):
        raise UserError("the sizes of images follow from the data; add --measure, which reads them.")
    if known is not None and vocabulary is None and labels is None:
        return known, _synthetic(wanted, 5, labels, length)[1]
    words = Vocabulary(size=_vocabulary(wanted, vocabulary), unk=0, pad=1, sos=2, eos=3, mask=4)
    length = length or _length(wanted)
    ids = torch.full((1, length), 2)
    mask = torch.ones(1, length, dtype=torch.bool)
    source = Source(mask=mask, ids=ids)
    if kind in ("text", "chat"):
        return words, Batch.of_text(ids, ids)
    if kind in ("pairs", "denoising"):
        joint = vars(wanted.tokenizer).get("joint", True)
        return Vocabularies(source=words, target=words, joint=joint), Batch(source=source, input=ids, target=ids)
    if kind == "masked":
        outputs = OutputSpec(kind="tokens", count=words.size)
        return EncoderSizes(answers=outputs, vocabulary=words), Batch.of_source(source, ids)
    if kind == "tagged":
        outputs = OutputSpec(kind="tags", count=labels or 2)
        source = replace(source, word_starts=mask, spelling=torch.ones(1, length, 8, dtype=torch.long))
        return EncoderSizes(answers=outputs, vocabulary=words), Batch.of_source(source, ids)
    outputs = OutputSpec(kind="class", count=labels or 2)
    return EncoderSizes(answers=outputs, vocabulary=words), Batch.of_source(source, ids[:, 0])


def _vocabulary(wanted: Recipe, vocabulary: int | None) -> int:
    tokenizer = wanted.tokenizer
    if vocabulary is not None:
        return vocabulary
    if tokenizer.kind == "bytes":
        return 256 + len(tokenizer.special_tokens)
    if tokenizer.size is not None:
        return int(tokenizer.size)
    if tokenizer.kind in ("words", "characters") or tokenizer.file is not None:
        raise UserError(
            f"the size of a vocabulary of {tokenizer.kind} follows from the data; give --vocabulary N, or --measure,"
            " which reads them."
        )
    return SUBWORDS


def _length(wanted: Recipe) -> int:
    """Tokens of the longest row: of training.sequence_length, data.max_length and model.context."""
    context = vars(wanted.model.config).get("context")
    limits = [limit for limit in (vars(wanted.data).get("max_length"), context) if limit is not None]
    return wanted.training.sequence_length or min(limits, default=DEFAULT_LENGTH)
