"""`probe`: counterfactual evaluation with minimal pairs, sentences that differ in a pronoun, a name or an origin only.

A gap is a measured difference with a confidence interval, not a harm: what it does to anyone depends on the use of the
model (docs/probes.md).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError
from seqwright.data.parallel.buckets import encode_pairs
from seqwright.data.parallel.formats import Pair
from seqwright.metrics.counts import Counts, mean, scores
from seqwright.metrics.score import Floats
from seqwright.runs.run import Run
from seqwright.tasks.translation.scores import likelihood

DEFAULT_PROBES = Path(__file__).parent / "probes" / "english.toml"
"""Templates that ship with the package."""

Sentences = Sequence[tuple[str, str]]
"""(source, text) pairs; the source is empty except for translators."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A minimal pair: two sentences that differ in one respect."""

    source: str
    one: str
    other: str
    about: str
    """Value of the first slot, by which gaps are grouped."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A named set of minimal pairs, filled in from templates."""

    name: str
    cases: tuple[Case, ...]
    translates: bool
    """Whether it has sources, and is for translators."""


def read_probes(path: Path = DEFAULT_PROBES) -> list[Probe]:
    """The probes of a TOML file: every template filled with every row of its slots."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("probe", [])
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path} as TOML: {error}.") from error
    if not tables:
        raise UserError(f"{path} has no [[probe]] table; see the default file for the format: {DEFAULT_PROBES}.")
    return [_probe(table, f"{path}, probe {n}") for n, table in enumerate(tables, 1)]


def _probe(table: Mapping[str, Any], place: str) -> Probe:
    """The probe of a TOML table; `place` names it in errors."""
    for key in ("name", "one", "other", "slots"):
        if key not in table:
            raise UserError(f"{place} has no '{key}'; it needs name, one, other and [probe.slots].")
    if extra := table.keys() - {"name", "source", "one", "other", "slots"}:
        raise UserError(f"{place} has no key '{min(extra)}'; the keys are name, source, one, other and slots.")
    ones, others, slots = table["one"], table["other"], table["slots"]
    sources = table.get("source", [""] * len(ones))
    if not len(ones) == len(others) == len(sources) > 0:
        raise UserError(f"{place}: one, other and source must be lists with the same number of templates.")
    lengths = {name: len(words) for name, words in slots.items()}
    if len(set(lengths.values())) != 1:
        raise UserError(f"{place}: slots are columns of one table and need the same number of words, not {lengths}.")
    rows = [dict(zip(slots, words, strict=True)) for words in zip(*slots.values(), strict=True)]
    try:
        cases = tuple(
            Case(source=s.format(**row), one=a.format(**row), other=b.format(**row), about=next(iter(row.values())))
            for s, a, b in zip(sources, ones, others, strict=True)
            for row in rows
        )
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(
            f"{place}: a template has the placeholder {error}, which is not a slot; the slots are {', '.join(slots)}."
        ) from None
    return Probe(name=table["name"], cases=cases, translates="source" in table)


def probe(run: Run, probes: Sequence[Probe], *, resamples: int = 1000, seed: int = 1) -> list[dict[str, Any]]:
    """For each probe that applies to the run, the mean gap (other minus one) with a bootstrap confidence interval, and
    the mean gap of each row."""
    score, unit = _scorer(run)
    applicable = [one for one in probes if one.translates == ("translate" in run.verbs)]
    if not applicable:
        kind = "with" if "translate" in run.verbs else "without"
        raise UserError(
            f"no probe applies to {run.path}: it needs probes {kind} a source. Give a file of them with --templates."
        )
    results = []
    for one in applicable:
        outputs = score([(case.source, text) for case in one.cases for text in (case.one, case.other)])
        for output, values in outputs.items():
            gaps = values[1::2] - values[0::2]
            results.append(_statistics(one, output, gaps, unit, resamples, seed))
    return results


def _statistics(one: Probe, output: str, gaps: Floats, unit: str, resamples: int, seed: int) -> dict[str, Any]:
    """The mean gap of a probe with its confidence interval, and the means by row, sorted."""
    rows = np.stack([gaps, np.ones(len(gaps))], 1)
    signature = f"gap|cases:{len(gaps)}|unit:{unit}|bootstrap:{resamples}-{seed}"
    counts = Counts(name="gap", rows=rows, formula=mean, signature=signature)
    score = scores([counts], resamples=resamples, seed=seed)["gap"]
    about: dict[str, list[float]] = {}
    for case, gap in zip(one.cases, gaps.tolist(), strict=True):
        about.setdefault(case.about, []).append(gap)
    means = {name: float(np.mean(values)) for name, values in about.items()}
    return {
        "probe": one.name,
        "answer": output,
        "unit": unit,
        **score.as_json(),
        "cases": len(gaps),
        "same": int((gaps == 0).sum()),
        "favors_other": float((gaps > 0).mean()),
        "rows": dict(sorted(means.items(), key=lambda item: item[1])),
    }


def _scorer(run: Any) -> tuple[Callable[[Sentences], dict[str, Floats]], str]:
    """The function that scores sentences, by the task of the run, and its unit."""
    if "translate" in run.verbs:
        return lambda pairs: {"log p": _translation_scores(run, pairs)}, "nats"
    if "classify" in run.verbs:
        return lambda pairs: _class_probabilities(
            run, pairs
        ), "value" if run.labels.kind == "regression" else "probability"
    if "score" in run.verbs:
        return lambda pairs: {"log p": np.array([line.log_prob for line in run.score([t for _, t in pairs])])}, "nats"
    if "fill" in run.verbs:
        return lambda pairs: {"pseudo log p": np.array([_pseudo_log_likelihood(run, t) for _, t in pairs])}, "nats"
    if "tag" in run.verbs:
        return lambda pairs: {"tag probability": _tag_probabilities(run, pairs)}, "probability"
    raise UserError(
        f"{run.path} holds a model that {run.description}; probe a model of text: a language model, translator,"
        " classifier, tagger or BERT."
    )


def _translation_scores(run: Any, sentences: Sentences) -> Floats:
    """log p(text | source)."""
    pairs = [Pair(sources=(source,), targets=(text,)) for source, text in sentences]
    return -likelihood(run.model, encode_pairs(pairs, run.tokenizers), run.device)[:, 0]


def _class_probabilities(run: Any, sentences: Sentences) -> dict[str, Floats]:
    """The probability of each class (of two, the second only), or the regression value."""
    if run.labels.parts > 1:
        raise UserError(
            f"{run.path} classifies pairs of texts, but probes are single sentences; probe a single-text classifier."
        )
    predictions = list(run.classify([text for _, text in sentences]))
    if run.labels.kind == "regression":
        return {"value": np.array([prediction.label for prediction in predictions], np.float64)}
    names = run.labels.names[1:] if run.labels.kind == "single" and len(run.labels.names) == 2 else run.labels.names
    return {name: np.array([prediction.probabilities[name] for prediction in predictions]) for name in names}


@torch.inference_mode()
def _pseudo_log_likelihood(run: Any, text: str) -> float:
    """Σ log p(token | all others): each token masked in turn (Salazar et al. 2020), as a masked model has no log p."""
    tokenizer = run.tokenizer
    tokens = tokenizer.encode(text)
    before = [] if tokenizer.sos is None else [tokenizer.sos]
    ids = torch.tensor([*before, *tokens, *([] if tokenizer.eos is None else [tokenizer.eos])], device=run.device)
    if run.model.context is not None and len(ids) > run.model.context:
        raise UserError(f"a probe has {len(ids)} tokens, but {run.path} sees at most {run.model.context}.")
    rows = torch.arange(len(tokens), device=run.device)
    places = rows + len(before)
    masked = ids.repeat(len(tokens), 1)
    masked[rows, places] = tokenizer.mask
    source = Source(mask=torch.ones_like(masked, dtype=torch.bool), ids=masked)
    hidden, _ = run.model.hidden(Batch.of_source(source, masked))
    log_probs = run.model.head(hidden[rows, places]).float().log_softmax(-1)  # (tokens, V)
    return float(log_probs[rows, ids[places]].sum())


def _tag_probabilities(run: Any, sentences: Sentences) -> Floats:
    """The mean probability of the tags of a sentence: how certain the tagger is of it."""
    tagged = list(run.tag([text for _, text in sentences]))
    if any(sentence.probabilities is None for sentence in tagged):
        raise UserError(f"{run.path} tags without probabilities; probe a tagger that has them, as an lstm without crf.")
    return np.array([float(np.mean(sentence.probabilities)) for sentence in tagged])
