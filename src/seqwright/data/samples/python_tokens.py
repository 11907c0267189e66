"""Embedded tagged sentences: the tokens of each logical line of Python's standard library, tagged by class."""

from __future__ import annotations

import io
import keyword
import sysconfig
import tokenize
from pathlib import Path

from seqwright.data.tagged.formats import Sentence

MIN_TOKENS, MAX_TOKENS, MAX_CHARACTERS = 3, 60, 60
"""Tokens per line, and characters per token; longer tokens (strings) are truncated."""
SKIPPED = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
BRACKETS = set("()[]{},:.;")


def python_tokens(limit: int = 20_000) -> list[Sentence]:
    """Up to `limit` distinct lines of the top-level modules of the standard library, in order."""
    sentences: dict[tuple[str, ...], Sentence] = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*.py")):
        for sentence in lines_of(path.read_text(encoding="utf-8")):
            sentences.setdefault(sentence.words, sentence)
        if len(sentences) >= limit:
            break
    return list(sentences.values())[:limit]


def lines_of(source: str) -> list[Sentence]:
    """The logical lines of a program as tagged sentences."""
    sentences: list[Sentence] = []
    line: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NEWLINE:
            if MIN_TOKENS <= len(line) <= MAX_TOKENS:
                words = (" ".join(info.string[:MAX_CHARACTERS].split()) for info in line)
                sentences.append(Sentence(tuple(words), tuple(_class(line, index) for index in range(len(line)))))
            line = []
        elif token.type not in SKIPPED and token.string.strip():
            line.append(token)
    return sentences


def _class(line: list[tokenize.TokenInfo], index: int) -> str:
    """The class of a token; that of a name depends on its neighbors and on the open brackets of its line."""
    token = line[index]
    kind = tokenize.tok_name[token.type]
    if kind != "NAME":
        return "bracket" if token.string in BRACKETS else kind.partition("_")[0].lower().removeprefix("f")
    if keyword.iskeyword(token.string):
        return "keyword"
    before, after = ("" if not 0 <= near < len(line) else line[near].string for near in (index - 1, index + 1))
    if before in ("def", "class"):
        return "definition"
    if before == ".":
        return "method" if after == "(" else "attribute"
    if after == "(":
        return "call"
    depth = sum((info.string in "([{") - (info.string in ")]}") for info in line[:index] if info.type == tokenize.OP)
    if line[0].string == "def" and depth == 1 and before in ("(", ",", "*", "**"):
        return "parameter"
    if after == "=":
        return "argument" if depth else "variable"
    return "name"
