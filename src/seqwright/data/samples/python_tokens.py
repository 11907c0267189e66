"""Token classes of Python's standard library: the words of each logical line, and what each of them is."""

from __future__ import annotations

import io
import keyword
import sysconfig
import tokenize
from pathlib import Path

from seqwright.data.tagged.formats import Sentence

FEWEST_WORDS, MOST_WORDS, LONGEST = 3, 60, 60
"""Lines of more words, and words of more characters (long strings), teach little for their length."""
SKIPPED = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
BRACKETS = set("()[]{},:.;")


def python_tokens(limit: int = 20_000) -> list[Sentence]:
    """Up to so many distinct lines from the modules at the top of the standard library, in order."""
    found: dict[tuple[str, ...], Sentence] = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*.py")):
        for sentence in lines_of(path.read_text(encoding="utf-8")):
            found.setdefault(sentence.words, sentence)
        if len(found) >= limit:
            break
    return list(found.values())[:limit]


def lines_of(source: str) -> list[Sentence]:
    """The logical lines of a program, each word with its class."""
    sentences: list[Sentence] = []
    line: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NEWLINE:
            if FEWEST_WORDS <= len(line) <= MOST_WORDS:
                words = (" ".join(own.string[:LONGEST].split()) for own in line)
                sentences.append(Sentence(tuple(words), tuple(_class(line, place) for place in range(len(line)))))
            line = []
        elif token.type not in SKIPPED and token.string.strip():
            line.append(token)
    return sentences


def _class(line: list[tokenize.TokenInfo], place: int) -> str:
    """What a word is. What kind of name it is, only its line tells: its neighbors, and which brackets are open."""
    token = line[place]
    kind = tokenize.tok_name[token.type]
    if kind != "NAME":
        return "bracket" if token.string in BRACKETS else kind.partition("_")[0].lower().removeprefix("f")
    if keyword.iskeyword(token.string):
        return "keyword"
    before, after = ("" if not 0 <= near < len(line) else line[near].string for near in (place - 1, place + 1))
    if before in ("def", "class"):
        return "definition"
    if before == ".":
        return "method" if after == "(" else "attribute"
    if after == "(":
        return "call"
    depth = sum((own.string in "([{") - (own.string in ")]}") for own in line[:place] if own.type == tokenize.OP)
    if line[0].string == "def" and depth == 1 and before in ("(", ",", "*", "**"):
        return "parameter"
    if after == "=":
        return "argument" if depth else "variable"
    return "name"
