"""Bag of n-grams classifier: presence features weighted by naive Bayes, and a regularized linear model (NB-SVM).

A strong and cheap baseline for text classification (Wang & Manning 2012): log-count ratios weight each n-gram by class,
and an L2-regularized regression learns how far to trust them (docs/decisions/0090, 0132).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.core.batch import Batch, EncoderSizes, OutputSpec, Vocabulary
from seqwright.core.config import UserError, check_sizes
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import CountedModel
from seqwright.models.bag.char_words import word_hashes, word_ids
from seqwright.models.bag.complement_nb import ComplementNB, fit_complement_nb
from seqwright.models.bag.contributions import Contributions, word_spans
from seqwright.models.bag.features import CSRMatrix, Ints, NGramVectorizer, hstack, merge_equal_columns
from seqwright.models.bag.linear import MAX_ITERATIONS, WARM_ITERATIONS, fit_linear, prior_logits
from seqwright.models.bag.ridge import inverse_document_frequency, ridge_weights
from seqwright.models.bag.selection import (
    MIN_TEXTS,
    Candidate,
    can_cross_validate,
    can_grid_search,
    can_use_ridge,
    select,
)
from seqwright.models.bag.unpadded import Unpadded
from seqwright.text.ragged import RaggedTexts

BLOCK_TOKENS = 1 << 22
"""Maximum number of tokens that are vectorized together in prediction: bounds memory."""
DEFAULT_MIN_DF = 2
"""Minimum document frequency of n-grams unless configured or selected on held-out texts."""
MAX_WEIGHTS = 20_000_000
"""Maximum number of weights: the minimum document frequency is raised to meet it. L-BFGS holds about 30 copies."""

MAX_ORDER = 100
"""Each order has a vocabulary: a received [model] cannot ask for a billion of them."""
MANY_CLASSES = 100
"""Above this, complement naive Bayes is used where there would be more than MAX_WEIGHTS weights."""


@dataclass(frozen=True, kw_only=True)
class BagConfig:
    order: int = 3
    """Maximum n-gram order."""
    words: int = 0
    """Maximum order of word n-grams, as a second set of features beside character n-grams; 0 for none."""
    min_df: int | None = None
    """Minimum document frequency: n-grams in fewer texts are dropped. Default: 2, or 1 where few training texts show a
    lower held-out loss with it."""
    naive_bayes: bool | None = None
    """Scale features by naive Bayes log-count ratios (Wang & Manning 2012); false scales none. Default: true, but
    selected on held-out texts where weights are few. Where naive Bayes alone has a lower held-out loss than the
    regression, the L2 penalty is centered at it instead of zero."""
    smoothing: float = 1.0
    """Pseudocount of naive Bayes."""
    normalize: bool = True
    """Scale each text to a common IDF-weighted L2 norm, so that long texts are not more confident."""
    l2: float | None = None
    """L2 regularization: l2 / 2 |w|² is added to the summed loss. Default: selected on held-out texts."""

    def __post_init__(self) -> None:
        check_sizes(self, "order", "min_df")
        if self.words < 0:
            raise UserError(f"words must not be negative, but is {self.words}; 0 counts no word n-grams.")
        if max(self.order, self.words) > MAX_ORDER:
            raise UserError(f"order and words are at most {MAX_ORDER}, not {max(self.order, self.words)}; try 3.")
        if self.smoothing <= 0:
            raise UserError(f"smoothing must be positive, not {self.smoothing:g}; try 1.")
        if self.l2 is not None and self.l2 <= 0:
            raise UserError(f"l2 must be positive, not {self.l2:g}; omit it to have it selected on held-out texts.")


VIEWS = ("keys", "words")
"""Prefixes of the n-gram keys of tokens and of words in a state dict."""
Streams = list[tuple[Ints, Ints]]
"""For each view (tokens, words), the concatenated ids of all texts, and the lengths of the texts."""


Merged = tuple[CSRMatrix, Tensor]
"""Features with equal columns merged, and the merged column of each n-gram (F,)."""


class Examples(Protocol):
    """Training data of a bag: texts and their targets."""

    @property
    def sources(self) -> RaggedTexts: ...

    @property
    def row_targets(self) -> Tensor:
        """Target of each row of the sources."""
        ...


class Bag(CountedModel):
    """A linear classifier of the n-grams in a text; before `fit` it has no features and all logits are 0."""

    def __init__(self, config: BagConfig, output: OutputSpec, vocabulary: Vocabulary, segments: int):
        self.config, self.output, self.vocabulary = config, output, vocabulary.size
        self.special = [n for n in (vocabulary.sos, vocabulary.eos, vocabulary.pad) if n is not None]
        """Ids around every text, which say nothing about it: those of `<sos>`, `<eos>` and `<pad>`."""
        self.segmented_vocabulary = vocabulary.size * segments
        """Vocabulary size times the number of segments: each text of a pair has its own features."""
        self.word_hashes = np.zeros(0, np.int64)
        """Word vocabulary: sorted hashes."""
        self.vectorizers = self._vectorizers([[np.zeros(0, np.int64)] * order for order in self.orders])
        self.weight = torch.zeros(0, output.count)
        self.bias = torch.zeros(output.count)
        self.notes: list[str] = []
        """Messages to the user about the estimate."""
        self.l2 = config.l2
        """The L2 regularization used."""
        self.naive_bayes = config.naive_bayes is not False and output.kind != "regression"
        """Whether features are scaled by log-count ratios, which need classes."""
        self.idf = torch.ones(0)
        """(F,): inverse document frequencies, which weight n-grams in the norm of a text."""
        self.mean_square_norm = torch.ones(len(self.orders))
        """(views,): mean squared norm of training texts; a text of this norm is not rescaled."""
        self.selected: Candidate | None = None
        """The hyperparameters, with the logits of the texts that were held out to select them; None before `fit`."""
        self.complement_nb: ComplementNB | None = None
        """The classifier used in place of weights where there are very many classes."""
        self.prior: Tensor | None = None
        """(C,): logits of a text without n-grams beyond special tokens; runs of older versions have none."""
        self.informative = torch.zeros(0, 1)
        """(F, 1): 1 for n-grams that are not of special tokens alone."""

    @property
    def orders(self) -> list[int]:
        """Maximum n-gram order of each view: tokens, and the words they spell."""
        return [self.config.order, self.config.words] if self.config.words else [self.config.order]

    def fit(self, corpus: Examples, progress: Progress = SILENT) -> None:
        """Counts n-grams, selects hyperparameters on held-out texts, and fits the weights."""
        progress.stage("counting n-grams")
        kept = self._nonempty(corpus.sources)
        texts, target = Unpadded.select(corpus.sources, kept.numpy()), corpus.row_targets[kept]
        self.prior = prior_logits(corpus.row_targets, self.output)
        if self.config.words:
            ids, word_marks = self._marked(texts)
            self.word_hashes = np.unique(word_hashes(ids, word_marks, texts.lengths)[0])
        streams = self._streams(texts)
        features = self._without_weights(streams)
        if features is None:
            self._learn(*self._selected(streams, target, progress), target, progress)
            if self.selected and self.selected.rows is not None:
                self.selected = replace(self.selected, rows=kept[self.selected.rows])
        else:
            self._count(features, target, progress)
        self._mark_informative()

    def _nonempty(self, texts: RaggedTexts) -> Tensor:
        """The rows with ids other than special ones, or all where none has: an empty text has nothing but its length,
        which would be learned as a certain sign of its label."""
        ends = np.cumsum(texts.lengths)
        before = np.concatenate([[0], np.cumsum(~np.isin(texts.ids, self.special))])
        kept = np.flatnonzero(before[ends] > before[ends - texts.lengths])
        return torch.from_numpy(kept) if len(kept) else torch.arange(len(ends))

    def _mark_informative(self) -> None:
        segments = range(0, self.segmented_vocabulary, self.vocabulary)
        special = [[first + n for first in segments for n in self.special], []]  # words are never special
        columns = [~view.made_of(ids) for view, ids in zip(self.vectorizers, special, strict=False)]
        self.informative = torch.from_numpy(np.concatenate(columns)).float().unsqueeze(1)

    def _count(self, features: CSRMatrix, target: Tensor, progress: Progress) -> None:
        """Fits complement naive Bayes."""
        progress.stage(f"counting {features.width:,} n-grams of {self.output.count:,} classes")
        self.complement_nb, note = fit_complement_nb(features, target, self.output.count, self.config.smoothing)
        self.notes.append(f"{self.output.count:,} classes: fitted by complement naive Bayes alone{note}.")

    def _without_weights(self, streams: Streams) -> CSRMatrix | None:
        """All features, where there are too many classes for a weight of each n-gram and class; None where there are
        not, or a regression is configured."""
        unconstrained = self.naive_bayes and self.config.l2 is None
        if self.output.kind != "class" or self.output.count <= MANY_CLASSES or not unconstrained:
            return None
        features = self._features(streams, self.config.min_df or 1, float("inf"))
        frequent = int((torch.bincount(features.columns) >= DEFAULT_MIN_DF).sum())
        return features if frequent * self.output.count > MAX_WEIGHTS else None

    def _learn(self, merged: Merged, chosen: Candidate, target: Tensor, progress: Progress) -> None:
        """Fits the weights with the selected hyperparameters; an average of two linear models is one linear model."""
        x, column_of = merged
        self.l2, self.naive_bayes = chosen.l2, chosen.naive_bayes
        progress.stage(f"learning the weights of {len(column_of):,} n-grams")
        self.weight, self.bias = torch.zeros(x.width, self.output.count), torch.zeros(self.output.count)
        if chosen.ridge_share < 1:
            scale = self.scale(x, target, chosen.naive_bayes)
            start, iterations = (chosen.center * x.unit_weight.expand_as(scale), self.bias), MAX_ITERATIONS
            if chosen.fitted:
                start, iterations = chosen.fitted, WARM_ITERATIONS
            loss = "squared_hinge" if chosen.hinge else self.output.kind
            options: dict[str, Any] = {"l2": self.l2, "center": chosen.center, "max_iter": iterations}
            weight, bias = fit_linear(x, target, loss, scale=scale, weight=start[0], bias=start[1], **options)
            self._add(scale * weight, bias, chosen.logit_scale * (1 - chosen.ridge_share))
        if chosen.ridge_share:
            ridge = ridge_weights(x, inverse_document_frequency(x), target, self.output.count, chosen.ridge_l2)
            self._add(*ridge, chosen.ridge_scale * chosen.ridge_share)
        self.weight = (self.weight / x.unit_weight)[column_of]

    def _add(self, weight: Tensor, bias: Tensor, by: float) -> None:
        self.weight, self.bias = self.weight + by * weight, self.bias + by * bias

    def _selected(self, streams: Streams, target: Tensor, progress: Progress) -> tuple[Merged, Candidate]:
        """The features and hyperparameters of least held-out loss."""
        min_df = self.config.min_df or (DEFAULT_MIN_DF if len(target) >= MIN_TEXTS else 1)
        merged = self._merged_features(streams, min_df)
        x = merged[0]
        if self.config.l2 is not None:
            return merged, Candidate(0.0, l2=self.config.l2, naive_bayes=self.naive_bayes)
        try_both = can_grid_search(x, self.output) and self.naive_bayes and self.config.naive_bayes is None
        select_from = partial(select, target=target, output=self.output, scale=self.scale, progress=progress)
        best = select_from(x, min_df=min_df, naive_bayes=(True, False) if try_both else (self.naive_bayes,))
        # With many texts n-grams of a single one gain nothing, but for ridge regression: classes of a few texts each.
        if self.config.min_df is None and (can_cross_validate(x, self.output) or best.ridge_share):
            fitted = self.vectorizers, self.idf, self.mean_square_norm
            all_ngrams = self._merged_features(streams, 1)
            other = best
            if can_cross_validate(all_ngrams[0], self.output):  # few texts: other features want other hyperparameters
                other = select_from(all_ngrams[0], min_df=1, naive_bayes=(self.naive_bayes,))
            elif can_use_ridge(all_ngrams[0], self.output):
                other = select_from(all_ngrams[0], min_df=1, naive_bayes=(best.naive_bayes,), like=best)
            if other < best:
                merged, best = all_ngrams, other
            else:
                self.vectorizers, self.idf, self.mean_square_norm = fitted
        self.selected = best
        if best.held_out:
            self.notes.append(best.note(self.output.kind))
        return merged, best

    def _merged_features(self, streams: Streams, least: int) -> Merged:
        """Features with equal columns merged: n-grams of the same texts are many, above all those of one text."""
        x = self._features(streams, least)
        return merge_equal_columns(x, [vectorizer.width for vectorizer in self.vectorizers])

    def _features(self, streams: Streams, least: int, limit: float | None = None) -> CSRMatrix:
        """Features of document frequency `least` or more, raised where there would be too many weights."""
        for min_df in itertools.count(least):
            fitted = [
                NGramVectorizer.fit_transform(*stream, order=order, min_df=min_df, vocabulary=view.vocabulary)
                for stream, order, view in zip(streams, self.orders, self._vectorizers(), strict=False)
            ]
            if sum(vectorizer.width for vectorizer, _ in fitted) * self.output.count <= (limit or MAX_WEIGHTS):
                break
        if min_df > least:
            self.notes.append(f"n-grams in fewer than {min_df} texts are dropped: too many weights for memory.")
        self.vectorizers = [vectorizer for vectorizer, _ in fitted]
        views = [x for _, x in fitted]
        self.idf = torch.cat([inverse_document_frequency(x) for x in views])
        self.mean_square_norm = torch.cat([square.mean(0) for square in self._square_norms(views)]).clamp(min=1)
        return self._normalized(views)

    def _vectorizers(self, keys: Sequence[Sequence[Ints]] = ((), ())) -> list[NGramVectorizer]:
        """One for tokens and one for words, whose vocabulary has one more id for unknown words."""
        sizes = (self.segmented_vocabulary, len(self.word_hashes) + 1)
        return [NGramVectorizer(view, size) for view, size in zip(keys, sizes, strict=False)]

    def _normalized(self, views: Sequence[CSRMatrix]) -> CSRMatrix:
        """All views as one matrix, each text scaled to the typical norm of each view."""
        if self.config.normalize:
            norms = zip(views, self._square_norms(views), self.mean_square_norm, strict=True)
            views = [view.scale_rows((mean / square.clamp(min=1)).sqrt()) for view, square, mean in norms]
        return hstack(views)

    def _square_norms(self, views: Sequence[CSRMatrix]) -> list[Tensor]:
        """Squared IDF-weighted norm (N, 1) of each text in each view."""
        ends = np.cumsum([view.width for view in views])[:-1].tolist()
        parts = self.idf.square().unsqueeze(1).tensor_split(ends)
        return [view @ part for view, part in zip(views, parts, strict=True)]

    def scale(self, x: CSRMatrix, target: Tensor, naive_bayes: bool) -> Tensor:
        """(F, C): naive Bayes log-count ratios r = log(p / |p|₁) - log(q / |q|₁) (Wang & Manning 2012), or ones."""
        if not naive_bayes:
            return torch.ones(x.width, self.output.count)
        of_class = F.one_hot(target, self.output.count).float() if self.output.kind == "class" else target
        present = replace(x.transposed, values=None)
        inside = present @ of_class + self.config.smoothing
        outside = present @ (1 - of_class) + self.config.smoothing
        copies = x.unit_weight.square()
        return (inside / (copies * inside).sum(0)).log() - (outside / (copies * outside).sum(0)).log()

    @property
    def facts(self) -> dict[str, Any]:
        """Number of n-grams by order, and the regularization."""
        return {"types": [len(keys) for view in self.vectorizers for keys in view.keys], "l2": self.l2}

    def state_dict(self) -> dict[str, Tensor]:
        views = zip(VIEWS, self.vectorizers, strict=False)
        keys = {f"{name}.{n}": torch.from_numpy(order) for name, view in views for n, order in enumerate(view.keys, 1)}
        words = {"words": torch.from_numpy(self.word_hashes)} if self.config.words else {}
        model = self.complement_nb.state_dict() if self.complement_nb else {"weight": self.weight, "bias": self.bias}
        prior = {} if self.prior is None else {"prior": self.prior}
        return {**model, **prior, "rarity": self.idf, "typical": self.mean_square_norm, **words, **keys}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        if self.config.words:
            self.word_hashes = tensors["words"].numpy()
        views = zip(VIEWS, self.orders, strict=False)
        keys = [[tensors[f"{name}.{n + 1}"].numpy() for n in range(order)] for name, order in views]
        self.vectorizers = self._vectorizers(keys)
        self.mean_square_norm = tensors["typical"]
        if self.mean_square_norm.shape != (len(self.orders),):
            raise ValueError("norms of another number of views")
        self.idf = tensors.get("rarity", torch.ones(sum(view.width for view in self.vectorizers)))
        self._mark_informative()
        self.prior = tensors.get("prior")
        if self.prior is not None and self.prior.shape != (self.output.count,):
            raise ValueError(f"a prior of shape {tuple(self.prior.shape)}, not of {self.output.count} labels")
        if "rest" in tensors:
            self.complement_nb = ComplementNB.load_state_dict(tensors)
        else:
            self.weight, self.bias = tensors["weight"], tensors["bias"]
            if self.weight.shape != (len(self.idf), self.output.count) or self.bias.shape != (self.output.count,):
                raise ValueError(f"weights of shape {tuple(self.weight.shape)}, not of {self.output.count} labels")

    def __call__(self, batch: Batch) -> Tensor:
        """Logits (B, C) of a padded batch."""
        return self._logits(Unpadded.of(batch.source)).to(batch.source.device)

    def logits(self, texts: RaggedTexts) -> Tensor:
        """Logits (R, C) of ragged texts, BLOCK_TOKENS at a time."""
        ends = np.cumsum(texts.lengths)
        blocks = np.split(np.arange(len(ends)), np.flatnonzero(np.diff(ends // BLOCK_TOKENS)) + 1)
        return torch.cat([self._logits(Unpadded.select(texts, rows, ends)) for rows in blocks])

    def contributions(self, texts: RaggedTexts) -> Iterator[Contributions]:
        """What each n-gram of a text adds to its logits, for each text."""
        ends = np.cumsum(texts.lengths)
        for n in range(len(ends)):
            text = Unpadded.select(texts, np.array([n]), ends)
            streams = self._streams(text)
            spans: list[Ints] = []
            for view, (vectorizer, (ids, _)) in enumerate(zip(self.vectorizers, streams, strict=True)):
                _, first, end = vectorizer.occurrences(ids)
                spans.append(np.stack([first, end], 1) if view == 0 else word_spans(first, end, self._marked(text)[1]))
            x = self._features_of(streams)
            if self.prior is not None and self._uninformative(x):
                none = torch.zeros(0, self.output.count, dtype=torch.float64)
                yield Contributions(np.zeros((0, 2), np.int64), np.zeros(0, bool), none, self.prior.double())
                continue
            values = torch.ones(len(x.columns)) if x.values is None else x.values
            weight = self.complement_nb.weights(x.columns) if self.complement_nb else self.weight[x.columns]
            logits = values.double().unsqueeze(1) * weight.double()
            of_words = np.repeat(np.arange(len(spans)) > 0, [len(view) for view in spans])
            yield Contributions(np.concatenate(spans), of_words, logits, self.bias.double())

    def _features_of(self, streams: Streams) -> CSRMatrix:
        return self._normalized(
            [view.transform(*stream) for view, stream in zip(self.vectorizers, streams, strict=True)]
        )

    def _logits(self, texts: RaggedTexts) -> Tensor:
        x = self._features_of(self._streams(texts))
        logits = self.complement_nb(x) if self.complement_nb else x @ self.weight + self.bias
        return logits if self.prior is None else torch.where(self._uninformative(x), self.prior, logits)

    def _uninformative(self, x: CSRMatrix) -> Tensor:
        """(N, 1): whether a text has no n-gram beyond special tokens."""
        return replace(x, values=None) @ self.informative == 0

    def _streams(self, texts: RaggedTexts) -> Streams:
        """The concatenated token ids and text lengths, and those of the words they spell."""
        ids, word_marks = self._marked(texts)
        if not self.config.words:
            return [(ids, texts.lengths)]
        hashes, counts = word_hashes(ids, word_marks, texts.lengths)
        return [(ids, texts.lengths), (word_ids(hashes, self.word_hashes), counts)]

    def _marked(self, texts: RaggedTexts) -> tuple[Ints, Ints]:
        """Ids and word marks. Ids of the second text of a pair are offset by the vocabulary size, so that its n-grams
        are features of their own."""
        if self.config.words and texts.words is None:
            raise UserError('model.words counts words spelled by characters; set tokenizer.kind = "characters".')
        ids = texts.ids if texts.segments is None else texts.ids + self.vocabulary * texts.segments.astype(np.int64)
        return ids, np.ones_like(ids) if texts.words is None else texts.words.astype(np.int64)


def bag(config: BagConfig, sizes: EncoderSizes) -> Bag:
    """An unfitted bag of n-grams."""
    assert sizes.vocabulary is not None
    return Bag(config, sizes.answers, sizes.vocabulary, sizes.segments)
