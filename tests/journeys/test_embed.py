"""Sentence embeddings through the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seqwright.core.storage import load_tensors
from tests.journeys.conftest import Command


def test_embed_gives_one_vector_per_line(seqwright: Command, run_copy: Path, workdir: Path) -> None:
    (workdir / "lines.txt").write_text("one\n\ntwo two\n")
    rows = seqwright("embed", run_copy, "lines.txt", "--json").lines
    assert [row["line"] for row in rows] == [1, 2, 3]
    expected = np.array([row["vector"] for row in rows])
    assert seqwright("embed", run_copy, "lines.txt", "--out", "a.npz").err == "a.npz is written.\n"
    assert seqwright("embed", run_copy, "--out", "a.safetensors", input=b"one\n\ntwo two\n").status == 0
    assert np.allclose(np.load("a.npz")["vectors"], expected, atol=1e-6)
    assert np.allclose(load_tensors(Path("a.safetensors"))[0]["vectors"].numpy(), expected, atol=1e-6)
    plain = seqwright("embed", run_copy, "lines.txt", "--pooling", "last").out.splitlines()
    assert len(plain) == 3
    assert len(plain[0].split()) == expected.shape[1]
    assert seqwright("embed", run_copy, input=b"").out == ""
    (workdir / "words.jsonl").write_text('{"text": ["one", "two"]}\n')
    assert "words.jsonl, line 1: 'text' is" in seqwright("embed", run_copy, "words.jsonl").err


def test_embed_needs_an_encoder(seqwright: Command, workdir: Path) -> None:
    assert seqwright("train", "--text", "text.txt", "--model", "ngram", "--run", "counted").status == 0
    result = seqwright("embed", "counted", input=b"one\n")
    assert result.status == 2
    assert "model of kind 'ngram', which continues text; try" in result.err
    assert seqwright("embed", "counted", "--out", "a.csv").status == 2
