"""Tagged sentences: every file format, errors with their line, splits, encoding and word dropout."""

from __future__ import annotations

import lzma
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.data.samples.python_tokens import lines_of
from seqwright.data.tables import Lines
from seqwright.data.tagged.annotated import ColumnFile
from seqwright.data.tagged.corpus import (
    TaggedConfig,
    count_invalid_transitions,
    invalid_transitions,
    read_splits,
    read_tagged,
)
from seqwright.data.tagged.formats import FORMATS, Columns, Sentence, spaced_columns
from seqwright.data.tagged.sentences import MAX_CHARS, SentenceFeed, char_codes, encode_sentences
from seqwright.text.trainers import TokenizerConfig, train

TWO = [Sentence(("Time", "flies"), ("n", "v")), Sentence(("Stop",), ("v",))]
CONLLU = """\
# text = Time's up
1-2\tTime's\t_\t_\t_\t_\t_\t_\t_\t_
1\tTime\ttime\tNOUN\tNN\t_\t3\tx\t_\t_
2\t's\tbe\tAUX\tVBZ\t_\t3\tx\t_\t_
2.1\tghost\t_\t_\t_\t_\t_\t_\t_\t_
3\tup\tup\tADV\tRB\t_\t0\troot\t_\t_

"""


def read(path: Path, text: str, **options: object) -> list[Sentence]:
    path.write_text(text)
    return list(read_tagged(str(path), TaggedConfig(train=str(path), **options)).sentences)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.tsv", "Time\tn\nflies\tv\n\nStop\tv\n", {}),
        ("a.tsv", "\n\nTime\tn\r\nflies\tv\r\n\r\n\r\nStop\tv", {}),
        ("a.tsv", "Time \t n\n flies\tv \n\nStop\tv\n", {}),
        ("a.txt", "Time n\nflies v\n\nStop v\n", {}),
        ("a.tsv", "Time\tNN\tn\nflies\tVB\tv\n\nStop\tVB\tv\n", {"columns": (1, 3)}),
        ("a.tsv", "token\ttag\nTime\tn\nflies\tv\n\nStop\tv\n", {}),
        ("a.tsv", "\ufeff# one\nTime\tn\nflies\tv\n\n# two\nStop\tv\n", {}),
        ("a.txt", "# text = Time flies\nTime n\nflies v\n\nStop v\n", {}),
        ("a.conll", "-DOCSTART- x\n\nTime n\nflies v\n\n-DOCSTART- x\n\nStop v\n", {}),
        ("a.tsv", "Time flies\tn v\nStop\tv\n", {}),
        ("a.tsv", "x\tTime flies\tn v\ny\tStop\tv\n", {"columns": (2, 3)}),
        ("a.jsonl", '{"tokens": ["Time", "flies"], "tags": ["n", "v"]}\n{"tokens": ["Stop"], "tags": ["v"]}\n', {}),
    ],
)
def test_every_format_parses_to_the_same_sentences(
    tmp_path: Path, name: str, text: str, options: dict[str, object]
) -> None:
    assert read(tmp_path / name, text, **options) == TWO


def test_untagged_words_are_parsed_without_tags() -> None:
    one, two = ("Time", "flies"), ("Stop",)
    for kind, text in {
        "columns": "Time\nflies\n\nStop\n",
        "lines": "Time flies\nStop\n",
        "jsonl": '{"tokens": ["Time", "flies"]}\n{"tokens": ["Stop"]}\n',
    }.items():
        assert list(FORMATS[kind](text, "a", None, False)) == [Sentence(one, ()), Sentence(two, ())]  # type: ignore[index]


def test_blank_lines_between_lines_of_words_and_tags_stay() -> None:
    lines = ["The dog .\tX X X", "", "A cat .\tX X X"]
    file = ColumnFile(Lines([lines]), "a.tsv", "lines", None)
    sentences = [sentence for group in file.groups() for sentence in group]
    assert [file.tagged(one, ["Y"] * len(one.words)) for one in sentences] == ["The dog .\tY Y Y", "", "A cat .\tY Y Y"]


def test_more_than_two_columns_need_data_columns(tmp_path: Path) -> None:
    """Span tags are in the last column of CoNLL files; `#` may be a word there."""
    text = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\n# SYM I-NP O\nrejects VBZ I-VP O\n\nPeter NNP I-NP I-PER\n"
    expected = [Sentence(("EU", "#", "rejects"), ("I-ORG", "O", "O")), Sentence(("Peter",), ("I-PER",))]
    for content in (text, text.replace(" ", "\t")):
        with pytest.raises(UserError, match=r"line 3: 4 columns .* --columns token=1,tag=4"):
            read(tmp_path / "a.txt", content)
        assert read(tmp_path / "a.txt", content, columns=(1, 4)) == expected


def test_ten_columns_without_ids_are_no_conllu(tmp_path: Path) -> None:
    text = f"well-known{chr(9)}{'_ ' * 8}j\n".replace(" ", "\t")
    assert read(tmp_path / "a.tsv", text, columns=(1, 10)) == [Sentence(("well-known",), ("j",))]


def test_compressed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.xz"
    path.write_bytes(lzma.compress(b"Time\tn\nflies\tv\n\nStop\tv\n"))
    assert list(read_tagged(str(path), TaggedConfig(train=str(path))).sentences) == TWO


def test_conllu_skips_multiword_ranges_and_empty_nodes(tmp_path: Path) -> None:
    words = ("Time", "'s", "up")
    assert read(tmp_path / "a.conllu", CONLLU) == [Sentence(words, ("NOUN", "AUX", "ADV"))]
    assert read(tmp_path / "a.txt", CONLLU) == [Sentence(words, ("NOUN", "AUX", "ADV"))]  # whatever the suffix
    xpos = [Sentence(words, ("NN", "VBZ", "RB"))]
    assert read(tmp_path / "a.conllu", CONLLU, columns=(2, 5)) == xpos
    assert read(tmp_path / "a.conllu", CONLLU, columns=("FORM", "XPOS")) == xpos
    with pytest.raises(UserError, match="no column 'POS'; give its number from 1, or one of ID, FORM"):
        TaggedConfig(train="a", columns=("FORM", "POS"))
    for columns in ((0, 1), (2, 2)):
        with pytest.raises(UserError, match="two different numbers from 1"):
            TaggedConfig(train="a", columns=columns)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "Time\tn\nflies\n", r"a\.tsv, line 2: 1 column,"),
        ("a.tsv", "Time\tn\nflies\t\n", r"a\.tsv, line 2: the tag is missing"),
        ("a.tsv", "Time\tn\n\tv\n", r"a\.tsv, line 2: the token is missing"),
        ("a.tsv", "Time\tNN\tn\n", r"line 1: 3 columns .*--columns token=1,tag=2"),
        ("a.tsv", "Time flies\tn v\nlike an arrow\tp d\n", r"a\.tsv, line 2: 3 tokens, but 2 tags"),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["b", "c"]}\n', r"line 1: 1 tokens, but 2 tags"),
        ("a.jsonl", '{"tokens": ["a"]}\n', r"line 1: expected"),
        ("a.txt", "just words here\n", r"line 1: 3 columns"),
        ("a.conllu", "# nothing\n", r"holds no sentences"),
    ],
)
def test_malformed_tagged_files_are_errors_with_their_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(tmp_path / name, text)


def test_split_keeps_duplicate_sentences_on_the_same_side(tmp_path: Path) -> None:
    lines = "".join(f"word{n % 50}\tx\nmore\ty\n\n" for n in range(200))
    (tmp_path / "a.tsv").write_text(lines)
    config = TaggedConfig(train=str(tmp_path / "a.tsv"), split="documents 20%")
    train_part, valid = read_splits(config)
    assert valid is not None
    assert len(train_part.sentences) + len(valid.sentences) == 200
    assert not {s.words for s in train_part.sentences} & {s.words for s in valid.sentences}
    tail = read_splits(TaggedConfig(train=str(tmp_path / "a.tsv"), split="tail 10%"))[1]
    assert tail is not None
    assert len(tail.sentences) == 20


def test_untagged_words_have_no_loss() -> None:
    known = train(TokenizerConfig(kind="words"), ["hot xx"])
    encoded = encode_sentences([Sentence(("hot", "xx"), ()), Sentence(("xx",), ("x",))], known, {"x": 0})
    assert encoded.tags.tolist() == [IGNORE, IGNORE, 0]


def test_validation_files_of_tagged_sentences(tmp_path: Path) -> None:
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_bytes(b"Time\tn\nflies\tv\n\nSt\xffop\tv\n")
    config = TaggedConfig(train=str(tmp_path / "a.tsv"), valid=str(tmp_path / "b.tsv"), errors="replace")
    training, valid = read_splits(config)
    assert valid is not None
    assert len(training.sentences) == len(valid.sentences) == 2
    part, _ = training.split("tail 50%")
    assert part.notes == training.notes
    assert "1 decoding errors" in part.notes[0]
    assert read_splits(TaggedConfig(train=str(tmp_path / "a.tsv"), errors="replace"))[1] is None


def test_invalid_transitions_of_span_tags() -> None:
    names = ["O", "B-x", "I-x", "B-y", "E-y", "S-y"]
    before = [*names, "^"]
    after: dict[str, set[str]] = {name: set() for name in before}
    for one, other in invalid_transitions(names):
        after[before[one]].add(names[other])
    assert after["B-x"] == after["I-x"] == {"E-y"}
    assert after["B-y"] == {"I-x"}
    assert after["O"] == after["E-y"] == after["S-y"] == after["^"] == {"I-x", "E-y"}
    assert invalid_transitions(["NOUN", "VERB"]) == ()


SENTENCES = [
    Sentence(("Strüdel", "unbelievably", "xx", "hot"), ("n", "a", "x", "j")),
    Sentence(("hot", "xx"), ("j", "x")),
    Sentence(("unbelievably", "hot"), ("a", "?")),
]
TAGS = {"n": 0, "a": 1, "x": 2, "j": 3}


@pytest.mark.parametrize("kind", ["words", "characters", "bytes", "byte-bpe", "bpe", "unigram", "wordpiece"])
@pytest.mark.parametrize("max_length", [None, 7])
def test_tags_stay_aligned_with_words_under_every_tokenizer(kind: str, max_length: int | None) -> None:
    texts = [" ".join(sentence.words) for sentence in SENTENCES] * 3
    size = {"byte-bpe": 280, "bpe": 40, "unigram": 60, "wordpiece": 60}.get(kind)
    tokenizer = train(TokenizerConfig(kind=kind, size=size), texts)  # type: ignore[arg-type]
    encoded = encode_sentences(SENTENCES, tokenizer, TAGS, max_length=max_length)
    assert max_length is None or encoded.lengths.max() <= max_length
    batch = encoded.batch(np.arange(len(encoded)))
    starts, spelling = batch.source.word_starts, batch.source.spelling
    assert starts is not None
    assert spelling is not None
    words = ["".join(chr(int(letter) - 1) for letter in row if letter) for row in spelling[starts]]
    assert words == [word for sentence in SENTENCES for word in sentence.words]
    tags = [tag for row, n in zip(batch.target.tolist(), starts.sum(1).tolist(), strict=True) for tag in row[:n]]
    assert tags == [0, 1, 2, 3, 3, 2, IGNORE, IGNORE]  # a sentence with an unknown tag has no loss
    assert (encoded.origin >= 0).all()
    if max_length is None:
        assert len(encoded) == 3


def test_words_that_normalization_removes_keep_a_position() -> None:
    tokenizer = train(TokenizerConfig(kind="words", pretokenizer="basic-english"), ["well , then"])
    encoded = encode_sentences([Sentence(("well", ":", "then"), ("a", "x", "a"))], tokenizer, TAGS)
    assert encoded.batch(np.arange(1)).target.tolist() == [[1, 2, 1]]


def test_every_sentence_once_per_epoch_and_word_dropout_favors_rare_words() -> None:
    sentences = [Sentence(("the", f"word{n}"), ("a", "n")) for n in range(300)]
    tokenizer = train(TokenizerConfig(kind="words"), [" ".join(s.words) for s in sentences])
    encoded = encode_sentences(sentences, tokenizer, TAGS)
    feed = SentenceFeed(encoded, seed=1, batch=32, tokens=None, word_dropout=1.0)
    rows = np.concatenate([feed.rows(step) for step in range(feed.steps_per_epoch)])
    assert sorted(rows) == list(range(300))
    dropped = np.zeros(2)
    for step in range(feed.steps_per_epoch):
        ids = feed.batch(step).source.ids
        assert ids is not None
        dropped += (ids[:, 1:3] == tokenizer.unk).sum(0).numpy()
    assert dropped[0] < 10  # `the` has frequency 300
    assert 110 < dropped[1] < 190  # the others have frequency 1: half of them
    again = feed.batch(3).source.ids
    assert again is not None
    assert (again == feed.batch(3).source.ids).all()


def decoded(word: str) -> str:
    return "".join(chr(code - 1) for code in char_codes([word])[0] if code)


@pytest.mark.parametrize("letter", ["a", "я", "か", "𐐨"])
def test_char_codes_of_long_words_keep_both_ends_in_any_script(letter: str) -> None:
    assert decoded(letter * MAX_CHARS) == letter * MAX_CHARS
    assert decoded(letter * 30 + "z" * 30) == letter * (MAX_CHARS // 2) + "z" * (MAX_CHARS // 2)


def test_char_codes_have_one_row_per_word() -> None:
    words = ["", "one", "Übung", "x" * MAX_CHARS, "क्या"]
    assert ["".join(chr(n - 1) for n in row if n) for row in char_codes(words)] == words
    assert char_codes([]).shape == (0, MAX_CHARS)


def test_char_codes_are_of_nfc() -> None:
    assert decoded(unicodedata.normalize("NFD", "tiếng Việt")) == "tiếng Việt"
    assert decoded("р\u0301") == "р\u0301"  # has no composed form


def test_classes_of_python_tokens() -> None:
    header, call = lines_of("def scaled(x, by=2): return x.size * area(by)\ntotal = scaled(x, by=self.rate(3)) or x\n")
    classes = [dict(zip(line.words, line.tags, strict=True)) for line in (header, call)]
    assert header.words[:4] == ("def", "scaled", "(", "x")
    assert header.tags[:4] == ("keyword", "definition", "bracket", "parameter")
    assert {word: classes[0][word] for word in ("size", "area", "2", "*")} == {
        "size": "attribute",
        "area": "call",
        "2": "number",
        "*": "op",
    }
    assert header.tags[header.words.index("by")] == "parameter"
    assert {word: classes[1][word] for word in ("total", "scaled", "by", "rate", "or", "x")} == {
        "total": "variable",
        "scaled": "call",
        "by": "argument",
        "rate": "method",
        "or": "keyword",
        "x": "name",
    }


@pytest.mark.parametrize(
    ("tags", "count"),
    [("O I-a I-a", 1), ("B-a I-a E-a", 0), ("I-a O B-b I-a", 2), ("B-a E-a E-a", 1), ("n v I v", 0)],
)
def test_invalid_transitions_are_counted(tags: str, count: int) -> None:
    words = tuple(tags.split())
    assert count_invalid_transitions([Sentence(words, words)] * 3) == 3 * count


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("the x d\nflies x n\nsleep x v\n\n", (1, 3), (1, 3, True)),
        ("the x d\nflies x n\nsleep x z\n\n", (1, 3), (1, 3, False)),  # an unknown tag of three
        ("the x d\nflies x n\nsleep x v\n\n", None, (1, 3, False)),  # not the columns of the training files
        ("1 the x d\n2 flies x n\n3 sleep x v\n\n", None, (2, 4, False)),
        ("the d\nflies n\nsleep _\n\n", None, (1, 2, True)),
        ("vitamin d\nroute n\nplan v\n", None, (1, 2, False)),
        ("can d go\ncan d see\ncan d rest\n", (1, 2), (1, 2, False)),
        ("can d go\n", (1, 2), None),
        ("the flies\nsleep well\nfor once\n\n", None, None),
        ("the flies d\nsleep n\n\n", (1, 2), None),
        ("flies\n\nsleep\n", None, None),
        ("", None, None),
    ],
)
def test_columns_separated_by_spaces(text: str, columns: Columns, expected: tuple[int, int, bool] | None) -> None:
    found = spaced_columns(text.split("\n")[:-1], columns, {"d", "n", "v"})
    assert (found and (found.token, found.tag, found.certain)) == expected
