"""A comparison as a self-contained page, in the design of all reports, and as a view of notebooks."""

from __future__ import annotations

from seqwright.reporting.markup import Html, element, join
from seqwright.reporting.numbers import count, duration, figure, interval
from seqwright.reporting.page import differences, grid, page, section, table
from seqwright.reporting.run_facts import title
from seqwright.reporting.svg import strip
from seqwright.studies.compare.results import ComparedExample, MeanScore, Results
from seqwright.studies.compare.text import METHOD, p_value, pairs, score

COLORS = 8
"""Number of line colors in the style sheet; further systems reuse them."""


def comparison_page(comparison: Results) -> str:
    """The page: scores, tests, examples and recipes."""
    name = " · ".join(system.name for system in comparison.systems)
    head = element(
        "header",
        element("p", comparison.sample, class_="kind"),
        element("h1", name),
        element("p", f"{comparison.verdict} {comparison.scope}".strip(), class_="lead"),
        *(element("p", f"Warning: {note}", class_="lead") for note in comparison.notes),
    )
    parts = _scores(comparison), _tests(comparison), _examples(comparison), _keys(comparison)
    return page(name, head, *parts)


def notebook_view(comparison: Results) -> str:
    """Verdict, scores and tests."""
    return element("div", element("p", comparison.verdict), _scores(comparison), _tests(comparison))


def _scores(comparison: Results) -> Html:
    parts = []
    best = comparison.systems[0]
    against = f"against {best.name}"
    for metric in comparison.metrics:
        scores = [system.scores[metric] for system in comparison.systems]
        bounds = [bound for one in scores for bound in (one.low, one.value, one.high) if bound is not None]
        rows = []
        for n, (system, one) in enumerate(zip(comparison.systems, scores, strict=True)):
            color = f"var(--line-{n % COLORS + 1})"
            rows.append(
                (
                    system.name,
                    len({*system.seeds}),
                    score(one),
                    _strip(one, (min(bounds), max(bounds)), color),
                    interval(one.low, one.high),
                    count(system.parameters) if system.parameters else "",
                    duration(system.seconds) if system.seconds else "",
                    "" if system is best else comparison.standing(system, metric),
                )
            )
        columns = ("run", "seeds", title(metric), "", "95 % CI", "parameters", "training time", against)
        scores_table = table(columns, rows, numeric=set(columns) - {"run", "", against})
        heading = title(metric)
        parts.append(section(heading[:1].upper() + heading[1:], scores_table))
    return join(parts)


def _strip(one: MeanScore, over: tuple[float, float], color: str) -> Html:
    return strip(one.value, one.low, one.high, over=over, color=color)


def _tests(comparison: Results) -> Html:
    rows = [
        (
            f"{test.one} − {test.other}",
            title(test.metric),
            figure(test.difference.value),
            interval(test.difference.low, test.difference.high),
            p_value(test.difference.p_holm),
            test.difference.verdict,
        )
        for test in pairs(comparison)
    ]
    columns = ("pair", "metric", "improvement", "95 % CI", "p (Holm)", "verdict")
    return section("Paired tests", table(columns, rows, numeric=("improvement", "95 % CI", "p (Holm)")), lead=METHOD)


def _examples(comparison: Results) -> Html:
    cards = [_card(example, comparison) for example in comparison.different]
    lead = "The examples without which the difference would change most."
    return section("Where they differ most", grid(cards, "cards two"), lead=lead)


def _card(example: ComparedExample, comparison: Results) -> Html:
    entries = [("input", example.input), ("reference", example.reference)]
    entries += comparison.shown_outputs(example)
    shown = [join([element("dt", name), element("dd", text)]) for name, text in entries if text]
    return element("div", element("h3", f"favors {example.favors}"), element("dl", *shown, class_="pair sample"))


def _keys(comparison: Results) -> Html:
    return section("Recipe differences", *differences([system.name for system in comparison.systems], comparison.keys))
