"""Sentence pairs as batches: encoding, teacher forcing, and bucketing by both lengths under a token budget."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError
from seqwright.data.bucketing import BucketedFeed, Ints, batch_boundaries
from seqwright.data.order import permutation
from seqwright.data.parallel.formats import Pair
from seqwright.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Tokenizers:
    """The tokenizers of both sides; with a joint vocabulary they are the same object."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target


@dataclass(frozen=True, kw_only=True)
class Side:
    """The encoded texts of one side: concatenated ids, each text ended by `<eos>`."""

    ids: Ints
    starts: Ints
    lengths: Ints
    unknown: int

    def padded(self, rows: Ints, pad: int) -> tuple[Ints, NDArray[np.bool_]]:
        """(B, S) ids and padding mask of these texts."""
        inside = np.arange(self.lengths[rows].max())
        mask = inside < self.lengths[rows, None]
        return np.where(mask, self.ids[np.where(mask, self.starts[rows, None] + inside, 0)], pad), mask


@dataclass(frozen=True, kw_only=True)
class EncodedPairs:
    """Encoded pairs: pair n is text n of both sides."""

    source: Side
    target: Side
    tokenizers: Tokenizers
    origin: Ints
    """(pairs,): index of the original pair; one with several targets becomes several."""

    def __len__(self) -> int:
        return len(self.origin)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of the ids: a resumed run must find the same pairs."""
        digest = hashlib.sha256()
        for array in (self.source.ids, self.source.lengths, self.target.ids, self.target.lengths):
            digest.update(array.astype("<u4").tobytes())
        return digest.hexdigest()

    def batch(self, rows: Ints) -> Batch:
        """The batch of these pairs: input `<sos> y₁ y₂ …`, target `y₁ y₂ … <eos>`."""
        ids, mask = self.source.padded(rows, self.tokenizers.source.padding)
        source = Source(mask=torch.from_numpy(mask), ids=torch.from_numpy(ids))
        return teacher_forcing(source, self.target, rows, self.tokenizers.target)


def teacher_forcing(source: Source, side: Side, rows: Ints, tokenizer: Tokenizer) -> Batch:
    """The teacher-forced batch of these targets for a source: the input is the target shifted right behind `<sos>`."""
    target, real = side.padded(rows, tokenizer.padding)
    assert tokenizer.sos is not None
    input = np.roll(target, 1, 1)
    input[:, 0] = tokenizer.sos
    return Batch(
        source=source,
        input=torch.from_numpy(np.where(real, input, tokenizer.padding)),
        target=torch.from_numpy(np.where(real, target, IGNORE)),
    )


def encode_pairs(pairs: Sequence[Pair], tokenizers: Tokenizers) -> EncodedPairs:
    """The encoded pairs, in order."""
    origin = np.array([n for n, pair in enumerate(pairs) for _ in pair.targets], np.int64)
    sources = encode_sources([(pair.sources, pair.tag) for pair in pairs], tokenizers.source)
    repeated = Side(
        ids=sources.ids, starts=sources.starts[origin], lengths=sources.lengths[origin], unknown=sources.unknown
    )
    return EncodedPairs(
        source=repeated,
        target=encode_targets([target for pair in pairs for target in pair.targets], tokenizers.target),
        tokenizers=tokenizers,
        origin=origin,
    )


def encode_sources(sources: Sequence[tuple[tuple[str, ...], str | None]], tokenizer: Tokenizer) -> Side:
    """The encoded sources, each with its tag."""
    return _encode([texts for texts, _ in sources], [tag for _, tag in sources], tokenizer)


def encode_targets(texts: Sequence[str], tokenizer: Tokenizer) -> Side:
    """The encoded targets."""
    return _encode([(text,) for text in texts], [None] * len(texts), tokenizer)


def _encode(groups: Sequence[tuple[str, ...]], tags: Sequence[str | None], tokenizer: Tokenizer) -> Side:
    """Each group of texts as one sequence: its tag, if any, then every text followed by `<eos>`."""
    if tokenizer.sos is None or tokenizer.eos is None:
        raise UserError("sources and targets need <sos> and <eos>; keep both in tokenizer.special_tokens.")
    encoded = tokenizer.encode_batch([text for group in groups for text in group])
    ends = np.cumsum(np.array(encoded.lengths, np.int64))
    ids = np.insert(encoded.ids.astype(np.int64), ends, tokenizer.eos)
    text_lengths = np.array(encoded.lengths, np.int64) + 1
    first = np.cumsum([0, *(len(group) for group in groups)])
    lengths = np.diff(np.concatenate([[0], np.cumsum(text_lengths)])[first])
    if any(tags):
        starts = np.cumsum(lengths) - lengths
        tagged = np.array([tag is not None for tag in tags])
        ids = np.insert(ids, starts[tagged], [_tag_id(tag, tokenizer) for tag in tags if tag is not None])
        lengths = lengths + tagged
    return Side(ids=ids, starts=np.cumsum(lengths) - lengths, lengths=lengths, unknown=encoded.unknown)


def _tag_id(tag: str, tokenizer: Tokenizer) -> int:
    if tag not in tokenizer.special_tokens:
        known = [name for name in tokenizer.special_tokens if name not in ("<unk>", "<pad>", "<sos>", "<eos>")]
        raise UserError(f"the tag {tag} is no special token of this vocabulary; it has {', '.join(known) or 'none'}.")
    return tokenizer.special_tokens[tag]


class Buckets(BucketedFeed):
    """A bucketed feed of pairs by the lengths of both sides; each pair once per epoch."""

    def __init__(self, pairs: EncodedPairs, *, seed: int, tokens: int | None, batch: int, max_length: int):
        lengths = np.maximum(pairs.source.lengths, pairs.target.lengths)
        self.kept = np.flatnonzero(lengths <= max_length)
        self.skipped = len(pairs) - len(self.kept)
        """Number of pairs with a side longer than `max_length`."""
        if not len(self.kept):
            raise UserError(f"every pair has a side of more than {max_length} tokens; raise data.max_length.")
        source, self.target = pairs.source.lengths[self.kept], pairs.target.lengths[self.kept]
        # Sorted by target length, sources ascending and descending in turn: they stay similar where a batch spans two
        # target lengths.
        self.source = np.where(self.target % 2, source, -source)
        order = np.lexsort((self.source, self.target))
        super().__init__(pairs, batch_boundaries(lengths[self.kept][order], tokens, batch), seed=seed)

    @functools.lru_cache(maxsize=1)  # noqa: B019 a feed lives as long as its training
    def _order(self, epoch: int) -> Ints:
        """The pairs by length, shuffled for this epoch among pairs of the same lengths."""
        shuffled = permutation(self.seed, epoch, len(self.kept))
        return self.kept[shuffled[np.lexsort((self.source[shuffled], self.target[shuffled]))]]
