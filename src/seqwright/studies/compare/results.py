"""What a comparison finds: scores of each system, tests of each pair, and the examples behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from seqwright.build import COUNTED
from seqwright.core.config import UserError
from seqwright.metrics.significance import Difference, Verdict
from seqwright.reporting.page import shared
from seqwright.reporting.run_facts import title

Standing = Literal["best", "tie", "worse", "better"]


@dataclass(frozen=True, kw_only=True)
class MeanScore:
    """A metric of a system: its mean over seeds."""

    value: float
    low: float | None
    """Ends of the 95 % interval: of one run that of `evaluate`, of several over examples and seeds; None with too few
    examples."""
    high: float | None
    deviation: float | None
    """Standard deviation over seeds; None for one seed."""
    values: tuple[float, ...]
    """Of each run."""


@dataclass(frozen=True, kw_only=True)
class System:
    """A recipe, trained once or with several seeds."""

    name: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    kind: str
    parameters: int | None
    seconds: float | None
    """Mean training time."""
    scores: Mapping[str, MeanScore]


@dataclass(frozen=True, kw_only=True)
class PairedTest:
    """A paired test of two systems."""

    one: str
    other: str
    metric: str
    difference: Difference
    """Of `one` over `other`; in `Results.tests`, `one` has the better headline score."""


@dataclass(frozen=True, kw_only=True)
class ComparedExample:
    """An example on which two systems differ."""

    one: str
    other: str
    favors: str
    """The system whose score it raises against the other's."""
    influence: float
    """How much the difference of the two would fall without the example."""
    input: str
    reference: str
    outputs: tuple[str, str]
    """Of one run of either system: the first two whose scores of the example favor that system, too."""
    seeds: tuple[int, int]
    """Of these runs."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """Scores of runs on the same examples, the best first, with significance tests of every pair."""

    split: str
    """The data that all runs were scored on."""
    unit: str
    """What is resampled and swapped: text, sentence, block of text, …"""
    examples: int
    metrics: tuple[str, ...]
    """Tested metrics, the headline first."""
    systems: tuple[System, ...]
    """From the best headline score to the worst."""
    tests: tuple[PairedTest, ...]
    """Of every pair and metric; p-values are corrected for all of them."""
    different: tuple[ComparedExample, ...]
    """Examples that most favor the best system over each other one, or the other over it."""
    keys: Mapping[str, tuple[Any, ...]]
    """Recipe keys whose values differ, with the value of each system."""
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        return self.metrics[0]

    def shown_outputs(self, example: ComparedExample) -> Iterator[tuple[str, str]]:
        """Both outputs of an example and whose they are: of which seed, where a system has several."""
        for name, seed, output in zip((example.one, example.other), example.seeds, example.outputs, strict=True):
            system = next(system for system in self.systems if system.name == name)
            yield f"{name} (seed {seed})" if len({*system.seeds}) > 1 else name, output

    def shared_keys(self) -> dict[str, tuple[Any, ...]]:
        """Differing keys without those that only some kinds of models have, alike."""
        return shared(self.keys)

    def test(self, one: str, other: str, metric: str | None = None) -> PairedTest:
        """The test of two systems: the difference is that of `one` over `other`."""
        wanted = {one, other}, metric or self.headline
        for test in self.tests:
            if ({test.one, test.other}, test.metric) == wanted:
                return (
                    test
                    if test.one == one
                    else PairedTest(one=one, other=other, metric=test.metric, difference=-test.difference)
                )
        systems = ", ".join(system.name for system in self.systems)
        raise UserError(
            f"no test of {one} against {other} in {wanted[1]}: the systems are {systems}, the metrics"
            f" {', '.join(self.metrics)}."
        )

    def standing(self, system: System, metric: str | None = None) -> Standing:
        """A system against the one with the best headline score, than which it may be better in another metric."""
        best = self.systems[0]
        if system is best:
            return "best"
        against: dict[Verdict, Standing] = {"better": "worse", "worse": "better", "tie": "tie"}
        return against[self.test(best.name, system.name, metric).difference.verdict]

    @property
    def verdict(self) -> str:
        """One sentence: which system is better than which, where there is evidence."""
        best, *others = self.systems
        metric = title(self.headline)
        if not others:
            seeds = "one seed" if len({*best.seeds}) == 1 else f"{len({*best.seeds})} seeds"
            return f"{best.name} is one recipe with {seeds}; name a run of another to test a difference."
        tied = [system.name for system in others if self.standing(system) == "tie"]
        if not tied:
            than = others[0].name if len(others) == 1 else "every other run"
            return f"{best.name} is better than {than} in {metric}."
        sentence = f"Tie: no evidence that {best.name}, the best in {metric}, is better than {', '.join(tied)}"
        worse = [system.name for system in others if system.name not in tied]
        return f"{sentence}; it is better than {', '.join(worse)}." if worse else f"{sentence}."

    @property
    def scope(self) -> str:
        """Which systems were trained with one seed, so that nothing is known of their recipes; empty if none was."""
        single = [one.name for one in self.systems if len({*one.seeds}) == 1 and one.kind not in COUNTED]
        if not single or not self.tests:
            return ""
        return (
            f"One seed of {', '.join(single)}: a verdict is of these runs, not of their recipes; other seeds"
            " (--set training.seed=2) may turn it."
        )

    @property
    def sample(self) -> str:
        """Number of examples and the data: "872 texts of the validation data"."""
        return f"{self.examples:,} {plural(self.unit, self.examples)} of {self.split}"

    def as_json(self) -> dict[str, Any]:
        tests = [asdict(test) | {"difference": test.difference.as_json()} for test in self.tests]
        systems = [asdict(system) | {"standing": self.standing(system)} for system in self.systems]
        return asdict(self) | {"systems": systems, "tests": tests, "verdict": self.verdict, "scope": self.scope}


def plural(unit: str, count: int) -> str:
    """`blocks of text`, `texts`, `sentences`."""
    first, space, rest = unit.partition(" ")
    return unit if count == 1 else f"{first}s{space}{rest}"
