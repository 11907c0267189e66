"""Five classifiers of film reviews (worked example 11): shapes and parameters, layer by layer."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from seqwright import build
from seqwright.core.batch import Batch, EncoderSizes, OutputSpec, Source, Vocabulary
from seqwright.core.config import UserError
from seqwright.pipeline.shipped import shipped
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Cell, Figure, matrix, table
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.explain.text import notes_of, run_example
from seqwright.studies.layer_table import Layer, forward_layers, layer_table
from seqwright.tasks.classification.task import ClassificationRun

RECIPES = {
    "imdb-mlp": "All embeddings flattened: the first layer has most of the parameters.",
    "imdb-cnn": "Two convolutions with stride shorten the sequence before it is flattened.",
    "imdb-cnn-max": "The maximum over positions: any length, and few parameters.",
    "imdb-rnn": "The last hidden state has read everything; only the embedding is large.",
    "imdb-bilstm": "Two layers, both directions; the lectures' `hidden[-1]` is the top layer's backward state.",
}


COLUMNS = ["module", "kind", "output", "parameters", "mult-adds"]


@dataclass(frozen=True, kw_only=True)
class ImdbOptions(TopicOptions):
    text: str = ""
    """A review for a classifier of your own."""
    batch: int = 4
    """Reviews in a batch."""
    length: int = 500
    """Tokens of a review, as padded; the mlp and the first cnn are built for 500."""
    vocabulary: int = 20_000

    def __post_init__(self) -> None:
        if not (1 <= self.batch <= 64 and 50 <= self.length <= 500 and 3 <= self.vocabulary <= 1_000_000):
            raise UserError("batch is 1 to 64, length 50 to 500 and vocabulary 3 to 1,000,000.")


def imdb(options: ImdbOptions, run: Run | None = None) -> Explanation:
    """The lectures' classifiers, built without memory: a table of modules, output shapes and parameters for each; with
    a run, its own classifier on a text."""
    if run is not None:
        return _of_run(options.text, run)
    steps = []
    totals: list[tuple[Cell, ...]] = []
    for name, prose in RECIPES.items():
        rows, parameters = _layers(name, options)
        figures: list[Figure] = [
            table(f"layers of {name}", COLUMNS, rows),
            matrix(f"parameters of {name}", parameters),
        ]
        steps.append(Step(name, prose, "", figures))
        totals.append((name, parameters))
    steps.append(
        Step(
            "Compared",
            "Parameters are not accuracy, nor a sense of order: the largest learns every position anew, while the"
            " maximum over positions keeps order only within its convolutions.",
            "",
            [table("parameters", ["recipe", "parameters"], totals)],
        )
    )
    about = (
        "The practice ladder on IMDB: the same embedding and two classes, five ways to make one vector of a review of"
        f" {options.length} tokens. B = {options.batch}."
    )
    return Explanation("imdb", "Classifiers of film reviews", about, steps)


def _layers(name: str, options: ImdbOptions) -> tuple[list[tuple[Cell, ...]], int]:
    """Modules in the order of the forward pass, and the number of parameters."""
    settings = tomllib.loads(shipped()[name].read_text(encoding="utf-8"))  # its model alone: the data need not be there
    config = build.model_config(settings["model"], task="labeled")
    sizes = EncoderSizes(answers=OutputSpec(kind="class", count=2), vocabulary=Vocabulary(size=options.vocabulary))
    shape = (options.batch, options.length)
    source = Source(ids=torch.zeros(shape, dtype=torch.long), mask=torch.ones(shape, dtype=torch.bool))
    batch = Batch.of_source(source, torch.zeros(options.batch, dtype=torch.long))
    layers, parameters = layer_table(lambda: build.model(config, sizes, task="labeled"), batch)
    return _rows(layers), parameters


def _rows(layers: Iterable[Layer]) -> list[tuple[Cell, ...]]:
    return [
        (layer.path, layer.kind, " × ".join(map(str, layer.output)), layer.parameters, layer.mult_adds)
        for layer in layers
    ]


def _of_run(text: str, run: Run) -> Explanation:
    """A text through the layers of a trained classifier: ids, shapes, probabilities."""
    if not isinstance(run, ClassificationRun) or not isinstance(run.model, nn.Module):
        raise UserError(
            f"{run.path} {run.description}, and has no layers that classify a text; name a neural classifier, such as"
            " one of `seqwright train --labeled FILE --model cnn`."
        )
    read = run_example(run, text)
    assert read.batch.source.ids is not None
    with torch.no_grad():
        logits = run.model(read.batch)[0].cpu()
    layers = forward_layers(run.model, read.batch)
    labels = run.labels
    figures: list[Figure] = [matrix("logits", logits, columns=labels.names)]
    formula = ""
    if labels.kind == "single":
        figures.append(matrix("p", logits.softmax(-1), columns=labels.names, heat=True))
        formula = "p = softmax(logits)"
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    steps = [
        Step(
            "The text as ids",
            f"As the run reads it: normalized, split, cut or padded as in training.{notes_of(read)}",
            "",
            [matrix("ids", read.batch.source.ids[0].tolist(), columns=read.tokens)],
        ),
        Step(
            "Layers",
            "One text, so that the first size of every output is 1; positions follow, then features.",
            "",
            [table("layers", COLUMNS, _rows(layers)), matrix("parameters", parameters)],
        ),
        Step("The output head", "A number for each label.", formula, figures),
    ]
    about = f"A text through the layers of {run.path}, as in the practice ladder on IMDB."
    return Explanation("imdb", f"A classifier of kind '{run.settings.kind}'", about, steps)
