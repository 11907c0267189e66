"""The HTML page of a report: one self-contained file with inline CSS and script, responsive, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seqwright.reporting.markup import Html, element, escape, join

LONG_CELL = 36
"""Characters of a cell beyond which its column is kept wide."""

STYLE = """
:root { color-scheme: light dark; --ground: #fcfcfa; --card: #ffffff; --ink: #1b1d21; --muted: #686c74; --hair: #e6e6e1;
  --accent: #2b5fc7; --quiet: #a3a8b1;
  --line-1: #2b5fc7; --line-2: #cf5b1f; --line-3: #17866a; --line-4: #8b48b8; --line-5: #bd2c57; --line-6: #8a6a12;
  --line-7: #2a8fb0; --line-8: #5b616b; }
@media (prefers-color-scheme: dark) { :root { --ground: #15171a; --card: #1b1e22; --ink: #e7e8ea; --muted: #989da6;
  --hair: #2c3036; --accent: #7ea6f5; --quiet: #666d78;
  --line-1: #7ea6f5; --line-2: #f0925e; --line-3: #55c4a3; --line-4: #c795ec; --line-5: #f07d9c; --line-6: #d3b35a;
  --line-7: #6cc5e0; --line-8: #aab0ba; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.55;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%; }
main { max-width: 1080px; margin: 0 auto; padding: 56px 28px 40px; }
header { margin-bottom: 52px; }
.kind { margin: 0; color: var(--accent); font-size: 13px; font-weight: 600; letter-spacing: .04em; }
h1 { margin: 4px 0 2px; font-size: 34px; line-height: 1.2; font-weight: 650; letter-spacing: -.02em;
  overflow-wrap: anywhere; }
.lead { margin: 0; color: var(--muted); overflow-wrap: anywhere; }
section { margin: 0 0 56px; }
h2 { margin: 0 0 18px; font-size: 19px; font-weight: 620; letter-spacing: -.01em; }
h3 { margin: 0 0 8px; font-size: 13px; font-weight: 620; color: var(--accent); }
h2 + .lead { margin: -12px 0 20px; font-size: 14px; max-width: 72ch; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); gap: 20px 28px;
  margin: 32px 0 0; padding: 22px 0 0; border-top: 1px solid var(--hair); }
.tiles dt { color: var(--muted); font-size: 13px; }
.tiles dd { margin: 0; font-size: 23px; font-weight: 560; letter-spacing: -.015em; white-space: nowrap; }
.tiles div:first-child dd { color: var(--accent); }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: 14px; }
th { color: var(--muted); font-weight: 500; font-size: 13px; white-space: nowrap; }
th, td { padding: 9px 20px 9px 0; text-align: left; vertical-align: baseline; border-bottom: 1px solid var(--hair); }
th:last-child, td:last-child { padding-right: 0; }
td.number, th.number { text-align: right; white-space: nowrap; }
td:first-child { font-weight: 540; white-space: nowrap; }
td.long { min-width: 32ch; }
td code { display: block; min-width: 300px; }
code, pre, .sample { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { font-size: 12px; color: var(--muted); overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 32px 36px; }
.charts.few { grid-template-columns: repeat(auto-fit, minmax(min(100%, 260px), 1fr)); margin-top: 36px; }
figure { margin: 0; min-width: 0; }
figcaption, .legend { display: flex; flex-wrap: wrap; gap: 2px 16px; align-items: baseline; }
figcaption { justify-content: space-between; margin-bottom: 8px; font-size: 13px; }
figcaption .title { font-weight: 600; font-size: 14px; }
.key { color: var(--muted); white-space: nowrap; }
.key i { display: inline-block; width: 16px; height: 0; margin-right: 6px; vertical-align: 4px;
  border-top: 2.5px solid currentColor; border-radius: 2px; }
.key i.level { border-top-style: dashed; border-radius: 0; }
.canvas { position: relative; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--muted); font-size: 11.5px; }
svg .unit { font-size: 11px; }
svg text.cell { fill: var(--ink); font-size: 11px; }
svg text.strong { fill: var(--ground); font-weight: 600; }
.lone { max-width: 900px; } .lone + .lone { max-width: 520px; }
.lone, .charts + .scroll, .lone + .scroll { margin-top: 32px; }
svg .grid { stroke: var(--hair); }
svg .tick { stroke: var(--quiet); }
svg .mark { stroke: var(--muted); stroke-dasharray: 1 3; stroke-linecap: round; }
svg .pointer { stroke: var(--muted); visibility: hidden; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
svg .line.faint { stroke-width: 1.2; }
svg .line.level { stroke-width: 1.6; stroke-dasharray: 5 4; }
svg.strip { width: 160px; display: inline-block; vertical-align: middle; }
svg .interval { stroke: currentColor; stroke-width: 5; stroke-linecap: round; opacity: .3; }
.tip { position: absolute; z-index: 1; pointer-events: none; padding: 7px 11px; border: 1px solid var(--hair);
  border-radius: 7px; background: var(--card); box-shadow: 0 4px 18px rgb(0 0 0 / .12); font-size: 12.5px;
  display: grid; grid-template-columns: repeat(3, auto); gap: 1px 12px; white-space: nowrap; }
.tip[hidden] { display: none; }
.tip span:nth-child(3n + 2) { font-weight: 600; text-align: right; }
.tip span:nth-child(3n) { color: var(--muted); }
details { border-bottom: 1px solid var(--hair); }
summary { display: flex; gap: 20px; padding: 10px 0; cursor: pointer; list-style: none; font-size: 14px; }
summary::-webkit-details-marker { display: none; }
summary:hover { color: var(--accent); }
summary .when { flex: none; min-width: 92px; font-weight: 540; }
summary .peek { color: var(--muted); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
details[open] .peek { visibility: hidden; }
.sample { margin: 0; padding: 16px 20px; border: 1px solid var(--hair); border-radius: 8px; background: var(--card);
  font-size: 13px; line-height: 1.6; white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate;
  max-height: 30em; overflow-y: auto; }
.sample img { display: block; width: 100%; max-width: 720px; margin: 0 0 12px; image-rendering: pixelated; }
.sample b { color: var(--accent); font-weight: 600; }
details .sample { margin: 2px 0 18px; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); gap: 32px 36px; }
.cards.two { grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); }
.cards > div { min-width: 0; }
dl.pair, dl.next { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 4px 16px; margin: 0; }
dl.next { grid-template-columns: fit-content(50%) minmax(0, 1fr); }
dl.pair dt, dl.next dt { color: var(--muted); }
dl.pair dd, dl.next dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 640px) { dl.next { grid-template-columns: 1fr; } }
dl.keys, dl.events { display: grid; grid-template-columns: auto minmax(0, 1fr); margin: 0; font-size: 13.5px;
  align-content: start; }
dl.keys dt, dl.keys dd { margin: 0; padding: 5px 0; border-top: 1px solid var(--hair); overflow-wrap: anywhere; }
dl.keys dt { padding-right: 20px; color: var(--muted); }
dl.keys dd { text-align: right; }
dl.events { grid-template-columns: 112px minmax(0, 1fr); font-size: 14px; row-gap: 8px; }
dl.events dt { color: var(--muted); }
dl.events dd { margin: 0; overflow-wrap: anywhere; }
footer { color: var(--muted); font-size: 13px; border-top: 1px solid var(--hair); padding-top: 16px; }
@media (max-width: 640px) { main { padding: 32px 16px; } h1 { font-size: 27px; } section { margin-bottom: 44px; }
  header { margin-bottom: 40px; } .tiles { grid-template-columns: 1fr 1fr; } summary { gap: 10px; }
  svg.chart:not(.small) text { font-size: 16px; } svg.chart:not(.small) .unit { font-size: 15px; } }
@media print { .sample { max-height: none; } section, figure { break-inside: avoid; } }
"""

# Tooltip: for each line, the value of the point nearest along x. textContent, not innerHTML: names are never markup.
SCRIPT = """
for (const svg of document.querySelectorAll("svg.chart")) {
  const tip = svg.nextElementSibling, pointer = svg.querySelector(".pointer");
  const lines = [...svg.querySelectorAll("polyline")].map(line => ({ name: line.dataset.name,
    places: [...line.points].map(point => point.x), values: JSON.parse(line.dataset.values) }));
  const hide = () => { tip.hidden = true; pointer.style.visibility = "hidden"; };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", event => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
    let nearest = Infinity;
    tip.replaceChildren(...lines.flatMap(({ name, places, values }) => {
      let best = 0;
      places.forEach((place, i) => { if (Math.abs(place - at) < Math.abs(places[best] - at)) best = i; });
      if (Math.abs(places[best] - at) < Math.abs(nearest - at)) nearest = places[best];
      return [name, values[best][1], values[best][0]].map(text => {
        const cell = document.createElement("span"); cell.textContent = text; return cell; });
    }));
    tip.hidden = false;
    pointer.setAttribute("x1", nearest); pointer.setAttribute("x2", nearest); pointer.style.visibility = "visible";
    const box = svg.getBoundingClientRect(), x = event.clientX - box.left, room = box.width - tip.offsetWidth;
    tip.style.left = Math.max(0, Math.min(room, x < box.width / 2 ? x + 16 : x - tip.offsetWidth - 16)) + "px";
    tip.style.top = "8px";
  });
}
"""


def page(title: str, *parts: Html, style: str = "", script: str = "") -> str:
    """A complete HTML document without external resources; its Content-Security-Policy forbids loading any.

    `style` and `script` of a kind of page come after those that all pages share.
    """
    body = element("main", *parts, element("footer", "Generated by seqwright. This file is self-contained."))
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n'
        f"<body>\n{body}\n<script>{SCRIPT}{script}</script>\n</body>\n</html>\n"
    )


def section(title: str, *parts: Html, lead: str = "") -> Html:
    """A section with a heading; empty where all parts are."""
    if not any(parts):
        return Html("")
    return element("section", element("h2", title), element("p", lead, class_="lead") if lead else "", *parts)


def grid(parts: Iterable[Html], kind: str) -> Html:
    """A responsive grid of CSS class `charts`, `charts few` or `cards`; empty where all parts are."""
    nonempty = [part for part in parts if part]
    return element("div", *nonempty, class_=kind) if nonempty else Html("")


def tiles(figures: Mapping[str, str]) -> Html:
    """A row of named figures; the first, the headline, is highlighted."""
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", value)) for name, value in figures.items()),
        class_="tiles",
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Iterable[str] = ()) -> Html:
    """A table with the columns named in `numeric` right-aligned; empty where there are no rows."""
    right_aligned, rows = set(numeric), list(rows)
    cells = zip(*rows, strict=True) if rows else ([] for _ in columns)
    kinds = [
        "number" if column in right_aligned else _width(column_cells)
        for column, column_cells in zip(columns, cells, strict=True)
    ]
    head = [element("th", column, class_=kind) for column, kind in zip(columns, kinds, strict=True)]
    body = [
        element("tr", *(element("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    ]
    if not body:
        return Html("")
    html_table = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    return element("div", html_table, class_="scroll")


def _width(cells: Iterable[object]) -> str | None:
    """`long` for a column of text that needs room on a narrow screen, where the table scrolls."""
    return "long" if any(not isinstance(cell, Html) and len(str(cell)) > LONG_CELL for cell in cells) else None


def keys(entries: Iterable[tuple[str, Any]]) -> Html:
    """A description list of keys and values."""
    return element(
        "dl",
        *(join([element("dt", key), element("dd", show(value))]) for key, value in entries),
        class_="keys",
    )


def shared(keys: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Differing recipe keys, None where a recipe has no such key; of several kinds of models, those in which two
    recipes differ that have them."""
    if "model.kind" not in keys:  # what only some recipes of one kind set is what was changed
        return dict(keys)
    present = {key: [value for value in values if value is not None] for key, values in keys.items()}
    return {key: keys[key] for key, known in present.items() if any(value != known[0] for value in known)}


def differences(names: Sequence[str], keys: Mapping[str, tuple[Any, ...]]) -> tuple[Html, Html]:
    """A table of recipe keys by run, and folded below it one of those that only some kinds of models have, alike."""
    first = shared(keys)
    apart = [(key, *map(show, values)) for key, values in first.items()]
    partial = [(key, *map(show, values)) for key, values in keys.items() if key not in first]
    columns = ("key", *names)
    note = element("summary", f"Show keys that are set in some of these recipes only: {len(partial)}")
    folded = element("details", note, table(columns, partial)) if partial else Html("")
    return table(columns, apart), folded


def show(value: Any) -> str:
    """A recipe value in TOML notation, without quotes."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(show, value))
    return str(value)
