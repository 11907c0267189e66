"""Pairs as batches: neighbors in length share one, so that little is padding, under a budget of tokens."""

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
from seqwright.data.bucketing import Ints, Planned, cuts
from seqwright.data.order import permutation
from seqwright.data.parallel.formats import Pair
from seqwright.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Tokenizers:
    """Of both sides; with a joint vocabulary they are one and the same."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target


@dataclass(frozen=True, kw_only=True)
class Side:
    """Many texts as ids, each ended by `<eos>`, one after the other."""

    ids: Ints
    starts: Ints
    lengths: Ints
    unknown: int

    def padded(self, rows: Ints, pad: int) -> tuple[Ints, NDArray[np.bool_]]:
        """(B, S) ids and mask of these texts."""
        inside = np.arange(self.lengths[rows].max())
        mask = inside < self.lengths[rows, None]
        return np.where(mask, self.ids[np.where(mask, self.starts[rows, None] + inside, 0)], pad), mask


@dataclass(frozen=True, kw_only=True)
class EncodedPairs:
    """Pair n is text n of both sides."""

    source: Side
    target: Side
    tokenizers: Tokenizers
    origin: Ints
    """Which of the given pairs each came from: one with several targets makes several."""

    def __len__(self) -> int:
        return len(self.origin)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of the ids: a resumed run must find the pairs it left."""
        whole = hashlib.sha256()
        for part in (self.source.ids, self.source.lengths, self.target.ids, self.target.lengths):
            whole.update(part.astype("<u4").tobytes())
        return whole.hexdigest()

    def batch(self, rows: Ints) -> Batch:
        """These pairs: `<sos> y₁ y₂ …` is read, `y₁ y₂ … <eos>` predicted."""
        given, mask = self.source.padded(rows, self.tokenizers.source.padding)
        source = Source(mask=torch.from_numpy(mask), ids=torch.from_numpy(given))
        return forced(source, self.target, rows, self.tokenizers.target)


def forced(source: Source, side: Side, rows: Ints, tokenizer: Tokenizer) -> Batch:
    """Teacher forcing of these targets, each after its source."""
    said, real = side.padded(rows, tokenizer.padding)
    assert tokenizer.sos is not None
    input = np.roll(said, 1, 1)
    input[:, 0] = tokenizer.sos
    return Batch(
        source=source,
        input=torch.from_numpy(np.where(real, input, tokenizer.padding)),
        target=torch.from_numpy(np.where(real, said, IGNORE)),
    )


def encode_pairs(pairs: Sequence[Pair], tokenizers: Tokenizers) -> EncodedPairs:
    """Ids of every pair, in order."""
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


def encode_sources(given: Sequence[tuple[tuple[str, ...], str | None]], tokenizer: Tokenizer) -> Side:
    """Sources with their tags as ids."""
    return _ended([sources for sources, _ in given], [tag for _, tag in given], tokenizer)


def encode_targets(texts: Sequence[str], tokenizer: Tokenizer) -> Side:
    """Targets as ids."""
    return _ended([(text,) for text in texts], [None] * len(texts), tokenizer)


def _ended(groups: Sequence[tuple[str, ...]], tags: Sequence[str | None], tokenizer: Tokenizer) -> Side:
    """Each group of texts as one: a tag if there is one, then every text ended by `<eos>`."""
    if tokenizer.sos is None or tokenizer.eos is None:
        raise UserError("sources and targets are framed by <sos> and <eos>; keep both in tokenizer.special_tokens.")
    encoded = tokenizer.encode_batch([text for group in groups for text in group])
    ends = np.cumsum(np.array(encoded.lengths, np.int64))
    ids = np.insert(encoded.ids.astype(np.int64), ends, tokenizer.eos)
    own = np.array(encoded.lengths, np.int64) + 1
    first = np.cumsum([0, *(len(group) for group in groups)])
    lengths = np.diff(np.concatenate([[0], np.cumsum(own)])[first])
    if any(tags):
        starts = np.cumsum(lengths) - lengths
        tagged = np.array([tag is not None for tag in tags])
        ids = np.insert(ids, starts[tagged], [_tag(tag, tokenizer) for tag in tags if tag is not None])
        lengths = lengths + tagged
    return Side(ids=ids, starts=np.cumsum(lengths) - lengths, lengths=lengths, unknown=encoded.unknown)


def _tag(tag: str, tokenizer: Tokenizer) -> int:
    if tag not in tokenizer.special_tokens:
        known = [name for name in tokenizer.special_tokens if name not in ("<unk>", "<pad>", "<sos>", "<eos>")]
        raise UserError(f"the tag {tag} is not reserved in this vocabulary; it knows {', '.join(known) or 'none'}.")
    return tokenizer.special_tokens[tag]


class Buckets(Planned):
    """Pairs by the lengths of both sides, every one exactly once an epoch."""

    def __init__(self, pairs: EncodedPairs, *, seed: int, tokens: int | None, batch: int, longest: int):
        lengths = np.maximum(pairs.source.lengths, pairs.target.lengths)
        self.kept = np.flatnonzero(lengths <= longest)
        self.left_out = len(pairs) - len(self.kept)
        """Pairs with a side longer than `longest`."""
        if not len(self.kept):
            raise UserError(f"every pair has a side of more than {longest} tokens; raise data.max_length.")
        source, self.target = pairs.source.lengths[self.kept], pairs.target.lengths[self.kept]
        # Sources rise and fall in turn, so that they are alike too where one target length ends and the next begins.
        self.source = np.where(self.target % 2, source, -source)
        order = np.lexsort((self.source, self.target))
        super().__init__(pairs, cuts(lengths[self.kept][order], tokens, batch), seed=seed)

    @functools.lru_cache(maxsize=1)  # noqa: B019 a feed lives as long as its training
    def _order(self, epoch: int) -> Ints:
        """The pairs by length, those of the same lengths as this epoch shuffles them."""
        shuffled = permutation(self.seed, epoch, len(self.kept))
        return self.kept[shuffled[np.lexsort((self.source[shuffled], self.target[shuffled]))]]
