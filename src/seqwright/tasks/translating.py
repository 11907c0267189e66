"""Text in, text out: lines translated many at a time, in order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from seqwright.batch import Source
from seqwright.config import UserError
from seqwright.data.buckets import Side, Tokenizers, encode_sources
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.risk import least_risk
from seqwright.decoding.search import search
from seqwright.decoding.watch import Flag, watch
from seqwright.interface import Autoregressive
from seqwright.layers.prepacked import prepacked
from seqwright.metrics.score import Floats
from seqwright.metrics.utility import pairwise_bleu, pairwise_chrf, pairwise_f1
from seqwright.text.tokenizer import Tokenizer

AT_ONCE = 512
"""Lines read ahead, so that lines of like length can share a batch."""
BUDGET = 2048
"""Source tokens of a batch, padding included."""
UTILITIES: dict[str, Callable[[Sequence[str]], Floats]] = {
    "chrf": pairwise_chrf,
    "bleu": pairwise_bleu,
    "f1": pairwise_f1,
}


@dataclass(frozen=True, kw_only=True)
class TranslationOptions(SearchOptions):
    length: int = 10
    """The most tokens said, the end included, beyond those that length_ratio allows."""
    length_ratio: float = 2.0
    """Tokens allowed for each token of the source: outputs are cut off at T = length_ratio · |x| + length."""
    risk: Literal["none", "chrf", "bleu", "f1"] = "none"
    """Of the `best` outputs found or drawn, choose the one most like the others by this measure (minimum Bayes risk,
    Kumar & Byrne 2004), rather than the first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.risk != "none" and self.best < 2:
            raise UserError("minimum Bayes risk chooses among several outputs; raise best.")


@dataclass(frozen=True, kw_only=True)
class Translation:
    source: tuple[str, ...]
    text: str
    log_prob: float
    """Of the ids said and their end, natural log."""
    tokens: int
    """How many were said."""
    reason: str
    """"end" where the model said so, "length" where it was cut off, "empty" where the source says nothing."""
    others: tuple[str, ...] = ()
    """The rest of the n best, best first."""
    unread: int = 0
    """Source tokens that did not fit and were cut off, as asked."""

    @property
    def warnings(self) -> list[Flag]:
        """Why it should not be trusted."""
        if self.reason == "empty":
            return []
        return watch(
            self.text, source=" ".join(self.source), reason=self.reason, log_prob=self.log_prob, tokens=self.tokens
        )


Given = tuple[tuple[str, ...], str | None]
"""Sources and their tag."""


@torch.inference_mode()
def translate(
    model: Autoregressive,
    tokenizers: Tokenizers,
    given: Iterable[Given],
    options: TranslationOptions,
    *,
    truncate: bool = False,
    at_once: int = AT_ONCE,
    device: torch.device | str = "cpu",
) -> Iterator[Translation]:
    """Each source's translation, in order; what is empty stays empty."""
    if isinstance(model, torch.nn.Module):
        model.eval()
    model = prepacked(model)
    lines = iter(given)
    done = 0
    while chunk := list(itertools.islice(lines, at_once)):
        side = encode_sources(chunk, tokenizers.source)
        cut = _cut(side, model.context, truncate, tokenizers.source.eos, first=done + 1)
        found: list[Translation | None] = [None] * len(chunk)
        real = [n for n, (sources, _) in enumerate(chunk) if any(text.strip() for text in sources)]
        for rows in _groups(real, cut.lengths):
            outputs = search_rows(model, tokenizers, cut, rows, options, device)
            for n, several in zip(rows, outputs, strict=True):
                found[n] = _chosen(chunk[n][0], several, tokenizers.target, options, side.lengths[n] - cut.lengths[n])
        for (sources, _), translation in zip(chunk, found, strict=True):
            yield translation or Translation(source=sources, text="", log_prob=0.0, tokens=0, reason="empty")
        done += len(chunk)


def search_rows(
    model: Autoregressive,
    tokenizers: Tokenizers,
    side: Side,
    rows: Sequence[int],
    options: SearchOptions,
    device: torch.device | str,
) -> list[list[Hypothesis]]:
    """The best outputs of these sources together."""
    ids, mask = side.padded(np.array(rows), 0)
    source = Source(mask=torch.from_numpy(mask), ids=torch.from_numpy(ids)).to(device)
    target = tokenizers.target
    return search(model, source, options, sos=target.sos, eos=target.eos, banned=banned(target))


def banned(target: Tokenizer) -> list[int]:
    """Reserved ids that no output holds."""
    return [id for name, id in target.specials.items() if name != "<eos>"]


def _chosen(
    source: tuple[str, ...], several: list[Hypothesis], target: Tokenizer, options: TranslationOptions, unread: int
) -> Translation:
    texts = [target.decode(hypothesis.ids) for hypothesis in several]
    best = 0
    if options.risk != "none":
        # Samples come as often as they are probable; an n-best list is weighed by its log-probabilities.
        weights = None if options.kind == "sample" else [hypothesis.log_prob for hypothesis in several]
        best, _ = least_risk(UTILITIES[options.risk](texts), weights)
    return Translation(
        source=source,
        text=texts[best],
        log_prob=several[best].log_prob,
        tokens=len(several[best].ids),
        reason=several[best].reason,
        others=tuple(texts[:best] + texts[best + 1 :]),
        unread=int(unread),
    )


def _cut(side: Side, context: int | None, truncate: bool, eos: int | None, *, first: int) -> Side:
    """Sources that fit the model: the same, or, if asked for, their beginnings with the end put back."""
    if context is None or side.lengths.max() <= context:
        return side
    if not truncate:
        n = int(np.argmax(side.lengths > context))
        raise UserError(
            f"source {first + n:,} has {side.lengths[n]:,} tokens, but the model can tell {context} apart;"
            " split it, or cut such sources off with --truncate."
        )
    lengths = np.minimum(side.lengths, context)
    ids = side.ids.copy()
    assert eos is not None
    ids[side.starts + lengths - 1] = eos
    return replace(side, ids=ids, lengths=lengths)


def _groups(rows: Sequence[int], lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[list[int]]:
    """Neighbours in length whose padded batch stays within the budget."""
    group: list[int] = []
    for n in sorted(rows, key=lambda n: int(lengths[n])):
        if group and (len(group) + 1) * lengths[n] > BUDGET:
            yield group
            group = []
        group.append(n)
    if group:
        yield group
