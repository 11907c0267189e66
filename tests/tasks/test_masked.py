"""Masked language models: scores against numbers computed by hand, and texts with masks as ids."""

from __future__ import annotations

from math import exp, log
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError
from seqwright.core.progress import Progress
from seqwright.data.text.corpus import corpus_of
from seqwright.data.text.masked import MASK, MaskedConfig
from seqwright.data.text.stream import make_stream
from seqwright.tasks.masked.task import MaskedCodec, encode_masks, evaluate, masked_counts, masked_rows
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


class Unigram(torch.nn.Module):
    """`a` has probability 1/2, `b` 1/4, all others the same; the order is reversed in training mode."""

    context = 8

    def __init__(self, known: Tokenizer):
        super().__init__()
        probabilities = torch.full((known.size,), 0.25 / (known.size - 2))
        probabilities[known.encode("a b")] = torch.tensor([0.5, 0.25])
        self.probabilities = probabilities
        self.head = SimpleNamespace(log_probs=lambda hidden: self._probabilities().log().expand(len(hidden), -1))

    def _probabilities(self) -> torch.Tensor:
        return self.probabilities.flip(0) if self.training else self.probabilities

    def hidden(self, batch: Batch) -> tuple[torch.Tensor, None]:
        assert batch.source.ids is not None
        return torch.zeros(*batch.source.ids.shape, 3), None


def test_examples_show_each_row_with_its_hidden_tokens_and_their_predictions(tokenizer: Tokenizer) -> None:
    stream = make_stream(corpus_of(TEXT, "line"), tokenizer)
    model = Unigram(tokenizer)
    model.head.predict = lambda hidden: model._probabilities().argmax().expand(hidden.shape[:-1])
    codec = MaskedCodec(tokenizer=tokenizer)
    examples = evaluate(model, codec, stream, SETTINGS, quick=False).examples  # type: ignore[arg-type]
    assert examples is not None
    accuracy = examples.metric("accuracy")
    nll = examples.metric("nll")
    assert accuracy is not None
    assert nll is not None
    assert len(examples.inputs) == len(accuracy.rows) > 4  # rows of several batches, in order
    for text, reference, shown, (right, masks), (loss, _) in zip(
        examples.inputs, examples.references, examples.outputs, accuracy.rows, nll.rows, strict=True
    ):
        output, _, rest = shown.partition(" (")
        assert rest == f"{loss / max(1, masks):.3f} nats per token)"
        assert text.startswith("<sos>") or text[0] in "abcd<"
        assert len(reference.split()) == len(output.split()) == masks  # "↵" is a token of its own
        assert set(output.split()) <= {"a"}
        assert reference.split().count("a") == right
    assert any(MASK in text for text in examples.inputs)


def test_scores_of_predictions_at_masks(tokenizer: Tokenizer) -> None:
    stream = make_stream(corpus_of(TEXT, "line"), tokenizer)
    model = Unigram(tokenizer)
    feed = masked_rows(stream, tokenizer, SETTINGS, length=8, fixed=True)  # type: ignore[arg-type]
    targets = torch.cat([feed.batch(step).target.flatten() for step in range(feed.steps_per_epoch)])
    masked = targets[targets != IGNORE].tolist()
    a, b = tokenizer.encode("a b")
    other = 0.25 / (tokenizer.size - 2)
    nll = -np.mean([log(0.5 if id == a else 0.25 if id == b else other) for id in masked])
    calls: list[tuple[int, int]] = []

    class Calls(Progress):
        def advance(self, done: int, total: int) -> None:
            calls.append((done, total))

    codec = MaskedCodec(tokenizer=tokenizer)
    found = masked_counts(model.train(), codec, stream, SETTINGS, progress=Calls())  # type: ignore[arg-type]
    values = {one.name: one.value for one in found}
    assert values["nll"] == pytest.approx(nll)
    assert values["perplexity"] == pytest.approx(exp(nll))
    assert values["accuracy"] == pytest.approx(100 * masked.count(a) / len(masked))
    assert [one.better for one in found] == [-1, -1, 1]
    assert all(f"|tokens:{len(masked)}|hidden:0.3|seed:5|context:8|" in one.signature for one in found)
    assert calls == [(n + 1, feed.steps_per_epoch) for n in range(feed.steps_per_epoch)]


def test_evaluation_rows_have_fixed_windows_and_masks(tokenizer: Tokenizer) -> None:
    stream = make_stream(corpus_of(TEXT, "line"), tokenizer)
    fixed, moving = (masked_rows(stream, tokenizer, SETTINGS, length=8, fixed=way) for way in (True, False))  # type: ignore[arg-type]
    assert (fixed.rows, fixed.seed, fixed.shifts) == (4, 5, (0, 0))
    assert (moving.rows, moving.seed) == (2, 1)
    assert moving.shifts != (0, 0)
    masked_rows(stream, tokenizer, SETTINGS, length=2)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no room beside <sos>"):
        masked_rows(stream, tokenizer, SETTINGS, length=1)  # type: ignore[arg-type]


def test_masks_are_encoded_where_they_are_written(tokenizer: Tokenizer) -> None:
    a, b, mask = (*tokenizer.encode("a b"), tokenizer.mask)
    sos, eos = tokenizer.sos, tokenizer.eos
    assert encode_masks("a <mask> b", tokenizer) == [sos, a, mask, b, eos]
    assert encode_masks("<mask> b <mask>", tokenizer) == [sos, mask, b, mask, eos]
    with pytest.raises(UserError, match="nothing to fill"):
        encode_masks("a b", tokenizer)
