"""The likelihood of what is to be said of damaged texts, by hand."""

from __future__ import annotations

from math import exp
from types import SimpleNamespace

import pytest
import torch

from seqwright.core.batch import IGNORE, Batch
from seqwright.data.text.corpus import corpus_of
from seqwright.data.text.denoising import DenoisingConfig
from seqwright.data.text.stream import make_stream
from seqwright.tasks.denoising.task import restoring_counts, rows_of
from seqwright.text.special_tokens import with_special_tokens
from seqwright.text.trainers import TokenizerConfig, train

TEXT = "a b a c\na a b d\n" * 20
SETTINGS = SimpleNamespace(
    data=DenoisingConfig(train="x", noise="spans", length=12),
    evaluation=SimpleNamespace(batch_size=4, seed=5, resamples=0),
    training=SimpleNamespace(batch_size=2, seed=1),
)


class Sure(torch.nn.Module):
    """The surprise of an id is the id, in nats; nothing surprises while it learns."""

    def score(self, batch: Batch) -> tuple[torch.Tensor, None]:
        return -(batch.target.clamp(min=0) * (0.0 if self.training else 1.0)), None


def test_scores_of_what_is_said() -> None:
    tokenizer = with_special_tokens(train(TokenizerConfig(kind="words"), [TEXT]), SETTINGS.data.special_tokens)
    stream = make_stream(corpus_of(TEXT, "line"), tokenizer)
    feed = rows_of(stream, tokenizer, SETTINGS, fixed=True)  # type: ignore[arg-type]
    assert (feed.rows, feed.seed, feed.shifts) == (4, 5, (0, 0))
    moving = rows_of(stream, tokenizer, SETTINGS)  # type: ignore[arg-type]
    assert (moving.rows, moving.seed) == (2, 1)
    assert moving.shifts != (0, 0)
    said = torch.cat([feed.batch(step).target.flatten() for step in range(feed.steps_per_epoch)])
    said = said[said != IGNORE].double()
    reports: list[tuple[int, int]] = []
    found = restoring_counts(
        Sure().train(),
        tokenizer,
        stream,
        SETTINGS,  # type: ignore[arg-type]
        "cpu",
        lambda done, of: reports.append((done, of)),
    )
    nll = said.mean().item()
    assert {one.name: one.value for one in found} == pytest.approx({"nll": nll, "perplexity": exp(nll)})
    assert all(one.better == -1 for one in found)
    assert all(f"|tokens:{len(said)}|spans:0.15-3.0|length:12|seed:5|" in one.signature for one in found)
    assert reports == [(n + 1, feed.steps_per_epoch) for n in range(feed.steps_per_epoch)]
