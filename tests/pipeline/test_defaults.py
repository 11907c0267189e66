"""Default recipes for users' files: features, validation splits and training times."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwright.pipeline.defaults import default_recipe
from seqwright.tasks.classification import defaults as classification
from seqwright.training import machine


def labeled(folder: Path, rows: int) -> str:
    path = folder / "rows.tsv"
    path.write_text("".join(f"{n % 2}\ttext number {n}\n" for n in range(rows)))
    return str(path)


def test_small_labeled_files_have_no_validation_split(tmp_path: Path) -> None:
    table = default_recipe("labeled", [labeled(tmp_path, 1999)])
    assert table["tokenizer"] == {"kind": "characters"}
    assert table["model"]["words"] > 0
    assert "split" not in table["data"]
    assert default_recipe("labeled", [labeled(tmp_path, 1999)], kind="lstm")["data"]["split"] == "stratified 10%"


def test_models_of_one_file_hold_out_the_same_share(tmp_path: Path) -> None:
    for rows, share in ((2000, 10), (5000, 5), (25_000, 2)):
        files = [labeled(tmp_path, rows)]
        splits = {default_recipe("labeled", files, kind=kind)["data"]["split"] for kind in ("bag", "lstm")}
        assert splits == {f"stratified {share}%"}
    tagged = tmp_path / "lines.tsv"
    tagged.write_text("dogs sleep\tn v\n" * 300, encoding="utf-8")
    splits = {default_recipe("tagged", [str(tagged)], kind=kind)["data"]["split"] for kind in ("perceptron", "lstm")}
    assert splits == {"documents 10%"}
    assert default_recipe("tagged", ["embedded:python-tokens"])["data"]["split"] == "tail 5%"


def test_large_labeled_files_use_word_features_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classification, "LETTERS", 1000)
    table = default_recipe("labeled", [labeled(tmp_path, 100)])
    assert table["tokenizer"]["kind"] == "words"
    assert "words" not in table["model"]


def test_larger_tagged_files_get_fewer_epochs(tmp_path: Path) -> None:
    path, passes = tmp_path / "words.tsv", []
    for words in (1_000, 100_000, 1_000_000):
        path.write_text("word\ttag\n" * words)
        model = default_recipe("tagged", [str(path)])["model"]
        assert model["kind"] == "perceptron"
        passes.append(model["epochs"] * model["averaged_models"])
    assert passes == sorted(passes, reverse=True)
    assert default_recipe("tagged", [str(path)], kind="lstm")["model"]["kind"] == "lstm"


def test_words_without_blank_lines_are_one_sentence(tmp_path: Path) -> None:
    """Of one sentence none can be held out; lines of words beside their tags are a sentence each."""
    words, lines = tmp_path / "words.tsv", tmp_path / "lines.tsv"
    words.write_text("dog\tn\n" * 300, encoding="utf-8")
    lines.write_text("dogs sleep\tn v\n" * 300, encoding="utf-8")
    assert "split" not in default_recipe("tagged", [str(words)])["data"]
    assert "split" in default_recipe("tagged", [str(lines)])["data"]


@pytest.mark.parametrize("native", [False, True])
def test_budgets_are_spent_in_bf16_where_the_device_multiplies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    monkeypatch.setattr(machine, "multiplies_bfloat16", lambda device: native)
    path = tmp_path / "lines.tsv"
    path.write_text("a\tb\n" * 300, encoding="utf-8")
    for option in ("text", "pairs"):
        assert default_recipe(option, [str(path)], minutes=1)["training"].get("precision") == (
            "bf16" if native else None
        )
        assert "precision" not in default_recipe(option, [str(path)])["training"]


def test_the_more_often_a_text_is_read_the_more_dropout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "flops", lambda device: 1e11)
    path = tmp_path / "text.txt"
    rates = []
    for size in (2_000_000, 500_000, 100_000):
        path.write_text("a word or two\n" * (size // 14), encoding="utf-8")
        for minutes in (0.1, 3, 30):
            table = default_recipe("text", [str(path)], minutes=minutes)
            rates.append(table["model"]["dropout"])
            assert default_recipe("text", [str(path)], kind="lstm", minutes=minutes)["model"]["dropout"] == rates[-1]
    assert rates[0] == 0
    assert rates[-1] > 0
    by_text = [rates[n : n + 3] for n in (0, 3, 6)]
    assert all(row == sorted(row) for row in [*by_text, *map(list, zip(*by_text, strict=True))])
    steps = default_recipe("text", [str(path)])["model"]["dropout"]
    monkeypatch.setattr(machine, "flops", lambda device: 1e14)  # a number of steps gives the same recipe everywhere
    assert default_recipe("text", [str(path)])["model"]["dropout"] == steps
