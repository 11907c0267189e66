"""From lines to vectors, through the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seqwright.core.storage import load_tensors
from tests.journeys.conftest import Command


def test_one_vector_a_line(seqwright: Command, copy: Path, here: Path) -> None:
    (here / "lines.txt").write_text("one\n\ntwo two\n")
    rows = seqwright("embed", copy, "lines.txt", "--json").lines
    assert [row["line"] for row in rows] == [1, 2, 3]
    expected = np.array([row["vector"] for row in rows])
    assert seqwright("embed", copy, "lines.txt", "--out", "a.npz").status == 0
    assert seqwright("embed", copy, "--out", "a.safetensors", input=b"one\n\ntwo two\n").status == 0
    assert np.allclose(np.load("a.npz")["vectors"], expected, atol=1e-6)
    assert np.allclose(load_tensors(Path("a.safetensors"))[0]["vectors"].numpy(), expected, atol=1e-6)
    plain = seqwright("embed", copy, "lines.txt", "--pooling", "last").out.splitlines()
    assert len(plain) == 3
    assert len(plain[0].split()) == expected.shape[1]
    assert seqwright("embed", copy, input=b"").out == ""


def test_what_has_no_vectors_says_so(seqwright: Command, here: Path) -> None:
    assert seqwright("train", "--text", "text.txt", "--model", "ngram", "--run", "counted").status == 0
    said = seqwright("embed", "counted", input=b"one\n")
    assert said.status == 2
    assert "'ngram' model, which continues text; try" in said.err
    assert seqwright("embed", "counted", "--out", "a.csv").status == 2
