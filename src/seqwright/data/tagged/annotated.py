"""Column files with other tags: CoNLL, CoNLL-U and `words TAB tags`, streamed; every other line and cell stays."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from seqwright.data.tables import Lines
from seqwright.data.tagged.formats import (
    COMMENT,
    CONLLU,
    DOCSTART,
    HEADER_NAMES,
    METADATA,
    Columns,
    check_conllu,
    token_and_tag,
)

ColumnFormat = Literal["columns", "conllu", "lines"]
FIRST_TAG = {"columns": (1, 2), "conllu": (2, 4), "lines": (1, 2)}
"""Token and tag columns unless configured."""
CELL = re.compile(r"\S+")
"""A cell where white space separates them."""


@dataclass
class AnnotatedSentence:
    """The lines of a sentence, and where its words are in them."""

    lines: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    """Line index and cells of each row with a word."""


class ColumnFile:
    """Sentences of a file of columns, in groups as their lines arrive."""

    def __init__(self, lines: Lines, name: str, format: ColumnFormat, columns: Columns):
        self.lines, self.name, self.format, self.columns = lines, name, format, columns
        self.token, self.tag = columns or FIRST_TAG[format]
        sample = [line for line in lines.peek() if line.strip() and not METADATA.match(line)]
        tabs = format != "columns" or any("\t" in line for line in sample)
        self.split: str | None = "\t" if tabs else None  # str.split of None: runs of white space
        self.joined = " " if not tabs and any(len(line.split()) > 1 for line in sample) else "\t"

    def groups(self) -> Iterator[list[AnnotatedSentence]]:
        """Sentences in order, in groups that end where the next line has not arrived yet."""
        group: list[AnnotatedSentence] = []
        sentence = AnnotatedSentence()
        for number, line in enumerate(self.lines, 1):
            self._add(sentence, line, number)
            if self.format == "lines" or (not line.strip() and sentence.words):
                group.append(sentence)
                sentence = AnnotatedSentence()
            if group and not self.lines.arrived:
                yield group
                group = []
        if sentence.lines:
            sentence.lines += [""] * bool(sentence.words)
            group.append(sentence)
        if group:
            yield group

    def tagged(self, sentence: AnnotatedSentence, tags: Sequence[str]) -> str:
        """The lines of a sentence with other tags."""
        lines = list(sentence.lines)
        values = [" ".join(tags)] * len(sentence.rows) if self.format == "lines" else tags  # a blank line has no row
        for (index, cells), tag in zip(sentence.rows, values, strict=True):
            if self.split is None and len(cells) >= self.tag:  # the spaces between cells may align them
                cell = next(itertools.islice(CELL.finditer(lines[index]), self.tag - 1, None))
                lines[index] = lines[index][: cell.start()] + tag + lines[index][cell.end() :]
                continue
            padded = [*cells, *["_"] * (self.tag - len(cells))]
            padded[self.tag - 1] = tag
            lines[index] = self.joined.join(padded)
        return "\n".join(lines)

    def _add(self, sentence: AnnotatedSentence, line: str, number: int) -> None:
        index = len(sentence.lines)
        sentence.lines.append(line)
        cells = line.split(self.split)
        if not line.strip() or self._is_comment(line, cells, number):
            return
        if self.format == "conllu":
            check_conllu(cells, self.name, number)
        columns = self.columns or ((self.token, self.tag) if self.format == "conllu" else None)
        token, _ = token_and_tag(cells, self.name, number, columns, False)
        sentence.words += token.split() if self.format == "lines" else [token]
        sentence.rows.append((index, cells))

    def _is_comment(self, line: str, cells: list[str], number: int) -> bool:
        """Whether a line has no word: comments, document starts, headers, multiword ranges and empty nodes."""
        if self.format == "lines":
            return False
        if self.format == "conllu":
            return line.startswith("#") or bool({"-", "."} & set(cells[0]))
        header = number == 1 and len(cells) > 1 and {cell.strip().lower() for cell in cells} <= HEADER_NAMES
        comment = (COMMENT if self.split else METADATA).match(line)
        return header or comment is not None or cells[0] == DOCSTART


def conllu_sentence(words: Sequence[str], tags: Sequence[str], column: int, text: str) -> str:
    """A tagged sentence in CoNLL-U, with tags in this column (4: UPOS), its text as a comment, and SpaceAfter."""
    rows = [f"# text = {text}"]
    end = 0
    for number, (word, tag) in enumerate(zip(words, tags, strict=True), 1):
        cells = [str(number), word, *["_"] * (len(CONLLU) - 2)]
        cells[column - 1] = tag
        starts = (text.find(form, end) for form in (word, word.replace("_", " ")))  # Hà_Nội is Hà Nội in the text
        if (start := next((start for start in starts if start >= 0), -1)) >= 0:
            end = start + len(word)
            cells[-1] = "_" if text[end : end + 1].strip() == "" else "SpaceAfter=No"
        rows.append("\t".join(cells))
    return "\n".join([*rows, ""])
