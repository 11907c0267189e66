"""The counted n-gram: what comes next is what came next, smoothed for what never did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.batch import Batch, Source, Vocabulary
from seqwright.core.config import UserError
from seqwright.core.protocols import Doing, State, unheard
from seqwright.models.ngram.adaptive import Adaptive, AdaptiveOptions
from seqwright.models.ngram.arpa_reading import SPECIALS, read_arpa
from seqwright.models.ngram.arpa_writing import arpa_names, write_arpa
from seqwright.models.ngram.counting import Rows, count_ngrams
from seqwright.models.ngram.files import from_tensors, to_tensors
from seqwright.models.ngram.pruning import cut_off, prune
from seqwright.models.ngram.scratch import Scratch
from seqwright.models.ngram.smoothing import Kind, estimate
from seqwright.models.ngram.tables import assemble, uniform
from seqwright.models.ngram.trace import Step, trace

SMALLEST_MEMORY = 2**27
"""Below this, what every block costs outweighs the block."""


@dataclass(frozen=True, kw_only=True)
class NGramConfig:
    order: int = 3
    """Ids in the longest n-gram counted: an n-gram of order N sees N - 1 ids back."""
    smoothing: Kind = "kneser-ney"
    """What is given to n-grams never seen: kneser-ney (modified, interpolated), witten-bell, absolute, stupid-backoff
    (normalized), add-k, or mle (nothing)."""
    k: float = 1.0
    """Added to every count by add-k."""
    discount_fallback: tuple[float, ...] = (0.5, 1.0, 1.5)
    """Discounts of n-grams counted once, twice and more often, for orders at which they cannot be estimated."""
    unknown: bool = True
    """Whether the unknown token can be predicted (an open vocabulary); if not, it has probability zero."""
    running: bool = False
    """Whether contexts run on over the borders of documents instead of starting afresh at each."""
    cutoffs: tuple[int, ...] = ()
    """N-grams of length 1, 2, … that occur no more often than this are left out; the last number holds for all longer
    ones: [0, 0, 1] drops what is seen once from trigrams on."""
    prune: float = 0.0
    """N-grams without which perplexity would rise by less than this share are left out (Stolcke 1998); 1e-8 is mild."""
    compact: bool = False
    """Whether to write a smaller file, which takes a moment to open and keeps no counts."""
    memory: int | None = None
    """Bytes that counting may take; what does not fit is sorted and merged on disk. Left out: as many as it needs."""
    adaptive: AdaptiveOptions | None = None
    """Learn from the text that is scored, too: a cache of its n-grams over the counted model. Left out: not at all."""

    def __post_init__(self) -> None:
        if self.order < 1:
            raise UserError(f"order {self.order} counts nothing; try 3.")
        if self.k <= 0:
            raise UserError(f'k must be positive, not {self.k:g}; smoothing = "mle" adds nothing.')
        if self.cutoffs and (self.cutoffs[0] or list(self.cutoffs) != sorted(self.cutoffs)):
            raise UserError("cutoffs begin with 0, for every token stays, and never fall; try [0, 0, 1].")
        if self.prune < 0:
            raise UserError(f"prune is a share of the perplexity, not {self.prune:g}; try 1e-8.")
        if self.memory is not None and self.memory < SMALLEST_MEMORY:
            raise UserError(f"memory = {self.memory:,} bytes is too little to count in; try {SMALLEST_MEMORY:,}.")
        if len(self.discount_fallback) != 3 or not all(0 <= d <= n for n, d in enumerate(self.discount_fallback, 1)):
            raise UserError("fallback needs three discounts, at most 1, 2 and 3; try [0.5, 1.0, 1.5].")


@dataclass(frozen=True, kw_only=True)
class ArpaConfig:
    order: int
    """Ids in the longest n-gram of the file."""
    unknown: bool = True
    """Whether the file gives the unknown token a probability."""


class Text(Protocol):
    """What an n-gram counts."""

    @property
    def ids(self) -> NDArray[np.integer[Any]]:
        """Documents one after another, each framed <sos> … <eos>."""
        ...


@dataclass
class Contexts(State):
    """What was just read, as rows of the tables."""

    rows: Tensor
    """(B, N - 1): column m - 1 is the row of the m-gram that ends here, or -1 where the tables have none."""


class NGram:
    """An n-gram behind the seam, counted by `fit`; before that, whatever can be predicted is equally probable."""

    context = None

    def __init__(self, config: NGramConfig, vocabulary: Vocabulary):
        self.config = config
        self.vocabulary = vocabulary
        self.predictable = np.ones(vocabulary.size, bool)
        silent = (vocabulary.sos, vocabulary.pad, None if config.unknown else vocabulary.unk)
        self.predictable[[id for id in silent if id is not None]] = False
        self.tables = uniform(self.predictable, config.order)
        self.discounts = np.zeros((config.order, 4))
        """(N, 4): what was taken from n-grams counted 0, 1, 2, or 3 and more times, by order."""
        self.notes: list[str] = []
        """What the user should know about the estimate: sentences."""

    def fit(self, corpus: Text, doing: Doing = unheard) -> None:
        """Counts the text and estimates every probability."""
        doing(f"counting n-grams of up to {self.config.order} tokens")
        scratch = Scratch(self.config.memory)
        counted = count_ngrams(
            corpus.ids,
            self.config.order,
            predictable=self.predictable,
            sos=self.vocabulary.sos,
            running=self.config.running,
            scratch=scratch,
        )
        doing("estimating their probabilities")
        kept = cut_off(counted, self.config.cutoffs) if any(self.config.cutoffs) else None
        found = estimate(
            counted,
            self.config.smoothing,
            predictable=self.predictable,
            eos=self.vocabulary.eos,
            k=self.config.k,
            fallback=self.config.discount_fallback,
            kept=kept,
            scratch=scratch,
        )
        self.discounts, self.notes = found.discounts, found.notes
        self.tables = assemble(counted, found, kept, scratch)
        if self.config.prune:
            self.tables = prune(self.tables, self.config.prune, eos=self.vocabulary.eos)

    @property
    def facts(self) -> dict[str, Any]:
        """What lmplz prints too: how many different n-grams of each length there are, and what is taken from counts of
        1, 2, and 3 or more. <pad>, which no text holds, is not a type."""
        types = [len(level.key) for level in self.tables.levels]
        types[0] -= self.vocabulary.pad is not None
        return {"types": types, "discounts": self.discounts[:, 1:].tolist()}

    def trace(self, context: Sequence[int], id: int) -> list[Step]:
        """Which orders were asked for an id after a context, from the longest to the one that answered."""
        return trace(self.tables, context, id, self.discounts)

    def write_arpa(self, path: Path, tokens: Sequence[str]) -> None:
        """Writes an ARPA file; `tokens` are those of the ids, in order."""
        write_arpa(path, self.tables, arpa_names(tokens, self.vocabulary), self.vocabulary)

    def state_dict(self) -> dict[str, Tensor]:
        return {"discounts": torch.from_numpy(self.discounts), **to_tensors(self.tables, compact=self.config.compact)}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Becomes the model of these tensors, which may be mapped from a file: they are read where they lie."""
        self.discounts = tensors["discounts"].numpy()
        self.tables = from_tensors(tensors, self.config.order, self.vocabulary.size)
        self.notes = []

    def start(self, source: Source, *, capacity: int) -> Contexts:
        return _state(self.tables.nothing(source.rows), source.device)

    def step(self, ids: Tensor, state: Contexts, count: Tensor | None = None) -> tuple[Tensor, Contexts]:
        before = _rows(state)  # (N - 1, B)
        after = self.tables.read(ids.cpu().numpy(), before)  # (N - 1, B, T)
        every = np.concatenate([before[..., None], after], axis=2)  # (N - 1, B, T + 1)
        read = ids.size(1) if count is None else count.cpu().numpy()
        contexts = every[:, np.arange(ids.size(0)), read]  # (N - 1, B)
        return torch.from_numpy(self.tables.distribution(contexts)).to(ids.device), _state(contexts, ids.device)

    def score(self, batch: Batch, state: Contexts | None = None) -> tuple[Tensor, Contexts | None]:
        contexts = self._contexts(batch, state)
        log_probs = self.tables.score(batch.input.cpu().numpy(), batch.target.cpu().numpy(), contexts)
        device = batch.input.device
        return torch.from_numpy(log_probs).to(device), None if state is None else _state(contexts[..., -1], device)

    def __call__(self, batch: Batch) -> Tensor:
        """Log-probabilities, which are their own logits."""
        contexts = self._contexts(batch, None)
        flat = self.tables.distribution(contexts.reshape(len(contexts), batch.input.numel()))  # (B * T, V)
        return torch.from_numpy(flat).view(*batch.input.shape, -1).to(batch.input.device)

    def _contexts(self, batch: Batch, state: Contexts | None) -> Rows:
        """The contexts in which each target is predicted: (N - 1, B, T)."""
        before = self.tables.nothing(batch.rows) if state is None else _rows(state)
        return self.tables.read(batch.input.cpu().numpy(), before)


def ngram(config: NGramConfig, vocabulary: Vocabulary) -> NGram | Adaptive:
    """An n-gram to be counted, adaptive where the configuration says so."""
    model = NGram(config, vocabulary)
    return model if config.adaptive is None else Adaptive(model, config.adaptive, vocabulary)


def arpa(config: ArpaConfig, vocabulary: Vocabulary) -> NGram:
    """An n-gram to be filled from an ARPA file, however its probabilities came about."""
    return NGram(NGramConfig(order=config.order, unknown=config.unknown), vocabulary)


def open_arpa(path: Path) -> tuple[ArpaConfig, NGram, list[str]]:
    """The n-gram of an ARPA file, and its tokens by id, special_tokens first."""
    tables, tokens = read_arpa(path)
    named = {name.strip("<>"): id for id, name in enumerate(SPECIALS)}
    config = ArpaConfig(order=tables.order, unknown=bool(np.isfinite(tables.levels[0].log_prob[named["unk"]])))
    model = arpa(config, Vocabulary(size=len(tokens), **named))
    model.tables = tables
    return config, model, tokens


def _rows(state: Contexts) -> Rows:
    return state.rows.T.cpu().numpy()


def _state(contexts: Rows, device: torch.device) -> Contexts:
    return Contexts(torch.from_numpy(contexts.T.copy()).to(device))
