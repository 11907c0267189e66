"""How time and memory grow with the length of a text, constant, linear or quadratic: the layers of shipped models."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.core.config import UserError
from seqwright.studies.explain.charts import Chart
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Figure, table
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.layer_table import Layer, layer_table

KINDS = {"feedforward": "window of 6", "rnn": "Elman RNN", "lstm": "LSTM", "gpt": "attention"}
VOCABULARY = 100


@dataclass(frozen=True, kw_only=True)
class GrowthOptions(TopicOptions):
    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    """Tokens of a text."""
    width: int = 32
    """Hidden size; a small one shows the quadratic part earlier."""
    attention_window: int = 64
    """Of sliding-window attention."""
    timed: bool = False
    """Also measure the time of a forward pass on this machine."""

    resizable: ClassVar[tuple[str, ...]] = ("lengths",)

    def __post_init__(self) -> None:
        if self.attention_window < 1:
            raise UserError(f"attention_window must be at least 1, not {self.attention_window}.")
        if not all(2 <= length <= 4096 for length in self.lengths) or not 4 <= self.width <= 256 or self.width % 4:
            raise UserError("lengths are 2 to 4,096, width 4 to 256 in fours.")
        if sorted(set(self.lengths)) != list(self.lengths) or len(self.lengths) < 2:
            raise UserError("give two or more lengths, each longer than the one before.")


def growth(options: GrowthOptions) -> Explanation:
    """Multiply-adds, sequential steps and attention weights of shipped models by length."""
    products = {title: [_mult_adds(kind, n, options) for n in options.lengths] for kind, title in KINDS.items()}
    lengths = tuple(float(n) for n in options.lengths)
    ratio = options.lengths[-1] / options.lengths[-2]
    last = {title: line[-1] / line[-2] for title, line in products.items()}
    weights = {
        "attention": [2 * 4 * n * n for n in options.lengths],
        f"window of {options.attention_window}": [
            2 * 4 * n * min(n, options.attention_window) for n in options.lengths
        ],
        "state of the LSTM": [2 * 4 * options.width for _ in options.lengths],
    }
    timing: list[Figure] = []
    if options.timed:
        seconds = {title: [_seconds(kind, n, options) for n in options.lengths] for kind, title in KINDS.items()}
        timing = [Chart("seconds of a forward pass", "tokens", lengths, seconds)]
    steps = [
        Step(
            "Multiply-adds",
            "A window and a recurrent network do the same work for every token: linear. Attention compares every token"
            " with every other: two products of T × T in each layer, quadratic.",
            "RNN: T · (2 D² + D V)    attention: T · (12 D² + D V) + 2 T² D",
            [
                table("mult-adds", ["tokens", *products], _rows(options, products)),
                Chart("mult-adds by length", "tokens", lengths, products),
                table(
                    f"factor of the last step, for {ratio:.3g} times the tokens",
                    ["model", "factor"],
                    list(last.items()),
                ),
            ],
        ),
        Step(
            "Sequential steps",
            "What a GPU cannot do in parallel: a recurrent network waits for the state before, attention for nothing."
            " That is why Transformers train faster in spite of more arithmetic (Vaswani et al. 2017, table 1).",
            "RNN: T    attention: 1, in each layer",
            [
                table(
                    "steps that wait for each other",
                    ["tokens", "Elman RNN", "LSTM", "attention"],
                    [(n, n, n, 1) for n in options.lengths],
                ),
                *timing,
            ],
        ),
        Step(
            "Memory",
            "Attention weights of two heads in float32, if they are all kept, against a recurrent state, which does not"
            " grow. Fused kernels never store the weights (Dao et al. 2022), and a sliding window bounds them"
            " (Beltagy et al. 2020).",
            "bytes = 4 · H · T²    with a window 4 · H · T · W",
            [table("bytes", ["tokens", *weights], _rows(options, weights))],
        ),
    ]
    about = (
        "What a longer text costs: multiply-adds are counted in the forward pass of shipped models of width"
        f" {options.width}, two heads and one layer; `seqwright plan` does the same for a recipe."
    )
    return Explanation("growth", "Time and memory by length", about, steps)


def _rows(options: GrowthOptions, lines: dict[str, list[int]]) -> list[tuple[int, ...]]:
    return [(n, *(line[i] for line in lines.values())) for i, n in enumerate(options.lengths)]


def _maker(kind: str, length: int, options: GrowthOptions) -> Callable[[], Any]:
    sizes: dict[str, Any] = {"gpt": {"layers": 1, "heads": 2, "context": length, "tied": False}}.get(kind, {})
    sizes |= {"feedforward": {"context_size": 6, "embedding": options.width}}.get(kind, {})
    config = build.model_config({"kind": kind, "width": options.width} | sizes)
    return lambda: build.model(config, Vocabulary(size=VOCABULARY))


def _mult_adds(kind: str, length: int, options: GrowthOptions) -> int:
    ids = torch.zeros(1, length, dtype=torch.long)
    layers: list[Layer] = layer_table(_maker(kind, length, options), Batch.of_text(ids, ids))[0]
    return sum(layer.mult_adds for layer in layers)


def _seconds(kind: str, length: int, options: GrowthOptions) -> float:
    """The fastest of five forward passes."""
    model, ids = _maker(kind, length, options)().eval(), torch.zeros(1, length, dtype=torch.long)
    seconds = []
    with torch.no_grad():
        for _ in range(5):
            start = time.perf_counter()
            model(Batch.of_text(ids, ids))
            seconds.append(time.perf_counter() - start)
    return min(seconds)
