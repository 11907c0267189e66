"""The result of `where`: matches with file and line and how much is copied, as text, JSON and one HTML page."""

from __future__ import annotations

import itertools
import math
import textwrap
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seqwright.core.storage import write_text
from seqwright.inspection.figures import chip, detail
from seqwright.inspection.page import NOTEBOOK_STYLE, SCRIPT, STYLE
from seqwright.inspection.where.copying import CopiedText, CopyingStatistics, SearchedText
from seqwright.reporting.markup import Html, element, join
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import LINE_WIDTH, Cell, Drawn, Figure, Table, notebook_html, table, visible
from seqwright.studies.explain.page import stepped_page

SHOWN_CHARACTERS = 48
"""Characters of a match, and of its place, in a table; JSON has all."""
SHOWN_MATCHES = 20
TERMINAL_TEXTS, TERMINAL_CHARACTERS = 5, 800
SHOWN_TEXTS, SHOWN_TOKENS = 50, 20_000
"""Texts on a page, those with the longest matches first, and tokens of all of them."""


@dataclass(frozen=True)
class CopiedStrip:
    """Texts, each token shaded by the length of the longest match that it is part of."""

    name: str
    texts: tuple[SearchedText, ...]

    def text(self) -> str:
        """Each text with its matches in ⟦brackets⟧."""
        shown = [
            f"{n}. {_shortened(visible(text.marked), TERMINAL_CHARACTERS)}"
            for n, text in enumerate(self.texts[:TERMINAL_TEXTS], 1)
        ]
        left_out = len(self.texts) - TERMINAL_TEXTS
        return "\n".join(
            [*(textwrap.fill(text, LINE_WIDTH - 3, break_long_words=False) for text in shown)]
            + ([f"… {left_out:,} more texts"] if left_out > 0 else [])
        )

    def as_json(self) -> dict[str, Any]:
        return {"kind": "copied", "name": self.name, "texts": len(self.texts)}

    def html(self) -> Html:
        longest = max([1, *(int(text.lengths.max(initial=0)) for text in self.texts)])
        strips, room = [], SHOWN_TOKENS
        for text in self.texts:
            chips = list(itertools.islice(self._chips(text, longest), room))
            strips.append(element("div", *chips, class_="strip copied"))
            room -= len(chips)
        key = f"hover or focus a token; strongest color: part of a match of {longest:,} tokens"
        caption = element("figcaption", element("span", self.name, class_="title"), element("span", key, class_="key"))
        left_out = f"Only the first {SHOWN_TOKENS:,} tokens are shown." if room <= 0 else ""
        note = element("p", left_out, class_="lead") if left_out else Html("")
        return element("figure", caption, join(strips), note, detail(), class_="wide")

    def _chips(self, text: SearchedText, longest: int) -> Iterator[Html]:
        starts = [match.start for match in text.matches]
        ends = [match.start + match.tokens for match in text.matches]  # ascend: no match lies within another
        for n, (token, length) in enumerate(zip(text.tokens, text.lengths.tolist(), strict=True)):
            places = [match.place for match in text.matches[bisect_right(ends, n) : bisect_right(starts, n)]]
            about = f"in a match of {length:,} tokens" if length else "not in the training text"
            about += f": {'; '.join(places)}" if places else ""
            weight = math.log2(1 + length) / math.log2(1 + longest) if places else 0.0
            yield chip(token, about, weight)


@dataclass(frozen=True)
class Where:
    """Texts searched in the training text of a run: `where.matches`, `where.copying`. Notebooks display it."""

    run: str
    min_tokens: int
    """Tokens from which matches are listed."""
    indexed: int
    """Tokens of the training text."""
    what: str
    """Kind of the searched texts, for headings: given texts, samples or documents of files."""
    texts: tuple[SearchedText, ...]
    copying: CopyingStatistics
    held_out: CopyingStatistics | None = None
    """Statistics of as much held-out text, which the model has not read: the natural baseline (McCoy et al. 2023)."""
    notes: tuple[str, ...] = ()

    @property
    def matches(self) -> list[CopiedText]:
        """All matches of at least `min_tokens` tokens, the longest first."""
        return sorted((match for text in self.texts for match in text.matches), key=lambda match: -match.tokens)

    @property
    def steps(self) -> list[Step]:
        return [self._copying_step(), self._matches_step(), self._texts_step()]

    def text(self) -> str:
        """For a terminal."""
        notes = [textwrap.fill(note, LINE_WIDTH) for note in self.notes]
        steps = [step.text(n) for n, step in enumerate(self.steps, 1)]
        return "\n\n".join([self.title, *notes, *steps]) + "\n"

    def as_json(self) -> dict[str, Any]:
        texts = [
            {"text": text.text, "tokens": len(text.tokens), "matches": [asdict(match) for match in text.matches]}
            for text in self.texts
        ]
        return {
            "run": self.run,
            "training_tokens": self.indexed,
            "min_tokens": self.min_tokens,
            "texts": texts,
            "copying": asdict(self.copying),
            "held_out": None if self.held_out is None else asdict(self.held_out),
            "notes": list(self.notes),
        }

    def html(self) -> str:
        """A self-contained page."""
        steps = [(step.heading, step.html(n)) for n, step in enumerate(self.steps, 1)]
        about = " · ".join([f"{self.what} in the {self.indexed:,} tokens of its training text", *self.notes])
        name = Path(self.run).name
        return stepped_page(self.title, about, steps, command=f"seqwright where {name}", style=STYLE, script=SCRIPT)

    def write_html(self, path: str | Path) -> Path:
        """Writes the page; returns its path."""
        write_text(Path(path), self.html())
        return Path(path)

    @property
    def title(self) -> str:
        return f"Where in its training text: {Path(self.run).name}"

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        steps = (step.html(n) for n, step in enumerate(self.steps, 1))
        return notebook_html(element("h3", self.title), *steps, style=NOTEBOOK_STYLE)

    def _copying_step(self) -> Step:
        n, copied = self.min_tokens, self.copying
        prose = (
            f"{self.what}: {copied.tokens:,} tokens, {copied.share(n):.1%} of them in matches of at least {n} tokens;"
            f" the longest match has {copied.longest:,}."
        )
        if self.held_out is not None:
            prose += (
                f" Of as much held-out text, which the model has not seen, {self.held_out.share(n):.1%} are in such"
                f" matches, the longest of {self.held_out.longest:,} tokens: what two texts of this kind share anyway."
            )
        return Step(
            "How much is copied",
            prose,
            "share(n) = tokens in a match of n tokens or more / tokens",
            [self._shares()] if copied.tokens else [],
        )

    def _shares(self) -> Table:
        both = [stats for stats in (self.copying, self.held_out) if stats is not None]
        lengths = sorted({n for stats in both for n in stats.shares})
        rows: list[list[Cell]] = [[n, *(_share_bar(stats.share(n)) for stats in both)] for n in lengths]
        return table("copied", ("tokens or more", "share", "held-out text")[: 1 + len(both)], rows)

    def _matches_step(self) -> Step:
        matches = self.matches
        figures: list[Figure] = []
        if matches:
            rows = [
                (match.tokens, match.occurrences, _shortened_place(match), _shortened(match.text))
                for match in matches[:SHOWN_MATCHES]
            ]
            figures = [table("longest matches", ("tokens", "times", "training text", "match"), rows)]
        return Step(
            "Longest matches",
            f"Matches of at least {self.min_tokens} tokens: {len(matches):,}."
            + (" Times: occurrences in the training text, of which one is named." if matches else "")
            + ("" if matches or self.min_tokens == 1 else " --min-tokens N finds shorter ones.")
            + (f" The {SHOWN_MATCHES} longest:" if len(matches) > SHOWN_MATCHES else ""),
            figures=figures,
        )

    def _texts_step(self) -> Step:
        texts = tuple(sorted(self.texts, key=lambda text: -int(text.lengths.max(initial=0))))
        left_out = len(texts) - SHOWN_TEXTS
        return Step(
            "The texts",
            f"Parts in matches of at least {self.min_tokens} tokens are in ⟦brackets⟧ or shaded."
            + (f" {left_out:,} texts with shorter matches are left out." if left_out > 0 else ""),
            figures=[CopiedStrip("texts", texts[:SHOWN_TEXTS])],
        )


def _share_bar(share: float) -> str:
    """A share as a number and a bar of up to twenty characters."""
    return Drawn(f"{share:6.1%} {'█' * round(20 * share)}")


def _shortened_place(match: CopiedText) -> str:
    """File and line, of a long path its end."""
    place = match.place
    return place if len(place) <= SHOWN_CHARACTERS else "…" + place[1 - SHOWN_CHARACTERS :]


def _shortened(text: str, characters: int = SHOWN_CHARACTERS) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"
