"""Corpora of a recipe: training, validation, weights, prepared folders, and leak detection."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwright.core.config import UserError
from seqwright.data.text.corpora import read_corpora, to_stream
from seqwright.data.text.corpus import Corpus, TextConfig
from seqwright.data.text.prepare import prepare
from seqwright.text.trainers import TokenizerConfig, train


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("a\nb\n")
    (tmp_path / "b.txt").write_text("c\nd\n")
    return tmp_path


def held_out(config: TextConfig, folder: Path) -> list[str] | None:
    valid = read_corpora(config, "line", base=folder).valid
    assert valid is None or isinstance(valid, Corpus)
    return None if valid is None else list(valid.documents)


def test_validation_is_a_file_a_split_or_none(folder: Path) -> None:
    assert held_out(TextConfig(train="a.txt", valid=("b.txt",)), folder) == ["c", "d"]
    assert held_out(TextConfig(train="a.txt", split="tail 50%"), folder) == ["b"]
    assert held_out(TextConfig(train="a.txt"), folder) is None


def test_weighted_corpora_are_split_one_by_one(folder: Path) -> None:
    config = TextConfig(train=("a.txt", "b.txt"), weights=(1.0, 3.0), split="tail 50%")
    corpora = read_corpora(config, "line", base=folder)
    assert [part.documents for part in corpora.train if isinstance(part, Corpus)] == [["a"], ["c"]]
    assert held_out(config, folder) == ["b", "d"]
    assert corpora.texts == ["a", "c"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": ("a", "b"), "weights": (1.0,)}, "one number for each entry"),
        ({"train": "a", "weights": (1.0,)}, "one number for each entry"),
        ({"train": ("a", "b"), "weights": (1.0, 0.0)}, "above 0"),
        ({"train": "a", "columns": ("text",), "document": "file"}, "each record is a document"),
    ],
)
def test_invalid_text_config_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        TextConfig(**settings)


def test_validation_leak_is_reported(folder: Path) -> None:
    (folder / "valid.txt").write_text("x\na \ny\n")
    leak = read_corpora(TextConfig(train="a.txt", valid="valid.txt"), "line", base=folder).leak
    assert leak is not None
    assert leak.startswith("1 of 3 validation documents are exact duplicates of training documents")
    assert read_corpora(TextConfig(train="a.txt", valid="b.txt"), "line", base=folder).leak is None


def test_prepared_corpora_for_training_and_validation(folder: Path) -> None:
    tokenizer = train(TokenizerConfig(kind="bytes"), [])
    prepare([folder / "a.txt"], folder / "a.ids", tokenizer, document="line")
    corpora = read_corpora(TextConfig(train="a.ids", valid="b.txt"), "line", base=folder)
    assert corpora.texts == []
    assert to_stream(corpora.train[0], tokenizer).documents == 2
    assert read_corpora(TextConfig(train="b.txt", valid=("a.ids",)), "line", base=folder).valid == folder / "a.ids"
    for valid in (("a.ids", "b.txt"), ("b.txt", "a.ids")):
        with pytest.raises(UserError, match="must be the only validation corpus"):
            read_corpora(TextConfig(train="b.txt", valid=valid), "line", base=folder)
    with pytest.raises(UserError, match="cannot be split"):
        read_corpora(TextConfig(train="a.ids", split="tail 50%"), "line", base=folder)
    with pytest.raises(UserError, match=r'here a document is a file; set data\.document = "line"'):
        read_corpora(TextConfig(train="a.ids", valid="b.txt"), "file", base=folder)
    with pytest.raises(UserError, match=r"set their weights in data\.weights"):
        read_corpora(TextConfig(train=("a.ids", "b.txt")), "line", base=folder)
    mixed = read_corpora(TextConfig(train=("a.ids", "b.txt"), weights=(1.0, 1.0)), "line", base=folder)
    assert [isinstance(part, Path) for part in mixed.train] == [True, False]


def test_columns_are_refused_for_plain_text_files(folder: Path) -> None:
    with pytest.raises(UserError, match=r"data\.columns is for files that end in \.jsonl"):
        read_corpora(TextConfig(train="a.txt", columns=("text",)), "line", base=folder)
    (folder / "c.jsonl").write_text('{"text": "x"}\n')
    mixed = read_corpora(TextConfig(train=("a.txt", "c.jsonl"), columns=("text",)), "line", base=folder)
    assert mixed.texts == ["a", "b", "x"]
    assert held_out(TextConfig(train="a.txt", valid="c.jsonl", columns=("text",)), folder) == ["x"]


def test_notes_about_validation_files(folder: Path) -> None:
    (folder / "windows.txt").write_bytes(b"x\r\ny\r\n")
    notes = read_corpora(TextConfig(train="a.txt", valid="windows.txt"), "line", base=folder).notes
    assert notes == [f"{folder / 'windows.txt'}: CRLF line endings are read as LF."]


def test_tail_split_of_tiny_shakespeare_is_the_usual_one(data_root: Path) -> None:
    config = TextConfig(train="tiny_shakespeare/input.txt.xz", split="tail 10%")
    corpora = read_corpora(config, "file", base=data_root)
    [train], valid = corpora.train, corpora.valid
    assert isinstance(train, Corpus)
    assert isinstance(valid, Corpus)
    assert (train.characters, valid.characters) == (1_003_854, 111_540)
