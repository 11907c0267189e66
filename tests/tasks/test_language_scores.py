"""Signatures of likelihoods state the context that was really used."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from seqwright.core.config import UserError
from seqwright.data.text.corpus import Corpus
from seqwright.data.text.stream import make_stream
from seqwright.metrics.likelihood import EvaluationConfig
from seqwright.tasks.codec import TextCodec
from seqwright.tasks.language import scores as module
from seqwright.tasks.language.scores import evaluate_text
from seqwright.text.trainers import TokenizerConfig, train
from tests.contract.kinds import CONTEXT, small

SPECIALS = ("<unk>", "<pad>", "<sos>", "<eos>")


@pytest.mark.parametrize(
    ("name", "stride", "facts"),
    [
        ("gpt", 5000, f"|context:{CONTEXT}|stride:{CONTEXT}|"),
        ("gpt", 3, f"|context:{CONTEXT}|stride:3|"),
        ("gpt", None, f"|context:{CONTEXT}|stride:{CONTEXT // 2}|"),
        ("lstm", 3, "|state:carried|stride:unused|"),
        ("lstm", None, "|state:carried|tokenizer:"),
    ],
)
def test_the_signature_has_the_effective_stride(name: str, stride: int | None, facts: str) -> None:
    texts = ["abcdefg" * 4]
    tokenizer = train(TokenizerConfig(kind="characters", special_tokens=SPECIALS), texts)
    stream = make_stream(Corpus(documents=texts, kind="file"), tokenizer)
    scores = evaluate_text(
        small(name), TextCodec(tokenizer=tokenizer), stream, EvaluationConfig(stride=stride, resamples=0)
    )
    assert facts in scores["scores"]["nll"]["signature"]


def test_out_of_memory_names_the_option_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    texts = ["abcdefg" * 4]
    tokenizer = train(TokenizerConfig(kind="characters", special_tokens=SPECIALS), texts)
    stream = make_stream(Corpus(documents=texts, kind="file"), tokenizer)
    monkeypatch.setattr(module, "score_text", full)
    with pytest.raises(UserError, match=r"out of memory for scoring a text; lower evaluation\.batch"):
        evaluate_text(small("gpt"), TextCodec(tokenizer=tokenizer), stream, EvaluationConfig())


def test_adapted_scores_stand_beside_static_ones_and_do_not_change_them() -> None:
    texts = ["abcdefg" * 4]
    tokenizer = train(TokenizerConfig(kind="characters", special_tokens=SPECIALS), texts)
    stream, codec = make_stream(Corpus(documents=texts, kind="file"), tokenizer), TextCodec(tokenizer=tokenizer)
    static = EvaluationConfig(resamples=0)
    adapted = replace(static, cache_size=5, cache_theta=1.0, dynamic_rate=0.5)
    model = small("lstm", dtype=torch.float32)  # whose weights dynamic evaluation can change
    plain, both = (evaluate_text(model, codec, stream, config) for config in (static, adapted))
    assert both["scores"] == plain["scores"]
    assert {*both} - {*plain} == {"neural_cache", "dynamic_evaluation"}
    for name in ("neural_cache", "dynamic_evaluation"):
        assert both[name]["nll"] != plain["nll"]
        assert both[name]["perplexity"] == pytest.approx(math.exp(both[name]["nll"]))
    with pytest.raises(UserError, match=r"evaluation\.cache_size is for recurrent"):
        evaluate_text(small("gpt"), codec, stream, adapted)
