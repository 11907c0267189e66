"""What a sweep finds: the score of each setting, the effect of each key, and the chosen setting."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from seqwright.studies.sweep.settings import Setting


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A setting, trained with one or several seeds."""

    setting: Setting
    runs: tuple[str, ...]
    """The run of each seed that has a score."""
    values: tuple[float, ...]
    """Validation score of each."""
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
    test: Mapping[str, Any] | None = None
    """Test scores of the chosen setting, with the data they are of and the mean over seeds."""
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> Trial:
        """The setting with the best mean validation score."""
        return self.trials[0]

    def as_json(self) -> dict[str, Any]:
        trials = [asdict(trial) | {"mean": trial.mean, "deviation": trial.deviation} for trial in self.trials]
        return asdict(self) | {"trials": trials, "chosen": trials[0]}


def in_order(trials: Iterable[Trial], *, higher: bool) -> tuple[Trial, ...]:
    """Trials of the largest budget first, each budget from the best mean to the worst, diverged ones last."""

    def rank(trial: Trial) -> tuple[float, bool, float]:
        mean = trial.mean
        return -(trial.budget or 0), mean is None, 0.0 if mean is None else -mean if higher else mean

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
