"""The tokenizer of a run is found where its recipe says, whatever the kind of data."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwright.api import open as open_run
from seqwright.pipeline.recipe import make
from seqwright.pipeline.training import train
from seqwright.text.trainers import TokenizerConfig
from seqwright.text.trainers import train as train_tokenizer


def test_tokenizer_files_resolve_against_the_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe names such a file by the root's own name, so that a run means the same wherever the root lies."""
    monkeypatch.setenv("SEQWRIGHT_DATA", str(tmp_path))
    lines = [f"{n} plus {n}" for n in range(20)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    learned = train_tokenizer(TokenizerConfig(kind="characters"), lines)
    (tmp_path / "tokenizer.json").write_text(learned.json)
    data = {"kind": "pairs", "train": str(tmp_path / "pairs.tsv"), "split": "tail 10%"}
    model = {"kind": "gru", "width": 8}
    table = {"data": data, "model": model, "tokenizer": {"file": str(tmp_path / "tokenizer.json")}}
    wanted = make(table, ["training.steps=1", "training.device=cpu"])
    assert wanted.tokenizer.file == "$SEQWRIGHT_DATA/tokenizer.json"
    train(wanted, tmp_path / "run")
    assert open_run(tmp_path / "run").tokenizer.hash == learned.hash
