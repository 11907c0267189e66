"""The HTML page of an explanation: steps one at a time, by buttons, arrow keys or links; all of them without script."""

from __future__ import annotations

from collections.abc import Sequence

from seqwright.reporting.markup import Html, element
from seqwright.reporting.page import page

STYLE = """
.prose { max-width: 72ch; margin: 0 0 16px; }
.formula { margin: 0 0 20px; padding: 12px 16px; overflow-x: auto; white-space: pre-wrap;
  border-left: 3px solid var(--accent); background: var(--card); font-size: 14px; line-height: 1.6; }
.figures { display: flex; flex-wrap: wrap; gap: 24px 36px; align-items: flex-start; }
.figures figure { max-width: 100%; }
.scalar { margin: 0; }
td, td:first-child, table.matrix th, ul.tree b { white-space: pre-wrap; }
code.drawn { white-space: pre; background: none; padding: 0; color: inherit; font-size: 13px; }
table.matrix { width: auto; font-size: 13px; }
table.matrix th, table.matrix td { padding: 5px 10px; border-bottom: 0; font-weight: 400; }
table.matrix tbody td:first-of-type { border-left: 1.5px solid var(--quiet); }
table.matrix tbody td:last-of-type { border-right: 1.5px solid var(--quiet); }
table.matrix tbody th { text-align: right; }
table.matrix td[style] { background: color-mix(in srgb, var(--accent) calc(var(--weight) * 50%), transparent); }
table.matrix td.negative { background: color-mix(in srgb, var(--line-2) calc(var(--weight) * 50%), transparent); }
.drawing { max-height: 80vh; overflow: auto; }
.drawing svg { width: auto; height: auto; max-width: none; }
.drawing rect { fill: var(--line-1); }
.drawing .negative { fill: var(--line-2); }
.erratum { max-width: 72ch; margin: 20px 0 0; padding: 10px 16px; border-left: 3px solid var(--line-2);
  background: var(--card); }
ul.tree, ul.tree ul { list-style: none; margin: 0; padding: 0 0 0 20px; border-left: 1px solid var(--hair); }
ul.tree li { padding: 2px 0; white-space: nowrap; }
ul.tree .pruned > b, ul.tree .pruned > span { color: var(--muted); font-weight: 400; }
ul.tree .pruned > b { text-decoration: line-through; }
.contents { columns: 2; gap: 36px; margin: 20px 0 0; padding-left: 22px; font-size: 14px; }
.contents a { color: inherit; text-decoration: none; }
.contents a:hover, .contents a[aria-current] { color: var(--accent); }
.contents a[aria-current] { font-weight: 620; }
.steps { position: sticky; bottom: 0; display: none; gap: 12px; align-items: center; padding: 12px 0;
  background: var(--ground); border-top: 1px solid var(--hair); }
.steps button { min-width: 44px; min-height: 44px; padding: 0 16px; font: inherit; color: var(--ink);
  background: var(--card); border: 1px solid var(--hair); border-radius: 8px; cursor: pointer; }
.steps button:disabled { color: var(--quiet); cursor: default; }
.steps button:not(:disabled):hover { border-color: var(--accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.step h2:focus { outline: none; }
.stepping .steps { display: flex; }
.stepping .step:not(.current) { display: none; }
.stepping.everything .step { display: block; }
.position { color: var(--muted); font-size: 13px; }
@media (max-width: 640px) { .contents { columns: 1; } .keys-hint { display: none; } }
@media print { .stepping .step:not(.current) { display: block; } .stepping .steps { display: none; } }
"""

# The step is part of the address (#step-3), so that a link opens it and the back button works.
SCRIPT = """
const steps = [...document.querySelectorAll(".step")], links = [...document.querySelectorAll(".contents a")];
const [back, next, all] = ["back", "next", "all"].map(id => document.getElementById(id));
const position = document.getElementById("position");
const current = () => Math.max(0, steps.findIndex(step => "#" + step.id === location.hash));
const show = focus => {
  const at = current();
  steps.forEach((step, n) => step.classList.toggle("current", n === at));
  links.forEach((link, n) => {
    if (n === at) link.setAttribute("aria-current", "step"); else link.removeAttribute("aria-current"); });
  back.disabled = at === 0; next.disabled = at === steps.length - 1;
  position.textContent = `step ${at + 1} of ${steps.length}`;
  if (focus) { const heading = steps[at].querySelector("h2"); heading.focus({ preventScroll: true });
    heading.scrollIntoView({ block: "nearest" }); }
};
const go = by => { location.hash = steps[Math.min(steps.length - 1, Math.max(0, current() + by))].id; };
back.addEventListener("click", () => go(-1));
next.addEventListener("click", () => go(1));
all.addEventListener("click", () => {
  const everything = document.body.classList.toggle("everything");
  all.setAttribute("aria-pressed", everything); });
window.addEventListener("hashchange", () => show(true));
document.addEventListener("keydown", event => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (event.target.closest(".scroll, pre, select")) return;
  const by = { ArrowRight: 1, ArrowLeft: -1, Home: -steps.length, End: steps.length }[event.key];
  if (by) { event.preventDefault(); go(by); } });
document.body.classList.add("stepping");
show(false);
"""


def stepped_page(
    title: str, about: str, steps: Sequence[tuple[str, Html]], *, command: str, style: str = "", script: str = ""
) -> str:
    """A complete HTML document of steps, each with its heading; the command that computed it stands above them. `style`
    and `script` of figures come after those of the steps."""
    links = [
        element("li", element("a", heading, href=f"#step-{number}")) for number, (heading, _) in enumerate(steps, 1)
    ]
    header = element(
        "header",
        element("p", command, class_="kind"),
        element("h1", title),
        element("p", about, class_="lead"),
        element("nav", element("ol", *links, class_="contents"), aria_label="Steps"),
    )
    controls = element(
        "div",
        element("button", "←", id="back", type="button", aria_label="Previous step"),
        element("button", "→", id="next", type="button", aria_label="Next step"),
        element("span", "", id="position", class_="position", role="status"),
        element("button", "All steps", id="all", type="button", aria_pressed="false"),
        element("span", "arrow keys, too", class_="position keys-hint"),
        class_="steps",
        role="group",
        aria_label="Step through",
    )
    sections = [html for _, html in steps]
    return page(f"{title} · seqwright", header, *sections, controls, style=STYLE + style, script=SCRIPT + script)
