"""Stochastic gradient descent (the neural bigram of worked example 1): batches, epochs, and the noise of a gradient."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
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

TEXT = "có làm mới có ăn"
"""Four pairs of a word and the next: có has two successors."""
WIDTH = 2
MAX_WORDS = 12
"""Words of a text that are used."""


@dataclass(frozen=True, kw_only=True)
class SGDOptions(TopicOptions):
    text: str = TEXT
    """Words; each pair of neighbors is an example."""
    batch_size: int = 2
    """Pairs in a mini-batch."""
    learning_rate: float = 1.0
    epochs: int = 10
    """Passes over the pairs."""
    momentum: float = 0.0
    seed: int = 0
    """Seed of the order in which pairs are read."""

    def __post_init__(self) -> None:
        check_not_negative(self, "seed")
        if len(self.words) < 3:
            raise UserError("three words or more make pairs; give some: --on 'one two one three'.")
        if not 1 <= self.batch_size <= len(self.pairs):
            raise UserError(f"batch_size must be 1 to {len(self.pairs)}, not {self.batch_size}.")
        if not 1 <= self.epochs <= 200:
            raise UserError(f"epochs must be 1 to 200, not {self.epochs}.")
        if self.learning_rate <= 0:
            raise UserError(f"learning_rate must be above 0, not {self.learning_rate}.")
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum must be at least 0 and below 1, not {self.momentum}.")

    @property
    def words(self) -> list[str]:
        return self.text.split()[:MAX_WORDS]

    @property
    def tokens(self) -> list[str]:
        """The vocabulary, in the order of the text."""
        return list(dict.fromkeys(self.words))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Ids of each word and the next."""
        ids = [self.tokens.index(word) for word in self.words]
        return list(itertools.pairwise(ids))


def fixed_model(size: int) -> Any:
    """A neural bigram whose weights are a formula, so that no random generator is part of the example."""
    table = {"kind": "neural-bigram", "width": WIDTH}
    model = build.model(build.model_config(table), Vocabulary(size=size)).double()
    set_sinusoidal_parameters(model)
    return model


def mean_loss(model: Any, pairs: Sequence[tuple[int, int]]) -> Any:
    """Mean loss of pairs of ids."""
    chosen = torch.tensor(pairs)
    batch = Batch.of_text(chosen[:, :1], chosen[:, 1:])
    total, count = model.head.loss(model.hidden(batch)[0], batch.target)
    return total / count


def gradient(model: Any, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """The gradient of the read-out bias: one number for each token."""
    model.zero_grad()
    mean_loss(model, pairs).backward()
    return model.head.readout.bias.grad.clone()


def sgd(options: SGDOptions) -> Explanation:
    """Mini-batches of the pairs of a text, their gradients, and the loss over a few epochs."""
    tokens, pairs = options.tokens, options.pairs
    model = fixed_model(len(tokens))
    names = [f"{tokens[a]} → {tokens[b]}" for a, b in pairs]
    single = [gradient(model, [pair]) for pair in pairs]
    full = gradient(model, pairs)
    order = permutation(options.seed, 0, len(pairs)).tolist()
    batches = [order[n : n + options.batch_size] for n in range(0, len(order), options.batch_size)]
    log, final = _trained(options)
    by_batch = [gradient(model, [pairs[n] for n in batch]) for batch in batches]
    weighted = sum((len(batch) * g for batch, g in zip(batches, by_batch, strict=True)), torch.zeros_like(full))
    steps = [
        Step(
            "Examples and loss",
            "A neural bigram reads one token and predicts the next. The loss is a mean over examples."
            + (f" Of the text, the first {MAX_WORDS} words are used." if len(options.text.split()) > MAX_WORDS else ""),
            "J(θ) = -1/N Σ log p(y | x)",
            [
                table(
                    "examples",
                    ["pair", "loss"],
                    [(name, float(mean_loss(model, [pair]).detach())) for pair, name in zip(pairs, names, strict=True)],
                ),
                matrix("J", float(mean_loss(model, pairs).detach())),
            ],
            ["a slide maximizes J = Σ log p although its text follows the negative gradient: the sign is lost."],
        ),
        Step(
            "Each example has a gradient",
            "Of the read-out bias: p - 1 at the target, p elsewhere. They point in different directions; the mean is"
            " the gradient of J.",
            "∂J/∂θ = mean of the examples' gradients",
            [
                matrix("gradients of examples", torch.stack(single), rows=names, columns=tokens),
                matrix("gradient of J", full, columns=tokens),
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
                matrix("gradients of batches", torch.stack(by_batch), columns=tokens),
                matrix("their mean, weighted by size", weighted / len(pairs), columns=tokens),
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
            _ambiguous(tokens, pairs),
            f"J ≥ -1/N Σ c(x y) log c(x y) / c(x) = {_entropy(pairs):.4f}",
            [matrix("J at the end", final)],
        ),
    ]
    about = "Gradient descent follows the negative gradient of the loss; the stochastic kind, that of a few examples."
    return Explanation("sgd", "SGD and mini-batches", about, steps)


def _ambiguous(tokens: Sequence[str], pairs: Sequence[tuple[int, int]]) -> str:
    """Which token has several successors, and what that costs a model of one token of context."""
    following = {x: Counter(y for before, y in pairs if before == x) for x, _ in pairs}
    right = sum(max(counts.values()) for counts in following.values())
    bound = f"accuracy {right}/{len(pairs)} and {_entropy(pairs):.4f} nats"
    for x, counts in following.items():
        if len(counts) > 1:
            times = " and by ".join(f"{tokens[y]} ({count})" for y, count in counts.items())
            return f"{tokens[x]} is followed by {times}: no model of one token of context does better than {bound}."
    return f"Every token has one successor here: a model of one token of context can reach {bound}."


def _entropy(pairs: Sequence[tuple[int, int]]) -> float:
    """Entropy of the second token given the first, in nats."""
    firsts = Counter(x for x, _ in pairs)
    return -sum(count * math.log(count / firsts[x]) for (x, _), count in Counter(pairs).items()) / len(pairs) + 0.0


def _trained(options: SGDOptions) -> tuple[list[tuple[Cell, ...]], float]:
    pairs, model = options.pairs, fixed_model(len(options.tokens))
    config = TrainingConfig(
        optimizer="sgd", learning_rate=options.learning_rate, momentum=options.momentum, weight_decay=0.0
    )
    steps = optimizer(model, config)
    log: list[tuple[Cell, ...]] = []
    after = 0.0
    for epoch in range(options.epochs):
        order = permutation(options.seed, epoch, len(pairs)).tolist()
        for start in range(0, len(order), options.batch_size):
            model.zero_grad()
            loss = mean_loss(model, [pairs[n] for n in order[start : start + options.batch_size]])
            loss.backward()
            steps.step()
            with torch.no_grad():
                after = float(mean_loss(model, pairs))
            log.append((epoch + 1, len(log), float(loss.detach()), after))
    return log, after
