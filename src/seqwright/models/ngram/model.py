"""N-gram language model: smoothed counts as a back-off model, behind the autoregressive protocol."""

from __future__ import annotations

import shutil
import tempfile
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
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import CountedModel
from seqwright.core.state import State
from seqwright.models.ngram.adaptive import Adaptive, AdaptiveOptions
from seqwright.models.ngram.arpa_reading import SPECIAL_TOKENS, read_arpa
from seqwright.models.ngram.arpa_writing import arpa_names, write_arpa
from seqwright.models.ngram.counting import Ints, count_ngrams
from seqwright.models.ngram.files import from_tensors, to_tensors
from seqwright.models.ngram.meter import UNSEEN, Meter
from seqwright.models.ngram.pruning import apply_cutoffs, prune
from seqwright.models.ngram.scratch import Scratch
from seqwright.models.ngram.smoothing import Kind, estimate
from seqwright.models.ngram.tables import assemble, uniform
from seqwright.models.ngram.text_scoring import score
from seqwright.models.ngram.trace import Step, trace

MAX_ORDER = 100
"""Each order has tables: a received [model] cannot ask for a billion of them."""
MIN_MEMORY = 2**27
"""Smallest `memory` in bytes; below this, per-block overhead dominates."""
DEFAULT_MEMORY = 2**30
"""Default `memory`, and what counting may take in memory without temporary files."""
BYTES_IN_MEMORY, BYTES_ON_DISK = 26, 36
"""Bytes of counting per token and order, at most: in memory, and in temporary files (measured on
text whose n-grams all differ: 27 on disk for Kneser-Ney)."""


@dataclass(frozen=True, kw_only=True)
class NGramConfig:
    order: int = 3
    """N-gram order N: each token is predicted from the N - 1 tokens before it."""
    smoothing: Kind = "kneser-ney"
    """Smoothing of unseen n-grams: kneser-ney (modified, interpolated), witten-bell, absolute (discounting),
    stupid-backoff (normalized), add-k, or mle (none)."""
    k: float = 1.0
    """Pseudocount of add-k smoothing; 1 is Laplace smoothing."""
    discount_fallback: tuple[float, ...] = (0.5, 1.0, 1.5)
    """Discounts D1, D2 and D3+ for orders whose counts of counts do not determine them."""
    unknown: bool = True
    """Open vocabulary: <unk> can be predicted. If false, it has probability zero."""
    running: bool = False
    """Whether n-grams cross document boundaries instead of restarting at each <sos>."""
    cutoffs: tuple[int, ...] = ()
    """Count cut-offs by order: n-grams of length 1, 2, … with at most this count are dropped. The last number holds for
    all higher orders: [0, 0, 1] drops singletons from trigrams on."""
    prune: float = 0.0
    """Relative-entropy pruning (Stolcke 1998): drop n-grams whose removal raises perplexity by less than this relative
    amount; 1e-8 is mild, 0 prunes nothing."""
    compact: bool = False
    """Compact file format: about half the size, slower to load, without counts."""
    memory: int | None = None
    """Memory limit of counting, in bytes: external merge sort in temporary files (TMPDIR). Default: 1 GiB for text that
    needs more, without temporary files for text that needs less."""
    adaptive: AdaptiveOptions | None = None
    """Adaptive model: an n-gram cache of the text being scored, interpolated with the static model. Default: off."""

    def __post_init__(self) -> None:
        if not 1 <= self.order <= MAX_ORDER:
            raise UserError(f"order must be 1 to {MAX_ORDER}, not {self.order}; try 3.")
        if self.k <= 0:
            raise UserError(f'k must be positive, not {self.k:g}; smoothing = "mle" adds nothing.')
        if self.cutoffs and (self.cutoffs[0] or list(self.cutoffs) != sorted(self.cutoffs)):
            raise UserError("cutoffs must start with 0 (unigrams are never dropped) and not decrease; try [0, 0, 1].")
        if self.prune < 0:
            raise UserError(
                f"prune is a relative increase of perplexity and must not be negative, but is {self.prune:g}; try 1e-8."
            )
        if self.memory is not None and self.memory < MIN_MEMORY:
            raise UserError(f"memory = {self.memory:,} bytes is too little to count in; try {MIN_MEMORY:,}.")
        if len(self.discount_fallback) != 3 or not all(0 <= d <= n for n, d in enumerate(self.discount_fallback, 1)):
            raise UserError("discount_fallback needs three discounts, at most 1, 2 and 3; try [0.5, 1.0, 1.5].")


@dataclass(frozen=True, kw_only=True)
class ArpaConfig:
    order: int
    """N-gram order of the file."""
    unknown: bool = True
    """Open vocabulary: the file has a probability for <unk>."""


class Corpus(Protocol):
    """Training data of an n-gram model."""

    @property
    def ids(self) -> NDArray[np.integer[Any]]:
        """The token ids of all documents, concatenated, each framed <sos> … <eos>."""
        ...


@dataclass
class Contexts(State):
    """Decoding state: the last N - 1 ids of each row, as rows of the tables."""

    rows: Tensor
    """(B, N - 1): column m - 1 is the row of the m-gram that ends here, or -1 where the tables have none."""

    def static(self, steps: int) -> None:
        """The tables are looked up on the host."""


class NGram(CountedModel):
    """An n-gram language model, estimated by `fit`; before that, uniform over the predictable ids."""

    def __init__(self, config: NGramConfig, vocabulary: Vocabulary):
        self.config = config
        self.vocabulary = vocabulary
        self.predictable = np.ones(vocabulary.size, bool)
        unpredictable = (vocabulary.sos, vocabulary.pad, None if config.unknown else vocabulary.unk)
        self.predictable[[id for id in unpredictable if id is not None]] = False
        self.tables = uniform(self.predictable, config.order)
        self.discounts = np.zeros((config.order, 4))
        """(N, 4): discounts of counts of 0, 1, 2 and 3 or more, by order."""
        self.notes: list[str] = []
        """Messages to the user about the estimate."""

    def fit(self, corpus: Corpus, progress: Progress = SILENT) -> None:
        """Counts n-grams and estimates all probabilities and back-off weights."""
        progress.stage(f"counting n-grams of up to {self.config.order} tokens")
        scratch, meter = self._scratch(len(corpus.ids), progress)
        counts = count_ngrams(
            corpus.ids,
            self.config.order,
            predictable=self.predictable,
            sos=self.vocabulary.sos,
            running=self.config.running,
            scratch=scratch,
            meter=meter,
        )
        progress.stage("estimating their probabilities")
        kept = apply_cutoffs(counts, self.config.cutoffs) if any(self.config.cutoffs) else None
        estimates = estimate(
            counts,
            self.config.smoothing,
            predictable=self.predictable,
            eos=self.vocabulary.eos,
            k=self.config.k,
            fallback=self.config.discount_fallback,
            kept=kept,
            scratch=scratch,
            meter=meter,
        )
        self.discounts, self.notes = estimates.discounts, estimates.notes
        self.tables = assemble(counts, estimates, kept, scratch)
        if self.config.prune:
            self.tables = prune(self.tables, self.config.prune, eos=self.vocabulary.eos)

    def _scratch(self, tokens: int, progress: Progress) -> tuple[Scratch, Meter]:
        """Where counting takes place; the disk space of temporary files is noted before it is taken."""
        memory, size = self.config.memory, tokens * self.config.order
        if memory is None and size * BYTES_IN_MEMORY > DEFAULT_MEMORY:
            memory = DEFAULT_MEMORY
        if memory is None:
            return Scratch(), UNSEEN
        folder = tempfile.gettempdir()
        progress.note(
            f"counting {tokens:,} tokens in {memory / 1e9:.1f} GB of memory (model.memory): temporary files take up to"
            f" {size * BYTES_ON_DISK / 1e9:,.1f} GB in {folder} (TMPDIR), which has"
            f" {shutil.disk_usage(folder).free / 1e9:,.1f} GB free."
        )
        return Scratch(memory), Meter(progress, tokens, self.config.order)

    @property
    def facts(self) -> dict[str, Any]:
        """What lmplz prints too: distinct n-grams (types) by order, and discounts of counts of 1, 2 and 3 or more.
        <pad> never occurs in text and is not a type."""
        types = [len(level.key) for level in self.tables.levels]
        types[0] -= self.vocabulary.pad is not None
        return {"types": types, "discounts": self.discounts[:, 1:].tolist()}

    def trace(self, context: Sequence[int], id: int) -> list[Step]:
        """The back-off trace of an id after a context, from the longest order to the one that has the n-gram."""
        return trace(self.tables, context, id, self.discounts)

    def write_arpa(self, path: Path, tokens: Sequence[str]) -> None:
        """Writes an ARPA file; `tokens` are the vocabulary, by id."""
        write_arpa(path, self.tables, arpa_names(tokens, self.vocabulary), self.vocabulary)

    def state_dict(self) -> dict[str, Tensor]:
        return {"discounts": torch.from_numpy(self.discounts), **to_tensors(self.tables, compact=self.config.compact)}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Loads the tables without a copy; the tensors may be memory-mapped."""
        self.discounts = tensors["discounts"].numpy()
        self.tables = from_tensors(tensors, self.config.order, self.vocabulary.size)
        self.notes = []

    def start(self, source: Source, *, capacity: int) -> Contexts:
        return _state(self.tables.empty_contexts(source.rows), source.device)

    def step(
        self, ids: Tensor, state: Contexts, count: Tensor | None = None, *, all_positions: bool = False
    ) -> tuple[Tensor, Contexts]:
        """Log-probabilities (B, V) of the next token after ids (B, T), or (B, T, V) after each, and the state after."""
        before = _rows(state)  # (N - 1, B)
        after = self.tables.advance(ids.cpu().numpy(), before)  # (N - 1, B, T)
        states = np.concatenate([before[..., None], after], axis=2)  # (N - 1, B, T + 1)
        length = ids.size(1) if count is None else count.cpu().numpy()
        contexts = states[:, np.arange(ids.size(0)), length]  # (N - 1, B)
        read = after.reshape(len(after), ids.numel()) if all_positions else contexts
        log_probs = torch.from_numpy(self.tables.distribution(read)).to(ids.device)
        log_probs = log_probs.view(*ids.shape, -1) if all_positions else log_probs
        return log_probs, _state(contexts, ids.device)

    def score(self, batch: Batch, state: Contexts | None = None) -> tuple[Tensor, Contexts | None]:
        before = None if state is None else _rows(state)
        log_probs = score(self.tables, batch.input.cpu().numpy(), batch.target.cpu().numpy(), before)
        device = batch.input.device
        if before is None:
            return torch.from_numpy(log_probs).to(device), None
        # Earlier ids than the last N - 1 are in no context.
        after = self.tables.advance(batch.input[:, -self.config.order :].cpu().numpy(), before)[..., -1]
        return torch.from_numpy(log_probs).to(device), _state(after, device)

    def __call__(self, batch: Batch) -> Tensor:
        """Log-probabilities (B, T, V), which are valid logits: log_softmax leaves them as they are."""
        before = self.tables.empty_contexts(batch.rows)
        contexts = self.tables.advance(batch.input.cpu().numpy(), before)  # (N - 1, B, T)
        flat = self.tables.distribution(contexts.reshape(len(contexts), batch.input.numel()))  # (B * T, V)
        return torch.from_numpy(flat).view(*batch.input.shape, -1).to(batch.input.device)


def ngram(config: NGramConfig, vocabulary: Vocabulary) -> NGram | Adaptive:
    """An unfitted n-gram model, adaptive if configured."""
    model = NGram(config, vocabulary)
    return model if config.adaptive is None else Adaptive(model, config.adaptive, vocabulary)


def arpa(config: ArpaConfig, vocabulary: Vocabulary) -> NGram:
    """An n-gram model to be loaded from an ARPA file, whatever smoothing made it."""
    return NGram(NGramConfig(order=config.order, unknown=config.unknown), vocabulary)


def open_arpa(path: Path, known: tuple[Sequence[str], Vocabulary] | None = None) -> tuple[ArpaConfig, NGram, list[str]]:
    """The config, model and vocabulary (by id, special tokens first) of an ARPA file; `known` is a vocabulary that it
    was written with."""
    if known is None:
        tables, tokens = read_arpa(path)
        vocabulary = Vocabulary(size=len(tokens), **{name.strip("<>"): id for id, name in enumerate(SPECIAL_TOKENS)})
    else:
        vocabulary = known[1]
        tables, tokens = read_arpa(path, arpa_names(*known))
    unknown = vocabulary.unk is not None and bool(np.isfinite(tables.levels[0].log_prob[vocabulary.unk]))
    config = ArpaConfig(order=tables.order, unknown=unknown)
    model = arpa(config, vocabulary)
    model.tables = tables
    return config, model, tokens


def _rows(state: Contexts) -> Ints:
    return state.rows.T.cpu().numpy()


def _state(contexts: Ints, device: torch.device) -> Contexts:
    return Contexts(torch.from_numpy(contexts.T.copy()).to(device))
