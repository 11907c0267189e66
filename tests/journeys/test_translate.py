"""From parallel files to translated lines, through the command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.journeys.commands import ended, start
from tests.journeys.conftest import Command

TINY = [
    *("--set", "tokenizer.kind=words", "--set", "training.steps=4", "--set", "training.evaluate_every=2"),
    *("--set", "model.layers=1", "--set", "model.width=16", "--set", "model.heads=2", "--set", "model.context=12"),
]


@pytest.fixture
def translator(seqwright: Command, here: Path) -> Path:
    for name, lines in (("a", 40), ("b", 12)):
        (here / f"{name}.en").write_text("".join(f"one two {n % 7}\n" for n in range(lines)))
        (here / f"{name}.de").write_text("".join(f"eins zwei {n % 7}\n" for n in range(lines)))
    said = seqwright("train", "--pairs", "a.en", "a.de", "--valid", "b.en", "b.de", "--run", "run", *TINY)
    assert said.status == 0, said.err
    assert "bleu" in said.out
    return here / "run"


def test_lines_in_lines_out_in_order(seqwright: Command, translator: Path) -> None:
    said = seqwright("translate", translator, input=b"one 1\n\ntwo 2\n")
    assert said.status == 0, said.err
    assert said.out.count("\n") == 3
    assert said.out.split("\n")[1] == ""
    typed = seqwright("translate", translator, "one 1")
    assert typed.out == said.out.split("\n")[0] + "\n"
    rows = seqwright("translate", translator, "b.en", "--json", "--set", "decoding.n_best=2").lines
    assert [row["source"] for row in rows][:2] == ["one two 0", "one two 1"]
    assert all(len(row["others"]) == 1 for row in rows)


def test_it_says_where_it_looked(seqwright: Command, translator: Path) -> None:
    plain = seqwright("translate", translator, "b.en").out.splitlines()
    said = seqwright("translate", translator, "b.en", "--attention")
    assert said.status == 0, said.err
    for line, text in zip(said.out.splitlines(), plain, strict=True):
        shown, _, links = line.partition(" |||")
        assert shown == text
        assert len(links.split()) == len(text.split())
    (row, empty) = seqwright("translate", translator, "--attention", "--json", input=b"one two 3\n\n").lines
    assert row["attention"]["source"] == ["one", "two", "3", "<eos>"]
    assert len(row["attention"]["weights"]) == len(row["attention"]["target"])
    assert "attention" not in empty


def test_half_precision_is_a_choice_that_scores_confess(seqwright: Command, translator: Path) -> None:
    said = seqwright("translate", translator, "b.en", "--precision", "bf16")
    assert said.status == 0, said.err
    assert said.out.count("\n") == 12
    plain = seqwright("evaluate", translator, "--json").json["scores"]
    halved = seqwright("evaluate", translator, "--json", "--precision", "bf16").json["scores"]
    assert halved["nll"]["signature"] == plain["nll"]["signature"] + "|precision:bf16"
    assert halved["nll"]["value"] != plain["nll"]["value"]
    assert halved["nll"]["value"] == pytest.approx(plain["nll"]["value"], abs=0.05)


def test_a_line_is_answered_before_the_next_is_typed(translator: Path) -> None:
    process = start("translate", translator, stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for text in ("one two 1", "two 2"):
        process.stdin.write(text + "\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith("\n")
    process.stdin.write("two " * 30 + "\n")
    assert "source 3 has" in ended(process).err


def test_what_was_cut_off_is_said(seqwright: Command, translator: Path, here: Path) -> None:
    (here / "long.en").write_text("one 1\n" + "two " * 30 + "\n")
    said = seqwright("translate", translator, "long.en")
    assert said.status == 2
    assert "source 2 has 31 tokens" in said.err
    said = seqwright("translate", translator, "long.en", "--truncate")
    assert said.status == 0
    assert "1 source(s) did not fit" in said.err


def test_scores_on_other_files(seqwright: Command, translator: Path) -> None:
    found = seqwright("evaluate", translator, "--on", "b.en", "b.de", "--json").json
    assert {"nll", "perplexity", "bleu", "chrf"} <= found.keys()
    assert found["on"] == ["b.en", "b.de"]
    assert not found["lower_case"]
    wrong = seqwright("evaluate", translator, "--on", "a.en", "b.de")
    assert wrong.status == 2
    assert "a.en has 40, b.de has 12 lines" in wrong.err


def test_files_in_the_wrong_order_are_refused(seqwright: Command, translator: Path, here: Path) -> None:
    said = seqwright("evaluate", translator, "--on", "b.de", "b.en")
    assert said.status == 2
    assert "b.de b.en look like targets" in said.err
    assert "the sources look like targets" in seqwright("translate", translator, "b.de").err
    swapped = seqwright("train", "--pairs", "a.en", "a.de", "--valid", "b.de", "b.en", "--run", "other", *TINY)
    assert swapped.status == 2
    assert "validation pairs look like targets" in swapped.err
    assert not (here / "other").exists()
    twice = seqwright("train", "--pairs", "a.en", "a.en", "--valid", "b.en", "b.en", "--run", "twice", *TINY)
    assert "was a file given twice?" in twice.err


def test_the_laws_hold_and_other_verbs_are_refused(seqwright: Command, translator: Path) -> None:
    assert seqwright("check", translator).status == 0
    said = seqwright("generate", translator, "one")
    assert said.status == 2
    assert "try `seqwright translate`" in said.err
    again = seqwright("train", "--run", translator, "--json").json
    assert again["already"]


def test_two_translators_are_mixed_into_one(seqwright: Command, translator: Path, here: Path) -> None:
    taken = ["--set", f"tokenizer.file={translator / 'tokenizer.json'}", "--set", "training.seed=5"]
    seqwright("train", "--pairs", "a.en", "a.de", "--valid", "b.en", "b.de", "--run", "other", *TINY, *taken)
    said = seqwright("mix", translator, "other", "--on", "b.en", "b.de", "--geometric", "--run", "both")
    assert said.status == 0, said.err
    assert "measured on 48 target tokens of b.en b.de" in said.out
    assert seqwright("translate", "both", "b.en").out.count("\n") == 12
    found = seqwright("evaluate", "both", "--on", "b.en", "b.de", "--json").json
    assert {"nll", "bleu"} <= found.keys()
    assert seqwright("runs", ".", "--json").status == 0
    again = seqwright("train", "--run", "both")
    assert again.status == 2
    assert "is not trained; make one with `seqwright mix" in again.err
    assert seqwright("search-audit", "both", "b.en", "--beam-sizes", "1,2", "--max-tokens", "3").status == 0
