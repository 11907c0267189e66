"""Recipes for a user's own files: what they count, what they hold out, and how long they may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwright.pipeline import defaults as suggest
from seqwright.pipeline.defaults import labeled_recipe, tagged_recipe


def labeled(folder: Path, rows: int) -> str:
    path = folder / "rows.tsv"
    path.write_text("".join(f"{n % 2}\ttext number {n}\n" for n in range(rows)))
    return str(path)


def test_small_labeled_files_are_learned_from_whole(tmp_path: Path) -> None:
    table = labeled_recipe([labeled(tmp_path, 1999)])
    assert table["tokenizer"] == {"kind": "characters"}
    assert table["model"]["words"] > 0
    assert "split" not in table["data"]
    assert labeled_recipe([labeled(tmp_path, 1999)], kind="lstm")["data"]["split"] == "stratified 10%"
    assert labeled_recipe([labeled(tmp_path, 2000)])["data"]["split"] == "stratified 5%"
    assert labeled_recipe([labeled(tmp_path, 25_000)])["data"]["split"] == "stratified 2%"


def test_much_text_is_counted_by_words_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggest, "LETTERS", 1000)
    table = labeled_recipe([labeled(tmp_path, 100)])
    assert table["tokenizer"]["kind"] == "words"
    assert "words" not in table["model"]


def test_larger_tagged_files_get_fewer_passes(tmp_path: Path) -> None:
    path, passes = tmp_path / "words.tsv", []
    for words in (1_000, 100_000, 1_000_000):
        path.write_text("word\ttag\n" * words)
        model = tagged_recipe([str(path)])["model"]
        assert model["kind"] == "perceptron"
        passes.append(model["epochs"] * model["averaged_models"])
    assert passes == sorted(passes, reverse=True)
    assert tagged_recipe([str(path)], kind="lstm")["model"]["kind"] == "lstm"


def test_words_that_nothing_parts_are_one_sentence(tmp_path: Path) -> None:
    """Of one sentence none can be held out; lines of words beside their tags are a sentence each."""
    words, lines = tmp_path / "words.tsv", tmp_path / "lines.tsv"
    words.write_text("dog\tn\n" * 300, encoding="utf-8")
    lines.write_text("dogs sleep\tn v\n" * 300, encoding="utf-8")
    assert "split" not in tagged_recipe([str(words)])["data"]
    assert "split" in tagged_recipe([str(lines)])["data"]
