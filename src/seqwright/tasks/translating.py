"""Text in, text out: lines translated many at a time, in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from seqwright.batch import Source
from seqwright.config import UserError
from seqwright.data.buckets import Side, Tokenizers, encode_sources
from seqwright.decoding.generate import generate
from seqwright.decoding.sampling import SamplingOptions
from seqwright.interface import Autoregressive

AT_ONCE = 512
"""Lines read ahead, so that lines of like length can share a batch."""
BUDGET = 2048
"""Source tokens of a batch, padding included."""


@dataclass(frozen=True, kw_only=True)
class Translation:
    source: tuple[str, ...]
    text: str
    log_prob: float
    """Of the ids said and their end, natural log."""
    reason: str
    """"end" where the model said so, "length" where it was cut off, "empty" where the source says nothing."""
    unread: int = 0
    """Source tokens that did not fit and were cut off, as asked."""


Given = tuple[tuple[str, ...], str | None]
"""Sources and their tag."""


@torch.inference_mode()
def translate(
    model: Autoregressive,
    tokenizers: Tokenizers,
    given: Iterable[Given],
    options: SamplingOptions,
    *,
    truncate: bool = False,
    at_once: int = AT_ONCE,
    device: torch.device | str = "cpu",
) -> Iterator[Translation]:
    """Each source's translation, in order; what is empty stays empty."""
    if isinstance(model, torch.nn.Module):
        model.eval()
    lines = iter(given)
    done = 0
    while chunk := list(itertools.islice(lines, at_once)):
        side = encode_sources(chunk, tokenizers.source)
        cut = _cut(side, model.context, truncate, tokenizers.source.eos, first=done + 1)
        found: list[Translation | None] = [None] * len(chunk)
        real = [n for n, (sources, _) in enumerate(chunk) if any(text.strip() for text in sources)]
        for rows in _groups(real, cut.lengths):
            for n, (ids, log_prob, reason) in zip(
                rows, _search(model, tokenizers, cut, rows, options, device), strict=True
            ):
                found[n] = Translation(
                    source=chunk[n][0],
                    text=tokenizers.target.decode(ids),
                    log_prob=log_prob,
                    reason=reason,
                    unread=int(side.lengths[n] - cut.lengths[n]),
                )
        for (sources, _), translation in zip(chunk, found, strict=True):
            yield translation or Translation(source=sources, text="", log_prob=0.0, reason="empty")
        done += len(chunk)


def _search(
    model: Autoregressive,
    tokenizers: Tokenizers,
    side: Side,
    rows: Sequence[int],
    options: SamplingOptions,
    device: torch.device | str,
) -> list[tuple[list[int], float, str]]:
    ids, mask = side.padded(np.array(rows), 0)
    source = Source(mask=torch.from_numpy(mask), ids=torch.from_numpy(ids)).to(device)
    target = tokenizers.target
    most = min(options.tokens, 2 * ids.shape[1] + 10, model.context or options.tokens)
    banned = [id for name, id in target.specials.items() if name != "<eos>"]
    said = generate(
        model,
        [[target.sos]] * len(rows),  # type: ignore[list-item]
        replace(options, tokens=most, temperature=0.0),
        end=target.eos,
        banned=banned,
        source=source,
        device=device,
    )
    return [(row.ids, row.log_prob, row.reason) for row in said]


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
