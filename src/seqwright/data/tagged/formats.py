"""Parsers for tagged sentences: CoNLL columns, CoNLL-U, one sentence per line, and JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from seqwright.core.config import UserError
from seqwright.core.printable import quantity

Format = Literal["columns", "conllu", "lines", "jsonl"]
Columns = tuple[int, int] | None
"""Numbers of the token and tag columns, counted from 1; None: the file has only two."""

DOCSTART = "-DOCSTART-"
"""Marks the start of a document in CoNLL files; it is no sentence."""
METADATA = re.compile(r"#\s*(\S+ = |newdoc|newpar)")
"""Start of comment lines in space-separated files: `# text = …`."""
COMMENT = re.compile(r"#[^\t]*$")
"""Comment lines in tab-separated files: any line that begins with # and has no tab."""
SPAN = re.compile(r"O|[BIESLUM]-\S+")
HEADER_NAMES = {"token", "tokens", "word", "words", "form", "tag", "tags", "pos", "upos", "ner", "label"}
"""Column names by which a header line is recognized."""
SEVERAL_ROWS, MANY_ROWS = 3, 10
"""Lines with equally many fields that are no chance: if one field is a tag, or by that alone."""
TAGS_SHARE = 0.9
"""Share of known tags, or of _ for none, in a column of tags; test files may have a few that training has not."""

CONLLU = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
"""The columns of CoNLL-U (Universal Dependencies)."""


@dataclass(frozen=True)
class Sentence:
    """Words and their tags; no tags where the file is parsed untagged."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def sniff(text: str, name: str, columns: Columns) -> Format:
    """The format of a file, detected from its suffix and its first lines."""
    plain = name.removesuffix(".xz").removesuffix(".gz")
    for suffix, kind in ((".conllu", "conllu"), (".jsonl", "jsonl")):
        if plain.endswith(suffix):
            return kind  # type: ignore[return-value]
    lines = text[:100_000].strip().split("\n")[:200]
    if any(_is_conllu(line.split("\t")) for line in lines):
        return "conllu"
    numbers = columns or (1, 2)
    rows = [line.split("\t") for line in lines if line.count("\t") >= max(numbers) - 1]
    token, tag = ([" " in row[number - 1].strip() for row in rows] for number in numbers)
    # A single tag holds no space, so a tag cell with spaces holds the tags of a sentence. Sentences of one word have
    # none; then most token cells hold spaces, and no blank line separates sentences.
    sentence_per_line = any(tag) or (sum(token) > len(rows) / 2 and all(line.strip() for line in lines))
    return "lines" if sentence_per_line else "columns"


@dataclass(frozen=True, kw_only=True)
class SpacedColumns:
    """Columns separated by spaces that the first lines of a text seem to have."""

    token: int
    tag: int
    line: str
    """The first with a word."""
    certain: bool
    """Whether they are surely columns, rather than texts that look alike."""


def spaced_columns(lines: Sequence[str], columns: Columns, tags: Collection[str]) -> SpacedColumns | None:
    """The columns that lines have, if they seem to: as many fields in each, of which one is a tag in `tags`.

    Only columns of the training files are certain, in several lines with a blank line between sentences, or in many:
    a few lines such as `vitamin d`, or `Can I go?` where `I` is a tag, look the same.
    """
    contents = (line for line in lines if line.strip() and not METADATA.match(line))
    rows = [cells for cells in map(str.split, contents) if cells[0] != DOCSTART]
    if rows and {cell.lower() for cell in rows[0]} <= HEADER_NAMES:
        del rows[0]
    if not rows or len(rows[0]) < 2 or len({len(row) for row in rows}) > 1 or any("\t" in line for line in lines):
        return None
    line, width = " ".join(rows[0]), len(rows[0])
    trained = columns or ((1, 2) if width == 2 else None)
    several = len(rows) >= SEVERAL_ROWS
    blank = any(not line.strip() for line in lines)

    def has_tags(column: int) -> bool:
        known = sum(row[column - 1] in tags or row[column - 1] == "_" for row in rows)
        return known >= TAGS_SHARE * len(rows)

    if trained is not None and max(trained) <= width and has_tags(trained[1]) and (several or trained[1] == width):
        certain = several and (blank or (width > 2 and len(rows) >= MANY_ROWS))
        return SpacedColumns(token=trained[0], tag=trained[1], line=line, certain=certain)
    if not several:
        return None
    first = 2 if width > 2 and all(row[0].isdecimal() for row in rows) else 1
    if found := [column for column in range(first + 1, width + 1) if has_tags(column)]:
        return SpacedColumns(token=first, tag=found[-1], line=line, certain=False)
    if blank and (columns or len(rows) >= MANY_ROWS):  # by their form alone
        token, tag = columns or (first, width)
        return SpacedColumns(token=token, tag=tag, line=line, certain=False)
    return None


def by_columns(text: str, name: str, columns: Columns, tagged: bool) -> Iterator[Sentence]:
    """Sentences of a CoNLL file: one word per line with its tag in another column, blank lines between sentences.

    Columns are separated by tabs, or by white space where a file has no tab; then `# x` may be a word and its tag.
    """
    separator = "\t" if "\t" in text else None
    comment = COMMENT if separator else METADATA
    rows = [
        (number, line.rstrip("\r").split(separator))
        for number, line in enumerate(text.split("\n"), 1)
        if not comment.match(line)
    ]
    if rows and len(rows[0][1]) > 1 and {cell.strip().lower() for cell in rows[0][1]} <= HEADER_NAMES:
        del rows[0]
    yield from _sentences(iter(rows), name, columns, tagged)


def conllu(text: str, name: str, columns: Columns, tagged: bool) -> Iterator[Sentence]:
    """Sentences of a CoNLL-U file: FORM and UPOS by default; multiword ranges and empty nodes are skipped."""

    def cells() -> Iterator[tuple[int, list[str]]]:
        for number, line in enumerate(text.split("\n"), 1):
            row = line.rstrip("\r").split("\t")
            if not line.startswith("#") and not {"-", "."} & set(row[0]):  # IDs `1-2` and `2.1`
                check_conllu(row, name, number)
                yield number, row

    yield from _sentences(cells(), name, columns or (2, 4), tagged)


def by_lines(text: str, name: str, columns: Columns, tagged: bool) -> Iterator[Sentence]:
    """Sentences, one per line: space-separated words in one tab-separated column, their tags in another."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            words, tags = (
                cell.split() for cell in token_and_tag(line.rstrip("\r").split("\t"), name, number, columns, tagged)
            )
            yield _sentence(words, tags, name, number, tagged)


def jsonl(text: str, name: str, columns: Columns, tagged: bool) -> Iterator[Sentence]:
    """Sentences from one object per line: {"tokens": ["…"], "tags": ["…"]}."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record: Any = json.loads(line)
            words, tags = record["tokens"], record["tags"] if tagged else []
            if not all(isinstance(cell, str) for cell in [*words, *tags]):
                raise TypeError("tokens and tags are strings")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(f'{name}, line {number:,}: expected {{"tokens": […], "tags": […]}} ({error}).') from error
        yield _sentence(words, tags, name, number, tagged)


FORMATS: dict[Format, Callable[[str, str, Columns, bool], Iterator[Sentence]]] = {
    "columns": by_columns,
    "conllu": conllu,
    "lines": by_lines,
    "jsonl": jsonl,
}


def _is_conllu(cells: Sequence[str]) -> bool:
    """Whether these are the ten columns of a CoNLL-U word."""
    return len(cells) == len(CONLLU) and cells[0].isdecimal()


def check_conllu(cells: Sequence[str], name: str, number: int) -> None:
    """Raises where a line with a word has not the ten columns of CoNLL-U."""
    if any(cell.strip() for cell in cells) and len(cells) != len(CONLLU):
        found = quantity(len(cells), "column")
        hint = " (is it separated by spaces?)" if len(cells) == 1 and len(cells[0].split()) > 1 else ""
        raise UserError(
            f"{name}, line {number:,} has {found}{hint}, where CoNLL-U has {len(CONLLU)}, separated by tabs: mend it,"
            f" or say what it is with --set data.format=columns. The line begins {' '.join(cells)[:60]!r}."
        )


def _sentences(rows: Iterator[tuple[int, list[str]]], name: str, columns: Columns, tagged: bool) -> Iterator[Sentence]:
    words: list[str] = []
    tags: list[str] = []
    for number, row in rows:
        if row and row[0] == DOCSTART:
            continue
        if any(cell.strip() for cell in row):
            word, tag = token_and_tag(row, name, number, columns, tagged)
            if not word or (tagged and not tag):
                missing = "tag" if word else "token"
                raise UserError(f"{name}, line {number:,}: the {missing} is missing; the line reads {row}.")
            words.append(word)
            tags.append(tag)
        elif words:
            yield Sentence(tuple(words), tuple(tags) if tagged else ())
            words, tags = [], []
    if words:
        yield Sentence(tuple(words), tuple(tags) if tagged else ())


def token_and_tag(cells: list[str], name: str, number: int, columns: Columns, tagged: bool) -> tuple[str, str]:
    """The token and the tag cell of a row; an empty tag where it is parsed untagged."""
    place = f"{name}, line {number:,}"
    if columns is None and len(cells) > 2:
        shown = ", ".join(f"{n} {cell[:20]!r}" for n, cell in enumerate(cells, 1))
        token = 2 if cells[0].isdecimal() else 1
        tag = len(cells) if SPAN.fullmatch(cells[-1].strip()) else token + 1  # CoNLL files have span tags last
        raise UserError(
            f"{place}: {len(cells)} columns ({shown}); name those of token and tag, as in --columns"
            f" token={token},tag={tag}."
        )
    token, tag = columns or (1, 2)
    if len(cells) < (max(token, tag) if tagged else token):
        expected = (
            f"data.columns asks for column {max(token, tag)}" if columns else "token and tag are separated by a tab"
        )
        raise UserError(
            f"{place}: {quantity(len(cells), 'column')}, but {expected}; the line begins {cells[0][:60]!r}."
        )
    return cells[token - 1].strip(), cells[tag - 1].strip() if tagged else ""


def _sentence(words: list[str], tags: list[str], name: str, number: int, tagged: bool) -> Sentence:
    if tagged and len(words) != len(tags):
        raise UserError(
            f"{name}, line {number:,}: {len(words)} tokens, but {len(tags)} tags; give one tag per token. "
            f"The line begins {' '.join(words)[:60]!r}."
        )
    return Sentence(tuple(words), tuple(tags))
