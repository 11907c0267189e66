"""Style and script of inspection pages: token strips, and attention weights drawn head by head."""

from __future__ import annotations

STYLE = """
figure.wide { width: 100%; }
.strip { line-height: 2.1; overflow-wrap: anywhere; }
.strip.copied { margin: 0 0 16px; padding-left: 12px; border-left: 3px solid var(--hair); }
figcaption .key { white-space: normal; }
.chip { display: inline-block; margin: 0 1px; padding: 0 5px; border-radius: 4px; white-space: pre-wrap;
  line-height: 1.7; background: color-mix(in srgb, var(--line-2) calc(var(--weight) * 62%), var(--card)); }
.chip.negative { background: var(--card); box-shadow: inset 0 -3px 0
  color-mix(in srgb, var(--line-1) calc(var(--weight) * 100%), transparent); }
.chip:hover, .chip:focus { outline: 2px solid var(--accent); }
.detail { min-height: 1.6em; margin: 10px 0 0; color: var(--muted); font-size: 13.5px; overflow-wrap: anywhere; }
.choices { display: flex; gap: 16px; }
.choices select { min-height: 32px; font: inherit; font-size: 13px; color: var(--ink); background: var(--card);
  border: 1px solid var(--hair); border-radius: 6px; }
.drawing svg text { fill: var(--ink); font-size: 11px; }
.drawing .patch { fill: var(--line-2); }
.drawing .query line { stroke: var(--line-1); stroke-width: 2; pointer-events: none; }
.drawing .query:hover text, .drawing .query:focus text { font-weight: 600; }
.drawing svg:has(.query:hover) .query:not(:hover) line,
.drawing svg:has(.query:focus) .query:not(:focus) line { visibility: hidden; }
.drawing rect:hover { stroke: var(--line-2); stroke-width: 2; }
.drawing .row { fill: var(--hair); fill-opacity: .45; }
svg.map { min-width: 620px; }
svg.map .point text { font-size: 11px; }
svg.map .point circle { fill: var(--quiet); }
svg.map .marked circle { fill: var(--line-2); }
svg.map .marked text { fill: var(--ink); font-weight: 600; }
"""

NOTEBOOK_STYLE = """
.seqwright .strip { line-height: 2.1; overflow-wrap: anywhere; }
.seqwright .chip { display: inline-block; margin: 0 1px; padding: 0 5px; border-radius: 4px; white-space: pre-wrap;
  line-height: 1.7; background: color-mix(in srgb, var(--line-2) calc(var(--weight) * 62%), transparent); }
.seqwright .chip.negative { background: none; box-shadow: inset 0 -3px 0
  color-mix(in srgb, var(--line-1) calc(var(--weight) * 100%), transparent); }
.seqwright svg.map { width: 640px; max-width: 100%; }
.seqwright svg.map text { font-size: 11px; fill: currentColor; }
.seqwright svg.map circle { fill: currentColor; opacity: .4; }
.seqwright svg.map .marked circle { fill: var(--line-2); opacity: 1; }
.seqwright .drawing .patch { fill: var(--line-2); }
.seqwright .drawn { font-family: ui-monospace, monospace; white-space: pre; }
"""
"""In the cell of a notebook, where no script runs: a token's scores are its tooltip."""

# Tokens come from JSON and are set as text, never as markup. Only the chosen head is in the document: a page
# of 144 heads stays fluid. Cells of long texts have the square root of their weight as opacity, or none could be seen.
SCRIPT = """
const svgElement = (tag, attributes, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};
const framed = (width, height, name) => svgElement("svg",
  { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": name });
for (const figure of document.querySelectorAll("figure")) {
  const detail = figure.querySelector(".detail");
  if (!detail) continue;
  const describe = event => {
    const label = event.target.closest("[aria-label]:not(.scroll):not(select)");
    if (label && figure.contains(label)) detail.textContent = label.getAttribute("aria-label");
  };
  figure.addEventListener("pointerover", describe);
  figure.addEventListener("focusin", describe);
}
for (const figure of document.querySelectorAll("figure.attention")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const drawing = figure.querySelector(".drawing"), choices = figure.querySelector(".choices");
  const selects = ["layer", "head", "form"].map(name => {
    const label = document.createElement("label"), select = document.createElement("select");
    data[name + "s"].forEach((number, index) => select.add(new Option(number, index)));
    select.setAttribute("aria-label", `${data.name}: ${name}`);
    label.append(name + " ", select); choices.append(label);
    label.hidden = name === "form" && data.forms.length === 1;
    select.addEventListener("change", () => figure.parentElement.querySelectorAll("figure.attention").forEach(
      other => other.choose(data.kind, selects.map(select => select.value))));
    return select;
  });
  figure.choose = (kind, values) => {
    if (kind !== data.kind) return;
    selects.forEach((select, n) => { select.value = values[n]; });
    draw();
  };
  const opacity = data.columns.length > 64 ? Math.sqrt : weight => weight;
  const short = token => token.length > 14 ? token.slice(0, 13) + "…" : token;
  const draw = () => {
    const [layer, head, form] = selects.map(select => Number(select.value)), rows = data.weights[layer][head];
    const name = `${data.name}, layer ${data.layers[layer]}, head ${data.heads[head]}`;
    drawing.replaceChildren((data.forms[form] === "lines" ? lines : cells)(rows, name));
  };
  const lines = (rows, name) => {
    const step = 20, left = 110, right = 330, height = step * Math.max(data.rows.length, data.columns.length) + 8;
    const svg = framed(440, height, name), middle = n => step * n + 14;
    data.columns.forEach((token, n) =>
      svg.append(svgElement("text", { x: right + 8, y: middle(n) + 4 }, short(token))));
    rows.forEach((pairs, n) => {
      const all = [];
      for (let i = 0; i < pairs.length; i += 2) all.push([pairs[i], pairs[i + 1] / 1000]);
      const strongest = [...all].sort((a, b) => b[1] - a[1]).slice(0, 5);
      const label = `${data.rows[n]} (${data.first + n}) → ` +
        strongest.map(([column, weight]) => `${data.columns[column]} (${column}) ${weight.toFixed(3)}`).join(", ");
      const query = svgElement("g", { class: "query", tabindex: 0, role: "img", "aria-label": label });
      query.append(svgElement("rect", { x: 0, y: step * n + 4, width: left, height: step, "fill-opacity": 0 }),
        svgElement("text", { x: left - 8, y: middle(n) + 4, "text-anchor": "end" }, short(data.rows[n])),
        ...all.map(([column, weight]) => svgElement("line", { x1: left, y1: middle(n), x2: right, y2: middle(column),
          "stroke-opacity": Math.sqrt(weight).toFixed(3) })));
      svg.append(query);
    });
    return svg;
  };
  const cells = (matrix, name) => {
    const cell = Math.max(5, Math.min(20, Math.floor(data.room / data.columns.length))), named = cell >= 11;
    const left = named ? 110 : 8, top = named ? 96 : 8;
    const width = left + cell * data.columns.length + 70, height = top + cell * data.rows.length + 8;
    const svg = framed(width, height, name);
    if (named) {
      data.columns.forEach((token, n) => svg.append(svgElement("text", { transform:
        `translate(${left + cell * (n + 0.7)} ${top - 6}) rotate(-60)` }, short(token))));
      data.rows.forEach((token, n) => svg.append(svgElement("text", { x: left - 8, y: top + cell * (n + 0.7),
        "text-anchor": "end" }, short(token))));
    }
    matrix.forEach((pairs, n) => {
      svg.append(svgElement("rect", { class: "row", x: left, y: top + cell * n, width: cell * data.columns.length,
        height: cell - 1 }));
      let rest = 1000;
      for (let i = 0; i < pairs.length; i += 2) rest -= pairs[i + 1];
      for (let i = 0; i < pairs.length; i += 2) {
        const column = pairs[i], weight = pairs[i + 1] / 1000;
        const from = `${data.rows[n]} (${data.first + n})`, to = `${data.columns[column]} (${column})`;
        const label = `${from} → ${to}: ${weight.toFixed(3)}` +
          (rest > 5 ? `; rest of the row ${(rest / 1000).toFixed(3)}` : "");
        svg.append(svgElement("rect", { x: left + cell * column, y: top + cell * n, width: cell - 1, height: cell - 1,
          "fill-opacity": opacity(weight).toFixed(3), role: "img", "aria-label": label }));
      }
    });
    return svg;
  };
  draw();
}
"""
