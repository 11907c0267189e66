"""The scores of an evaluation: a mapping, which is their JSON, and what the terminal shows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from rich.table import Table

from seqwright.core.config import did_you_mean
from seqwright.core.notebook import html_table
from seqwright.metrics.counts import BootstrapConfig, Counts, scores_json, values
from seqwright.metrics.examples import Examples
from seqwright.reporting.numbers import figure, interval
from seqwright.reporting.run_facts import title
from seqwright.reporting.terminal import as_text, scores_table, signature

SYNONYMS = {
    "ppl": ("perplexity",),
    "loss": ("nll",),
    "cross_entropy": ("nll",),
    "acc": ("accuracy", "next_token_accuracy"),
    "accuracy": ("next_token_accuracy",),
    "bpb": ("bits_per_byte",),
    "bpc": ("bits_per_character",),
    "f1": ("macro_f1",),
    "mcc": ("matthews",),
}
"""What scores are called elsewhere, for "did you mean"."""


class Scores(Mapping[str, Any]):
    """Values by name; under "scores" each with its confidence interval and signature, but for quick ones."""

    def __init__(self, table: Mapping[str, Any]):
        self.table = dict(table)
        self._examples: Callable[[], Examples] | None = None

    @classmethod
    def of(cls, counts: Iterable[Counts], config: BootstrapConfig, *, quick: bool) -> Scores:
        """The scores of counts; quick ones are values alone, as logged during training."""
        return Scores(values(counts) if quick else scores_json(counts, config))

    def __getitem__(self, key: str) -> Any:
        """A value by its key, or by the name that is printed: "nats per token" is nll."""
        if key in self.table:
            return self.table[key]
        scores = self.table.get("scores") or {}
        printed = {title(name, scores): name for name in scores}
        if key in printed:
            return self.table[printed[key]]
        meant = next((name for name in SYNONYMS.get(key, ()) if name in self.table), None)
        hint = f" Did you mean '{meant}'?" if meant else did_you_mean(key, self.table)
        raise KeyError(f"no score '{key}'.{hint}")

    def __getattr__(self, name: str) -> Any:
        known = name in vars(self).get("table", ())
        raise AttributeError(f"scores have no attribute '{name}'{f'; read scores[{name!r}]' if known else ''}.")

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def __str__(self) -> str:
        return as_text(self.printed("") if "scores" in self.table else [repr(self)])

    def __repr__(self) -> str:
        numbers = (f"{name}={figure(value)}" for name, value in self.table.items() if isinstance(value, float))
        return f"<{type(self).__name__} {', '.join(numbers)}>"

    def _repr_html_(self) -> str:
        scores = self.get("scores", {})
        rows = [(title(name, scores), figure(score["value"]), score) for name, score in scores.items() if score]
        bounds = ((name, value, interval(score.get("low"), score.get("high"))) for name, value, score in rows)
        return html_table((name, f"{value}   ({bound})" if bound else value) for name, value, bound in bounds)

    def as_json(self) -> dict[str, Any]:
        return dict(self.table)

    def with_precision(self, precision: str) -> Self:
        """The same scores, with the precision in their signatures where it is not that of training."""
        if precision != "fp32":
            for score in self.table["scores"].values():
                score["signature"] += f"|precision:{precision}"
        return self

    def with_examples(self, examples: Callable[[], Examples]) -> Self:
        """The same scores, with a function that makes the examples behind them."""
        self._examples = examples
        return self

    @property
    def examples(self) -> Examples | None:
        """The examples that were scored, with inputs, references and outputs; None for quick scores."""
        return None if self._examples is None else self._examples()

    def printed(self, fingerprint: str) -> Iterator[str | Table]:
        """Lines and tables for the terminal, in order; `fingerprint` is that of the model."""
        yield scores_table(self["scores"])
        yield signature(self["scores"], fingerprint)
        yield from self.details()

    def details(self) -> Iterator[str | Table]:
        """What a task prints below its scores."""
        yield from ()
