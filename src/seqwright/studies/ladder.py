"""`ladder`: models of growing size on the user's own data, under one time budget, and which of them is enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from seqwright.build import COUNTED
from seqwright.core.config import UserError, did_you_mean
from seqwright.core.notebook import html_text
from seqwright.core.progress import Progress
from seqwright.core.storage import sweep, write_text
from seqwright.pipeline import recipe
from seqwright.pipeline.defaults import default_recipe, fine_tuned
from seqwright.pipeline.facts import facts_of
from seqwright.pipeline.recipe import Recipe
from seqwright.pipeline.training import train
from seqwright.reporting.advice import still_falling
from seqwright.reporting.comparison import comparison
from seqwright.reporting.numbers import count, duration, figure, interval
from seqwright.reporting.run_facts import HIGHER, RunFacts, headline, title, training_rate, unit
from seqwright.reporting.terminal import Column, as_text, scatter, table
from seqwright.runs.directory import RunDirectory
from seqwright.runs.finding import RUNS

RUNGS: dict[str, tuple[str, ...]] = {
    "text": ("ngram", "neural-bigram", "feedforward", "rnn", "lstm", "gpt"),
    "labeled": ("bag", "mlp", "cnn", "lstm", "transformer"),
    "tagged": ("perceptron", "lstm", "transformer"),
    "pairs": ("rnn", "lstm", "transformer"),
}
"""Kinds of models by kind of data, simplest first; the last is the reference for tokenizer and split."""
GENERATIVE = ("text", "pairs")
"""Kinds of data whose models generate samples."""
FINE_TUNED = "fine-tuned"
"""The rung that starts from a run."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One trained model of a ladder."""

    name: str
    path: Path
    summary: dict[str, Any]
    sample: str
    """The last sample during training; empty for models that do not generate."""
    source: str = ""
    """The source that the sample translates; empty for other data."""


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Trained models, simplest first."""

    rungs: list[Rung]
    score: str
    """The score that all have in common."""
    page: Path
    enough: str
    """The rung that suffices."""
    why: str
    improving: tuple[str, ...]
    """Networks whose validation loss was still falling, so that more time may change the verdict."""

    @property
    def verdict(self) -> str:
        """Which rung is enough and why, and what is not yet known."""
        # What still improves, or has no interval, is not known to be enough, only to lead.
        leads = self.enough in self.improving or undecided(self.rungs, self.score)
        verdict = f"{self.enough} {'leads so far' if leads else 'is enough'}: {self.why}."
        if not self.improving:
            return verdict
        return f"{verdict} Still improving at their last step: {', '.join(self.improving)}; try more --minutes."

    def scores(self, rung: Rung) -> Mapping[str, Any]:
        """The score of a rung: value, low and high."""
        score: Mapping[str, Any] = rung.summary["scores"][self.score]
        return score

    def as_json(self) -> dict[str, Any]:
        rows = [
            {"name": r.name, "run": str(r.path), "summary": r.summary, "source": r.source, "sample": r.sample}
            for r in self.rungs
        ]
        verdict = {"score": self.score, "enough": self.enough, "why": self.why, "verdict": self.verdict}
        return {"runs": rows, "report": str(self.page)} | verdict

    def printed(self) -> Iterator[str | Table]:
        """Lines and tables for the terminal: the rungs, quality over time, their samples, and which is enough."""
        yield self._table()
        points = [(rung.name, rung.summary["seconds"], self.scores(rung)["value"]) for rung in self.rungs]
        better = "higher" if self.score in HIGHER else "lower"
        yield f"{title(self.score)}, {better} is better, over training time, log scale:"
        yield from scatter([point for point in points if point[1]], write_x=duration, write_y=figure)
        yield ""
        if sources := list(dict.fromkeys(rung.source for rung in self.rungs if rung.source)):
            yield f"source: {' | '.join(sources)}\n"  # one: all rungs share a split
        for rung in self.rungs:
            if rung.sample:
                yield f"{rung.name}: {' '.join(rung.sample.split())}\n"
        yield self.verdict

    def __str__(self) -> str:
        return as_text(self.printed())

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def _table(self) -> Table:
        rows = []
        for rung in self.rungs:
            score = self.scores(rung)
            rows.append(
                {
                    "name": rung.name,
                    "parameters": rung.summary.get("parameters"),
                    "seconds": rung.summary["seconds"],
                    "rate": training_rate(rung.summary),
                    "value": score["value"],
                    "interval": interval(score.get("low"), score.get("high")),
                }
            )
        columns = [
            Column("name", "model"),
            Column("parameters", "parameters", count),
            Column("seconds", "training time", duration),
            Column("rate", f"{unit(self.rungs[0].summary['scores'])}s/s", count),
            Column("value", title(self.score), figure),
            Column("interval", "95 % interval"),
        ]
        return table(rows, columns)


def ladder_recipes(
    data: str,
    files: Sequence[str],
    valid: Sequence[str] = (),
    *,
    minutes: float,
    kinds: Sequence[str] = (),
    base: Path | None = None,
    overrides: Sequence[str] = (),
) -> dict[str, Recipe]:
    """A recipe for each rung: the default of its kind, of sizes that suit its share of the minutes, with one tokenizer
    and one split for all where their kind of data has them."""
    chosen = list(kinds) or list(RUNGS[data])
    for kind in chosen:
        if kind not in RUNGS[data]:
            raise UserError(f"no rung '{kind}' for --{data}.{did_you_mean(kind, RUNGS[data])}")
    networks = len([kind for kind in chosen if kind not in COUNTED]) + (base is not None)
    share = minutes / max(1, networks)
    reference = default_recipe(data, files, valid, kind=RUNGS[data][-1], minutes=share)
    recipes = {}
    for kind in chosen:
        table = default_recipe(data, files, valid, kind=kind, minutes=share)
        table["data"] |= {key: reference["data"][key] for key in ("split", "valid") if key in reference["data"]}
        table["data"].pop("refit", None)  # a rung that has seen the held-out text cannot be compared on it
        if data in ("text", "pairs"):
            table["tokenizer"] = reference["tokenizer"]
        recipes[kind] = _recipe(table, kind, share, overrides, data)
    if base is not None:
        table = fine_tuned(reference, RunDirectory.open(base).recipe(), base)
        table.pop("tokenizer", None)
        recipes[FINE_TUNED] = _recipe(table, FINE_TUNED, share, overrides, data)
    return recipes


def _recipe(table: dict[str, Any], name: str, share: float, overrides: Sequence[str], data: str) -> Recipe:
    budget = []
    if name not in COUNTED:
        training = {key: value for key, value in table["training"].items() if key not in ("steps", "epochs")}
        table, budget = table | {"training": training}, [f"training.minutes={share}"]
    baseline = {"evaluation": {"baseline": False}} if data == "text" else {}  # the ladder has an n-gram
    return recipe.make(table | {"name": name} | baseline, [*budget, *overrides], origin=f"--{data}", base=Path())


def folder_of(files: Sequence[str]) -> Path:
    """The folder of a ladder that is given none, by the name of its first file."""
    return RUNS / f"ladder-{Path(files[0]).name.split('.')[0]}"


def climb(recipes: Mapping[str, Recipe], folder: Path, progress: Progress, *, name: str) -> Ladder:
    """Trains each recipe in a run of its own (finished runs are reused), compares them on a page, and says which rung
    suffices."""
    rungs = []
    for kind, settings in recipes.items():
        progress.note(f"— {kind}")
        outcome = train(settings, folder / kind, progress)
        if outcome.summary is None:
            raise KeyboardInterrupt
        records = RunDirectory.open(outcome.path).records() if settings.data.kind in GENERATIVE else []
        last: dict[str, Any] = next((record for record in reversed(records) if record["kind"] == "sample"), {})
        source = last.get("prompt", "") if settings.data.kind == "pairs" else ""
        sample = last.get("text", "")
        rungs.append(Rung(name=kind, path=outcome.path, summary=outcome.summary, sample=sample, source=source))
    page = folder / "report.html"
    facts = [facts_of(RunDirectory.open(rung.path)) for rung in rungs]
    score = headline(facts)
    if score is None:
        raise UserError("these models have no score in common: give validation data with --valid.")
    enough, why = sufficient(rungs, score)
    improving = tuple(rung.name for rung, run in zip(rungs, facts, strict=True) if still_improving(run))
    trained = Ladder(rungs=rungs, score=score, page=page, enough=enough.name, why=why, improving=improving)
    sweep(page)
    write_text(page, comparison(facts, name=name, verdict=trained.verdict))
    return trained


def still_improving(run: RunFacts) -> bool:
    """Whether the validation loss of a network was still falling at its last step, by the rule of its own report; or
    was taken once, so that nothing is known. Accuracy may rise while the loss, which selects the weights, does, too."""
    if not run.records("train"):
        return False
    return still_falling(run.log) is not None or len(run.records("evaluation")) == 1


def sufficient(rungs: Sequence[Rung], score: str) -> tuple[Rung, str]:
    """The cheapest rung among those that tie with the best: the interval of either reaches the other's score; and why.

    Intervals are no test of a difference: `compare` has a paired one.
    """
    sign = 1 if score in HIGHER else -1
    scores = {rung.name: rung.summary["scores"][score] for rung in rungs}
    best = max(rungs, key=lambda rung: sign * scores[rung.name]["value"])
    top = scores[best.name]
    tied = [
        rung
        for rung in rungs
        if _reaches(scores[rung.name], top["value"], sign) or _reaches(top, scores[rung.name]["value"], -sign)
    ]
    enough = min(tied, key=_cost)
    named = f"{title(score)}, {scores[best.name]['value']:.4g}"
    if undecided(rungs, score):
        return best, f"it has the best {named}, but what is held out is too little for intervals"
    if tied == [best]:
        return best, f"it has the best {named}, which no other reaches within the intervals"
    if enough is best:
        others = [rung for rung in tied if rung is not best]
        names = ", ".join(rung.name for rung in others)
        cheaper = _cheaper(best, min(others, key=_cost))
        return best, f"it has the best {named}, a tie with {names} by their intervals, and {cheaper}"
    return enough, f"it ties with the best {named} of {best.name} by their intervals, and {_cheaper(enough, best)}"


def undecided(rungs: Sequence[Rung], score: str) -> bool:
    """Whether rungs have no intervals by which one could tie with another."""
    return len(rungs) > 1 and any(rung.summary["scores"][score].get("low") is None for rung in rungs)


def _cost(rung: Rung) -> tuple[bool, int]:
    """Order of cost, the same on every machine: counted models first, then networks by parameters. Seconds of training
    are a matter of what else the machine did."""
    return rung.name not in COUNTED, rung.summary.get("parameters") or 0


def _cheaper(rung: Rung, other: Rung) -> str:
    """Why one rung is cheaper than another."""
    if rung.name in COUNTED and other.name not in COUNTED:
        return "it is counted, without gradient steps"
    sizes = [count(one.summary.get("parameters") or 0) for one in (rung, other)]
    return f"it has {sizes[0]} parameters instead of {sizes[1]}"


def _reaches(score: Mapping[str, Any], top: float, sign: int) -> bool:
    bound = score.get("high" if sign > 0 else "low")
    return sign * (score["value"] if bound is None else bound) >= sign * top
