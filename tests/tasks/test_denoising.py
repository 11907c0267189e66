"""Denoising: the likelihood of targets, against numbers computed by hand."""

from __future__ import annotations

from math import exp
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.progress import Progress
from seqwright.data.text.corpus import corpus_of
from seqwright.data.text.denoising import DenoisingConfig
from seqwright.data.text.stream import make_stream
from seqwright.tasks.denoising.task import DenoisingCodec, denoising_counts, noised_rows
from seqwright.text.special_tokens import with_special_tokens
from seqwright.text.trainers import TokenizerConfig, train

TEXT = "a b a c\na a b d\n" * 20
SETTINGS = SimpleNamespace(
    data=DenoisingConfig(train="x", noise="spans", length=12),
    evaluation=SimpleNamespace(batch_size=4, seed=5, resamples=0),
    training=SimpleNamespace(batch_size=2, seed=1),
)


class IdsAsNLL(torch.nn.Module):
    """The nll of an id is the id, in nats; 0 in training mode."""

    def score(self, batch: Batch) -> tuple[torch.Tensor, None]:
        return -(batch.target.clamp(min=0) * (0.0 if self.training else 1.0)), None


def test_scores_of_targets() -> None:
    tokenizer = with_special_tokens(train(TokenizerConfig(kind="words"), [TEXT]), SETTINGS.data.special_tokens)
    stream = make_stream(corpus_of(TEXT, "line"), tokenizer)
    feed = noised_rows(stream, tokenizer, SETTINGS, fixed=True)  # type: ignore[arg-type]
    assert (feed.rows, feed.seed, feed.shifts) == (4, 5, (0, 0))
    moving = noised_rows(stream, tokenizer, SETTINGS)  # type: ignore[arg-type]
    assert (moving.rows, moving.seed) == (2, 1)
    assert moving.shifts != (0, 0)
    targets = torch.cat([feed.batch(step).target.flatten() for step in range(feed.steps_per_epoch)])
    targets = targets[targets != IGNORE].double()
    calls: list[tuple[int, int]] = []

    class Calls(Progress):
        def advance(self, done: int, total: int) -> None:
            calls.append((done, total))

    codec = DenoisingCodec(tokenizer=tokenizer)
    model: Any = IdsAsNLL().train()
    found = denoising_counts(model, codec, stream, SETTINGS, progress=Calls())  # type: ignore[arg-type]
    nll = targets.mean().item()
    assert {one.name: one.value for one in found} == pytest.approx({"nll": nll, "perplexity": exp(nll)})
    assert all(one.better == -1 for one in found)
    assert all(f"|tokens:{len(targets)}|spans:0.15-3.0|length:12|seed:5|" in one.signature for one in found)
    assert calls == [(n + 1, feed.steps_per_epoch) for n in range(feed.steps_per_epoch)]
