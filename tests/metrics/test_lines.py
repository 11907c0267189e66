"""Batched line scores equal scores of lines alone, whatever their lengths."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqwright.metrics import lines as lines_module
from seqwright.metrics.likelihood import score_text
from seqwright.metrics.lines import score_lines
from tests.contract.kinds import CONTEXT, VOCABULARY, small

LINES = ["4567", "", "9", "456789" * 5, "4" * CONTEXT, "76"]


def encode(texts: Iterable[str]) -> SimpleNamespace:
    """A digit is its own id."""
    lines = list(texts)
    return SimpleNamespace(ids=np.array([int(d) for d in "".join(lines)], np.int64), lengths=[*map(len, lines)])


@pytest.mark.parametrize("name", ["gpt", "lstm", "feedforward"])
@pytest.mark.parametrize("read_ahead", [1, 4, 512])
def test_batched_lines_equal_lines_alone(name: str, read_ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "READ_AHEAD", read_ahead)
    model, sos, eos = small(name), VOCABULARY.sos, VOCABULARY.eos
    scored = list(score_lines(model, LINES, encode, sos=sos, eos=eos))
    assert [line.text for line in scored] == LINES
    for line in scored:
        alone = score_text(model, torch.tensor([sos, *map(int, line.text), eos]), sos=sos)
        np.testing.assert_allclose(line.surprisals, -alone.log_probs, atol=1e-9)


def test_long_line_is_scored_in_chunks_with_carried_state(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small("lstm")
    (whole,) = score_lines(model, ["456789" * 5], encode, sos=2, eos=3)
    widths: list[int] = []
    score = model.score
    monkeypatch.setattr("seqwright.metrics.likelihood.CHUNK", 7)
    monkeypatch.setattr(lines_module, "CHUNK", 7)
    monkeypatch.setattr(
        model, "score", lambda batch, *state: widths.append(batch.input.size(1)) or score(batch, *state)
    )
    (chunked,) = score_lines(model, ["456789" * 5], encode, sos=2, eos=3)
    np.testing.assert_allclose(chunked.surprisals, whole.surprisals, atol=1e-9)
    assert max(widths) == 7
