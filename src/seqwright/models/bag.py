"""The bag of n-grams: which n-grams a text has, weighed by naive Bayes, and a linear model of them.

A strong and cheap rival of every network on whole texts (Wang & Manning 2012): log-count ratios say how much each
n-gram speaks for a class, and a regularised regression learns how far to believe them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.batch import Answers, Batch, ReaderSizes, Source
from seqwright.config import UserError
from seqwright.models.bags.grams import Grams, Presence, Rows
from seqwright.models.bags.linear import LOSSES, descend

AT_ONCE = 1024
"""Texts taken from the corpus at a time."""
HELD_OUT = 10
"""Every tenth text says which regularisation suits."""
FEWEST = 50
"""With fewer texts there is nothing to hold out, and the middle of L2S is taken."""
L2S = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
"""Tried from the left, each begun where the last ended, until the held-out loss rises."""


@dataclass(frozen=True, kw_only=True)
class BagConfig:
    order: int = 3
    """Tokens in the longest n-gram."""
    minimum: int = 2
    """N-grams of fewer texts are left out."""
    naive_bayes: bool = True
    """Weigh n-grams by their log-count ratios first (Wang & Manning 2012); without it all count alike at first."""
    smoothing: float = 1.0
    """Added to every count of naive Bayes."""
    normalise: bool = True
    """Scale each text by the root of how many n-grams it has, so that long texts are not surer for being long."""
    l2: float | None = None
    """How strongly weights are held at zero: l2 / 2 |w|² beside the summed loss. Left out: a held-out tenth decides."""

    def __post_init__(self) -> None:
        if self.order < 1 or self.minimum < 1:
            raise UserError(f"order {self.order} and minimum {self.minimum} must be at least 1.")
        if self.smoothing <= 0:
            raise UserError(f"smoothing must be positive, not {self.smoothing:g}; try 1.")
        if self.l2 is not None and self.l2 <= 0:
            raise UserError(f"l2 must be positive, not {self.l2:g}; leave it out to have it chosen.")


class Examples(Protocol):
    """What a bag counts: texts and their answers."""

    @property
    def lengths(self) -> Rows: ...

    def batch(self, rows: Rows) -> Batch: ...


class Bag:
    """Logits of a text from the n-grams it has; before `fit` it has no n-gram and no opinion."""

    context = None

    def __init__(self, config: BagConfig, answers: Answers, alphabet: int, vocabulary: int):
        self.config, self.answers, self.vocabulary = config, answers, vocabulary
        self.grams = Grams([np.zeros(0, np.int64)] * config.order, alphabet)
        self.weight = torch.zeros(0, answers.count)
        self.bias = torch.zeros(answers.count)
        self.notes: list[str] = []
        """What the user should know about the estimate: sentences."""
        self.l2 = config.l2
        """The regularisation that was used."""
        self.typical = torch.ones(1)
        """(1,): n-grams of a text on average; one of so many is not scaled."""

    def fit(self, corpus: Examples) -> None:
        """Finds the n-grams, their ratios and their weights."""
        ids, lengths, target = self._corpus(corpus)
        config = self.config
        self.grams, x = Grams.of(
            ids, lengths, order=config.order, minimum=config.minimum, vocabulary=self.grams.vocabulary
        )
        self.typical = x.sizes.mean(0).clamp(min=1)
        if self.l2 is None:
            self.l2 = self._choose(x, target)
        scale = self._scale(x, target)
        weight, self.bias = self._descend(x, target, scale, self.l2)
        self.weight = scale * weight

    def _choose(self, x: Presence, target: Tensor) -> float:
        """The regularisation with the least loss on texts that were held out."""
        if len(x) < FEWEST:
            return L2S[len(L2S) // 2]
        shuffled = torch.from_numpy(np.random.default_rng(0).permutation(len(x)))
        parts = shuffled[len(x) // HELD_OUT :], shuffled[: len(x) // HELD_OUT]
        (seen, wanted), (unseen, truth) = ((x.select(rows), target[rows]) for rows in parts)
        scale = self._scale(seen, wanted)
        weight = bias = None
        losses: list[float] = []
        for l2 in L2S:
            weight, bias = self._descend(seen, wanted, scale, l2, weight, bias)
            logits = self._rows(unseen) * (unseen @ (scale * weight)) + bias
            losses.append(float(LOSSES[self.answers.kind](logits, truth)))
            if losses[-1] > min(losses):
                break
        best = L2S[int(np.argmin(losses))]
        self.notes = [f"l2 = {best:g} suits {len(unseen):,} held-out texts best (loss {min(losses):.4f})."]
        return best

    def _descend(
        self,
        x: Presence,
        target: Tensor,
        scale: Tensor,
        l2: float,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        weight = torch.zeros_like(scale) if weight is None else weight
        bias = torch.zeros(self.answers.count) if bias is None else bias
        return descend(x, target, self.answers.kind, rows=self._rows(x), scale=scale, l2=l2, weight=weight, bias=bias)

    def _rows(self, x: Presence) -> Tensor:
        """(N, 1): by what each text is scaled."""
        sizes = x.sizes
        return (self.typical / sizes.clamp(min=1)).sqrt() if self.config.normalise else torch.ones_like(sizes)

    def _scale(self, x: Presence, target: Tensor) -> Tensor:
        """(F, C): log of how much more frequent each n-gram is among the texts of a class than among the others."""
        if not self.config.naive_bayes or self.answers.kind == "value":
            return torch.ones(x.width, self.answers.count)
        of_class = F.one_hot(target, self.answers.count).float() if self.answers.kind == "class" else target
        inside = x.transposed @ of_class + self.config.smoothing
        outside = x.transposed @ (1 - of_class) + self.config.smoothing
        return (inside / inside.sum(0)).log() - (outside / outside.sum(0)).log()

    @property
    def facts(self) -> dict[str, Any]:
        """How many n-grams of each length there are, and the regularisation."""
        return {"types": [len(keys) for keys in self.grams.keys], "l2": self.l2}

    def tensors(self) -> dict[str, Tensor]:
        keys = {f"keys.{n}": torch.from_numpy(keys) for n, keys in enumerate(self.grams.keys, 1)}
        return {"weight": self.weight, "bias": self.bias, "typical": self.typical, **keys}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        keys = [tensors[f"keys.{n}"].numpy() for n in range(1, self.config.order + 1)]
        self.grams = Grams(keys, self.grams.vocabulary)
        self.weight, self.bias, self.typical = tensors["weight"], tensors["bias"], tensors["typical"]

    def __call__(self, batch: Batch) -> Tensor:
        """Logits (B, C)."""
        x = self.grams.read(*self._flat(batch.source))
        return (self._rows(x) * (x @ self.weight) + self.bias).to(batch.source.device)

    def _corpus(self, corpus: Examples) -> tuple[Rows, Rows, Tensor]:
        """All ids one after another, the lengths of the texts, and their answers."""
        ids, lengths, targets = zip(*self._blocks(corpus), strict=True)
        return np.concatenate(ids), np.concatenate(lengths), torch.cat(targets)

    def _blocks(self, corpus: Examples) -> Iterator[tuple[Rows, Rows, Tensor]]:
        for rows in np.array_split(np.arange(len(corpus.lengths)), -(-len(corpus.lengths) // AT_ONCE)):
            batch = corpus.batch(rows)
            yield *self._flat(batch.source), batch.target

    def _flat(self, source: Source) -> tuple[Rows, Rows]:
        """The real ids and the length of each text. The same token in the other text of a pair is another one."""
        assert source.ids is not None
        ids = source.ids if source.segments is None else source.ids + self.vocabulary * source.segments
        mask = source.mask.cpu().numpy()
        return ids.cpu().numpy()[mask], mask.sum(1)


def bag(config: BagConfig, sizes: ReaderSizes) -> Bag:
    """A bag to be counted."""
    assert sizes.vocabulary is not None
    size = sizes.vocabulary.size
    return Bag(config, sizes.answers, size * sizes.segments, size)
