"""The bag of n-grams: which n-grams a text has, weighed by naive Bayes, and a linear model of them.

A strong and cheap rival of every network on whole texts (Wang & Manning 2012): log-count ratios say how much each
n-gram speaks for a class, and a regularized regression learns how far to believe them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.core.batch import Batch, EncoderSizes, OutputSpec, Source, within
from seqwright.core.config import UserError, check_sizes
from seqwright.core.protocols import Doing, unheard
from seqwright.models.bag.char_words import numbered, spelled
from seqwright.models.bag.complement_nb import Complement, complement
from seqwright.models.bag.features import Grams, Presence, Rows, beside
from seqwright.models.bag.linear import descend
from seqwright.models.bag.ridge import rarity, weights
from seqwright.models.bag.selection import FEWEST, Way, choose, is_cheap, is_dual, is_few

AT_ONCE = 1 << 22
"""Tokens taken from the corpus at a time, padding included: one very long text must not pad a thousand others."""
USUAL = 2
"""Texts an n-gram must be in, unless told or found otherwise."""
MOST_WEIGHTS = 20_000_000
"""Of more, the rarest n-grams are left out: every weight is held some thirty times while they are found."""

SEVERAL = 100
"""Of more classes no n-gram is left out for memory's sake: where weights would be too many, naive Bayes is all."""


@dataclass(frozen=True, kw_only=True)
class BagConfig:
    order: int = 3
    """Tokens in the longest n-gram."""
    words: int = 0
    """Words in the longest n-gram of whole words, beside those of tokens, which are characters then; 0 for none."""
    min_df: int | None = None
    """N-grams of fewer texts are left out. Left out: 2, but of few texts those that are held out decide whether 1."""
    naive_bayes: bool | None = None
    """Weigh n-grams by their log-count ratios first (Wang & Manning 2012); without it all count alike at first. Left
    out: they are weighed, but where weights are few, texts that are held out decide. Where the ratios alone answer
    those better than weights that are held at zero, weights are held at the ratios."""
    smoothing: float = 1.0
    """Added to every count of naive Bayes."""
    normalize: bool = True
    """Scale each text by the root of how many n-grams it has, rare ones counted more: long texts are no surer."""
    l2: float | None = None
    """How strongly weights are held at zero: l2 / 2 |w|² beside the summed loss. Left out: a held-out tenth decides."""

    def __post_init__(self) -> None:
        check_sizes(self, "order", "min_df")
        if self.words < 0:
            raise UserError(f"words must not be below 0, but is {self.words}.")
        if self.smoothing <= 0:
            raise UserError(f"smoothing must be positive, not {self.smoothing:g}; try 1.")
        if self.l2 is not None and self.l2 <= 0:
            raise UserError(f"l2 must be positive, not {self.l2:g}; leave it out to have it chosen.")


VIEWS = ("keys", "words")
"""What the n-grams of tokens and of words are called in a file."""
Streams = list[tuple[Rows, Rows]]
"""For each view all ids one after another, and the lengths of the texts."""


class Examples(Protocol):
    """What a bag counts: texts and their answers."""

    @property
    def lengths(self) -> Rows: ...

    def batch(self, rows: Rows) -> Batch: ...


class Bag:
    """Logits of a text from the n-grams it has; before `fit` it has no n-gram and no opinion."""

    context = None

    def __init__(self, config: BagConfig, answers: OutputSpec, alphabet: int, vocabulary: int):
        self.config, self.answers, self.alphabet, self.vocabulary = config, answers, alphabet, vocabulary
        self.known = np.zeros(0, np.int64)
        """Keys of the words there are, sorted."""
        self.views = self._views([[np.zeros(0, np.int64)] * order for order in self.orders])
        self.weight = torch.zeros(0, answers.count)
        self.bias = torch.zeros(answers.count)
        self.notes: list[str] = []
        """What the user should know about the estimate: sentences."""
        self.l2 = config.l2
        """The regularization that was used."""
        self.naive_bayes = config.naive_bayes is not False and answers.kind != "regression"
        """Whether n-grams are weighed by ratios, which need classes."""
        self.rarity = torch.ones(0)
        """(F,): how much an n-gram adds to the length of a text; those of few texts add more."""
        self.typical = torch.ones(len(self.orders))
        """(views,): squared length of a text on average; one so long is not scaled."""
        self.complement: Complement | None = None
        """What answers in place of weights where there are very many classes."""

    @property
    def orders(self) -> list[int]:
        """The longest n-gram of each view: of tokens, and of the words they spell."""
        return [self.config.order, self.config.words] if self.config.words else [self.config.order]

    def fit(self, corpus: Examples, doing: Doing = unheard) -> None:
        """Finds the n-grams, their ratios and their weights."""
        doing("counting n-grams")
        ids, lengths, marks, target = self._corpus(corpus)
        if self.config.words:
            self.known = np.unique(spelled(ids, marks, lengths)[0])
        streams = self._streams(ids, lengths, marks)
        every = self._without_weights(streams)
        if every is None:
            self._learn(*self._chosen(streams, target, doing), target, doing)
            return
        doing(f"counting {every.width:,} n-grams of {self.answers.count:,} classes")
        self.complement, said = complement(every, target, self.answers.count, self.config.smoothing)
        self.notes.append(f"{self.answers.count:,} classes are told apart by complement naive Bayes alone{said}.")

    def _without_weights(self, streams: Streams) -> Presence | None:
        """All n-grams, where classes are too many for each n-gram to have a weight of each; None where they are not, or
        a regression was asked for."""
        free = self.naive_bayes and self.config.l2 is None
        if self.answers.kind != "class" or self.answers.count <= SEVERAL or not free:
            return None
        every = self._counted(streams, self.config.min_df or 1, float("inf"))
        usual = int((torch.bincount(every.columns) >= USUAL).sum())
        return every if usual * self.answers.count > MOST_WEIGHTS else None

    def _learn(self, x: Presence, way: Way, target: Tensor, doing: Doing) -> None:
        """Finds the weights, in the way that was chosen."""
        self.l2, self.naive_bayes = way.l2, way.weighed
        doing(f"learning the weights of {x.width:,} n-grams")
        self.weight, self.bias = torch.zeros(x.width, self.answers.count), torch.zeros(self.answers.count)
        if way.share < 1:
            scale = self.scale(x, target, way.weighed)
            own: dict[str, Any] = {"scale": scale, "weight": torch.full_like(scale, way.center), "bias": self.bias}
            loss = "margins" if way.margins else self.answers.kind
            weight, bias = descend(x, target, loss, l2=self.l2, center=way.center, **own)
            self._add(scale * weight, bias, way.sharpness * (1 - way.share))
        if way.share:
            self._add(*weights(x, self.rarity, target, self.answers.count, way.ridge), way.ridge_sharpness * way.share)

    def _add(self, weight: Tensor, bias: Tensor, by: float) -> None:
        self.weight, self.bias = self.weight + by * weight, self.bias + by * bias

    def _chosen(self, streams: Streams, target: Tensor, doing: Doing) -> tuple[Presence, Way]:
        """The n-grams and the regression that suit texts that are held out."""
        usual = self.config.min_df or (USUAL if len(target) >= FEWEST else 1)
        x = self._counted(streams, usual)
        if self.config.l2 is not None:
            return x, Way(0.0, l2=self.config.l2, weighed=self.naive_bayes)
        unsaid = is_cheap(x, self.answers) and self.naive_bayes and self.config.naive_bayes is None

        def asked(x: Presence, min_df: int, *weighed: bool) -> Way:
            return choose(x, target, self.answers, self.scale, min_df=min_df, weighed=weighed, doing=doing)

        best = asked(x, usual, *((True, False) if unsaid else (self.naive_bayes,)))
        if self.config.min_df is None and (is_few(x, self.answers) or is_dual(x, self.answers)):
            every = self._counted(streams, 1)
            also = is_few(every, self.answers) or is_dual(every, self.answers)
            other = asked(every, 1, self.naive_bayes) if also else best
            x, best = (every, other) if other < best else (self._counted(streams, usual), best)
        if best.told:
            self.notes.append(self._said(best))
        return x, best

    def _counted(self, streams: Streams, least: int, most: float | None = None) -> Presence:
        """The n-grams of so many texts, or more where there would be too many weights."""
        for min_df in itertools.count(least):
            found = [
                Grams.of(*stream, order=order, min_df=min_df, vocabulary=view.vocabulary)
                for stream, order, view in zip(streams, self.orders, self._views(), strict=False)
            ]
            if sum(grams.width for grams, _ in found) * self.answers.count <= (most or MOST_WEIGHTS):
                break
        if min_df > least:
            self.notes.append(f"n-grams of fewer than {min_df} texts are left out: there were too many for memory.")
        self.views = [grams for grams, _ in found]
        seen = [x for _, x in found]
        self.rarity = torch.cat([rarity(x) for x in seen])
        self.typical = torch.cat([square.mean(0) for square in self._squares(seen)]).clamp(min=1)
        return self._beside(seen)

    def _views(self, keys: Sequence[Sequence[Rows]] = ((), ())) -> list[Grams]:
        """Of tokens, and of words: those that are known, and one more for all others."""
        return [Grams(own, size) for own, size in zip(keys, (self.alphabet, len(self.known) + 1), strict=False)]

    def _beside(self, views: Sequence[Presence]) -> Presence:
        """All views as one; a text that has more n-grams of a view than others is not surer for it."""
        if self.config.normalize:
            usual = zip(views, self._squares(views), self.typical, strict=True)
            views = [view.scaled((typical / square.clamp(min=1)).sqrt()) for view, square, typical in usual]
        return beside(views)

    def _squares(self, views: Sequence[Presence]) -> list[Tensor]:
        """The squared length (N, 1) of each text in each view."""
        ends = np.cumsum([view.width for view in views])[:-1].tolist()
        parts = self.rarity.square().unsqueeze(1).tensor_split(ends)
        return [view @ part for view, part in zip(views, parts, strict=True)]

    def _said(self, way: Way) -> str:
        """What was chosen, and how well texts that were held out were answered with it."""
        ratios = (
            f" and {'' if way.weighed else 'no '}naive Bayes{', which weights are held at,' * (way.center > 0)} suit"
        )
        chosen = f"l2 = {way.l2:g}{' suits' if self.answers.kind == 'regression' else ratios}"
        dual = f"ridge regression with l2 = {way.ridge:g}"
        if way.share:
            chosen = f"{way.share:.0%} of {dual} beside {chosen}" if way.share < 1 else f"{dual} suits"
        right = f"accuracy {way.accuracy:.2f} %, " if self.answers.kind == "class" else ""
        how = f"in {way.folds} folds " if way.folds > 1 else ""
        return f"{chosen} {way.told:,} held-out texts best ({how}{right}loss {way.loss:.4f})."

    def scale(self, x: Presence, target: Tensor, weighed: bool) -> Tensor:
        """(F, C): log of how much more frequent each n-gram is among the texts of a class than among the others."""
        if not weighed:
            return torch.ones(x.width, self.answers.count)
        of_class = F.one_hot(target, self.answers.count).float() if self.answers.kind == "class" else target
        present = replace(x.transposed, values=None)
        inside = present @ of_class + self.config.smoothing
        outside = present @ (1 - of_class) + self.config.smoothing
        return (inside / inside.sum(0)).log() - (outside / outside.sum(0)).log()

    @property
    def facts(self) -> dict[str, Any]:
        """How many n-grams of each length there are, and the regularization."""
        return {"types": [len(keys) for view in self.views for keys in view.keys], "l2": self.l2}

    def state_dict(self) -> dict[str, Tensor]:
        views = zip(VIEWS, self.views, strict=False)
        keys = {f"{name}.{n}": torch.from_numpy(own) for name, view in views for n, own in enumerate(view.keys, 1)}
        words = {"words": torch.from_numpy(self.known)} if self.config.words else {}
        own = self.complement.state_dict() if self.complement else {"weight": self.weight, "bias": self.bias}
        return {**own, "rarity": self.rarity, "typical": self.typical, **words, **keys}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        if self.config.words:
            self.known = tensors["words"].numpy()
        named = zip(VIEWS, self.orders, strict=False)
        self.views = self._views([[tensors[f"{name}.{n + 1}"].numpy() for n in range(order)] for name, order in named])
        self.typical = tensors["typical"]
        self.rarity = tensors.get("rarity", torch.ones(sum(view.width for view in self.views)))
        if "rest" in tensors:
            self.complement = Complement.load_state_dict(tensors)
        else:
            self.weight, self.bias = tensors["weight"], tensors["bias"]

    def __call__(self, batch: Batch) -> Tensor:
        """Logits (B, C)."""
        streams = self._streams(*self._flat(batch.source))
        x = self._beside([view.read(*stream) for view, stream in zip(self.views, streams, strict=True)])
        logits = self.complement(x) if self.complement else x @ self.weight + self.bias
        return logits.to(batch.source.device)

    def _streams(self, ids: Rows, lengths: Rows, marks: Rows) -> Streams:
        """The ids of all texts with the lengths of each, and the words they spell."""
        if not self.config.words:
            return [(ids, lengths)]
        keys, counts = spelled(ids, marks, lengths)
        return [(ids, lengths), (numbered(keys, self.known), counts)]

    def _corpus(self, corpus: Examples) -> tuple[Rows, Rows, Rows, Tensor]:
        """All ids one after another, the lengths of the texts, where words are, and the answers."""
        ids, lengths, marks, targets = zip(*self._blocks(corpus), strict=True)
        return np.concatenate(ids), np.concatenate(lengths), np.concatenate(marks), torch.cat(targets)

    def _blocks(self, corpus: Examples) -> Iterator[tuple[Rows, Rows, Rows, Tensor]]:
        for first, end in itertools.pairwise(within(corpus.lengths.tolist(), AT_ONCE)):
            batch = corpus.batch(np.arange(first, end))
            yield *self._flat(batch.source), batch.target

    def _flat(self, source: Source) -> tuple[Rows, Rows, Rows]:
        """The real ids, the length of each text, and where words are. The same token in the other text of a pair is
        another one."""
        assert source.ids is not None
        if self.config.words and source.words is None:
            raise UserError('model.words counts words that characters spell; set tokenizer.kind = "characters".')
        ids = source.ids if source.segments is None else source.ids + self.vocabulary * source.segments
        mask = source.mask.cpu().numpy()
        marks = mask[mask].astype(np.int64) if source.words is None else source.words.cpu().numpy()[mask]
        return ids.cpu().numpy()[mask], mask.sum(1), marks


def bag(config: BagConfig, sizes: EncoderSizes) -> Bag:
    """A bag to be counted."""
    assert sizes.vocabulary is not None
    size = sizes.vocabulary.size
    return Bag(config, sizes.answers, size * sizes.segments, size)
