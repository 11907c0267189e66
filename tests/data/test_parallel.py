"""Parallel corpora: every file format, errors with their line, and splits."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqwright.core.config import UserError
from seqwright.data.parallel.formats import Pair
from seqwright.data.parallel.pairs import Pairs, PairsConfig, read_pairs, read_splits, read_test
from seqwright.data.samples.pairs import embedded_pairs
from seqwright.data.samples.python_pairs import tree

CONFIG = PairsConfig(train="unused")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, *lines: str) -> str:
    Path(name).write_text("".join(line + "\n" for line in lines))
    return name


def test_parallel_files_alternate() -> None:
    files = [write("a.en", "one", "two"), write("a.de", "eins", "zwei"), write("b.en", "x"), write("b.de", "y")]
    pairs = read_pairs(files, CONFIG).pairs
    assert pairs == [Pair(("one",), ("eins",)), Pair(("two",), ("zwei",)), Pair(("x",), ("y",))]


def test_several_sources_and_several_references() -> None:
    files = [write("context", "c"), write("source", "s"), write("first", "f"), write("second", "g")]
    pairs = read_pairs(files, PairsConfig(train="unused", sources=2), references=2).pairs
    assert pairs == [Pair(("c", "s"), ("f", "g"))]


@pytest.mark.parametrize(
    ("name", "lines", "columns"),
    [
        ("a.csv", ('a,"b, c"', "d,e"), None),
        ("a.csv", ("source,target", 'a,"b, c"', "d,e"), None),
        ("a.csv", ("target;src", '"b, c";a', "e;d"), None),
        ("a.csv", ("id,tgt,src", '1,"b, c",a', "2,e,d"), None),
        ("a.csv", ("id,de,en", '1,"b, c",a', "2,e,d"), ("en", "de")),
        ("a.csv", ("id,de,en", '1,"b, c",a', "2,e,d"), (3, 2)),
        ("a.csv", ("de,de,en", '1,"b, c",a', "2,e,d"), ("en", "2")),
        ("a.tsv", ("id\ten\tde", "1\ta\tb, c", "2\td\te"), (2, 3)),
        ("a.tsv", ('"a"\t"b, c"', '"d"\t"e"'), None),
        ("a.tsv", ("source\ttarget", "a\tb, c\tCC-BY", "d\te"), None),
    ],
)
def test_tables_of_pairs(name: str, lines: tuple[str, ...], columns: Any) -> None:
    config = PairsConfig(train="unused", columns=columns)
    assert read_pairs(write(name, *lines), config).pairs == [Pair(("a",), ("b, c",)), Pair(("d",), ("e",))]


def test_tables_of_pairs_name_what_is_wrong() -> None:
    table = write("a.csv", "source,target", "a,b", "c")
    with pytest.raises(
        UserError, match=r"line 3 has 1 comma-separated column: 'c', but data.columns asks for column 2"
    ):
        read_pairs(table, CONFIG)
    assert "the source is column 'source'" in read_pairs(write("b.csv", "source,target", "a,b"), CONFIG).notes[0]
    with pytest.raises(UserError, match=r"no column 'sourse'; .* Did you mean 'source'"):
        read_pairs(table, PairsConfig(train="unused", columns=("sourse", "target")))
    with pytest.raises(UserError, match="2 columns 'en', 1 and 2"):
        read_pairs(write("b.csv", "en,en,de", "a,b,c"), PairsConfig(train="unused", columns=("en", "de")))
    with pytest.raises(UserError, match="no rows below"):
        read_pairs(write("b.csv", "source,target"), CONFIG)
    with pytest.raises(UserError, match="counted from 1"):
        PairsConfig(train="unused", columns=(0, 1))


def test_files_with_both_sides() -> None:
    assert read_pairs(write("a.tsv", "Hi.\tHallo!\tCC-BY"), CONFIG).pairs == [Pair(("Hi.",), ("Hallo!",))]
    swapped = PairsConfig(train="unused", columns=(2, 1))
    assert read_pairs("a.tsv", swapped).pairs == [Pair(("Hallo!",), ("Hi.",))]
    json = write("a.jsonl", '{"source": ["a", "b"], "target": "c", "tag": "<de>"}')
    assert read_pairs(json, CONFIG).pairs == [Pair(("a", "b"), ("c",), "<de>")]
    scan = write("a.txt", "IN: jump twice OUT: I_JUMP I_JUMP")
    assert read_pairs(scan, PairsConfig(train="unused", format="scan")).pairs == [
        Pair(("jump twice",), ("I_JUMP I_JUMP",))
    ]
    pronunciations = write("a.dict", "read R EH1 D", "read(2) R IY1 D", "read(3) R IY0 D # variant", "'em AH0 M")
    assert read_pairs(pronunciations, CONFIG).pairs == [
        Pair(("read",), ("R EH D", "R IY D")),
        Pair(("'em",), ("AH M",)),
    ]
    play = write("play", "A:", "Who's", "there?", "", "B:", "Nay.", "", "A:", "Long live!")
    assert read_pairs(play, PairsConfig(train="unused", format="speeches")).pairs == [
        Pair(("Who's there?",), ("Nay.",)),
        Pair(("Nay.",), ("Long live!",)),
    ]


def test_tags_of_files() -> None:
    files = [write("a.en", "one"), write("a.de", "eins"), write("a.fr", "un")]
    config = PairsConfig(train="unused", tags=("<de>", "<fr>"))
    pairs = read_pairs([files[0], files[1], files[0], files[2]], config).pairs
    assert [pair.tag for pair in pairs] == ["<de>", "<fr>"]
    with pytest.raises(UserError, match="tags names 2 for 1"):
        read_pairs(files[:2], config)


def test_malformed_pairs_are_errors_with_their_line() -> None:
    write("a", "one", "two")
    write("b", "eins")
    with pytest.raises(UserError, match=r"a has 2, b has 1 lines"):
        read_pairs(["a", "b"], CONFIG)
    with pytest.raises(UserError, match="files alternate"):
        read_pairs(["a"], CONFIG)
    with pytest.raises(UserError, match=r"line 1 has 1 tab-separated column"):
        read_pairs(write("c.tsv", "no tab"), CONFIG)
    valid = '{"source": "a", "target": "b"}'
    for invalid, message in (
        ('{"source": 3, "target": "b"}', "'source' should be a string or a list of strings, but is 3"),
        ('{"source": "a"}', "'target' should be a string or a list of strings, but is null"),
        ('{"source": "a", "source": "c", "target": "b"}', "duplicate key 'source'"),
        ("", "is empty"),
    ):
        with pytest.raises(UserError, match=rf"c\.jsonl, line 2.*{message}"):
            read_pairs(write("c.jsonl", valid, invalid), CONFIG)
    with pytest.raises(UserError, match="IN: … OUT"):
        read_pairs(write("d", "jump"), PairsConfig(train="unused", format="scan"))
    with pytest.raises(UserError, match=r"no embedded pairs 'summary'\. Did you mean 'summaries'"):
        embedded_pairs("summary")


def test_empty_sides_are_counted() -> None:
    pairs = read_pairs([write("a", "one", ""), write("b", "eins", "zwei")], CONFIG)
    assert len(pairs.pairs) == 2
    assert pairs.notes[0].startswith("1 of 2 pairs")


def test_split_keeps_equal_sources_on_the_same_side() -> None:
    lines = [f"{n % 40}\tx{n}" for n in range(400)]
    train, valid, _ = read_pairs(write("a.tsv", *lines), CONFIG).split("documents 20%")
    assert len(train.pairs) + len(valid.pairs) == 400
    assert not {pair.sources for pair in train.pairs} & {pair.sources for pair in valid.pairs}
    again = read_pairs(write("a.tsv", *reversed(lines)), CONFIG).split("documents 20%")[1]
    assert {pair.targets for pair in again.pairs} == {pair.targets for pair in valid.pairs}


@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_small_file_has_a_source_to_validate_on(count: int) -> None:
    pairs = Pairs(pairs=[Pair((f"source {n}",), (f"target {n}",)) for n in range(count)])
    train, valid, _ = pairs.split("documents 0.001%")
    assert (len(train.pairs), len(valid.pairs)) == (count - 1, 1)


def test_test_split_is_disjoint_from_training_and_validation() -> None:
    config = PairsConfig(
        train=write("a.tsv", *(f"{n % 40}\tx{n}" for n in range(400))), split="documents 20%", test=0.2
    )
    train, valid = read_splits(config)
    test = read_test(config)
    assert valid is not None
    sides = [{pair.sources for pair in part.pairs} for part in (train, valid, test)]
    assert all(sides)
    assert sum(map(len, sides)) == len(set.union(*sides)) == 40
    assert valid.pairs == read_splits(replace(config, test=0.0))[1].pairs  # type: ignore[union-attr]
    with pytest.raises(UserError, match="has no test split"):
        read_test(replace(config, test=0.0))
    with pytest.raises(UserError, match="documents 5%"):
        replace(config, split="tail 10%")


def test_bracketed_syntax_trees() -> None:
    import ast

    assert tree(ast.parse("a.b + f(1, x='y')", mode="eval").body) == (
        "(BinOp (Attribute (Name a) b) (Add) (Call (Name f) (Constant 1) (keyword 'x' (Constant 'y'))))"
    )


@pytest.mark.skipif(importlib.util.find_spec("babel") is None, reason="needs Babel: the extra [samples]")
def test_dates_in_two_languages() -> None:
    pairs = {pair.sources[0]: pair.targets[0] for pair in embedded_pairs("dates-en-vi")}
    assert len(pairs) > 10_000
    assert pairs["Wednesday, December 21, 2039"] == "Thứ Tư, 21 tháng 12, 2039"


def test_dates_without_babel_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "babel", None)
    with pytest.raises(UserError, match=r"seqwright\[samples\]"):
        embedded_pairs("dates-en-vi")
