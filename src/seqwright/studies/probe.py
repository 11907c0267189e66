"""`probe`: what a run makes of sentences that differ in one respect only, a pronoun, a name, where someone is from.

A gap is measured, not a harm: it says that a model of this text treats two sentences differently, and how surely. What
that does to anyone depends on what the model is used for (docs/probes.md).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqwright.core.config import UserError
from seqwright.data.parallel.buckets import encode_pairs
from seqwright.data.parallel.formats import Pair
from seqwright.metrics.counts import Counts, mean, scores
from seqwright.metrics.score import Floats
from seqwright.runs.run import Run
from seqwright.tasks.translation.scores import likelihood

SHIPPED = Path(__file__).parent / "probes" / "english.toml"

Sentences = Sequence[tuple[str, str]]
"""(source, text); the source of all but translations is empty."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """Two sentences that differ in one respect."""

    source: str
    one: str
    other: str
    about: str
    """The first slot's filling: what the row is about."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    name: str
    cases: tuple[Case, ...]
    translates: bool


def read_probes(path: Path = SHIPPED) -> list[Probe]:
    """The probes of a file, every template filled with every row of its slots."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("probe", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"cannot read {path} as TOML: {error}.") from error
    if not tables:
        raise UserError(f"{path} has no [[probe]]; see the one that ships for the form: {SHIPPED}.")
    return [_probe(table, f"{path}, probe {n}") for n, table in enumerate(tables, 1)]


def _probe(table: Mapping[str, Any], place: str) -> Probe:
    for key in ("name", "one", "other", "slots"):
        if key not in table:
            raise UserError(f"{place} has no '{key}'; it needs name, one, other and [probe.slots].")
    if extra := table.keys() - {"name", "source", "one", "other", "slots"}:
        raise UserError(f"{place}: no key '{min(extra)}'; there are name, source, one, other and slots.")
    ones, others, slots = table["one"], table["other"], table["slots"]
    sources = table.get("source", [""] * len(ones))
    if not len(ones) == len(others) == len(sources) > 0:
        raise UserError(f"{place}: one, other and source are lists of equally many templates.")
    lengths = {name: len(words) for name, words in slots.items()}
    if len(set(lengths.values())) != 1:
        raise UserError(f"{place}: slots are columns of one table, so they have equally many words, not {lengths}.")
    rows = [dict(zip(slots, words, strict=True)) for words in zip(*slots.values(), strict=True)]
    try:
        cases = tuple(
            Case(source=s.format(**row), one=a.format(**row), other=b.format(**row), about=next(iter(row.values())))
            for s, a, b in zip(sources, ones, others, strict=True)
            for row in rows
        )
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(
            f"{place}: a template asks for {error}, which is no slot; there are {', '.join(slots)}."
        ) from None
    return Probe(name=table["name"], cases=cases, translates="source" in table)


def probe(run: Run, probes: Sequence[Probe], *, resamples: int = 1000, seed: int = 1) -> list[dict[str, Any]]:
    """For each probe that suits the run, the mean gap, other less one, with its interval, and the gap of each row."""
    ask, unit = _asker(run)
    suited = [one for one in probes if one.translates == ("translate" in run.verbs)]
    if not suited:
        kind = "with" if "translate" in run.verbs else "without"
        raise UserError(f"no probe suits {run.path}: it needs some {kind} a source. Give a file with --templates.")
    found = []
    for one in suited:
        answers = ask([(case.source, text) for case in one.cases for text in (case.one, case.other)])
        for answer, values in answers.items():
            gaps = values[1::2] - values[0::2]
            found.append(_gap(one, answer, gaps, unit, resamples, seed))
    return found


def _gap(one: Probe, answer: str, gaps: Floats, unit: str, resamples: int, seed: int) -> dict[str, Any]:
    rows = np.stack([gaps, np.ones(len(gaps))], 1)
    signature = f"gap|cases:{len(gaps)}|unit:{unit}|bootstrap:{resamples}-{seed}"
    counts = Counts(name="gap", rows=rows, formula=mean, signature=signature)
    score = scores([counts], resamples=resamples, seed=seed)["gap"]
    about: dict[str, list[float]] = {}
    for case, gap in zip(one.cases, gaps.tolist(), strict=True):
        about.setdefault(case.about, []).append(gap)
    means = {name: float(np.mean(own)) for name, own in about.items()}
    return {
        "probe": one.name,
        "answer": answer,
        "unit": unit,
        **score.as_json(),
        "cases": len(gaps),
        "same": int((gaps == 0).sum()),
        "favors_other": float((gaps > 0).mean()),
        "rows": dict(sorted(means.items(), key=lambda item: item[1])),
    }


def _asker(run: Any) -> tuple[Callable[[Sentences], dict[str, Floats]], str]:
    """What is asked of each sentence, by what the run can do, and the unit of the answers."""
    if "translate" in run.verbs:
        return lambda given: {"log p": _translated(run, given)}, "nats"
    if "classify" in run.verbs:
        return lambda given: _classified(run, given), "value" if run.labels.kind == "regression" else "probability"
    if "score" in run.verbs:
        return lambda given: {"log p": np.array([line.log_prob for line in run.score([t for _, t in given])])}, "nats"
    raise UserError(f"{run.path} {run.does}; only language models, translators and classifiers can be probed.")


def _translated(run: Any, given: Sentences) -> Floats:
    """log p(text | source)."""
    pairs = [Pair(sources=(source,), targets=(text,)) for source, text in given]
    return -likelihood(run.model, encode_pairs(pairs, run.tokenizers), run.device)[:, 0]


def _classified(run: Any, given: Sentences) -> dict[str, Floats]:
    """The probability of each class, or the value; of two classes the second says it all."""
    if run.labels.parts > 1:
        raise UserError(f"{run.path} reads pairs of texts; probes are single sentences.")
    answers = list(run.classify([text for _, text in given]))
    if run.labels.kind == "regression":
        return {"value": np.array([answer.label for answer in answers], np.float64)}
    names = run.labels.names[1:] if run.labels.kind == "single" and len(run.labels.names) == 2 else run.labels.names
    return {name: np.array([answer.probabilities[name] for answer in answers]) for name in names}
