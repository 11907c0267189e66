"""Phrases of text, however they are cut: automata that follow ids and know how much of a phrase stands at the end.

A word can be said in many pieces, so a rule about words is a rule about bytes. An automaton reads bytes; read along
every piece of a vocabulary, it becomes a table of states by ids.

A phrase stands in a text where no letter touches one of its own: "cat" in "the cat." but not in "cats". What counts as
a letter is told by the first byte of a character: ASCII letters and digits do, and those of all scripts with an
alphabet; punctuation, symbols, and Chinese and Japanese signs stand by themselves.
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
Places = frozenset[tuple[int, int]]
"""Phrases under way, and how many of their bytes have been said."""

LETTERS = frozenset([*(byte for byte in range(128) if chr(byte).isalnum()), *range(0xC3, 0xE2), *range(0xEA, 0xEE)])
"""First bytes of characters that belong to words."""
MOST = 1 << 27
"""States by ids of one automaton: half a gigabyte, and as much again while a search makes its tables of it."""


@dataclass(frozen=True, kw_only=True)
class Automaton:
    """States by ids; a text begins in state 0, and never leaves the state in which a phrase has been said."""

    following: States
    """(S, V): the state after each id."""
    progress: Ints
    """(S,): bytes of the furthest phrase that stand at the end."""
    said: NDArray[np.bool_]
    """(S,): a phrase has been said."""
    ends: NDArray[np.bool_]
    """(S,): the same, if the text ends here."""
    sayable: NDArray[np.bool_]
    """(V,): ids of which texts are made, the end among them."""

    def closed(self, ids: Sequence[int]) -> Automaton:
        """The same, but that a phrase completed by one of these ids has been said, whatever letters follow."""
        following = self.following.copy()
        if self.said.any():
            open_ended = self.ends[following[:, ids]]  # (S, N)
            following[:, ids] = np.where(open_ended, int(self.said.argmax()), following[:, ids])
        return replace(self, following=following)

    def read(self, ids: Sequence[int], state: int = 0) -> int:
        """The state after these ids."""
        for token in ids:
            state = int(self.following[state, token])
        return state


def automaton(phrases: Sequence[bytes], pieces: Sequence[bytes], eos: int | None) -> Automaton:
    """Automaton of the texts that contain one of the phrases in any segmentation; special tokens are empty,
    but the end is an edge."""
    table, states = _over_bytes(phrases)
    if len(table) * len(pieces) > MOST:
        raise UserError(
            f"{len(phrases):,} phrases are too many to be followed through {len(pieces):,} pieces; leave out all but"
            f" {MOST * len(phrases) // (len(table) * len(pieces)):,}, the ones that matter most."
        )
    spelled = [b" " if id == eos else piece for id, piece in enumerate(pieces)]
    lengths = np.array([len(piece) for piece in spelled])
    following = np.repeat(np.arange(len(table), dtype=np.int32)[:, None], len(spelled), 1)  # (S, V)
    for place in range(lengths.max()):
        longer = np.flatnonzero(lengths > place)
        following[:, longer] = table[following[:, longer], [spelled[id][place] for id in longer]]
    said = np.array([places is None for _, places in states])
    progress = np.array([max((p for _, p in places or ()), default=0) for _, places in states])
    ends = said[table[:, ord(" ")]]
    return Automaton(following=following, progress=progress, said=said, ends=ends, sayable=lengths > 0)


def _over_bytes(phrases: Sequence[bytes]) -> tuple[States, list[tuple[bool, Places | None]]]:
    """(S, 256), and the meaning of each state: whether a letter was last, and the phrases under way, or None where one
    has been said."""
    states: list[tuple[bool, Places | None]] = [(False, frozenset())]
    number = {states[0]: 0}
    rows: list[dict[int, int]] = []
    begins: defaultdict[int, list[int]] = defaultdict(list)
    for n, phrase in enumerate(phrases):
        begins[phrase[0]].append(n)
    alike = _alike(phrases)
    while len(rows) < len(states):
        letter, places = states[len(rows)]
        row = {}
        for byte in set(alike):
            after = (letter, places) if places is None else _read(phrases, begins[byte], letter, places, byte)
            if after not in number:
                number[after] = len(states)
                states.append(after)
            row[byte] = number[after]
        rows.append(row)
    return np.array([[row[byte] for byte in alike] for row in rows], np.int32), states


def _alike(phrases: Sequence[bytes]) -> list[int]:
    """For each byte one that is read as it is: those of no phrase differ only in where they stand in words."""
    known, first = {byte for phrase in phrases for byte in phrase}, dict[tuple[bool, bool], int]()
    return [
        byte if byte in known else first.setdefault((0x80 <= byte < 0xC0, byte in LETTERS), byte) for byte in range(256)
    ]


def _read(
    phrases: Sequence[bytes], begun: Sequence[int], letter: bool, places: Places, byte: int
) -> tuple[bool, Places | None]:
    """The state after one byte more, with which these phrases may begin."""
    now = letter if 0x80 <= byte < 0xC0 else byte in LETTERS  # the bytes of one character are of one kind
    inside = letter and now
    for phrase, place in places:
        if place == len(phrases[phrase]) and not inside:
            return False, None
    going = {(n, p + 1) for n, p in places if p < len(phrases[n]) and phrases[n][p] == byte}
    going |= {(n, 1) for n in begun if not inside}
    if not now and any(p == len(phrases[n]) for n, p in going):  # nothing can touch what is no letter
        return False, None
    return now, frozenset(going)


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """Something required, as the vocabulary's automaton follows it."""

    automaton: Automaton
    cuts: tuple[int, ...]
    """Where its usual pieces end, in bytes: progress is counted in these, so that a common first letter is none."""

    @property
    def safe(self) -> Ints:
        """(S,): usual pieces that stand at the end; one more than all where it has been said."""
        pieces = np.searchsorted(self.cuts, self.automaton.progress, side="right")
        return np.where(self.automaton.said, len(self.cuts) + 1, pieces)

    @property
    def leading(self) -> NDArray[np.bool_]:
        """(S, V): ids after which the most of it stands."""
        own = self.automaton
        reached = np.where(own.said, np.iinfo(np.int64).max, own.progress)[own.following]
        reached[:, ~own.sayable] = -1
        return np.asarray(reached == reached.max(1, keepdims=True))


def phrase(text: bytes, pieces: Sequence[bytes], ids: Sequence[int], eos: int | None) -> Phrase:
    """A phrase that is usually said with these ids."""
    spelled = [pieces[id] for id in ids]
    before = b"".join(spelled).find(text)
    ends = {min(len(text), int(end) - before) for end in np.cumsum([len(piece) for piece in spelled])}
    return Phrase(automaton=automaton([text], pieces, eos), cuts=tuple(sorted(end for end in ends if end > 0)))
