"""Files of tagged words: columns with a blank line between sentences, CoNLL-U, a sentence a line, JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from seqwright.core.config import UserError

Format = Literal["columns", "conllu", "lines", "jsonl"]
Columns = tuple[int, int] | None
"""Where token and tag stand, counted from 1; None: the only two there are."""

DOCUMENT = "-DOCSTART-"
"""The word that begins a document in files of the CoNLL tasks; it is no sentence."""
SAID = re.compile(r"#\s*(\S+ = |newdoc|newpar)")
"""How lines begin that say something of a sentence: `# text = …`."""
COMMENT = re.compile(r"#[^\t]*$")
"""The same where words and tags are parted by tabs."""
SPAN = re.compile(r"O|[BIESLUM]-\S+")
HEADINGS = {"token", "tokens", "word", "words", "form", "tag", "tags", "pos", "upos", "ner", "label"}
"""What columns of tagged words are called."""

CONLLU = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
"""The columns of Universal Dependencies."""


@dataclass(frozen=True)
class Sentence:
    """Words, and the tag of each; no tags at all where a file has none and none are needed."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def sniff(text: str, name: str, columns: Columns) -> Format:
    """How a file is written, by its name and its first lines."""
    plain = name.removesuffix(".xz").removesuffix(".gz")
    for suffix, kind in ((".conllu", "conllu"), (".jsonl", "jsonl")):
        if plain.endswith(suffix):
            return kind  # type: ignore[return-value]
    lines = text[:100_000].strip().split("\n")[:200]
    if any(_numbered(line.split("\t")) for line in lines):
        return "conllu"
    places = columns or (1, 2)
    cells = [line.split("\t") for line in lines if line.count("\t") >= max(places) - 1]
    token, tag = ([" " in row[place - 1].strip() for row in cells] for place in places)
    # No tag holds a space, so a column of tags with spaces has those of whole sentences; so has one beside many words,
    # where no blank line ends a sentence.
    whole = any(tag) or (sum(token) > len(cells) / 2 and all(line.strip() for line in lines))
    return "lines" if whole else "columns"


def by_columns(text: str, name: str, columns: Columns, tagged: bool) -> Iterator[Sentence]:
    """A word a line, its tag in another column; blank lines end sentences. Columns are parted by tabs, or by spaces
    where a file has no tab (and a line `# x` may be a word)."""
    separator = "\t" if "\t" in text else None
    comment = COMMENT if separator else SAID
    rows = [
        (number, line.rstrip("\r").split(separator))
        for number, line in enumerate(text.split("\n"), 1)
        if not comment.match(line)
    ]
    if rows and len(rows[0][1]) > 1 and {cell.strip().lower() for cell in rows[0][1]} <= HEADINGS:
        del rows[0]
    yield from _sentences(iter(rows), name, columns, tagged)


def conllu(text: str, name: str, columns: Columns, tagged: bool) -> Iterator[Sentence]:
    """Universal Dependencies: FORM and UPOS unless columns say otherwise; ranges and empty nodes are not words of their
    own."""

    def cells() -> Iterator[tuple[int, list[str]]]:
        for number, line in enumerate(text.split("\n"), 1):
            found = line.rstrip("\r").split("\t")
            if not line.startswith("#") and not {"-", "."} & set(found[0]):
                yield number, found

    yield from _sentences(cells(), name, columns or (2, 4), tagged)


def by_lines(text: str, name: str, columns: Columns, tagged: bool) -> Iterator[Sentence]:
    """A sentence a line: its words, parted by spaces, in one column between tabs, its tags in another."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            words, tags = (cell.split() for cell in _two(line.rstrip("\r").split("\t"), name, number, columns, tagged))
            yield _sentence(words, tags, name, number, tagged)


def jsonl(text: str, name: str, columns: Columns, tagged: bool) -> Iterator[Sentence]:
    """An object a line: {"tokens": ["…"], "tags": ["…"]}."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record: Any = json.loads(line)
            words, tags = record["tokens"], record["tags"] if tagged else []
            if not all(isinstance(cell, str) for cell in [*words, *tags]):
                raise TypeError("tokens and tags are strings")
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f'{name}, line {number:,}: expected {{"tokens": […], "tags": […]}} ({error}).') from error
        yield _sentence(words, tags, name, number, tagged)


FORMATS: dict[Format, Callable[[str, str, Columns, bool], Iterator[Sentence]]] = {
    "columns": by_columns,
    "conllu": conllu,
    "lines": by_lines,
    "jsonl": jsonl,
}


def _numbered(cells: Sequence[str]) -> bool:
    """Whether these are the ten columns of a word of CoNLL-U."""
    return len(cells) == len(CONLLU) and cells[0].isdecimal()


def _sentences(cells: Iterator[tuple[int, list[str]]], name: str, columns: Columns, tagged: bool) -> Iterator[Sentence]:
    words: list[str] = []
    tags: list[str] = []
    for number, found in cells:
        if found and found[0] == DOCUMENT:
            continue
        if any(cell.strip() for cell in found):
            word, tag = _two(found, name, number, columns, tagged)
            if not word or (tagged and not tag):
                missing = "tag" if word else "token"
                raise UserError(f"{name}, line {number:,}: the {missing} is missing; the line reads {found}.")
            words.append(word)
            tags.append(tag)
        elif words:
            yield Sentence(tuple(words), tuple(tags) if tagged else ())
            words, tags = [], []
    if words:
        yield Sentence(tuple(words), tuple(tags) if tagged else ())


def _two(cells: list[str], name: str, number: int, columns: Columns, tagged: bool) -> tuple[str, str]:
    """Token and tag of a row of cells, or of what is asked for of them."""
    where = f"{name}, line {number:,}"
    if columns is None and len(cells) > 2:
        shown = ", ".join(f"{n} {cell[:20]!r}" for n, cell in enumerate(cells, 1))
        tag = len(cells) if SPAN.fullmatch(cells[-1].strip()) else 2  # files of the CoNLL tasks have spans last
        raise UserError(
            f"{where}: {len(cells)} columns ({shown}); say which are token and tag, as in --set data.columns=[1,{tag}]."
        )
    token, tag = columns or (1, 2)
    if len(cells) < (max(token, tag) if tagged else token):
        wanted = f"data.columns asks for column {max(token, tag)}" if columns else "token and tag are parted by a tab"
        raise UserError(f"{where}: {len(cells)} column(s), but {wanted}; the line begins {cells[0][:60]!r}.")
    return cells[token - 1].strip(), cells[tag - 1].strip() if tagged else ""


def _sentence(words: list[str], tags: list[str], name: str, number: int, tagged: bool) -> Sentence:
    if tagged and len(words) != len(tags):
        raise UserError(
            f"{name}, line {number:,}: {len(words)} tokens, but {len(tags)} tags; each token has one tag. "
            f"The line begins {' '.join(words)[:60]!r}."
        )
    return Sentence(tuple(words), tuple(tags))
