"""The page of several runs: one table, their curves in one frame, what each of them says, and how they differ."""

from __future__ import annotations

from seqwright.core.config import UserError
from seqwright.reporting.markup import Html, element
from seqwright.reporting.numbers import count, duration, figure, interval
from seqwright.reporting.page import grid, page, section, show, table
from seqwright.reporting.report import STEPS, environment, sample
from seqwright.reporting.run_facts import HIGHER, RunFacts, flatten, headline, title
from seqwright.reporting.svg import Axis, Point, Series, chart, strip, thinning

LOG_TIME = Axis(title="training time, log scale", time=True, log=True)
COLORS = 8
"""Line colors of the page; a ninth run begins again."""


def comparison(runs: list[RunFacts], *, name: str = "Comparison") -> str:
    """A self-contained HTML document about several runs, best first."""
    score = headline(runs)
    if score is None:
        raise UserError("these runs have no score in common; evaluate each of them on the same file first.")
    ranked = sorted(runs, key=lambda run: run.scores[score]["value"], reverse=score in HIGHER)
    head = element(
        "header",
        element("p", f"{len(runs)} runs", class_="kind"),
        element("h1", name),
        element("p", _verdict(score), class_="lead"),
    )
    scored = _ladder(ranked, score), _curves(ranked, score)
    return page(name, head, *scored, _samples(ranked), _differences(ranked), _shared(ranked))


def _verdict(score: str) -> str:
    ranking = f"Ranked by {title(score)}, {'higher' if score in HIGHER else 'lower'} is better."
    return ranking + " Only runs with the same tokenizer compare on it." if score == "nll" else ranking


def _ladder(runs: list[RunFacts], score: str) -> Html:
    ends = [run.scores[score].get(end) for run in runs for end in ("low", "value", "high")]
    known = [end for end in ends if end is not None]
    rows = []
    for run, color in zip(runs, _colors(runs), strict=True):
        reached = run.scores[score]
        low, high = reached.get("low"), reached.get("high")
        rows.append(
            (
                run.name,
                figure(reached["value"]),
                strip(reached["value"], low, high, over=(min(known), max(known)), color=color),
                interval(low, high),
                figure(run.scores["perplexity"]["value"]) if "perplexity" in run.scores else "",
                count(run.summary["parameters"]) if run.summary.get("parameters") else "",
                duration(run.summary["seconds"]) if run.summary.get("seconds") else "",
            )
        )
    columns = ("run", title(score), "", "interval", "perplexity", "parameters", "training time")
    return section("Ladder", table(columns, rows, numeric=set(columns) - {"run", ""}))


def _curves(runs: list[RunFacts], score: str) -> Html:
    if not any(run.records("train") for run in runs):
        return Html("")
    named = f"Validation {title(score)}"
    charts = [
        chart(f"{named} over time", _courses(runs, score, "seconds"), x=LOG_TIME, y=Axis()),
        chart(f"{named} over steps", _courses(runs, score, "step"), x=STEPS, y=Axis()),
    ]
    records = max(len(run.records("evaluation")) for run in runs)
    return section("Curves", grid(charts, "charts"), lead=thinning(records))


def _courses(runs: list[RunFacts], score: str, over: str) -> list[Series]:
    """A line for each run. A counted model has no course: it is a level from the moment it was counted."""
    courses = [run.points("evaluation", score, over) if run.records("train") else [] for run in runs]
    end = max((x for points in courses for x, _ in points), default=0)
    series = []
    for run, points, color in zip(runs, courses, _colors(runs), strict=True):
        if run.records("train"):
            series.append(Series(name=run.name, points=points, color=color))
        else:
            counted = run.summary.get("seconds", 0) if over == "seconds" else 0
            level: list[Point] = [(x, run.scores[score]["value"]) for x in (counted, max(counted, end))]
            series.append(Series(name=run.name, points=level, color=color, style="level"))
    return series


def _colors(runs: list[RunFacts]) -> list[str]:
    return [f"var(--line-{rank % COLORS + 1})" for rank in range(len(runs))]


def _samples(runs: list[RunFacts]) -> Html:
    last = [(run, records[-1]) for run in runs if (records := run.records("sample"))]
    cards = [element("div", element("h3", run.name), sample(record)) for run, record in last]
    return section("A sample of each", grid(cards, "cards two"))


def _differences(runs: list[RunFacts]) -> Html:
    """The settings that are not the same in all runs."""
    settings = [dict(flatten(run.recipe)) for run in runs]
    keys = {key: None for table in settings for key in table if key != "name"}  # a dict keeps the order of the recipes
    rows = []
    for key in keys:
        values = ["" if key not in table else show(table[key]) for table in settings]
        if len(set(values)) > 1:
            rows.append((key, *values))
    return section("What differs", table(("setting", *(run.name for run in runs)), rows))


def _shared(runs: list[RunFacts]) -> Html:
    """The environment, as far as it is the same for all runs."""
    first, *others = (dict(flatten(run.environment)) for run in runs)
    return environment({key: value for key, value in first.items() if all(o.get(key) == value for o in others)})
