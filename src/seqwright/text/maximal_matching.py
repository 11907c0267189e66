"""Words of several syllables in running text, by longest match with the words of a corpus.

Vietnamese writes spaces between syllables. Treebanks have its words whole, as in `Hà Nội` (Universal Dependencies) or
`Hà_Nội` (VLSP), and left-to-right maximal matching with a dictionary is the classic baseline of their segmentation.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

UNDERSCORE = re.compile(r"(?<=[^_\s])_(?=[^\W_])")
"""An underscore between syllables, of which the first may end with a mark: TP._HCM."""
UNDERSCORED = re.compile(r"[^\W_][^_\s]*(?:_[^\W_][^_\s]*)+")
CODE = re.compile(r"[\"#<>=\\(){}\[\]]")
"""Marks of strings and comments of programs, which are words with spaces, too."""
IDENTIFIER = re.compile(r"_+[^\W_].*|.*[^\W_]_+")
"""Names of programs, such as _x and __init__."""
IDENTIFIERS = 0.05
"""Identifiers per word with an underscore from which a corpus is of programs, where `_` is no space."""
COMMON = 0.01
"""Share of words from which words with a space or an underscore are the way a corpus writes: fewer underscores are of
file names and e-mail addresses."""


class MaximalMatching:
    """Joins the syllables of the longest known words, from left to right."""

    def __init__(self, words: frozenset[str], split: Callable[[str], Sequence[str]]):
        """`split` is how running text is split otherwise."""
        spaced = [word for word in words if len(word.split()) > 1 and not _is_code(word)]
        underscored = [word for word in words if "_" in word and UNDERSCORED.fullmatch(word)]
        if len(underscored) < COMMON * len(words) or (
            sum(IDENTIFIER.fullmatch(word) is not None for word in words) > IDENTIFIERS * len(underscored)
        ):
            underscored = []
        self.share = (len(spaced) + len(underscored)) / max(1, len(words))
        """Share of the words of the corpus that have several syllables."""
        self.separators = ["a space"] * bool(spaced) + ["an underscore"] * bool(underscored)
        self.underscores_are_spaces = not underscored and len(spaced) >= max(1, COMMON * len(words))
        """Whether `Hà_Nội` in a text, as segmenters write it, is `Hà Nội` in the corpus."""
        self.units: dict[tuple[str, ...], str] = {}
        self.longest: dict[str, int] = {}
        """Syllables of the longest word that begins with a syllable."""
        # Sorted, since the order of a set differs between processes; a space sorts before an underscore and wins.
        for word in sorted([*spaced, *underscored]):
            syllables = normalized(UNDERSCORE.sub(" ", word) if underscored else word).split()
            key = tuple(part for syllable in syllables for part in split(syllable))
            if len(key) > 1:
                self.units.setdefault(key, word)
                self.longest[key[0]] = max(len(key), self.longest.get(key[0], 0))

    @property
    def example(self) -> str:
        """One of the words, the same in every process."""
        return min(self.units.values(), key=lambda word: (len(word), word))

    def __call__(self, tokens: Sequence[str]) -> list[str]:
        """The tokens with known words joined. Capitals at the start of a sentence, or of all syllables, also match
        words without them, and are kept."""
        forms = [normalized(token) for token in tokens]
        lowered = [form.lower() for form in forms]
        words: list[str] = []
        start = 0
        while start < len(tokens):
            most = max(self.longest.get(form[start], 1) for form in (forms, lowered))
            for end in range(min(start + most, len(tokens)), start, -1):
                syllables = tuple(forms[start:end])
                if end == start + 1:
                    words.append(tokens[start])
                elif syllables in self.units:
                    words.append(self.units[syllables])
                elif (word := self._lowered((lowered[start], *syllables[1:]), tuple(lowered[start:end]))) is not None:
                    words.append(_with_letters(word, syllables))
                else:
                    continue
                start = end
                break
        return words

    def _lowered(self, *forms: tuple[str, ...]) -> str | None:
        """The word of the first of these forms that is known."""
        return next((self.units[form] for form in forms if form in self.units), None)


def _is_code(word: str) -> bool:
    """Whether a word with spaces is a string or a comment of a program: its marks, or a mark at either end, say so."""
    return CODE.search(word) is not None or any(
        unicodedata.category(end)[0] not in "LMN" for end in (word[0], word[-1])
    )


def _with_letters(word: str, syllables: Sequence[str]) -> str:
    """The word with the letters of these syllables, and its own spaces or underscores."""
    letters = "".join(syllables)
    inner = [character.isspace() or character == "_" for character in word]
    if inner.count(False) != len(letters):  # lower case or composed accents changed the length
        return ("_" if "_" in word else " ").join(syllables)
    rest = iter(letters)
    return "".join(character if kept else next(rest) for character, kept in zip(word, inner, strict=True))


def normalized(text: str) -> str:
    """The text in NFC: composed and decomposed accents are equivalent."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)
