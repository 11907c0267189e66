"""A comparison as tables and lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from seqwright.reporting.numbers import count, duration, figure, interval
from seqwright.reporting.page import show
from seqwright.reporting.run_facts import title
from seqwright.reporting.terminal import Column, table
from seqwright.studies.compare.results import MeanScore, PairedTest, Results

MAX_PAIRS = 15
"""More pairs than this are shown against the best system only; JSON has all."""
MAX_TEXT = 240
"""Characters shown of a text."""
METHOD = (
    "The interval of the score of one run is that of `seqwright evaluate`."
    " Improvement of the first over the second, positive for errors, too. Its interval: paired bootstrap over examples,"
    " Student's t over seeds; p: approximate randomization, Holm's correction for all tests. Better needs p ≤ 0.05 and"
    " an interval without 0."
)


def printed(comparison: Results) -> Iterator[str | Table]:
    """Tables and lines, in order."""
    yield f"{comparison.sample}:"
    yield _scores(comparison)
    if comparison.tests:
        yield _tests(comparison)
        yield METHOD
        yield ""
    yield comparison.verdict
    if comparison.scope:
        yield comparison.scope
    yield from _keys(comparison)
    yield from _examples(comparison)


def score(one: MeanScore) -> str:
    """A value, with its standard deviation over seeds."""
    return figure(one.value) + ("" if one.deviation is None else f" ± {figure(one.deviation, 2)}")


def p_value(p: float) -> str:
    """A p-value to four decimals."""
    return f"{p:.4f}"


def pairs(comparison: Results) -> list[PairedTest]:
    """All tests, or those of the best system where they are many."""
    best = comparison.systems[0].name
    few = len(comparison.tests) <= MAX_PAIRS
    return [test for test in comparison.tests if few or best in (test.one, test.other)]


def _scores(comparison: Results) -> Table:
    rows = []
    for system in comparison.systems:
        row = {
            "run": system.name,
            "n": len({*system.seeds}),
            "parameters": system.parameters,
            "seconds": system.seconds,
        }
        for metric in comparison.metrics:
            one = system.scores[metric]
            row |= {metric: score(one), f"{metric} interval": interval(one.low, one.high)}
        rows.append(row | {"standing": comparison.standing(system)})
    columns = [Column("run", "run"), Column("n", "seeds", str)]
    for metric in comparison.metrics:
        columns += [Column(metric, title(metric), str), Column(f"{metric} interval", "95 % CI", str)]
    costs = [Column("parameters", "parameters", count), Column("seconds", "time", duration)]
    return table(rows, [*columns, *costs, Column("standing", "verdict", wrap=False)])


def _tests(comparison: Results) -> Table:
    rows = [
        {
            "pair": f"{test.one} − {test.other}",
            "metric": title(test.metric),
            "difference": test.difference.value,
            "interval": interval(test.difference.low, test.difference.high),
            "p": test.difference.p_holm,
            "verdict": test.difference.verdict,
        }
        for test in pairs(comparison)
    ]
    numbers = [Column("difference", "improvement", figure), Column("interval", "95 % CI", str)]
    columns = [
        Column("pair", "pair"),
        Column("metric", "metric", wrap=False),
        *numbers,
        Column("p", "p (Holm)", p_value),
    ]
    return table(rows, [*columns, Column("verdict", "verdict", wrap=False)])


def _keys(comparison: Results) -> Iterator[str | Table]:
    """Keys in which recipes differ that have them; those of some kinds of models alone are counted."""
    names = [system.name for system in comparison.systems]
    shared = comparison.shared_keys()
    rows = [
        {"key": key} | {name: show(value) for name, value in zip(names, values, strict=True)}
        for key, values in shared.items()
    ]
    if rows:
        yield table(rows, [Column("key", "recipe key", wrap=False), *(Column(name, name) for name in names)])
    if others := len(comparison.keys) - len(shared):
        yield f"Keys set in some of these recipes only: {others}; --html and --json show them."
        yield ""


def _examples(comparison: Results) -> Iterator[str]:
    """Those of the best system and the runner-up."""
    if len(comparison.systems) < 2:
        return
    runner_up = comparison.systems[1].name
    shown = [example for example in comparison.different if example.other == runner_up]
    if shown:
        yield f"Where {shown[0].one} and {runner_up} differ most:"
    for example in shown:
        yield ""
        yield f"favors {example.favors}: {_shortened(example.input)}"
        if example.reference:
            yield f"  reference: {_shortened(example.reference)}"
        for name, output in comparison.shown_outputs(example):
            yield f"  {name}: {_shortened(output)}"


def _shortened(text: str) -> str:
    line = " ⏎ ".join(text.strip().splitlines())
    return line if len(line) <= MAX_TEXT else f"{line[: MAX_TEXT - 1]}…"
