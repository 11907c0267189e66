"""Worked example 10: twenty tagged words on which the best possible accuracy is 18 of 20."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from seqwright import build
from seqwright.core.batch import EncoderSizes, OutputSpec
from seqwright.data.tagged.sentences import encode_sentences
from seqwright.layers.pooling import FirstSubword
from seqwright.models.encoder_model import Tokens
from seqwright.models.encoders.mlp import IdentityEncoder
from seqwright.models.tagger import Tagger, TagHead
from seqwright.text.trainers import TokenizerConfig, train
from tests.contract.taggers import NAMES, worked

SENTENCES = worked()
TOKENIZER = train(TokenizerConfig(kind="words"), [" ".join(sentence.words) for sentence in SENTENCES])
ENCODED = encode_sentences(SENTENCES, TOKENIZER, {name: n for n, name in enumerate(NAMES)})
BATCH = ENCODED.batch(np.arange(4))
SIZES = EncoderSizes(answers=OutputSpec(kind="tags", count=len(NAMES)), vocabulary=TOKENIZER.vocabulary)


def right(tags: torch.Tensor) -> int:
    return int((tags == BATCH.target).sum())


def trained(model: Any, steps: int = 150) -> float:
    """The mean loss per word after training."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(steps):
        total, count = model.head.loss(model.hidden(BATCH)[0], BATCH.target)
        optimizer.zero_grad()
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        total, count = model.head.loss(model.hidden(BATCH)[0], BATCH.target)
    return float(total / count)


def tagger(**options: Any) -> Any:
    torch.manual_seed(1)
    table = {"kind": "lstm", "width": 16, "dropout": 0.0, "char_features": 0, **options}
    return build.model(build.model_config(table, task="tagged"), SIZES, task="tagged")


def test_most_frequent_tag_baseline() -> None:
    pairs = [pair for sentence in SENTENCES for pair in zip(sentence.words, sentence.tags, strict=True)]
    assert Counter(tag for _, tag in pairs) == {"n": 10, "v": 5, "p": 3, "d": 2}
    by_word: dict[str, Counter[str]] = {}
    for word, tag in pairs:
        by_word.setdefault(word, Counter())[tag] += 1
    assert sum(counts.most_common(1)[0][1] for counts in by_word.values()) == 18


def test_perceptron_reaches_the_best_accuracy() -> None:
    model = build.model(build.model_config({"kind": "perceptron"}, task="tagged"), SIZES, task="tagged")
    model.fit(ENCODED)
    assert right(model.tag(BATCH.source)[0]) == 18


def test_softmax_tagger_reaches_its_loss_bound() -> None:
    """Two ambiguous words in each of two sentences cost log 2 each."""
    model = tagger()
    floor = 4 * math.log(2) / 20
    assert floor == pytest.approx(0.1386, abs=5e-5)
    assert floor <= trained(model) < floor + 2e-3
    assert right(model.tag(BATCH.source)[0]) == 18


def test_crf_tagger_decides_once_per_sentence() -> None:
    """Its bound is half of that: with joint tags the second ambiguous tag follows from the first."""
    model = tagger(crf=True)
    floor = 2 * math.log(2) / 20
    assert floor <= trained(model) < floor + 5e-3
    tags = model.tag(BATCH.source)[0]
    assert right(tags) == 18
    assert [NAMES[tag] for tag in tags[0, 1:3]] in (["v", "p"], ["n", "v"])  # one analysis, not half of each


def test_tagger_without_context_has_a_higher_loss_bound() -> None:
    torch.manual_seed(1)
    alone = Tagger(
        Tokens(TOKENIZER.size, 8), IdentityEncoder(8, 99), FirstSubword(8), torch.nn.Identity(), TagHead(8, len(NAMES))
    )
    flies, like = 3 * -(math.log(1 / 3) / 3 + 2 * math.log(2 / 3) / 3), 2 * math.log(2)
    assert (flies + like) / 20 == pytest.approx(0.1648, abs=5e-5)
    assert (flies + like) / 20 <= trained(alone) < (flies + like) / 20 + 2e-3
