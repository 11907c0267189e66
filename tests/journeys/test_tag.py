"""Tagging through the command line: tagged files to predictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwright import api
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
    """Tagged sentences in which a tag depends on the word, and that of `runs` on the previous word."""
    lines = []
    for n in range(first, first + count):
        verb, noun = VERBS[n // 2 % 3], NOUNS[n // 2 % 4]
        tagged = [("we", "O"), (verb, "O"), ("new", "B-x"), (noun, "I-x")]
        if not spans:
            tagged = [("we", "p"), (verb, "v"), (noun, "n"), ("runs", "v")] if n % 2 else [("the", "d"), ("runs", "n")]
        lines.append("".join(f"{word}\t{tag}\n" for word, tag in tagged) + "\n")
    return "".join(lines)


@pytest.fixture
def tagger(seqwright: Command, workdir: Path) -> Path:
    (workdir / "train.tsv").write_text(words(80))
    (workdir / "test.tsv").write_text(words(20, 80))
    result = seqwright("train", "--tagged", "train.tsv", "--run", "run", "--model", "lstm", *TINY)
    assert result.status == 0, result.err
    assert "accuracy" in result.out
    return workdir / "run"


def test_tagger_trains_predicts_and_obeys_the_laws(seqwright: Command, tagger: Path, workdir: Path) -> None:
    scores = seqwright("evaluate", tagger, "--on", "test.tsv", "--json").json
    assert scores["accuracy"] == 100.0
    assert scores["sentence_accuracy"] == 100.0
    assert scores["scores"]["accuracy"]["signature"].startswith("accuracy|of:words|sentences:20|words:60|")
    tags = {row["class"]: (row["examples"], row["recall"]) for row in scores["details"]["per_class"]}
    assert tags == {"v": (20, 100.0), "d": (10, 100.0), "n": (20, 100.0), "p": (10, 100.0)}
    rows = seqwright("tag", tagger, "--json", input=b"we see birds runs\n\nthe runs\n").lines
    assert [row["tags"] for row in rows] == [["p", "v", "n", "v"], [], ["d", "n"]]
    assert all(0 < share <= 1 for row in rows for share in row["probabilities"])
    assert seqwright("tag", tagger, input=b"we hear dogs runs\n").out == "we hear dogs runs\tp v n v\n"
    assert seqwright("tag", tagger, "we hear dogs runs").out == "we hear dogs runs\tp v n v\n"
    assert "try `seqwright tag`" in seqwright("classify", tagger, "we hear").err
    assert "model.char_features = 0 has" in seqwright("embed", tagger, input=b"we hear\n").err
    assert seqwright("check", tagger, "--json").json["holds"]


def test_tag_keeps_the_column_format(seqwright: Command, tagger: Path, workdir: Path) -> None:
    assert seqwright("tag", tagger, "test.tsv").out == (workdir / "test.tsv").read_text()
    (workdir / "test.jsonl").write_text('{"tokens": ["we", "see"], "tags": []}\n')
    (row,) = seqwright("tag", tagger, "test.jsonl").lines
    assert (row["tokens"], row["tags"], row["predicted_tags"]) == (["we", "see"], [], ["p", "v"])
    rows = ["1-2\twesee", "1\twe\twe", "2\tsee\tsee\tX\tY", "2.1\tnot\tnot"]
    padded = "".join(row + "\t_" * (9 - row.count("\t")) + "\n" for row in rows)
    commented = f"# sent_id = 1\n# text = wesee\n{padded}\n"
    (workdir / "test.conllu").write_text(commented)
    tagged = commented.replace("we\twe\t_", "we\twe\tp").replace("see\tsee\tX", "see\tsee\tv")
    assert seqwright("tag", tagger, "test.conllu").out == tagged
    assert seqwright("tag", tagger, input=commented.encode()).out == tagged
    assert seqwright("tag", tagger, "test.conllu", "--out", "out.conllu").out == ""
    assert (workdir / "out.conllu").read_text() == tagged
    (workdir / "test.conllu").write_bytes(commented.replace("\n", "\r\n").encode())
    seqwright("tag", tagger, "test.conllu", "--out", "out.conllu")
    assert (workdir / "out.conllu").read_bytes() == tagged.replace("\n", "\r\n").encode()
    assert "error: no such option '--beam'. `seqwright tag --help`" in seqwright("tag", tagger, "x", "--beam", "3").err
    (workdir / "spaced.txt").write_text("the d\nruns n\n")
    assert "'the d' are taken as text" in seqwright("tag", tagger, "spaced.txt").err  # too few lines to be certain
    assert seqwright("tag", tagger, "spaced.txt", "--format", "columns").out == "the d\nruns n\n\n"
    (workdir / "words.txt").write_text("the\nruns\n\nwe\nsee\n")
    assert seqwright("tag", tagger, "words.txt", "--format", "columns").out == "the\td\nruns\tn\n\nwe\tp\nsee\tv\n\n"


def test_evaluate_with_another_column_layout(seqwright: Command, tagger: Path, workdir: Path) -> None:
    (workdir / "three.tsv").write_text("".join(f"7\t{line}\n" if line else "\n" for line in words(20, 80).split("\n")))
    result = seqwright("evaluate", tagger, "--on", "three.tsv")
    assert result.status == 2
    assert "--columns token=2,tag=3" in result.err
    refused = seqwright("tag", tagger, "three.tsv")
    assert (refused.status, refused.err.count("\n")) == (2, 1)  # no word of columns that are not read
    columns = ("--columns", "token=2,tag=3")
    assert seqwright("evaluate", tagger, "--on", "three.tsv", *columns, "--json").json["accuracy"] == 100.0
    result = seqwright("evaluate", tagger, "--on", "three.tsv", "--set", "data.train=three.tsv")
    assert result.status == 2
    assert "only data.columns" in result.err


def test_tag_with_another_column_layout(seqwright: Command, tagger: Path, workdir: Path) -> None:
    (workdir / "other.tsv").write_text("1\ttime\tx\tn\n2\tflies\tx\tv\n\n")
    result = seqwright("tag", tagger, "other.tsv", "--columns", "token=2,tag=4")
    assert [line.split("\t")[:3] for line in result.out.splitlines() if line] == [
        ["1", "time", "x"],
        ["2", "flies", "x"],
    ]
    assert result.out == seqwright("tag", tagger, "other.tsv", "--set", "data.columns=[2,4]").out
    assert "no key 'x'" in seqwright("tag", tagger, "time flies", "--set", "decoding.x=1").err
    for columns in ("token=1,tag=2", "text=1"):
        assert "the input is a text; leave it out" in seqwright("tag", tagger, "time flies", "--columns", columns).err


def test_lines_without_words_are_no_sentences_of_conllu(seqwright: Command, tagger: Path, workdir: Path) -> None:
    (workdir / "lines.txt").write_text("we runs\n\n \nthe runs\n")
    result = seqwright("tag", tagger, "lines.txt", "--out", "out.conllu")
    assert result.err.endswith("which are no sentences of CoNLL-U and left out: 2.\n")
    sentences = (workdir / "out.conllu").read_text().removesuffix("\n\n").split("\n\n")
    assert [sentence.split("\n")[0] for sentence in sentences] == ["# text = we runs", "# text = the runs"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("\t".join("123456789"), "line 3 has 9 columns, where CoNLL-U has 10"),
        ("2 runs x NOUN _ _ _ _ _ _", "line 3 has 1 column (is it separated by spaces?), where CoNLL-U has 10"),
    ],
)
def test_lines_of_conllu_have_ten_columns(
    seqwright: Command, tagger: Path, workdir: Path, line: str, message: str
) -> None:
    word = "\t".join(["1", "the", "the", "d", *"______"])
    (workdir / "bad.conllu").write_text(f"# text = the runs\n{word}\n{line}\n\n")
    for command in (("tag", tagger, "bad.conllu"), ("evaluate", tagger, "--on", "bad.conllu")):
        result = seqwright(*command)
        assert result.status == 2
        assert message in result.err
        assert "data.columns" not in result.err


def test_csv_has_no_tags(seqwright: Command, workdir: Path) -> None:
    (workdir / "a.csv").write_text("token,tag\nthe,d\n")
    assert "tags of words are not read from CSV" in seqwright("train", "--tagged", "a.csv", "--run", "x").err


def test_default_tagger_is_a_perceptron(seqwright: Command, workdir: Path) -> None:
    (workdir / "train.tsv").write_text(words(60, spans=True))
    (workdir / "test.tsv").write_text(words(20, 60, spans=True))
    result = seqwright("train", "--tagged", "train.tsv", "--valid", "test.tsv", "--run", "run")
    assert result.status == 0, result.err  # the default for small files: a perceptron
    scores = seqwright("evaluate", "run", "--json").json
    assert scores["accuracy"] == 100.0
    assert scores["f1"] == 100.0
    (row,) = scores["details"]["per_span"]
    assert (row["class"], row["examples"], row["answered"], row["f1"]) == ("x", 20, 20, 100.0)
    row = seqwright("tag", "run", "--json", input=b"we like new ships\n").json
    assert (row["text"], row["tokens"]) == ("we like new ships", ["we", "like", "new", "ships"])
    assert row["tags"] == ["O", "O", "B-x", "I-x"]
    assert "probabilities" not in row  # a perceptron has none
    assert seqwright("check", "run", "--json").json["holds"]


def test_running_text_is_split_as_the_training_data_is(seqwright: Command, workdir: Path) -> None:
    (workdir / "train.tsv").write_text("we\tp\nsee\tv\ndogs\tn\n.\tx\n\n" * 20)
    assert seqwright("train", "--tagged", "train.tsv", "--run", "run").status == 0
    result = seqwright("tag", "run", "We see dogs.")
    assert result.out == "We see dogs .\tp v n x\n"
    seqwright("tag", "run", "We see dogs.", "--out", "out.conllu")
    comment, *rows = (workdir / "out.conllu").read_text().split("\n")
    assert comment == "# text = We see dogs."
    assert [row.split("\t")[-1] for row in rows[:4]] == ["_", "_", "SpaceAfter=No", "_"]
    assert "with punctuation apart as in the training data; --pretokenized splits at white space only" in result.err
    assert seqwright("tag", "run", "We see dogs.", "--pretokenized").out.startswith("We see dogs.\t")
    (workdir / "mails.csv").write_text("id,text\n7,We see dogs.\n8,\n")
    result = seqwright("tag", "run", "mails.csv")
    assert result.out == "id,text,tokens,tags\n7,We see dogs.,We see dogs .,p v n x\n8,,,\n"
    assert seqwright("tag", "run", "mails.csv", "--out", "out.conllu").status == 0
    assert (workdir / "out.conllu").read_text().splitlines()[4] == "4\t.\t_\tx" + "\t_" * 6


@pytest.mark.parametrize(("separator", "model"), [(" ", "perceptron"), ("_", "lstm")])
def test_words_of_several_syllables_stay_whole(seqwright: Command, workdir: Path, separator: str, model: str) -> None:
    rows = [("Học sinh", "N"), ("đi", "V"), ("Hà Nội", "Np"), (".", "CH")]
    cells = [f"{n}\t{word.replace(' ', separator)}\t_\t{tag}" + "\t_" * 6 for n, (word, tag) in enumerate(rows, 1)]
    (workdir / "vi.conllu").write_text(("\n".join(cells) + "\n\n") * 20)
    size = ("--set", "model.epochs=2") if model == "perceptron" else TINY
    result = seqwright("train", "--tagged", "vi.conllu", "--run", "run", "--model", model, *size)
    assert result.status == 0, result.err
    result = seqwright("tag", "run", "Học sinh đi Hà Nội.")
    assert result.out == "Học_sinh đi Hà_Nội .\tN V Np CH\n"  # as many words as tags
    assert "50 % of the training words contain" in result.err
    row = seqwright("tag", "run", "--json", input="Học sinh đi Hà Nội.\n".encode()).json
    assert row["tokens"] == [word.replace(" ", separator) for word, _ in rows]
    (sentence,) = api.open("run").tag(["Học sinh đi Hà Nội."])
    assert list(sentence.words) == row["tokens"]
    (workdir / "out.tsv").write_text(result.out)
    for segmented in (("Học_sinh đi Hà_Nội .", "--pretokenized"), ("out.tsv",)):
        assert seqwright("tag", "run", *segmented).out == result.out
    seqwright("tag", "run", "Học sinh đi Hà Nội.", "--out", "out.conllu")
    _, *tagged = (workdir / "out.conllu").read_text().rstrip().split("\n")
    assert tagged == [*cells[:2], cells[2][:-1] + "SpaceAfter=No", cells[3]]


NER = """-DOCSTART- -X- O O

EU     NNP I-NP I-ORG
calls  VBZ I-VP O
Peter  NNP I-NP I-PER

"""


def test_columns_separated_by_spaces_are_recognized(seqwright: Command, workdir: Path) -> None:
    (workdir / "ner.txt").write_text(NER * 20)
    train = ("train", "--tagged", "ner.txt", "--run", "run", "--set", "model.epochs=3")
    assert seqwright(*train, "--columns", "token=1,tag=4").status == 0
    result = seqwright("tag", "run", "ner.txt")
    assert result.out == NER * 20  # spaces that align columns stay
    assert "reads column 1, writes the run's tags (I-ORG, I-PER, O) to column 4 (columns)" in result.err
    assert seqwright("tag", "run", input=NER.replace("I-ORG", "_").encode()).out == NER
    assert seqwright("tag", "run", "ner.txt", "--json").lines[0]["tags"] == ["I-ORG", "O", "I-PER"]
    result = seqwright("tag", "run", "ner.txt", "--set", "data.columns=[1,3]")
    assert "EU     NNP I-ORG I-ORG" in result.out
    for uncertain in (NER.replace("O\n", "x\n").replace("I-", "J-"), NER.splitlines()[2] + "\n"):
        result = seqwright("tag", "run", input=uncertain.encode())
        assert "--format columns --columns token=1,tag=4 parses them" in result.err
        assert "\t" in result.out
    text = b"EU calls Peter here\nPeter calls EU\n\nO my O my\n"
    result = seqwright("tag", "run", input=text)
    assert "columns" not in result.err
    assert result.out.count("\t") == 3


def test_tags_unseen_in_training_count_as_wrong(seqwright: Command, tagger: Path, workdir: Path) -> None:
    (workdir / "odd.tsv").write_text("the\td\nruns\todd\n")
    scores = seqwright("evaluate", tagger, "--on", "odd.tsv", "--json").json
    assert scores["accuracy"] == 50.0
    assert scores["unlearned_tags"] == {"odd": 1}
    assert "unlearned_tags:1" in scores["scores"]["accuracy"]["signature"]
    assert "odd" in seqwright("evaluate", tagger, "--on", "odd.tsv").out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tX\tx\nb\tY\ty\n", "--columns token=1,tag=2"),
        ("a\tx\nb\tx\n", "every word has the tag 'x'"),
        ("a b\tx\n" * 30, "line 1: 2 tokens, but 1 tags"),
        ("a\tx\nb\n", "line 2"),
    ],
)
def test_invalid_tagged_files_are_rejected(seqwright: Command, workdir: Path, text: str, message: str) -> None:
    (workdir / "bad.tsv").write_text(text)
    result = seqwright("train", "--tagged", "bad.tsv", "--run", "bad")
    assert result.status == 2
    assert message in result.err
    assert not (workdir / "bad").exists()


def test_one_tag_per_word_with_subwords_and_a_short_context(seqwright: Command, workdir: Path) -> None:
    """One tag per word, however words are tokenized and sentences are split."""
    (workdir / "train.tsv").write_text(words(40))
    options = ("--set", "tokenizer.kind=characters", "--set", "model.context=12", "--set", "model.layers=1")
    small = ("--set", "model.width=16", "--set", "model.heads=2", "--set", "training.steps=4")
    result = seqwright("train", "--tagged", "train.tsv", "--run", "run", "--model", "transformer", *options, *small)
    assert result.status == 0, result.err
    assert "read in parts" in result.err
    row = seqwright("tag", "run", "--json", input=b"we see birds and extraordinarily long words\n").json
    assert len(row["tags"]) == len(row["tokens"]) == 7
    refused = seqwright("generate", "run")
    assert refused.status == 2
    assert "gives every word a tag" in refused.err


def test_tagger_without_validation_split_has_no_scores(seqwright: Command, workdir: Path) -> None:
    (workdir / "train.tsv").write_text(words(20))
    table = '[data]\nkind = "tagged"\ntrain = "train.tsv"\n[tokenizer]\nkind = "words"\n'
    (workdir / "all.toml").write_text(f'name = "all"\n{table}[model]\nkind = "perceptron"\nepochs = 2\n')
    result = seqwright("train", "all.toml", "--run", "run")
    assert result.status == 0, result.err
    assert "all sentences are learned from" in result.out + result.err
    assert "20 training sentences, 60 words" in result.out + result.err
    assert "does a blank line end each sentence?" not in result.err
    refused = seqwright("evaluate", "run")
    assert refused.status == 2
    assert "no validation sentences of its own" in refused.err


def test_a_file_without_blank_lines_is_pointed_out(seqwright: Command, workdir: Path) -> None:
    (workdir / "joined.tsv").write_text(words(401).replace("\n\n", "\n"))
    result = seqwright("train", "--tagged", "joined.tsv", "--run", "runs/joined", "--set", "model.epochs=1")
    assert result.status == 0, result.err
    assert "the longest training sentence has 1,202 words: does a blank line end each sentence?" in result.err
