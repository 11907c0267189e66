"""What a sweep finds: the score of each setting, the effect of each key, and the chosen setting."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from seqwright.metrics.significance import interval_over_seeds, possible
from seqwright.reporting.numbers import count, figure
from seqwright.reporting.run_facts import title
from seqwright.studies.sweep.settings import Setting

SHOWN = 3
"""Tied settings that are named; the table has all."""


def bounds_of(score: Mapping[str, Any]) -> tuple[float, float] | None:
    """Ends of the interval of the score of one run; None with too few examples."""
    low, high = score.get("low"), score.get("high")
    return None if low is None or high is None else (low, high)


def mean_interval(
    metric: str, values: Sequence[float], bounds: Sequence[tuple[float, float] | None]
) -> tuple[float, float] | None:
    """95 % interval of the mean over seeds, within the values that the metric can have; None where it is not known."""
    ends = interval_over_seeds(values, bounds)
    return ends and possible(metric, *ends)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A setting, trained with one or several seeds."""

    setting: Setting
    metric: str
    runs: tuple[str, ...]
    """The run of each seed that has a score."""
    values: tuple[float, ...]
    """Validation score of each."""
    bounds: tuple[tuple[float, float] | None, ...]
    """Ends of the 95 % interval over validation examples, of each; None with too few examples."""
    parameters: int | None
    diverged: int
    """Seeds without a score."""
    budget: float | None
    """Steps or epochs of a rung of successive halving; None where all trials have the recipe's."""
    seconds: float
    """Training time of all seeds."""

    @property
    def mean(self) -> float | None:
        """Mean over seeds; None where one diverged."""
        return statistics.fmean(self.values) if self.values and not self.diverged else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation over seeds; None for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean, over examples and seeds; None where it is not known or one diverged."""
        return None if self.mean is None else mean_interval(self.metric, self.values, self.bounds)

    def reaches(self, score: float, *, higher: bool) -> bool:
        """Whether the score is within the interval, or worse than all of it; without one, than the mean."""
        if self.mean is None:
            return False
        low, high = self.interval or (self.mean, self.mean)
        return high >= score if higher else low <= score

    def ties_with(self, better: Trial, *, higher: bool) -> bool:
        """Whether the interval of either holds the mean of the other, or lies beyond it."""
        if self.mean is None or better.mean is None:
            return False
        return self.reaches(better.mean, higher=higher) or better.reaches(self.mean, higher=not higher)


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Scores of all settings with one value of a key: its marginal effect."""

    key: str
    value: str
    mean: float
    low: float
    high: float
    """The worst and the best of these settings, in either order."""
    settings: int


@dataclass(frozen=True, kw_only=True)
class SweepResults:
    """Settings in order of their validation scores, the best first."""

    folder: str
    metric: str
    """Name of the validation score."""
    higher: bool
    """Whether higher is better."""
    keys: tuple[str, ...]
    """Swept keys."""
    trials: tuple[Trial, ...]
    """Of successive halving, those of the last rung first."""
    effects: tuple[Effect, ...]
    scored_on: str
    """The validation data."""
    seeded: bool = True
    """Whether scores depend on the seed; those of counted models do not."""
    test: Mapping[str, Any] | None = None
    """Test scores of the chosen setting, with the data they are of: means over seeds, and intervals."""
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> Trial:
        """The setting with the best mean validation score."""
        return self.trials[0]

    @property
    def tied(self) -> tuple[Trial, ...]:
        """Other settings that intervals do not tell from the chosen one, each with its largest budget: one that
        successive halving dropped is compared with the chosen one at the budget where it was dropped."""
        chosen = {trial.budget: trial for trial in self.trials if trial.setting == self.chosen.setting}
        tied, seen = [], [self.chosen.setting]
        for trial in self.trials:  # the largest budget first
            if trial.setting not in seen:
                seen.append(trial.setting)
                best = chosen.get(trial.budget)
                tied += [trial] if best is not None and trial.ties_with(best, higher=self.higher) else []
        return tuple(tied)

    @property
    def smallest(self) -> Trial:
        """The setting with the fewest parameters among the chosen one and those that tie with it."""
        return min((self.chosen, *self.tied), key=lambda trial: trial.parameters or 0)

    @property
    def verdict(self) -> str:
        """The chosen setting, whether others tie with it, and how it was chosen."""
        chosen, tied = self.chosen, self.tied
        total = len({tuple(trial.setting.items()) for trial in self.trials})
        named = f"{described(chosen)} ({chosen.runs[0]})"
        if not tied or chosen.mean is None:
            unknown = " by scores without an interval, so that ties are not known" if chosen.interval is None else ""
            return f"chosen of {total} settings on validation{unknown}: {named}."
        others = ", ".join(map(described, tied[:SHOWN])) + (f" and {len(tied) - SHOWN} more" if tied[SHOWN:] else "")
        best = f"the best {title(self.metric)}, {figure(chosen.mean)}"
        dropped = [trial for trial in tied if trial.budget != chosen.budget]
        if dropped:
            at_drop = f"{title(self.metric)} of the chosen one at the budget where they were dropped"
            best = f"the {at_drop}" if dropped == list(tied) else f"{best}, or, once dropped, the {at_drop}"
        equal = any((trial.mean, trial.budget) == (chosen.mean, chosen.budget) for trial in tied)
        choice = "smallest, then the first, of equal means" if equal else "best mean"
        sentence = (
            f"tie of {len(tied) + 1} of {total} settings on validation: intervals do not tell {others} from {best}."
            f" Chosen as the {choice}, not as better: {named}."
        )
        if (self.smallest.parameters or 0) < (chosen.parameters or 0):
            sizes = " instead of ".join(count(trial.parameters or 0) for trial in (self.smallest, chosen))
            sentence += f" Fewest parameters of them: {described(self.smallest)}, {sizes}."
        return sentence

    def as_json(self) -> dict[str, Any]:
        trials = [
            asdict(trial) | {"mean": trial.mean, "deviation": trial.deviation, "interval": trial.interval}
            for trial in self.trials
        ]
        tied = [trials[self.trials.index(trial)] for trial in self.tied]
        return asdict(self) | {"trials": trials, "chosen": trials[0], "tied": tied, "verdict": self.verdict}


def described(trial: Trial) -> str:
    """The setting in a line."""
    return " ".join(f"{key}={value}" for key, value in trial.setting.items())


def in_order(trials: Iterable[Trial], *, higher: bool) -> tuple[Trial, ...]:
    """Trials of the largest budget first, each budget from the best mean to the worst, diverged ones last; of equal
    means the smallest model first."""

    def rank(trial: Trial) -> tuple[float, bool, float, int]:
        mean = 0.0 if trial.mean is None else -trial.mean if higher else trial.mean
        return -(trial.budget or 0), trial.mean is None, mean, trial.parameters or 0

    return tuple(sorted(trials, key=rank))


def _numeric(value: str) -> float:
    """Sorts numbers, and leaves other values in order."""
    try:
        return float(value)
    except ValueError:
        return 0.0


def effects_of(trials: Iterable[Trial], keys: Iterable[str]) -> tuple[Effect, ...]:
    """The marginal effect of each value of each key, over trials of one budget."""
    trials = list(trials)
    effects = []
    for key in keys:
        for value in sorted(dict.fromkeys(trial.setting[key] for trial in trials), key=_numeric):
            means = [t.mean for t in trials if t.setting[key] == value and t.mean is not None]
            if means:
                effects.append(
                    Effect(
                        key=key,
                        value=value,
                        mean=statistics.fmean(means),
                        low=min(means),
                        high=max(means),
                        settings=len(means),
                    )
                )
    return tuple(effects)
