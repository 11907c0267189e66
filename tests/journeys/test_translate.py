"""Translation through the command line: parallel files to translated lines."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.journeys.commands import finish, start
from tests.journeys.conftest import Command

TINY = [
    *("--set", "tokenizer.kind=words", "--set", "training.steps=4", "--set", "training.evaluate_every=2"),
    *("--set", "model.layers=1", "--set", "model.width=16", "--set", "model.heads=2", "--set", "model.context=12"),
]


@pytest.fixture
def translator(seqwright: Command, workdir: Path) -> Path:
    for name, lines in (("a", 40), ("b", 12)):
        (workdir / f"{name}.en").write_text("".join(f"one two {n % 7}\n" for n in range(lines)))
        (workdir / f"{name}.de").write_text("".join(f"eins zwei {n % 7}\n" for n in range(lines)))
    result = seqwright("train", "--pairs", "a.en", "a.de", "--valid", "b.en", "b.de", "--run", "run", *TINY)
    assert result.status == 0, result.err
    assert "BLEU" in result.out
    return workdir / "run"


def test_translate_keeps_the_order_of_lines(seqwright: Command, translator: Path) -> None:
    result = seqwright("translate", translator, input=b"one 1\n\ntwo 2\n")
    assert result.status == 0, result.err
    assert result.out.count("\n") == 3
    assert result.out.split("\n")[1] == ""
    typed = seqwright("translate", translator, "one 1")
    assert typed.out == result.out.split("\n")[0] + "\n"
    rows = seqwright("translate", translator, "b.en", "--json", "--n-best", "2").lines
    assert [row["source"] for row in rows][:2] == ["one two 0", "one two 1"]
    assert all(row["score"] >= row["others"][0]["score"] for row in rows)
    text = seqwright("translate", translator, "b.en", "--beam", "3", "--n-best", "2").out.splitlines()
    assert [line.split(" ||| ")[0] for line in text[:4]] == ["1", "1", "2", "2"]
    assert text[0] == f"1 ||| {rows[0]['translation']} ||| {rows[0]['log_prob']:.4f} ||| {rows[0]['score']:.4f}"
    assert "a beam of 2 has no 3 best outputs" in (
        seqwright("translate", translator, "one", "--beam", "2", "--n-best", "3").err
    )


def test_n_best_of_a_greedy_recipe_is_of_a_beam(seqwright: Command, translator: Path) -> None:
    greedy = ("--set", "decoding.kind=greedy")
    pairs = ("--pairs", "a.en", "a.de", "--valid", "b.en", "b.de")
    assert seqwright("train", *pairs, "--run", "greedy", *TINY, *greedy).status == 0
    for size in ("3", "8"):
        (row,) = seqwright("translate", "greedy", "one 1", "--n-best", size, "--json").lines
        beam = seqwright("translate", translator, "one 1", "--beam", str(max(5, int(size))), "--n-best", size, "--json")
        assert row == beam.lines[0]
        assert len(row["others"]) == int(size) - 1
    assert 'set kind = "beam"' in seqwright("translate", translator, "one 1", "--n-best", "3", *greedy).err


def test_degenerate_lines_are_summarized_in_one_line(seqwright: Command, translator: Path) -> None:
    cut = ("--set", "decoding.max_tokens=1")  # empty or truncated
    several = seqwright("translate", translator, *cut, input=b"one 1\n" * 23).err
    assert several.startswith("23 of 23 lines look degenerate (")
    assert "), the first at line 1: the output " in several
    assert several.endswith("; --json has the reasons of each.\n")
    assert several.count("\n") == 1
    assert seqwright("translate", translator, *cut, "one 1").err.startswith("the output looks degenerate: the output ")


def test_mbr_of_the_recipe_prints_its_one_choice(seqwright: Command, translator: Path, workdir: Path) -> None:
    keys = ("--set", "decoding.kind=beam", "--set", "decoding.n_best=2", "--set", "decoding.mbr=chrf")
    pairs = ("--pairs", "a.en", "a.de", "--valid", "b.en", "b.de")
    assert seqwright("train", *pairs, "--run", "mbr", *TINY, *keys).status == 0
    chosen = seqwright("translate", "mbr", "one 1")
    assert chosen.status == 0, chosen.err
    assert " ||| " not in chosen.out
    assert " ||| " in seqwright("translate", "mbr", "one 1", "--set", "decoding.mbr=none").out


def test_translated_tables_keep_their_columns(seqwright: Command, translator: Path, workdir: Path) -> None:
    (workdir / "in.tsv").write_text("id\tsrc\n1\tone 1\n2\t\n")
    result = seqwright("translate", translator, "in.tsv", "--out", "out.jsonl")
    assert "in.tsv: reads column 'src'; adds translation, log_prob." in result.err
    first, second = map(json.loads, (workdir / "out.jsonl").read_text().splitlines())
    assert (first["id"], first["src"]) == ("1", "one 1")
    assert (second["translation"], second["reason"]) == ("", "empty")
    assert second["log_prob"] is second["score"] is None
    assert seqwright("translate", translator, "in.tsv").out.splitlines()[2] == "2\t\t\t"
    assert first["translation"] == seqwright("translate", translator, "one 1", "--json").json["translation"]


def test_lowercased_outputs_have_lowercased_scores(seqwright: Command, translator: Path, workdir: Path) -> None:
    (workdir / "c.de").write_text((workdir / "b.de").read_text().title())
    keys = (*TINY, "--set", "tokenizer.lowercase=true")
    result = seqwright("train", "--pairs", "a.en", "a.de", "--valid", "b.en", "c.de", "--run", "lower", *keys)
    assert "BLEU (cased references, lowercased outputs)" in result.out
    assert "BLEU, lowercased" in result.out
    scores = seqwright("evaluate", "lower", "--json").json
    assert scores["bleu_lowercased"] >= scores["bleu"]
    assert "|case:lc|" in scores["scores"]["bleu_lowercased"]["signature"]
    assert "|case:mixed|" in scores["scores"]["bleu"]["signature"]
    assert "|outputs:lowercased|" in scores["scores"]["bleu"]["signature"]
    assert re.search(r"BLEU, \S+ lc", seqwright("runs", ".").out)


def test_translate_prints_attention_alignments(seqwright: Command, translator: Path) -> None:
    plain = seqwright("translate", translator, "b.en").out.splitlines()
    result = seqwright("translate", translator, "b.en", "--attention")
    assert result.status == 0, result.err
    for line, text in zip(result.out.splitlines(), plain, strict=True):
        shown, _, links = line.partition(" |||")
        assert shown == text
        assert len(links.split()) == len(text.split())
    (row, empty) = seqwright("translate", translator, "--attention", "--json", input=b"one two 3\n\n").lines
    assert row["attention"]["source"] == ["one", "two", "3", "<eos>"]
    assert len(row["attention"]["weights"]) == len(row["attention"]["target"])
    assert "attention" not in empty


def test_half_precision_is_in_the_score_signature(seqwright: Command, translator: Path) -> None:
    result = seqwright("translate", translator, "b.en", "--precision", "bf16")
    assert result.status == 0, result.err
    assert result.out.count("\n") == 12
    plain = seqwright("evaluate", translator, "--json").json["scores"]
    half = seqwright("evaluate", translator, "--json", "--precision", "bf16").json
    halved = half["scores"]
    assert half["fp32"] == plain
    assert halved["nll"]["signature"] == plain["nll"]["signature"] + "|precision:bf16"
    assert halved["nll"]["value"] != plain["nll"]["value"]
    assert halved["nll"]["value"] == pytest.approx(plain["nll"]["value"], abs=0.05)


def test_int8_weights_say_what_they_cost(seqwright: Command, translator: Path) -> None:
    result = seqwright("evaluate", translator, "--precision", "int8", "--device", "cpu")
    assert result.status == 0, result.err
    cost = result.out.splitlines()[-1]
    assert cost.startswith("int8 instead of fp32: nll ")
    assert "→" in cost
    assert seqwright("translate", translator, "b.en", "--precision", "int8").out.count("\n") == 12


def test_translate_streams_standard_input(translator: Path) -> None:
    process = start("translate", translator, stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for text in ("one two 1", "two 2"):
        process.stdin.write(text + "\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith("\n")
    process.stdin.write("two " * 30 + "\n")
    assert "source 3 has" in finish(process).err


def test_truncated_sources_are_counted(seqwright: Command, translator: Path, workdir: Path) -> None:
    (workdir / "long.en").write_text("one 1\n" + "two " * 30 + "\n")
    result = seqwright("translate", translator, "long.en")
    assert result.status == 2
    assert "source 2 has 31 tokens" in result.err
    result = seqwright("translate", translator, "long.en", "--truncate")
    assert result.status == 0
    assert "truncated to the context of the model: 1 source." in result.err


def test_evaluate_translator_on_test_files(seqwright: Command, translator: Path) -> None:
    scores = seqwright("evaluate", translator, "--on", "b.en", "b.de", "--json").json
    assert {"nll", "perplexity", "bleu", "chrf"} <= scores.keys()
    assert scores["on"] == ["b.en", "b.de"]
    assert not scores["lower_case"]
    wrong = seqwright("evaluate", translator, "--on", "a.en", "b.de")
    assert wrong.status == 2
    assert "a.en has 40, b.de has 12 lines" in wrong.err


def test_swapped_source_and_target_are_rejected(seqwright: Command, translator: Path, workdir: Path) -> None:
    result = seqwright("evaluate", translator, "--on", "b.de", "b.en")
    assert result.status == 2
    assert "b.de b.en look like targets" in result.err
    assert "the sources look like targets" in seqwright("translate", translator, "b.de").err
    swapped = seqwright("train", "--pairs", "a.en", "a.de", "--valid", "b.de", "b.en", "--run", "other", *TINY)
    assert swapped.status == 2
    assert "validation pairs look like targets" in swapped.err
    assert not (workdir / "other").exists()
    twice = seqwright("train", "--pairs", "a.en", "a.en", "--valid", "b.en", "b.en", "--run", "twice", *TINY)
    assert "was a file given twice?" in twice.err


def test_translator_obeys_the_laws_and_rejects_other_commands(seqwright: Command, translator: Path) -> None:
    assert seqwright("check", translator).status == 0
    result = seqwright("generate", translator, "one")
    assert result.status == 2
    assert "try `seqwright translate`" in result.err
    again = seqwright("train", "--run", translator, "--json").json
    assert again["already"]


def test_translators_are_ensembled(seqwright: Command, translator: Path, workdir: Path) -> None:
    same_tokenizer = ["--set", f"tokenizer.file={translator / 'tokenizer.json'}", "--set", "training.seed=5"]
    seqwright("train", "--pairs", "a.en", "a.de", "--valid", "b.en", "b.de", "--run", "other", *TINY, *same_tokenizer)
    result = seqwright("mix", translator, "other", "--on", "b.en", "b.de", "--geometric", "--run", "both")
    assert result.status == 0, result.err
    assert "measured on 48 target tokens of b.en b.de" in result.out
    assert seqwright("translate", "both", "b.en").out.count("\n") == 12
    scores = seqwright("evaluate", "both", "--on", "b.en", "b.de", "--json").json
    assert {"nll", "bleu"} <= scores.keys()
    assert seqwright("runs", ".", "--json").status == 0
    again = seqwright("train", "--run", "both")
    assert again.status == 2
    assert "is not trained; make one with `seqwright mix" in again.err
    assert seqwright("search-audit", "both", "b.en", "--beam-sizes", "1,2", "--max-tokens", "3").status == 0
