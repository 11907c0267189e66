"""Phrase automata: match phrases in the output under every segmentation into tokens (decision 121).

A word has many segmentations, so phrases are matched in bytes (Aho & Corasick 1975). The byte automaton is then run
over the bytes of every token, which gives a transition table of states by ids.

A phrase occurs in a text where no letter is adjacent to one of its own: "cat" in "the cat." but not in "cats". Letters
are recognized by the first byte of a character: ASCII letters and digits, and characters of all scripts with an
alphabet; punctuation, symbols, and Chinese and Japanese characters are words by themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError

Ints = NDArray[np.int64]
States = NDArray[np.int32]
PartialMatches = frozenset[tuple[int, int]]
"""(phrase, matched bytes) of every phrase that may be occurring."""

# UTF-8 lead bytes: 0xC3-0xDF Latin, Greek, Cyrillic, Hebrew, Arabic …; 0xE0-0xE1 Indic scripts, Georgian, Vietnamese …;
# 0xEA-0xED Hangul.
LETTER_LEAD_BYTES = frozenset(
    [*(byte for byte in range(128) if chr(byte).isalnum()), *range(0xC3, 0xE2), *range(0xEA, 0xEE)]
)
"""First bytes of the characters that belong to words."""
MAX_TABLE_ENTRIES = 1 << 27
"""Largest transition table: half a gigabyte of int32, and as much again while a search builds its tables from it."""


@dataclass(frozen=True, kw_only=True)
class Automaton:
    """A transition table over ids. A text starts in state 0; the state in which a phrase has occurred is absorbing."""

    transitions: States
    """(S, V): the state after each id."""
    matched_bytes: Ints
    """(S,): length of the longest partial match."""
    occurred: NDArray[np.bool_]
    """(S,): a phrase has occurred."""
    occurs_at_end: NDArray[np.bool_]
    """(S,): a phrase has occurred if the text ends here."""
    has_text: NDArray[np.bool_]
    """(V,): ids of text, and <eos>; other special tokens change no state."""

    def without_end_boundary(self, ids: Sequence[int]) -> Automaton:
        """The same automaton, except that a phrase completed by one of these ids occurs even if a letter follows."""
        transitions = self.transitions.copy()
        if self.occurred.any():
            completed = self.occurs_at_end[transitions[:, ids]]  # (S, N)
            transitions[:, ids] = np.where(completed, int(self.occurred.argmax()), transitions[:, ids])
        return replace(self, transitions=transitions)

    def read(self, ids: Sequence[int], state: int = 0) -> int:
        """The state after these ids."""
        for token in ids:
            state = int(self.transitions[state, token])
        return state


def automaton(phrases: Sequence[bytes], pieces: Sequence[bytes], eos: int | None) -> Automaton:
    """The automaton of texts that contain one of the phrases in any segmentation. `pieces` are the bytes of each id,
    empty for special tokens; <eos> is a word boundary."""
    table, states = _byte_automaton(phrases)
    if len(table) * len(pieces) > MAX_TABLE_ENTRIES:
        raise UserError(
            f"{len(phrases):,} phrases are too many for a vocabulary of {len(pieces):,} tokens; leave out all but"
            f" {MAX_TABLE_ENTRIES * len(phrases) // (len(table) * len(pieces)):,}, the ones that matter most."
        )
    spelled = [b" " if id == eos else piece for id, piece in enumerate(pieces)]
    lengths = np.array([len(piece) for piece in spelled])
    transitions = np.repeat(np.arange(len(table), dtype=np.int32)[:, None], len(spelled), 1)  # (S, V)
    for position in range(lengths.max()):  # all tokens from all states, a byte at a time
        longer = np.flatnonzero(lengths > position)
        transitions[:, longer] = table[transitions[:, longer], [spelled[id][position] for id in longer]]
    occurred = np.array([matches is None for _, matches in states])
    return Automaton(
        transitions=transitions,
        matched_bytes=np.array([max((length for _, length in matches or ()), default=0) for _, matches in states]),
        occurred=occurred,
        occurs_at_end=occurred[table[:, ord(" ")]],
        has_text=lengths > 0,
    )


def _byte_automaton(phrases: Sequence[bytes]) -> tuple[States, list[tuple[bool, PartialMatches | None]]]:
    """Transitions (S, 256), and for each state whether its last character is a letter, and its partial matches; None
    where a phrase has occurred."""
    states: list[tuple[bool, PartialMatches | None]] = [(False, frozenset())]
    number = {states[0]: 0}
    rows: list[dict[int, int]] = []
    by_first_byte: defaultdict[int, list[int]] = defaultdict(list)
    for n, phrase in enumerate(phrases):
        by_first_byte[phrase[0]].append(n)
    classes = _byte_classes(phrases)
    while len(rows) < len(states):  # breadth first: states are numbered as they are reached
        letter, matches = states[len(rows)]
        row = {}
        for byte in set(classes):
            after = (
                (letter, matches)
                if matches is None
                else _next_state(phrases, by_first_byte[byte], letter, matches, byte)
            )
            if after not in number:
                number[after] = len(states)
                states.append(after)
            row[byte] = number[after]
        rows.append(row)
    return np.array([[row[byte] for byte in classes] for row in rows], np.int32), states


def _byte_classes(phrases: Sequence[bytes]) -> list[int]:
    """The representative of each byte's equivalence class: bytes of no phrase differ only in how they bound words."""
    known, first = {byte for phrase in phrases for byte in phrase}, dict[tuple[bool, bool], int]()
    return [
        byte if byte in known else first.setdefault((0x80 <= byte < 0xC0, byte in LETTER_LEAD_BYTES), byte)
        for byte in range(256)
    ]


def _next_state(
    phrases: Sequence[bytes], starting: Sequence[int], after_letter: bool, matches: PartialMatches, byte: int
) -> tuple[bool, PartialMatches | None]:
    """The state after one byte more; `starting` are the phrases whose first byte it is."""
    # Continuation bytes (0x80-0xBF) belong to the character of their lead byte.
    letter = after_letter if 0x80 <= byte < 0xC0 else byte in LETTER_LEAD_BYTES
    inside_word = after_letter and letter
    for phrase, length in matches:
        if length == len(phrases[phrase]) and not inside_word:
            return False, None
    longer = {(n, length + 1) for n, length in matches if length < len(phrases[n]) and phrases[n][length] == byte}
    longer |= {(n, 1) for n in starting if not inside_word}
    if not letter and any(length == len(phrases[n]) for n, length in longer):  # no letter to be adjacent to
        return False, None
    return letter, frozenset(longer)


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """A required phrase."""

    automaton: Automaton
    piece_ends: tuple[int, ...]
    """Byte offsets at which the tokens of its usual segmentation end. Progress is counted in these tokens: in bytes,
    every word with the same first letter would make progress."""

    def occurs_in(self, ids: Sequence[int]) -> bool:
        """Whether a text of these ids contains it."""
        return bool(self.automaton.occurs_at_end[self.automaton.read(ids)])

    @property
    def matched_pieces(self) -> Ints:
        """(S,): tokens of the usual segmentation matched so far; one more than all of them where it has occurred."""
        pieces = np.searchsorted(self.piece_ends, self.automaton.matched_bytes, side="right")
        return np.where(self.automaton.occurred, len(self.piece_ends) + 1, pieces)

    @property
    def advancing_ids(self) -> NDArray[np.bool_]:
        """(S, V): the ids that advance the phrase most."""
        table = self.automaton
        reached = np.where(table.occurred, np.iinfo(np.int64).max, table.matched_bytes)[table.transitions]
        reached[:, ~table.has_text] = -1
        return np.asarray(reached == reached.max(1, keepdims=True))


def phrase(text: bytes, pieces: Sequence[bytes], ids: Sequence[int], eos: int | None) -> Phrase:
    """A required phrase whose usual segmentation is `ids`, which may start with a space.

    Where the tokenizer spells it differently (normalized), the phrase is one piece.
    """
    spelled = [pieces[id] for id in ids]
    start = b"".join(spelled).find(text)
    found = [] if start < 0 else np.cumsum([len(piece) for piece in spelled]).tolist()
    ends = {len(text)} | {min(len(text), end - start) for end in found}
    return Phrase(automaton=automaton([text], pieces, eos), piece_ends=tuple(sorted(end for end in ends if end > 0)))
