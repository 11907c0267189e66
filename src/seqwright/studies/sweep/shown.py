"""A sweep, shown: tables for the terminal, a page with a picture of each key's effect, and a notebook view."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from seqwright.core.storage import write_text
from seqwright.reporting.markup import Html, element
from seqwright.reporting.numbers import count, duration, figure, interval
from seqwright.reporting.page import grid, page, section, table
from seqwright.reporting.run_facts import title
from seqwright.reporting.svg import SMALL, Axis, Series, chart, strip
from seqwright.reporting.terminal import Column, as_text
from seqwright.reporting.terminal import table as terminal_table
from seqwright.studies.sweep.results import Effect, SweepResults, Trial
from seqwright.studies.sweep.settings import value_of

BAR = 24
"""Characters of the longest bar."""
COSTS = ("95 % interval", "parameters", "time")
"""Columns after the score."""
LOG_RATIO = 10
"""Numbers of at least this ratio are drawn on a logarithmic axis."""


class Sweep:
    """The results of a sweep: `sw.sweep(text="notes.txt", set=["model.width=64,128"]).results.chosen`."""

    def __init__(self, results: SweepResults):
        self.results = results

    def as_json(self) -> dict[str, Any]:
        return self.results.as_json()

    def printed(self) -> Iterator[str | Table]:
        """Lines and tables for the terminal, in order."""
        results = self.results
        yield f"validation {title(results.metric)} of {results.scored_on}, {_direction(results)}:"
        yield _trials(results)
        yield _effects(results)
        yield results.verdict
        if following := _next_step(results):
            yield following
        if results.test is not None:
            rows = ((name, value, f"({ends})" if ends else "") for name, value, ends in _test_scores(results))
            values = ", ".join(" ".join(filter(None, row)) for row in rows)
            yield f"test ({' '.join(results.test['on'])}), {_read(results.test)}, of the chosen setting: {values}"

    def __str__(self) -> str:
        return as_text(self.printed())

    def html(self) -> str:
        """The sweep as a self-contained page."""
        results = self.results
        head = element(
            "header",
            element("p", f"{len(results.trials)} trials", class_="kind"),
            element("h1", Path(results.folder).name),
            element("p", results.verdict, class_="lead"),
            element("p", _next_step(results), class_="lead"),
        )
        effects = section("Effect of each key", _effect_strips(results), lead=EFFECT)
        charts = section("Scores by value", grid([_chart(results, key) for key in results.keys], "cards"))
        return page(Path(results.folder).name, head, _trial_table(results), _test_table(results), effects, charts)

    def write_html(self, path: str | Path) -> Path:
        """Writes the page."""
        write_text(Path(path), self.html())
        return Path(path)

    def _repr_html_(self) -> str:
        return element("div", element("p", self.results.verdict), _trial_table(self.results))


EFFECT = (
    "Mean validation score of all settings with this value; the bar spans the worst to the best of them. Of successive"
    " halving: the first rung, where all settings have the same budget."
)


def _direction(results: SweepResults) -> str:
    return "higher is better" if results.higher else "lower is better"


def _next_step(results: SweepResults) -> str:
    """How to test the chosen setting against the next; empty where there is none of its budget."""
    chosen, *others = results.trials
    rivals = [trial for trial in others if trial.runs and trial.budget == chosen.budget]
    if not rivals:
        return ""
    runs = shlex.join([*chosen.runs, *rivals[0].runs])
    single = results.seeded and len(chosen.values) == 1
    seeds = " One seed each: --seeds 3 shows how much of it is chance." if single else ""
    return f"Is it better than the next, on other data? `seqwright compare {runs} --on FILE`{seeds}"


def _score(trial: Trial) -> str:
    if trial.mean is None:
        return "diverged"
    return figure(trial.mean) + ("" if trial.deviation is None else f" ± {figure(trial.deviation, 2)}")


def _trials(results: SweepResults) -> Table:
    rows: list[dict[str, Any]] = [
        dict(trial.setting)
        | {"n": len(trial.values), "score": _score(trial), "interval": interval(*(trial.interval or (None, None)))}
        | {"parameters": trial.parameters, "budget": trial.budget, "seconds": trial.seconds}
        for trial in results.trials
    ]
    columns = [Column(key, key) for key in results.keys]
    columns += [Column("budget", "budget", "{:g}".format)] if results.chosen.budget is not None else []
    columns += [
        Column("n", "seeds", str),
        Column("score", title(results.metric), str),
        Column("interval", "95 % interval"),
        Column("parameters", "parameters", count),
        Column("seconds", "time", duration),
    ]
    return terminal_table(rows, columns)


def _effects(results: SweepResults) -> Table:
    """The mean of each value, with a bar that is longer for better ones."""
    means = [effect.mean for effect in results.effects]
    worst, best = (min(means), max(means)) if results.higher else (max(means), min(means))
    rows = [
        {
            "key": effect.key,
            "value": effect.value,
            "mean": effect.mean,
            "bar": "█" * max(1, round(BAR * (effect.mean - worst) / ((best - worst) or 1))),
            "n": effect.settings,
        }
        for effect in results.effects
    ]
    columns = [Column("key", "key", wrap=False), Column("value", "value"), Column("n", "settings", str)]
    return terminal_table(
        rows, [*columns, Column("mean", f"mean {title(results.metric)}", figure), Column("bar", "effect")]
    )


def _trial_table(results: SweepResults) -> Html:
    halving = results.chosen.budget is not None
    columns = (*results.keys, *(("budget",) if halving else ()), "seeds", title(results.metric), *COSTS)
    rows = [
        (
            *trial.setting.values(),
            *((f"{trial.budget:g}",) if halving else ()),
            len(trial.values),
            _score(trial),
            interval(*(trial.interval or (None, None))),
            count(trial.parameters) if trial.parameters else "",
            duration(trial.seconds) if trial.seconds else "",
        )
        for trial in results.trials
    ]
    lead = (
        f"Mean ± standard deviation over seeds, {_direction(results)}, of {results.scored_on}. Intervals are over"
        " validation examples and seeds; overlapping ones are no test, `seqwright compare` has a paired one."
    )
    return section("Settings", table(columns, rows, numeric=set(columns) - {*results.keys}), lead=lead)


def _test_table(results: SweepResults) -> Html:
    if results.test is None:
        return Html("")
    lead = f"Of {' '.join(results.test['on'])}, {_read(results.test)}, by the chosen setting; mean over seeds."
    columns = ("score", "value", "95 % interval")
    return section("Test", table(columns, _test_scores(results), numeric=columns[1:]), lead=lead)


def _read(test: Mapping[str, Any]) -> str:
    """How often test data were read in this sweep."""
    reads = test.get("reads", 1)  # older files have none
    return "read once" if reads == 1 else f"test data read {reads} times in this sweep"


def _test_scores(results: SweepResults) -> list[tuple[str, str, str]]:
    """Name, value and interval of each test score; the interval is empty where it is not known."""
    assert results.test is not None
    scores, intervals = results.test["scores"], results.test.get("intervals", {})  # older files have none
    return [
        (title(name, scores), figure(value), interval(*(intervals.get(name) or (None, None))))
        for name, value in scores.items()
    ]


def _effect_strips(results: SweepResults) -> Html:
    over = min(effect.low for effect in results.effects), max(effect.high for effect in results.effects)
    rows = [
        (effect.key, effect.value, effect.settings, figure(effect.mean), _strip(effect, over))
        for effect in results.effects
    ]
    columns = ("key", "value", "settings", f"mean {title(results.metric)}", "worst to best")
    return table(columns, rows, numeric=columns[2:4])


def _strip(effect: Effect, over: tuple[float, float]) -> Html:
    return strip(effect.mean, effect.low, effect.high, over=over, color="var(--line-1)")


def _chart(results: SweepResults, key: str) -> Html:
    """The mean score over the values of a numeric key; empty for others."""
    effects = [effect for effect in results.effects if effect.key == key]
    values = [value_of({key: effect.value}, key) for effect in effects]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return Html("")
    points = sorted((float(value), effect.mean) for value, effect in zip(values, effects, strict=True))
    log = points[0][0] > 0 and points[-1][0] / points[0][0] >= LOG_RATIO
    series = Series(name=title(results.metric), points=points, color="var(--line-1)")
    return chart(key, [series], x=Axis(title=f"{key}, log scale" if log else key, log=log), y=Axis(), frame=SMALL)
