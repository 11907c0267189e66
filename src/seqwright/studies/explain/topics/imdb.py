"""Five classifiers of film reviews (worked example 11): shapes and parameters, layer by layer."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

import torch

from seqwright import build
from seqwright.core.batch import Batch, EncoderSizes, OutputSpec, Source, Vocabulary
from seqwright.core.config import UserError
from seqwright.pipeline.shipped import shipped
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Cell, Figure, matrix, table
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.layer_table import layer_table

RECIPES = {
    "imdb-mlp": "All embeddings flattened: the first layer has most of the parameters.",
    "imdb-cnn": "Two convolutions with stride shorten the sequence before it is flattened.",
    "imdb-cnn-max": "The maximum over positions: any length, and few parameters.",
    "imdb-rnn": "The last hidden state has read everything; only the embedding is large.",
    "imdb-bilstm": "Two layers, both directions; the lectures' `hidden[-1]` is the top layer's backward state.",
}


@dataclass(frozen=True, kw_only=True)
class ImdbOptions(TopicOptions):
    batch: int = 4
    """Reviews in a batch."""
    length: int = 500
    """Tokens of a review, as padded; the mlp and the first cnn are built for 500."""
    vocabulary: int = 20_000

    def __post_init__(self) -> None:
        if not (1 <= self.batch <= 64 and 50 <= self.length <= 500 and 3 <= self.vocabulary <= 1_000_000):
            raise UserError("batch is 1 to 64, length 50 to 500 and vocabulary 3 to 1,000,000.")


def imdb(options: ImdbOptions) -> Explanation:
    """The lectures' classifiers, built without memory: a table of modules, output shapes and parameters for each."""
    steps = []
    totals: list[tuple[Cell, ...]] = []
    for name, prose in RECIPES.items():
        rows, parameters = _layers(name, options)
        figures: list[Figure] = [
            table(f"layers of {name}", ["module", "kind", "output", "parameters", "mult-adds"], rows),
            matrix(f"parameters of {name}", parameters),
        ]
        steps.append(Step(name, prose, "", figures))
        totals.append((name, parameters))
    steps.append(
        Step(
            "Compared",
            "Parameters are not accuracy: the largest has the weakest idea of order.",
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
    rows: list[tuple[Cell, ...]] = [
        (layer.path, layer.kind, " × ".join(map(str, layer.output)), layer.parameters, layer.mult_adds)
        for layer in layers
    ]
    return rows, parameters
