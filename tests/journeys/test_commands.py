"""From a text to a used model, through every command and through Python."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import seqwright as sw
from seqwright import build
from seqwright.commands import common
from seqwright.pipeline.recipe import shipped
from tests.journeys.commands import TINY, TINY_GPT, ended, files, records, start, text_of
from tests.journeys.conftest import Command

LECTURES = [name for name in shipped() if name.startswith("lecture-")]
SHRUNK_GPT3 = [
    *("--set", "model.layers=1", "--set", "model.width=24", "--set", "model.context=16", "--set", "tokenizer.size=300"),
    *("--set", "training.steps=2", "--set", "training.batch_size=2", "--set", "training.precision=fp32"),
]


def test_the_whole_way_as_processes(here: Path) -> None:
    said = ended(start("train", "--text", "text.txt", *TINY_GPT, "--run", "runs/mine", cwd=here))
    assert said.status == 0, said.err
    assert "is finished" in said.out
    assert "held out for validation: tail 5%" in said.err
    assert "perplexity" in said.out
    made = files(here / "runs" / "mine")
    assert {"recipe.toml", "tokenizer.json", "model.safetensors", "log.jsonl"} < made
    assert {"summary.json", "environment.json", "report.html"} < made
    said = ended(start("generate", "runs/mine", "the cat", "--max-tokens", "9", cwd=here))
    assert said.status == 0, said.err
    assert said.out.startswith("the cat")
    assert len(said.out.removesuffix("\n")) == len("the cat") + 9


def test_every_command_speaks_to_people(seqwright: Command, trained: Path, here: Path) -> None:
    (here / "words.txt").write_text("the\ncat\n")
    runs = trained.parent
    spoken = {
        ("evaluate", trained): "bits per byte",
        ("evaluate", trained, "--on", "text.txt", "text.txt"): "perplexity",
        ("generate", trained, "the", "--samples", "2", "--max-tokens", "5"): "--- 2 (seed 1)",
        ("score", trained, "text.txt", "--tokens"): "the",
        ("check", trained): "holds",
        (
            "search-audit",
            trained,
            "words.txt",
            "--max-tokens",
            "2",
            "--beam-sizes",
            "1,30",
        ): "2 of 2 lines have a proven best",
        ("tokenize", trained, "text.txt", "--summary"): "lossless False",
        ("runs", runs): "finished",
        ("recipes",): "gpt3-175b",
        ("recipes", "lecture-generation"): 'kind = "words"',
        ("recipes", "--keys"): "training.steps",
    }
    for arguments, word in spoken.items():
        said = seqwright(*arguments)
        assert said.status == 0, said.err
        assert word in said.out


def test_every_command_speaks_to_machines(seqwright: Command, trained: Path) -> None:
    assert seqwright("train", "--run", trained, "--json").json["already"]
    scores = seqwright("evaluate", trained, "--json").json
    assert scores["bits_per_byte"] > 0
    assert scores["scores"]["perplexity"]["signature"]
    said = seqwright("generate", trained, "the", "--samples", "3", "--max-tokens", "5", "--json").lines
    assert [row["seed"] for row in said] == [0, 1, 2]
    assert all(row["warnings"] == [] or row["warnings"][0]["measure"] for row in said)
    audit = seqwright(
        "search-audit", trained, "--max-tokens", "2", "--beam-sizes", "1,40", "--json", input=b"the\ncat\n"
    ).json
    assert (audit["proven"], audit["widths"][-1]["missed"]) == (2, 0)
    scored = seqwright("score", trained, "--json", "--tokens", input=b"the cat\nsat\n").lines
    assert [row["text"] for row in scored] == ["the cat", "sat"]
    assert len(scored[1]["surprisals"]) == 3
    assert seqwright("check", trained, "--json").json["holds"]
    *cut, counts = seqwright("tokenize", trained, "--json", input="the cát\n".encode()).lines
    assert cut[0]["unknown"] == 1
    assert counts["lines_not_exact"] == 1
    assert seqwright("runs", trained.parent, "--json").lines[0]["state"] == "finished"
    assert {"name", "about"} == seqwright("recipes", "--json").lines[0].keys()
    assert seqwright("recipes", "gpt2", "--json").json["name"] == "gpt2"
    assert "training.steps" in {row["key"] for row in seqwright("recipes", "--keys", "--json").lines}


def test_a_beam_finds_what_is_probable(seqwright: Command, trained: Path) -> None:
    beam = ("generate", trained, "the c", "--beam", "4", "--max-tokens", "6", "--set", "decoding.length_penalty=none")
    rows = seqwright(*beam, "--n-best", "3", "--json").lines
    assert [row["rank"] for row in rows] == [1, 2, 3]
    assert [row["log_prob"] for row in rows] == sorted((row["log_prob"] for row in rows), reverse=True)
    greedy = seqwright("generate", trained, "the c", "--temperature", "0", "--max-tokens", "6", "--json").lines[0]
    assert rows[0]["log_prob"] >= greedy["log_prob"] - 1e-4
    assert seqwright(*beam).out == f"--- 1 (rank 1)\nthe c{rows[0]['text']}\n"
    assert "--top-k is for drawing" in seqwright(*beam, "--top-k", "2").err
    assert "--samples is for drawing" in seqwright(*beam, "--samples", "2").err
    assert "give --beam K" in seqwright("generate", trained, "--n-best", "2").err


def test_a_line_is_scored_without_waiting_for_the_next(trained: Path) -> None:
    process = start("score", trained, "--json", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for text in ("the cat", "sat"):
        process.stdin.write(text + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["text"] == text  # hangs where more than one line is awaited
    assert ended(process).status == 0


def test_lines_that_come_in_pieces_are_whole(
    seqwright: Command, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "AHEAD", 3)
    said = seqwright("score", trained, "--json", input="the cát\r\n\nsat\nno end".encode())
    assert [row["text"] for row in said.lines] == ["the cát", "", "sat", "no end"]
    assert "line 2: not UTF-8 at byte 1" in seqwright("score", trained, input=b"sat\na\xff\n").err


@pytest.mark.parametrize("kind", sorted(build.LANGUAGE_MODELS.keys() - build.DERIVED.keys()))
def test_every_kind_learns_a_text_and_continues_it(seqwright: Command, kind: str, here: Path) -> None:
    quick = TINY_GPT if kind == "gpt" else TINY
    chosen = ["--model", kind] if kind != "rnn" else ["--set", "model.kind=rnn"]  # the two ways to say it
    said = seqwright("train", "--text", "text.txt", *chosen, *quick, "--json")
    assert said.status == 0, said.err
    assert said.json["summary"]["kind"] == kind
    assert said.json["run"] == f"runs/text-{kind}"
    assert ("perplexity" in said.json["summary"]) == (kind not in build.COUNTED)
    assert seqwright("generate", said.json["run"], "the", "--max-tokens", "4", "--json").json["text"]
    assert seqwright("check", said.json["run"]).status == 0


@pytest.mark.parametrize("name", LECTURES)
def test_the_lectures_practice_runs_anywhere(seqwright: Command, name: str, here: Path) -> None:
    short = ["--set", "training.epochs=0.001", "--set", "training.batch_size=4", "--set", "data.split=documents 0.5%"]
    said = seqwright("train", name, *short, "--json")
    assert said.status == 0, said.err
    assert any("40 tokens" in note["text"] for note in records(here / "runs" / name, "note"))
    assert seqwright("generate", f"runs/{name}", "a class", "--max-tokens", "6").status == 0


def test_a_papers_recipe_takes_a_text_of_ones_own(seqwright: Command) -> None:
    said = seqwright("train", "gpt3-small", "--text", "text.txt", *SHRUNK_GPT3, "--json")
    assert said.status == 0, said.err
    assert said.json["run"] == "runs/gpt3-small"
    assert said.json["summary"]["steps"] == 2


def test_the_same_verbs_in_python(here: Path) -> None:
    run = sw.train(text="text.txt", set=[item for item in TINY_GPT if item != "--set"], run="mine")
    (said,) = run.generate("the", max_tokens=5, seed=3)
    assert sw.open("mine").generate("the", max_tokens=5, seed=3) == [said]
    assert sw.open("mine").evaluate() == run.evaluate()
    assert run.evaluate("text.txt", resamples=0)["nll"] > 0
    assert [line.text for line in run.score(["the cat", ""])] == ["the cat", ""]
    assert sw.train(run="mine", set=["training.steps=8"]).directory.summary()["steps"] == 8
    with pytest.raises(sw.UserError, match="half of a surrogate pair"):
        run.generate("\ud800")
    with pytest.raises(sw.UserError, match="half of a surrogate pair"):
        list(run.score(["\ud800"]))
    with pytest.raises(sw.UserError, match="seed must fit in 64 bits"):
        run.generate("the", seeds=[1 << 64])
    with pytest.raises(sw.UserError, match="1 prompts need as many seeds, not 2"):
        run.generate("the", seeds=[1, 2])


def test_a_long_prompt_is_read_from_its_end_and_that_is_said(seqwright: Command, trained: Path) -> None:
    said = seqwright("generate", trained, "the cat " * 10, "--max-tokens", "3")
    assert said.status == 0
    assert "the first 65 tokens of the prompt did not fit the context and were not read." in said.err
    assert seqwright("generate", trained, "the cat " * 10, "--max-tokens", "3", "--json").json["unread"] == 65


def test_nothing_need_be_asked(seqwright: Command, trained: Path) -> None:
    assert seqwright("generate", trained, "", "--max-tokens", "5", "--json").json["text"]
    assert seqwright("generate", trained, "--prompts", "-", "--max-tokens", "2", "--json", input=b"the\n\n").lines[1]


@pytest.mark.parametrize("kind", ["words", "characters", "bytes", "byte-bpe"])
def test_text_of_any_script_and_line_end(seqwright: Command, here: Path, kind: str) -> None:
    (here / "mixed.txt").write_bytes("Ăn quả nhớ kẻ trồng cây 🌳\r\nCó chí thì nên 👩‍👩‍👧\r\n".encode() * 30)
    said = seqwright("train", "--text", "mixed.txt", *TINY_GPT, "--set", f"tokenizer.kind={kind}", "--run", "mixed")
    assert said.status == 0, said.err
    (row,) = seqwright("generate", "mixed", "Có chí 👩‍👩‍👧", "--max-tokens", "6", "--json").lines
    assert row["prompt"] == "Có chí 👩‍👩‍👧"


def test_a_line_of_ten_megabytes(seqwright: Command, here: Path) -> None:
    (here / "long.txt").write_text(text_of(330_000).replace("\n", " "))
    said = seqwright("train", "--text", "long.txt", "--model", "ngram", "--json")
    assert said.status == 0, said.err
    assert (here / "long.txt").stat().st_size > 9_500_000


def test_what_validation_knows_and_training_does_not_is_counted(seqwright: Command, here: Path) -> None:
    (here / "valid.txt").write_text("the cat sat on ünknown ñames\n" * 5)
    said = seqwright("train", "--text", "text.txt", "--valid", "valid.txt", *TINY_GPT, "--run", "run")
    assert said.status == 0
    assert "15 of 145 validation tokens are <unk>." in " ".join(said.err.split())
    said = seqwright("evaluate", "run")
    assert "bits per byte is refused: 15 tokens of this text are <unk>" in said.out


def test_a_reader_who_has_seen_enough(here: Path, trained: Path) -> None:
    (here / "many.txt").write_text(text_of(20_000))
    process = start("tokenize", trained, "many.txt", cwd=here)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(60) == 1
