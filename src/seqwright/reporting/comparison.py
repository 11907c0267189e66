"""HTML report that compares several runs: leaderboard, learning curves, samples and hyperparameter differences."""

from __future__ import annotations

from seqwright.core.config import UserError
from seqwright.reporting.markup import Html, element
from seqwright.reporting.numbers import count, duration, figure, interval
from seqwright.reporting.page import differences, grid, page, section, table
from seqwright.reporting.report import STEPS, environment, sample
from seqwright.reporting.run_facts import HIGHER, RunFacts, flatten, headline, title, training_rate, unit
from seqwright.reporting.svg import Axis, Point, Series, chart, downsampling_note, strip

LOG_TIME = Axis(title="training time, log scale", time=True, log=True)
COLORS = 8
"""Number of line colors in the style sheet; further runs reuse them."""


def comparison(runs: list[RunFacts], *, name: str = "Comparison", verdict: str = "") -> str:
    """A self-contained HTML document that compares several runs, best first, under a verdict."""
    score = headline(runs)
    if score is None:
        raise UserError("these runs have no score in common; evaluate each of them on the same file first.")
    ranked = sorted(runs, key=lambda run: run.scores[score]["value"], reverse=score in HIGHER)
    head = element(
        "header",
        element("p", f"{len(runs)} runs", class_="kind"),
        element("h1", name),
        element("p", f"{verdict} {_ranking(score)}".strip(), class_="lead"),
    )
    scored = _leaderboard(ranked, score), _curves(ranked, score)
    return page(name, head, *scored, _samples(ranked), _differences(ranked), _shared_environment(ranked))


def _ranking(score: str) -> str:
    ranked_by = f"Ranked by {title(score)}, {'higher' if score in HIGHER else 'lower'} is better."
    return ranked_by + " Comparable only between runs with the same tokenizer." if score == "nll" else ranked_by


def _leaderboard(runs: list[RunFacts], score: str) -> Html:
    bounds = [run.scores[score].get(key) for run in runs for key in ("low", "value", "high")]
    known = [bound for bound in bounds if bound is not None]
    perplexity = all("perplexity" in run.scores for run in runs)
    rows = []
    for run, color in zip(runs, _colors(runs), strict=True):
        entry = run.scores[score]
        low, high = entry.get("low"), entry.get("high")
        rows.append(
            (
                run.name,
                figure(entry["value"]),
                strip(entry["value"], low, high, over=(min(known), max(known)), color=color),
                interval(low, high),
                *([figure(run.scores["perplexity"]["value"])] if perplexity else []),
                count(run.summary["parameters"]) if run.summary.get("parameters") else "",
                duration(run.summary["seconds"]) if run.summary.get("seconds") else "",
                count(rate) if (rate := training_rate(run.summary)) else "",
            )
        )
    rates = f"{unit(runs[0].scores)}s/s"
    more = (*(["perplexity"] if perplexity else []), "parameters", "training time", rates)
    columns = ("run", title(score), "", "interval", *more)
    return section("Leaderboard", table(columns, rows, numeric=set(columns) - {"run", ""}))


def _curves(runs: list[RunFacts], score: str) -> Html:
    if not any(run.records("train") for run in runs):
        return Html("")
    metric = f"Validation {title(score)}"
    charts = [
        chart(f"{metric} over time", _series(runs, score, "seconds"), x=LOG_TIME, y=Axis()),
        chart(f"{metric} over steps", _series(runs, score, "step"), x=STEPS, y=Axis()),
    ]
    records = max(len(run.records("evaluation")) for run in runs)
    return section("Curves", grid(charts, "charts"), lead=downsampling_note(records))


def _series(runs: list[RunFacts], score: str, over: str) -> list[Series]:
    """One curve per run; a count-based model has no learning curve and is drawn as a horizontal line."""
    curves = [run.points("evaluation", score, over) if run.records("train") else [] for run in runs]
    end = max((x for points in curves for x, _ in points), default=0)
    series = []
    for run, points, color in zip(runs, curves, _colors(runs), strict=True):
        if run.records("train"):
            series.append(Series(name=run.name, points=points, color=color))
        else:
            start = run.summary.get("seconds", 0) if over == "seconds" else 0
            level: list[Point] = [(x, run.scores[score]["value"]) for x in (start, max(start, end))]
            series.append(Series(name=run.name, points=level, color=color, style="level"))
    return series


def _colors(runs: list[RunFacts]) -> list[str]:
    return [f"var(--line-{rank % COLORS + 1})" for rank in range(len(runs))]


def _samples(runs: list[RunFacts]) -> Html:
    last = [(run, records[-1]) for run in runs if (records := run.records("sample"))]
    cards = [element("div", element("h3", run.name), sample(record)) for run, record in last]
    return section("Samples", grid(cards, "cards two"))


def _differences(runs: list[RunFacts]) -> Html:
    """Hyperparameters that differ between the runs."""
    settings = [dict(flatten(run.recipe)) for run in runs]
    known = dict.fromkeys(key for recipe in settings for key in recipe if key != "name")  # in the order of the recipes
    values = {key: tuple(recipe.get(key) for recipe in settings) for key in known}
    differing = {key: row for key, row in values.items() if any(value != row[0] for value in row)}
    return section("Hyperparameter differences", *differences([run.name for run in runs], differing))


def _shared_environment(runs: list[RunFacts]) -> Html:
    """Environment entries that all runs share."""
    first, *others = (dict(flatten(run.environment)) for run in runs)
    return environment({key: value for key, value in first.items() if all(o.get(key) == value for o in others)})
