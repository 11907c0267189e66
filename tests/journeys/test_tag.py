"""From tagged files to tags, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.conftest import Command

TINY = [
    *(
        "--set",
        "model.width=16",
        "--set",
        "model.embedding=16",
        "--set",
        "model.char_features=8",
        "--set",
        "model.dropout=0.0",
    ),
    *("--set", "training.steps=60", "--set", "training.learning_rate=0.02", "--set", "training.evaluate_every=30"),
]
VERBS, NOUNS = ("see", "hear", "like"), ("dogs", "cats", "birds", "ships")


def words(count: int, first: int = 0, *, spans: bool = False) -> str:
    """Sentences in which what a word is depends on the word, and `runs` on the word before it."""
    lines = []
    for n in range(first, first + count):
        verb, noun = VERBS[n // 2 % 3], NOUNS[n // 2 % 4]
        tagged = [("we", "O"), (verb, "O"), ("new", "B-x"), (noun, "I-x")]
        if not spans:
            tagged = [("we", "p"), (verb, "v"), (noun, "n"), ("runs", "v")] if n % 2 else [("the", "d"), ("runs", "n")]
        lines.append("".join(f"{word}\t{tag}\n" for word, tag in tagged) + "\n")
    return "".join(lines)


@pytest.fixture
def tagger(seqwright: Command, here: Path) -> Path:
    (here / "train.tsv").write_text(words(80))
    (here / "test.tsv").write_text(words(20, 80))
    said = seqwright("train", "--tagged", "train.tsv", "--run", "run", "--model", "lstm", *TINY)
    assert said.status == 0, said.err
    assert "accuracy" in said.out
    return here / "run"


def test_a_tagger_learns_answers_and_keeps_its_laws(seqwright: Command, tagger: Path, here: Path) -> None:
    scores = seqwright("evaluate", tagger, "--on", "test.tsv", "--json").json
    assert scores["accuracy"] == 100.0
    assert scores["sentence_accuracy"] == 100.0
    assert scores["scores"]["accuracy"]["signature"].startswith("accuracy|of:words|sentences:20|words:60|")
    tags = {row["class"]: (row["examples"], row["recall"]) for row in scores["details"]["per_class"]}
    assert tags == {"v": (20, 100.0), "d": (10, 100.0), "n": (20, 100.0), "p": (10, 100.0)}
    said = seqwright("tag", tagger, "--json", input=b"we see birds runs\n\nthe runs\n").lines
    assert [row["tags"] for row in said] == [["p", "v", "n", "v"], [], ["d", "n"]]
    assert all(0 < share <= 1 for row in said for share in row["probabilities"])
    assert seqwright("tag", tagger, input=b"we hear dogs runs\n").out == "we hear dogs runs\tp v n v\n"
    assert seqwright("tag", tagger, "we hear dogs runs").out == "we hear dogs runs\tp v n v\n"
    assert "try `seqwright tag`" in seqwright("classify", tagger, "we hear").err
    assert "model.char_features = 0 has" in seqwright("embed", tagger, input=b"we hear\n").err
    assert seqwright("check", tagger, "--json").json["holds"]


def test_column_files_come_back_as_columns(seqwright: Command, tagger: Path, here: Path) -> None:
    assert seqwright("tag", tagger, "test.tsv").out == (here / "test.tsv").read_text()
    (here / "test.jsonl").write_text('{"tokens": ["we", "see"], "tags": []}\n')
    assert seqwright("tag", tagger, "test.jsonl").out == "we see\tp v\n"
    commented = "# sent_id = 1\n# text = we see\n1\twe" + "\t_" * 8 + "\n2\tsee" + "\t_" * 8 + "\n\n"
    (here / "test.conllu").write_text(commented)
    assert seqwright("tag", tagger, "test.conllu").out == "we\tp\nsee\tv\n\n"
    assert seqwright("tag", tagger, input=commented.encode()).out == "we\tp\nsee\tv\n\n"
    (here / "spaced.txt").write_text("the d\nruns n\n")
    assert "--columns reads it as a word and its tag" in seqwright("tag", tagger, "spaced.txt").err
    assert seqwright("tag", tagger, "spaced.txt", "--columns").out == "the\td\nruns\tn\n\n"
    (here / "words.txt").write_text("the\nruns\n\nwe\nsee\n")
    assert seqwright("tag", tagger, "words.txt", "--columns").out == "the\td\nruns\tn\n\nwe\tp\nsee\tv\n\n"


def test_a_file_with_other_columns_is_scored(seqwright: Command, tagger: Path, here: Path) -> None:
    (here / "three.tsv").write_text("".join(f"7\t{line}\n" if line else "\n" for line in words(20, 80).split("\n")))
    said = seqwright("evaluate", tagger, "--on", "three.tsv")
    assert said.status == 2
    assert "--set data.columns=[1,2]" in said.err
    columns = ("--set", "data.columns=[2,3]")
    assert seqwright("evaluate", tagger, "--on", "three.tsv", *columns, "--json").json["accuracy"] == 100.0
    said = seqwright("evaluate", tagger, "--on", "three.tsv", "--set", "data.train=three.tsv")
    assert said.status == 2
    assert "only data.columns" in said.err


def test_a_file_with_other_columns_is_tagged(seqwright: Command, tagger: Path, here: Path) -> None:
    (here / "other.tsv").write_text("1\ttime\tx\tn\n2\tflies\tx\tv\n\n")
    said = seqwright("tag", tagger, "other.tsv", "--set", "data.columns=[2,4]")
    assert [line.split("\t")[0] for line in said.out.splitlines() if line] == ["time", "flies"]
    assert "no key 'x'" in seqwright("tag", tagger, "time flies", "--set", "decoding.x=1").err


def test_few_words_are_counted_by_the_same_commands(seqwright: Command, here: Path) -> None:
    (here / "train.tsv").write_text(words(60, spans=True))
    (here / "test.tsv").write_text(words(20, 60, spans=True))
    said = seqwright("train", "--tagged", "train.tsv", "--valid", "test.tsv", "--run", "run")
    assert said.status == 0, said.err  # few words: counting suits them
    scores = seqwright("evaluate", "run", "--json").json
    assert scores["accuracy"] == 100.0
    assert scores["f1"] == 100.0
    (row,) = scores["details"]["per_span"]
    assert (row["class"], row["examples"], row["answered"], row["f1"]) == ("x", 20, 20, 100.0)
    row = seqwright("tag", "run", "--json", input=b"we like new ships\n").json
    assert row == {"tokens": ["we", "like", "new", "ships"], "tags": ["O", "O", "B-x", "I-x"], "probabilities": None}
    assert seqwright("check", "run", "--json").json["holds"]


def test_tags_that_were_not_learned_count_as_wrong_and_are_said(seqwright: Command, tagger: Path, here: Path) -> None:
    (here / "odd.tsv").write_text("the\td\nruns\todd\n")
    scores = seqwright("evaluate", tagger, "--on", "odd.tsv", "--json").json
    assert scores["accuracy"] == 50.0
    assert scores["unlearned_tags"] == {"odd": 1}
    assert "unlearned_tags:1" in scores["scores"]["accuracy"]["signature"]
    assert "odd" in seqwright("evaluate", tagger, "--on", "odd.tsv").out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\tX\tx\nb\tY\ty\n", "data.columns=[1,2]"),
        ("a\tx\nb\tx\n", "every word has the tag 'x'"),
        ("a b\tx\n" * 30, "line 1: 2 tokens, but 1 tags"),
        ("a\tx\nb\n", "line 2"),
    ],
)
def test_bad_files(seqwright: Command, here: Path, text: str, said: str) -> None:
    (here / "bad.tsv").write_text(text)
    answer = seqwright("train", "--tagged", "bad.tsv", "--run", "bad")
    assert answer.status == 2
    assert said in answer.err
    assert not (here / "bad").exists()


def test_subwords_and_a_short_context(seqwright: Command, here: Path) -> None:
    """However words are cut, and wherever sentences must be, each word has one tag."""
    (here / "train.tsv").write_text(words(40))
    options = ("--set", "tokenizer.kind=characters", "--set", "model.context=12", "--set", "model.layers=1")
    small = ("--set", "model.width=16", "--set", "model.heads=2", "--set", "training.steps=4")
    answer = seqwright("train", "--tagged", "train.tsv", "--run", "run", "--model", "transformer", *options, *small)
    assert answer.status == 0, answer.err
    assert "read in parts" in answer.err
    row = seqwright("tag", "run", "--json", input=b"we see birds and extraordinarily long words\n").json
    assert len(row["tags"]) == len(row["tokens"]) == 7
    refused = seqwright("generate", "run")
    assert refused.status == 2
    assert "gives every word a tag" in refused.err


def test_a_tagger_without_held_out_sentences_has_no_score(seqwright: Command, here: Path) -> None:
    (here / "train.tsv").write_text(words(20))
    table = '[data]\nkind = "tagged"\ntrain = "train.tsv"\n[tokenizer]\nkind = "words"\n'
    (here / "all.toml").write_text(f'name = "all"\n{table}[model]\nkind = "perceptron"\nepochs = 2\n')
    said = seqwright("train", "all.toml", "--run", "run")
    assert said.status == 0, said.err
    assert "all sentences are learned from" in said.out + said.err
    assert "20 training sentences, 60 words" in said.out + said.err
    refused = seqwright("evaluate", "run")
    assert refused.status == 2
    assert "no validation sentences of its own" in refused.err
