"""Explanations: steps of sentences, formulas and computed figures, as text, JSON and HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError, did_you_mean
from seqwright.core.storage import finite, write_text
from seqwright.reporting.markup import Html, element
from seqwright.studies.explain.figures import LINE_WIDTH, Figure, notebook_html
from seqwright.studies.explain.page import stepped_page


@dataclass(frozen=True)
class Step:
    """One step: a heading, a sentence or two, a formula and what it gives."""

    heading: str
    prose: str
    formula: str = ""
    figures: Sequence[Figure] = ()
    errata: Sequence[str] = ()
    """Slips of the lecture slides that concern this step."""

    def text(self, number: int) -> str:
        """Lines for a terminal."""
        parts = [f"{number}. {self.heading}", _wrapped(self.prose)]
        parts += [textwrap.indent(self.formula, "   ")] if self.formula else []
        parts += [textwrap.indent(figure.text(), "   ") for figure in self.figures]
        parts += [_wrapped(f"A known slip in the printed lecture: {erratum}") for erratum in self.errata]
        return "\n\n".join(parts)

    def as_json(self) -> dict[str, Any]:
        return {
            "heading": self.heading,
            "prose": self.prose,
            "formula": self.formula,
            "figures": [figure.as_json() for figure in self.figures],
            "errata": list(self.errata),
        }

    def html(self, number: int) -> Html:
        """A section; its heading has the id `step-N-heading`."""
        heading = f"step-{number}-heading"
        return element(
            "section",
            element("h2", f"{number}. {self.heading}", id=heading, tabindex="-1"),
            element("p", self.prose, class_="prose"),
            element("pre", self.formula, class_="formula", tabindex="0") if self.formula else "",
            element("div", *(figure.html() for figure in self.figures), class_="figures") if self.figures else "",
            *(
                element("p", element("b", "A known slip in the printed lecture: "), erratum, class_="erratum")
                for erratum in self.errata
            ),
            class_="step",
            id=f"step-{number}",
            aria_labelledby=heading,
        )


@dataclass(frozen=True)
class Explanation:
    """A topic, computed step by step; notebooks show all steps, `explanation["h"]` is the figure of that name."""

    topic: str
    title: str
    about: str
    """What the lecture says."""
    steps: Sequence[Step]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Numbers of the example that `--set` changes, with their values."""

    def __post_init__(self) -> None:
        names = [figure.name for step in self.steps for figure in step.figures]
        assert len(names) == len(set(names)), f"{self.topic} has two figures of one name"

    def __getitem__(self, name: str) -> Figure:
        figures = {figure.name: figure for step in self.steps for figure in step.figures}
        if name not in figures:
            raise UserError(f"explain {self.topic} has no figure '{name}'.{did_you_mean(name, figures)}")
        return figures[name]

    def text(self, step: int | None = None) -> str:
        """All steps for a terminal, or one of them, from 1."""
        if step is not None:
            return f"{self.title}\n\n{self._step(step).text(step)}\n"
        steps = "\n\n\n".join(each.text(n) for n, each in enumerate(self.steps, 1))
        return f"{self.title}\n\n{_wrapped(self.about)}\n\n\n{steps}\n"

    def as_json(self, step: int | None = None) -> dict[str, Any]:
        """Every value of all steps, or of one, from 1; all digits are kept, infinities and NaN are None."""
        steps = self.steps if step is None else [self._step(step)]
        about = {"topic": self.topic, "title": self.title, "about": self.about}
        return finite(about | {"steps": [each.as_json() for each in steps], "settings": dict(self.settings)})

    def html(self) -> str:
        """A self-contained page that is stepped through with buttons or arrow keys."""
        steps = [(step.heading, step.html(n)) for n, step in enumerate(self.steps, 1)]
        return stepped_page(self.title, self.about, steps, command=f"seqwright explain {self.topic}")

    def write_html(self, path: str | Path) -> Path:
        """Writes the page; returns its path."""
        write_text(Path(path), self.html())
        return Path(path)

    def _step(self, number: int) -> Step:
        if not 1 <= number <= len(self.steps):
            raise UserError(f"explain {self.topic} has steps 1 to {len(self.steps)}, not {number}.")
        return self.steps[number - 1]

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        steps = [step.html(n) for n, step in enumerate(self.steps, 1)]
        return notebook_html(element("h3", self.title), element("p", self.about), *steps)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, LINE_WIDTH - 3, initial_indent="   ", subsequent_indent="   ")
