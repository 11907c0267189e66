"""Guesses at hidden tokens: their scores by hand, and texts with blanks as ids."""

from __future__ import annotations

from math import exp, log
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError
from seqwright.data.text.corpus import corpus_of
from seqwright.data.text.masked import MASK, MaskedConfig
from seqwright.data.text.stream import make_stream
from seqwright.tasks.masked.task import blanked, masked_counts, rows_of
from seqwright.text.special_tokens import with_special_tokens
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

TEXT = "a b a c\na a b d\n" * 30
SETTINGS = SimpleNamespace(
    data=MaskedConfig(train="x", mask_rate=0.3),
    evaluation=SimpleNamespace(batch_size=4, seed=5, resamples=0),
    training=SimpleNamespace(batch_size=2, seed=1),
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return with_special_tokens(train(TokenizerConfig(kind="words"), [TEXT]), [MASK])


class Sure(torch.nn.Module):
    """Whatever it reads, `a` with one half, `b` with a quarter, all others alike; otherwise while it learns."""

    context = 8

    def __init__(self, known: Tokenizer):
        super().__init__()
        shares = torch.full((known.size,), 0.25 / (known.size - 2))
        shares[known.encode("a b")] = torch.tensor([0.5, 0.25])
        self.shares = shares
        self.head = SimpleNamespace(log_probs=lambda hidden: self._shares().log().expand(len(hidden), -1))

    def _shares(self) -> torch.Tensor:
        return self.shares.flip(0) if self.training else self.shares

    def hidden(self, batch: Batch) -> tuple[torch.Tensor, None]:
        assert batch.source.ids is not None
        return torch.zeros(*batch.source.ids.shape, 3), None


def test_scores_of_guesses(tokenizer: Tokenizer) -> None:
    stream = make_stream(corpus_of(TEXT, "line"), tokenizer)
    model = Sure(tokenizer)
    feed = rows_of(stream, tokenizer, SETTINGS, length=8, fixed=True)  # type: ignore[arg-type]
    targets = torch.cat([feed.batch(step).target.flatten() for step in range(feed.steps_per_epoch)])
    wanted = targets[targets != IGNORE].tolist()
    a, b = tokenizer.encode("a b")
    other = 0.25 / (tokenizer.size - 2)
    nll = -np.mean([log(0.5 if id == a else 0.25 if id == b else other) for id in wanted])
    reports: list[tuple[int, int]] = []
    found = masked_counts(
        model.train(),
        tokenizer,
        stream,
        SETTINGS,
        "cpu",
        lambda done, of: reports.append((done, of)),  # type: ignore[arg-type]
    )
    values = {one.name: one.value for one in found}
    assert values["nll"] == pytest.approx(nll)
    assert values["perplexity"] == pytest.approx(exp(nll))
    assert values["accuracy"] == pytest.approx(100 * wanted.count(a) / len(wanted))
    assert [one.better for one in found] == [-1, -1, 1]
    assert all(f"|tokens:{len(wanted)}|hidden:0.3|seed:5|context:8|" in one.signature for one in found)
    assert reports == [(n + 1, feed.steps_per_epoch) for n in range(feed.steps_per_epoch)]


def test_what_is_measured_is_cut_and_hidden_alike(tokenizer: Tokenizer) -> None:
    stream = make_stream(corpus_of(TEXT, "line"), tokenizer)
    fixed, moving = (rows_of(stream, tokenizer, SETTINGS, length=8, fixed=way) for way in (True, False))  # type: ignore[arg-type]
    assert (fixed.rows, fixed.seed, fixed.shifts) == (4, 5, (0, 0))
    assert (moving.rows, moving.seed) == (2, 1)
    assert moving.shifts != (0, 0)
    rows_of(stream, tokenizer, SETTINGS, length=2)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no room beside <sos>"):
        rows_of(stream, tokenizer, SETTINGS, length=1)  # type: ignore[arg-type]


def test_blanks_stand_where_they_are_written(tokenizer: Tokenizer) -> None:
    a, b, mask = (*tokenizer.encode("a b"), tokenizer.mask)
    sos, eos = tokenizer.sos, tokenizer.eos
    assert blanked("a <mask> b", tokenizer) == [sos, a, mask, b, eos]
    assert blanked("<mask> b <mask>", tokenizer) == [sos, mask, b, mask, eos]
    with pytest.raises(UserError, match="nothing to fill"):
        blanked("a b", tokenizer)
