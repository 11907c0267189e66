"""The tokenizer of a run is found where its recipe says, whatever the kind of data."""

from __future__ import annotations

from pathlib import Path

import pytest

import seqwright as sw
from seqwright.api import open as open_run
from seqwright.core.config import UserError
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


def test_documents_follow_the_kind_of_a_tokenizer_file(tmp_path: Path) -> None:
    """A tokenizer of words has no line ends, so its documents are lines: of one that a file brings, too."""
    lines = "the cat sat on the mat\nthe dog sat on the log\n" * 20
    (tmp_path / "text.txt").write_text(lines)
    learned = train_tokenizer(TokenizerConfig(kind="words"), [lines])
    (tmp_path / "tokenizer.json").write_text(learned.json)
    common = {"data": {"train": str(tmp_path / "text.txt"), "split": "tail 10%"}, "model": {"kind": "ngram"}}
    sections = {"trained": {"kind": "words"}, "read": {"file": str(tmp_path / "tokenizer.json")}}
    for name, section in sections.items():
        train(make(common | {"tokenizer": section}, []), tmp_path / name)
    runs = [open_run(tmp_path / name) for name in sections]
    assert [run.documents for run in runs] == ["line", "line"]
    assert runs[0].summary["scores"]["nll"] == runs[1].summary["scores"]["nll"]


def test_an_ngram_of_words_is_mixed_with_a_network_of_words(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat\nthe dog sat on the log\n" * 20)
    keys = ["tokenizer.kind=words", "model.width=8", "training.steps=1", "evaluation.resamples=0"]
    network = sw.train(text=tmp_path / "text.txt", model="lstm", set=keys, run=tmp_path / "lstm")
    mixed = sw.mix([network.path], run=tmp_path / "mixed", ngram=True)
    assert [mixed.documents, open_run(tmp_path / "mixed-ngram").documents] == ["line", "line"]
    with pytest.raises(UserError, match="mixed-ngram is a run already, and the last one named is where"):
        sw.mix(network.path, tmp_path / "mixed-ngram")
    (tmp_path / "text.txt").rename(tmp_path / "moved.txt")
    with pytest.raises(UserError, match=r"was moved: .* --run \S+lstm --set data\.train=NEW/text\.txt`"):
        sw.mix([network.path], run=tmp_path / "again", ngram=True)
    with pytest.raises(UserError, match="lstm tunes the weights on its own data by default; name others"):
        sw.mix([network.path, network.path], run=tmp_path / "again")
