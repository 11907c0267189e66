"""Signatures: they say how a score was really taken."""

from __future__ import annotations

import pytest
import torch

from seqwright.core.config import UserError
from seqwright.data.text.corpus import Corpus
from seqwright.data.text.stream import make_stream
from seqwright.metrics.likelihood import EvaluationConfig
from seqwright.tasks.language import scores as evaluate
from seqwright.tasks.language.scores import evaluate_text
from seqwright.text.trainers import TokenizerConfig, train
from tests.contract.kinds import CONTEXT, small

SPECIALS = ("<unk>", "<pad>", "<sos>", "<eos>")


@pytest.mark.parametrize(
    ("name", "stride", "said"),
    [
        ("gpt", 5000, f"|context:{CONTEXT}|stride:{CONTEXT}|"),
        ("gpt", 3, f"|context:{CONTEXT}|stride:3|"),
        ("gpt", None, f"|context:{CONTEXT}|stride:{CONTEXT // 2}|"),
        ("lstm", 3, "|state:carried|stride:unused|"),
        ("lstm", None, "|state:carried|tokenizer:"),
    ],
)
def test_the_stride_that_is_said_is_the_one_that_was_taken(name: str, stride: int | None, said: str) -> None:
    texts = ["abcdefg" * 4]
    tokenizer = train(TokenizerConfig(kind="characters", special_tokens=SPECIALS), texts)
    stream = make_stream(Corpus(documents=texts, kind="file"), tokenizer)
    scores = evaluate_text(small(name), tokenizer, stream, EvaluationConfig(stride=stride, resamples=0))
    assert said in scores["scores"]["nll"]["signature"]


def test_a_text_that_does_not_fit_the_memory_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    texts = ["abcdefg" * 4]
    tokenizer = train(TokenizerConfig(kind="characters", special_tokens=SPECIALS), texts)
    stream = make_stream(Corpus(documents=texts, kind="file"), tokenizer)
    monkeypatch.setattr(evaluate, "score_text", full)
    with pytest.raises(UserError, match=r"out of memory for scoring a text; lower evaluation\.batch"):
        evaluate_text(small("gpt"), tokenizer, stream, EvaluationConfig())
