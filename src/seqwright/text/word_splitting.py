"""Running text to words as a tagged corpus has them: punctuation, clitics and hyphens apart where the corpus does so.

Treebanks differ: Universal Dependencies and the Penn Treebank write `do n't` and `.` as words, spoken corpora have no
punctuation, only some part hyphens, and Vietnamese ones have words of several syllables. The words of the training data
decide.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

from seqwright.text.maximal_matching import UNDERSCORE, MaximalMatching

ENGLISH_CLITICS = ("n't", "'s", "'re", "'ve", "'ll", "'d", "'m")
CLITIC = re.compile(r"(.+?)(n['’]t|['’](?:s|re|ve|ll|d|m))", re.IGNORECASE)
ELISION = re.compile(r"((?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu)['’])(.+)", re.IGNORECASE)
"""French and Italian words that lose their vowel: l'homme."""
ADDRESS = re.compile(r"(?:[a-z]+://|www\.)\S+|[^\s@]+@[^\s@]+\.\w+", re.IGNORECASE)
"""URLs and e-mail addresses, which are one word."""
TRAILING = re.compile(r"[.,;:!?)\]}\"'”’»]+$")
INITIALS = re.compile(r"[aA](?:\.[aA])+")
"""The shape of U.S and e.g before their last full stop."""
HYPHENATED = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)+")
HYPHENATED_SHARE = 0.03
"""Share of hyphenated words among all from which hyphens join words: about 0.1 in the Penn Treebank, and 0.01 in UD
English, where only affixes stay joined."""


class WordSplitter:
    """Splits text into words by rules that the words of a corpus imply."""

    def __init__(self, words: Collection[str]):
        self.words = words if isinstance(words, frozenset) else frozenset(words)
        self.punctuation = any(mark in self.words for mark in (".", ",", "?", "!", "。", "।", "؟"))
        self.clitics = any(clitic in self.words for clitic in ENGLISH_CLITICS[:2])
        self.elisions = "l'" in self.words or "l’" in self.words
        hyphenated = sum(HYPHENATED.fullmatch(word) is not None for word in self.words)
        self.hyphens = "-" in self.words and hyphenated < HYPHENATED_SHARE * len(self.words)
        inner = ".'&@" if self.hyphens else ".'&@/-"
        word = rf"[aA0]+(?:(?:[{re.escape(inner)}](?=[a0])|(?<=[A0])[.&'-](?=A)|(?<=0)[,:/-](?=0))[aA0]+)*"
        self.pattern = re.compile(rf"{word}|s+|(?P<mark>[^aA0s])(?P=mark)*")
        self.matching = MaximalMatching(self.words, self._tokens)

    @property
    def rules(self) -> str:
        """What is split and joined, in words of the user."""
        matching = self.matching
        if not matching.units:
            return self._split_rules
        share = f"{100 * matching.share:.0f} %" if matching.share >= 0.01 else "less than 1 %"
        return (
            f"{self._split_rules}. {share} of the training words contain {' or '.join(matching.separators)}, as in"
            f" {matching.example!r}: these are joined where they occur, by longest match; unknown ones stay split, so"
            f" segment the text first for best results, with underscores inside words"
        )

    @property
    def _split_rules(self) -> str:
        if not self.punctuation:
            return "words are split at white space: the training data has no punctuation marks of their own"
        apart = ["punctuation", *(["clitics (n't, 's)"] * self.clitics), *(["elisions (l')"] * self.elisions)]
        apart += ["hyphens"] * self.hyphens
        return f"words are split at white space, with {', '.join(apart)} apart as in the training data"

    def __call__(self, text: str) -> tuple[str, ...]:
        """The words of a sentence."""
        chunks = text.split()
        last = len(chunks) - 1
        if self.punctuation:
            chunks = [word for n, chunk in enumerate(chunks) for word in self._split(chunk, final=n == last)]
        return tuple(self.matching(self._segmented(chunks)) if self.matching.units else chunks)

    def at_spaces(self, text: str) -> tuple[str, ...]:
        """The words of a tokenized text, which are separated by white space; of a segmented one `Hà_Nội` is one."""
        return tuple(self._segmented(text.split()))

    def _segmented(self, words: Sequence[str]) -> Sequence[str]:
        """The words, with spaces for the underscores of a segmenter where the words of the corpus contain spaces."""
        if not self.matching.underscores_are_spaces:
            return words
        return [word if ADDRESS.match(word) else UNDERSCORE.sub(" ", word) for word in words]

    def _tokens(self, chunk: str) -> Sequence[str]:
        """The parts of one of several chunks."""
        return self._split(chunk, final=False) if self.punctuation and not chunk.isalpha() else [chunk]

    def _split(self, chunk: str, *, final: bool) -> list[str]:
        if ADDRESS.match(chunk):
            address = TRAILING.sub("", chunk)
            return [address, *self._marks(chunk[len(address) :])]
        if self._known(chunk, final=final):
            return [chunk]
        shadow = shape(chunk)
        if not final and re.fullmatch(r"A\.", shadow):  # an initial: J. Smith
            return [chunk]
        inside = [n for n, kind in enumerate(shadow) if kind in "aA0s"]
        if not inside:
            return self._marks(chunk)
        first, end = inside[0], inside[-1] + 1
        abbreviated = self._known(chunk[first : end + 1], final=final and end == len(chunk) - 1)
        if shadow[end : end + 1] == "." and (abbreviated or INITIALS.fullmatch(shadow[first:end])):
            end += 1
        core = chunk[first:end]
        kept = self._known(core, final=False) or core.endswith(".")
        words = [core] if kept else [chunk[slice(*match.span())] for match in self.pattern.finditer(shadow, first, end)]
        return [
            *self._marks(chunk[:first]),
            *(part for word in words for part in self._parts(word)),
            *self._marks(chunk[end:]),
        ]

    def _known(self, chunk: str, *, final: bool) -> bool:
        """Whether a chunk is a word of the corpus: `Mr.`, `e-mail`, `:)`. The full stop at the end of a sentence is a
        word of its own, and so are clitics, which corpora join by mistake now and then."""
        if chunk not in self.words or (self.clitics and CLITIC.fullmatch(chunk) and chunk[0] not in "'’n"):
            return False
        return not (final and chunk.endswith(".") and chunk[:-1] in self.words)

    def _parts(self, piece: str) -> list[str]:
        if self.clitics and piece not in ENGLISH_CLITICS and (match := CLITIC.fullmatch(piece)):
            return [*match.groups()]
        if self.elisions and (match := ELISION.fullmatch(piece)):
            return [*match.groups()]
        return [piece]

    def _marks(self, marks: str) -> list[str]:
        return [match[0] for match in re.finditer(r"(.)\1*", marks)]


def shape(text: str) -> str:
    """One character for each of a text: A for capitals, a for other letters, 0 for digits, s for symbols such as emoji,
    punctuation itself; marks and joiners are like what they modify."""
    shapes: list[str] = []
    for character in text:
        category = unicodedata.category(character)
        if character == "_" or category[0] == "L":
            shapes.append("A" if category == "Lu" else "a")
        elif category[0] == "N":
            shapes.append("0")
        elif category[0] == "M" or category == "Cf" or 0x1F3FB <= ord(character) <= 0x1F3FF:  # skin tones
            shapes.append(shapes[-1] if shapes else "a")
        elif character > "\x7f" and category[0] == "S" and category != "Sc":
            shapes.append("s")
        else:
            shapes.append("'" if character == "’" else character)
    return "".join(shapes)
