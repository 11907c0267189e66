"""Stochastic gradient descent (the neural bigram of worked example 1): batches, epochs, and the noise of a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.core.config import UserError, check_not_negative
from seqwright.data.order import permutation
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Cell, matrix, table
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.explain.recording import set_sinusoidal_parameters
from seqwright.training.config import TrainingConfig
from seqwright.training.optimizer import optimizer

TOKENS = ("có", "làm", "mới", "ăn")
PAIRS = ((0, 1), (1, 2), (2, 0), (0, 3))
"""Pairs of `có làm mới có ăn`: có has two successors."""
WIDTH = 2


@dataclass(frozen=True, kw_only=True)
class SGDOptions(TopicOptions):
    batch_size: int = 2
    """Pairs in a mini-batch."""
    learning_rate: float = 1.0
    epochs: int = 10
    """Passes over the four pairs."""
    momentum: float = 0.0
    seed: int = 0
    """Seed of the order in which pairs are read."""

    def __post_init__(self) -> None:
        check_not_negative(self, "seed")
        if not 1 <= self.batch_size <= len(PAIRS):
            raise UserError(f"batch_size must be 1 to {len(PAIRS)}, not {self.batch_size}.")
        if not 1 <= self.epochs <= 200:
            raise UserError(f"epochs must be 1 to 200, not {self.epochs}.")
        if self.learning_rate <= 0:
            raise UserError(f"learning_rate must be above 0, not {self.learning_rate}.")
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum must be at least 0 and below 1, not {self.momentum}.")


def fixed_model() -> Any:
    """A neural bigram whose weights are a formula, so that no random generator is part of the example."""
    table = {"kind": "neural-bigram", "width": WIDTH}
    model = build.model(build.model_config(table), Vocabulary(size=len(TOKENS))).double()
    set_sinusoidal_parameters(model)
    return model


def mean_loss(model: Any, pairs: list[int]) -> Any:
    """Mean loss of the pairs of these numbers."""
    chosen = torch.tensor([PAIRS[n] for n in pairs])
    batch = Batch.of_text(chosen[:, :1], chosen[:, 1:])
    total, count = model.head.loss(model.hidden(batch)[0], batch.target)
    return total / count


def gradient(model: Any, pairs: list[int]) -> Tensor:
    """The gradient of the read-out bias: one number for each token."""
    model.zero_grad()
    mean_loss(model, pairs).backward()
    return model.head.readout.bias.grad.clone()


def sgd(options: SGDOptions) -> Explanation:
    """Mini-batches of four pairs, their gradients, and the loss over a few epochs."""
    model = fixed_model()
    everything = list(range(len(PAIRS)))
    names = [f"{TOKENS[a]} → {TOKENS[b]}" for a, b in PAIRS]
    single = [gradient(model, [n]) for n in everything]
    full = gradient(model, everything)
    order = permutation(options.seed, 0, len(PAIRS)).tolist()
    batches = [order[n : n + options.batch_size] for n in range(0, len(order), options.batch_size)]
    log, final = _trained(options)
    by_batch = [gradient(model, batch) for batch in batches]
    weighted = sum((len(batch) * g for batch, g in zip(batches, by_batch, strict=True)), torch.zeros_like(full))
    steps = [
        Step(
            "Examples and loss",
            "A neural bigram reads one token and predicts the next. The loss is a mean over examples.",
            "J(θ) = -1/N Σ log p(y | x)",
            [
                table(
                    "examples",
                    ["pair", "loss"],
                    [(name, float(mean_loss(model, [n]).detach())) for n, name in enumerate(names)],
                ),
                matrix("J", float(mean_loss(model, everything).detach())),
            ],
            ["a slide maximizes J = Σ log p although its text follows the negative gradient: the sign is lost."],
        ),
        Step(
            "Each example has a gradient",
            "Of the read-out bias: p - 1 at the target, p elsewhere. They point in different directions; the mean is"
            " the gradient of J.",
            "∂J/∂θ = mean of the examples' gradients",
            [
                matrix("gradients of examples", torch.stack(single), rows=names, columns=TOKENS),
                matrix("gradient of J", full, columns=TOKENS),
            ],
        ),
        Step(
            f"Mini-batches of {options.batch_size}",
            "The examples are shuffled and cut into batches: each is read once in an epoch.",
            "θ ← θ - learning rate · gradient of one batch",
            [
                table(
                    "batches",
                    ["step", "pairs"],
                    [(n, ", ".join(names[i] for i in batch)) for n, batch in enumerate(batches)],
                ),
                matrix("gradients of batches", torch.stack(by_batch), columns=TOKENS),
                matrix("their mean, weighted by size", weighted / len(PAIRS), columns=TOKENS),
            ],
            [
                "batches are pairwise disjoint: a listing that draws them independently would repeat examples.",
                "a listing uses θ^(s-1) at s = 0: the first step starts from the initial parameters θ^(0).",
            ],
        ),
        Step(
            f"{options.epochs} epochs",
            "The loss of a step is that of its batch before the update; J, over all pairs, falls in the long run, but"
            " not at every step.",
            "",
            [table("steps", ["epoch", "step", "batch loss", "J after"], log)],
        ),
        Step(
            "What cannot be learned",
            "có is followed by làm once and by ăn once, so that no model of one token of context does better than"
            " accuracy 3/4 and (2 log 2) / 4 = 0.3466 nats.",
            "J ≥ 0.3466",
            [matrix("J at the end", final)],
        ),
    ]
    about = "Gradient descent follows the negative gradient of the loss; the stochastic kind, that of a few examples."
    return Explanation("sgd", "SGD and mini-batches", about, steps)


def _trained(options: SGDOptions) -> tuple[list[tuple[Cell, ...]], float]:
    model = fixed_model()
    config = TrainingConfig(
        optimizer="sgd", learning_rate=options.learning_rate, momentum=options.momentum, weight_decay=0.0
    )
    steps = optimizer(model, config)
    log: list[tuple[Cell, ...]] = []
    after = 0.0
    for epoch in range(options.epochs):
        order = permutation(options.seed, epoch, len(PAIRS)).tolist()
        for start in range(0, len(order), options.batch_size):
            model.zero_grad()
            loss = mean_loss(model, order[start : start + options.batch_size])
            loss.backward()
            steps.step()
            with torch.no_grad():
                after = float(mean_loss(model, list(range(len(PAIRS)))))
            log.append((epoch + 1, len(log), float(loss.detach()), after))
    return log, after
