"""Figures of an inspection: token strips, attention by layer and head, and maps, each as text, JSON and HTML."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from seqwright.inspection.labeled import Heads
from seqwright.reporting.markup import Html, element, join
from seqwright.studies.explain.figures import LINE_WIDTH, Cell, Drawn, Matrix, Table, matrix, number, table, visible

BARS = "▁▂▃▄▅▆▇█"
STRIP_TOKENS = 200
"""Tokens of a strip in a terminal; the page and JSON have all."""
PAGE_BYTES = 7_000_000
"""Attention weights of one kind in a page: two kinds of a 1,000-token text fit 10 MB with the other."""
PAIR_BYTES = 8
"""Of a stored weight: its column, and the weight in thousandths, with their commas."""
JSON_WEIGHTS = 1_000_000
"""Weights in JSON; beyond, the strongest of each row only."""
PAGE_WIDTH, PAIR_WIDTH = 900, 310
"""Pixels of the cells of a row: one figure across a page, or two beside each other."""
LINE_TOKENS = 64
"""Columns up to which attention may be drawn as lines between tokens."""
SPAN = "--span A:B"
"""How rows that are left out of a table are shown."""
STRONGEST = 3
"""Attended tokens of each row in a terminal."""


@dataclass(frozen=True)
class ScoredToken:
    """A token with its score; None after the end of the text, where `token` is empty, and at masks."""

    token: str
    probability: float | None
    bits: float | None
    """Surprisal, -log₂ p."""
    rank: int | None
    """1 for the most probable token."""
    alternatives: tuple[tuple[str, float], ...]
    """The most probable tokens in its place, with probabilities."""


@dataclass(frozen=True)
class TokenStrip:
    """The text, each token shaded by its surprisal; in a terminal also a table."""

    name: str
    tokens: tuple[ScoredToken, ...]
    first: int = 1
    """Number of the first token."""

    def text(self) -> str:
        return f"{self._strip()}\n\n{self._table().text()}"

    def _table(self) -> Table:
        rows = [
            (n, token.token, token.bits, token.probability, token.rank, _alternatives(token))
            for n, token in enumerate(self.tokens, self.first)
        ]
        return table(self.name, ("", "token", "bits", "p", "rank", "most probable"), rows, others=SPAN)

    def _strip(self) -> str:
        """Tokens with their surprisal as a bar: `the▁ cat▅`."""
        top = self._top
        parts = [
            visible(token.token).replace(" ", "␣")
            + ("" if token.bits is None else BARS[int(7.99 * min(1.0, token.bits / top))])
            for token in self.tokens[:STRIP_TOKENS]
        ]
        rest = len(self.tokens) - STRIP_TOKENS
        lines = textwrap.fill(" ".join(parts), LINE_WIDTH, break_long_words=False, break_on_hyphens=False)
        return lines + (f"\n… {rest:,} more tokens" if rest > 0 else "")

    @property
    def _top(self) -> float:
        """Surprisal of the strongest color: the greatest of the text, at least one bit."""
        bits = [token.bits for token in self.tokens if token.bits is not None]
        return max([1.0, *filter(math.isfinite, bits)])  # log 0 is a matter of unsmoothed n-grams

    def as_json(self) -> dict[str, Any]:
        tokens = [asdict(token) for token in self.tokens]
        return {"kind": "tokens", "name": self.name, "first": self.first, "tokens": tokens}

    def html(self) -> Html:
        top = self._top
        parts = []
        for token in self.tokens:
            about = _alternatives(token)
            if token.bits is None:
                parts.append(chip(token.token or "…", f"{'most probable' if token.token else 'next'}: {about}", 0.0))
                continue
            score = f"{token.bits:.2f} bits, p {number(token.probability or 0.0)}, rank {token.rank}"
            parts.append(chip(token.token, f"{score}; most probable: {about}", token.bits / top))
        key = f"hover or focus a token for its scores; strongest color: {top:.1f} bits"
        title = element("span", "surprisal of each token", class_="title")
        caption = element("figcaption", title, element("span", key, class_="key"))
        strip = element("figure", caption, element("div", *parts, class_="strip"), detail(), class_="wide")
        return join([strip, self._table().html()])


@dataclass(frozen=True)
class SignedStrip:
    """The text, each token shaded by a signed number: one hue above zero, another below."""

    name: str
    tokens: tuple[str, ...]
    values: tuple[float, ...]
    unit: str
    first: int = 1
    """Number of the first token."""

    def text(self) -> str:
        top = self._top
        rows = [
            (n, token, value, _signed_bar(value / top))
            for n, (token, value) in enumerate(zip(self.tokens, self.values, strict=True), self.first)
        ]
        return table(self.name, ("", "token", self.unit, "below zero|above zero"), rows, others=SPAN).text()

    @property
    def _top(self) -> float:
        return max([1e-12, *(abs(value) for value in self.values if math.isfinite(value))])

    def as_json(self) -> dict[str, Any]:
        values = [{"token": token, "value": value} for token, value in zip(self.tokens, self.values, strict=True)]
        return {"kind": "signed tokens", "name": self.name, "unit": self.unit, "first": self.first, "tokens": values}

    def html(self) -> Html:
        parts = [
            chip(token, f"{value:+.4g} {self.unit}", abs(value) / self._top, negative=value < 0)
            for token, value in zip(self.tokens, self.values, strict=True)
        ]
        key = f"above zero: filled; below zero: underlined; strongest: {self._top:.3g} {self.unit}"
        caption = element("figcaption", element("span", self.name, class_="title"), element("span", key, class_="key"))
        return element("figure", caption, element("div", *parts, class_="strip"), detail(), class_="wide")


@dataclass(frozen=True)
class TokenTable:
    """A row for each token: all of them in JSON, the first ones in text and pages."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def text(self) -> str:
        return self._table().text()

    def as_json(self) -> dict[str, Any]:
        names = [name or "number" for name in self.columns]
        rows = [dict(zip(names, row, strict=True)) for row in self.rows]
        return {"kind": "table", "name": self.name, "rows": rows, "total": len(rows)}

    def html(self) -> Html:
        return self._table().html()

    def _table(self) -> Table:
        return table(self.name, self.columns, self.rows, others=SPAN)


@dataclass(frozen=True)
class HeadFigure:
    """Attention weights of layers and heads: in a page one at a time, chosen from lists; in a terminal the strongest
    weights of each row of their mean."""

    heads: Heads
    layers: tuple[int, ...]
    """Those that are shown."""
    chosen: tuple[int, ...]
    """Heads that are shown."""
    label: str = ""
    """Which text it is of, where there are two."""
    first: int = 0
    """Number of the first row."""

    @property
    def name(self) -> str:
        return f"{self.heads.kind} attention" + (f", {self.label}" if self.label else "")

    def weights(self) -> Iterator[Tensor]:
        """(H, T, K) of each layer that is shown."""
        for layer in self.layers:
            weights = self.heads.layers[layer]
            yield weights if len(self.chosen) == len(weights) else weights[list(self.chosen)]

    def strongest(self, budget: int) -> tuple[int, list[Any]]:
        """How many weights of each row, at most `budget` in all, are kept, and for each layer the columns and weights
        (H, T, kept) of the strongest."""
        rows = len(self.layers) * len(self.chosen) * len(self.heads.rows)
        kept = min(len(self.heads.columns), max(1, budget // max(1, rows)))
        return kept, [weights.topk(kept) for weights in self.weights()]

    @property
    def title(self) -> str:
        """Which layer and head, or that a mean is shown."""
        layer = f"layer {self.layers[0]}" if len(self.layers) == 1 else f"{len(self.layers)} layers"
        head = f"head {self.chosen[0]}" if len(self.chosen) == 1 else f"{len(self.chosen)} heads"
        if len(self.layers) == len(self.chosen) == 1:
            return f"{self.name}, {layer}, {head}"
        if len(self.layers) == 1:
            return f"{self.name}, {layer}, mean of {head}"
        return f"{self.name}, mean of {layer}" + (f", {head}" if len(self.chosen) == 1 else f" × {head}")

    def mean(self) -> Tensor:
        """(T, K): the mean of the layers and heads that are shown."""
        return torch.stack([weights.mean(0) for weights in self.weights()]).mean(0)

    def matrix(self) -> Matrix:
        """The mean as a matrix: in a notebook, where no script draws one head after the other."""
        return matrix(self.title, self.mean(), rows=self.heads.rows, columns=self.heads.columns, heat=True)

    def text(self) -> str:
        mean = self.mean()
        best = mean.topk(min(STRONGEST, mean.size(1)))
        rows = []
        queries = zip(self.heads.rows, best.values, best.indices, strict=True)
        for n, (row, values, places) in enumerate(queries, self.first):
            strongest = "  ".join(
                f"{visible(self.heads.columns[place])}@{place} {weight:.2f}"
                for weight, place in zip(values.tolist(), places.tolist(), strict=True)
                if weight > 0
            )
            rows.append((n, row, strongest))
        return table(self.title, ("", "from", "to (token@position weight), strongest first"), rows, others=SPAN).text()

    def as_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"kind": "attention", "name": self.name}
        facts |= {"layers": list(self.layers), "heads": list(self.chosen)}
        facts |= {"first": self.first, "rows": list(self.heads.rows), "columns": list(self.heads.columns)}
        kept, strongest = self.strongest(JSON_WEIGHTS)
        if kept == len(self.heads.columns):
            return facts | {"weights": [weights.tolist() for weights in self.weights()]}
        return facts | {
            "strongest_columns": [best.indices.tolist() for best in strongest],
            "strongest_weights": [best.values.tolist() for best in strongest],
        }

    def html(self) -> Html:
        kept, strongest = self.strongest(PAGE_BYTES // PAIR_BYTES)
        data = {
            "name": self.name,
            "kind": self.heads.kind,
            "first": self.first,
            "room": PAIR_WIDTH if self.label else PAGE_WIDTH,
            "rows": [visible(token) for token in self.heads.rows],
            "columns": [visible(token) for token in self.heads.columns],
            "layers": self.layers,
            "heads": self.chosen,
            "forms": ("cells", "lines") if len(self.heads.columns) <= LINE_TOKENS else ("cells",),
            "weights": [
                [[_pairs(*row) for row in zip(*head, strict=True)] for head in zip(*rows, strict=True)]
                for rows in ((best.indices.tolist(), best.values.tolist()) for best in strongest)
            ],
        }
        notes = []
        if len(self.heads.columns) > LINE_TOKENS:
            notes.append("The opacity of a cell is the square root of its weight.")
        if kept < len(self.heads.columns):
            count = f"{len(self.heads.columns):,}"
            notes.append(f"A row has {count} weights; the {kept} strongest are kept, the others are summed.")
        # "<" is written as an escape, so that no token ends the script element.
        block = Html(json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"))
        return element(
            "figure",
            element("figcaption", element("span", self.name, class_="title"), element("span", class_="choices")),
            element("noscript", element("p", "The picture needs scripts; `--json` has the numbers.")),
            element("div", class_="scroll drawing", tabindex="0", role="region", aria_label=self.name),
            detail(),
            element("p", " ".join(notes), class_="lead") if notes else "",
            element("script", block, type="application/json"),
            class_="attention",
        )


@dataclass(frozen=True)
class PointMap:
    """Named points in two dimensions."""

    name: str
    labels: tuple[str, ...]
    points: tuple[tuple[float, float], ...]
    marked: tuple[bool, ...]
    """Points that are emphasized."""

    def text(self) -> str:
        rows = [(label, *point) for label, point in zip(self.labels, self.points, strict=True)]
        return table(self.name, ("token", "component 1", "component 2"), rows).text()

    def as_json(self) -> dict[str, Any]:
        points = [{"token": label, "at": list(at)} for label, at in zip(self.labels, self.points, strict=True)]
        return {"kind": "map", "name": self.name, "points": points}

    def html(self) -> Html:
        width, height, margin = 720, 480, 48
        spans = [_span([point[axis] for point in self.points]) for axis in (0, 1)]
        parts = []
        for label, (x, y), marked in zip(self.labels, self.points, self.marked, strict=True):
            at = margin + (width - 2 * margin) * (x - spans[0][0]) / spans[0][1]
            up = height - margin - (height - 2 * margin) * (y - spans[1][0]) / spans[1][1]
            about = element("title", f"{visible(label)}: {x:.3f}, {y:.3f}")
            dot = element("circle", about, cx=f"{at:.1f}", cy=f"{up:.1f}", r=4 if marked else 2.5)
            left = at > 0.7 * width  # the label of a point on the right stands before it, where there is room
            place = {"x": f"{at - 6:.1f}", "text_anchor": "end"} if left else {"x": f"{at + 6:.1f}"}
            name = element("text", visible(label), y=f"{up + 4:.1f}", **place)
            parts.append(element("g", dot, name, class_="point marked" if marked else "point"))
        svg = element("svg", *parts, viewBox=f"0 0 {width} {height}", class_="map", role="img", aria_label=self.name)
        caption = element("figcaption", element("span", self.name, class_="title"))
        scroll = element("div", svg, class_="scroll", tabindex="0", role="region", aria_label=self.name)
        return element("figure", caption, scroll, class_="wide")


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The least value, and the distance to the greatest, at least a tiny one."""
    return min(values), max(max(values) - min(values), 1e-9)


def _pairs(columns: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Columns and weights in thousandths, by column; weights that round to zero are left out."""
    pairs = sorted((column, round(1000 * weight)) for column, weight in zip(columns, weights, strict=True))
    return [value for pair in pairs if pair[1] for value in pair]


def chip(token: str, about: str, weight: float, *, negative: bool = False) -> Html:
    shade = f"--weight: {0.0 if math.isnan(weight) else min(1.0, max(0.0, weight)):.3f}"
    label = f"{visible(token)}: {about}"
    kind = "chip negative" if negative else "chip"
    return element("span", visible(token), class_=kind, style=shade, tabindex="0", title=about, aria_label=label)


def detail() -> Html:
    """The line below a figure that names what is under the pointer or in focus."""
    return element("p", "", class_="detail", role="status")


def _alternatives(token: ScoredToken) -> str:
    return "  ".join(f"{visible(name)} {probability:.3f}" for name, probability in token.alternatives)


def _signed_bar(share: float) -> str:
    """A bar of up to ten characters to the left of | for numbers below zero, to the right for others."""
    bar = "" if math.isnan(share) else "█" * round(10 * min(1.0, abs(share)))
    return Drawn(f"{bar:>10}|" if share < 0 else f"{'':10}|{bar}")
