"""The page docs/results.md, from the records of runs: `python docs/results_page.py > docs/results.md`.

benchmarks/record_result.py writes the records; benchmarks/results/recipes.toml has what is not in a run: figures of
others, and how settings were chosen.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from record_result import RECORDS, settings_hash, shipped_recipes  # noqa: E402
from seqwright.metrics.counts import rule_of_three  # noqa: E402
from seqwright.metrics.significance import interval_over_seeds  # noqa: E402

RESULTS = RECORDS.parent
FOLDERS = {
    "language": "Language models",
    "masked": "Masked and denoising language models",
    "denoising": "Masked and denoising language models",
    "translation": "Source to target",
    "chat": "Source to target",
    "captioning": "Images",
    "classification": "Text classification",
    "tagging": "Tagging",
    "images": "Images",
}
"""The section of a recipe by its folder."""
MEASURES = {
    "Language models": ("perplexity",),
    "Masked and denoising language models": ("accuracy", "nll"),
    "Source to target": ("bleu",),
    "Text classification": ("accuracy",),
    "Tagging": ("accuracy",),
    "Images": ("accuracy", "psnr"),
}
"""Scores shown where recipes.toml names none."""
LOWER = ("perplexity", "nll", "bits_per_byte", "bits_per_character", "ter", "error_rate", "mse", "mae")
"""Scores that are better when lower, also where a longer name ends so."""
DECIMALS = {"nll": 4, "random_windows_nll": 4, "bits_per_byte": 3, "bits_per_character": 3, "matthews": 3}
TITLES = {
    "bleu": "BLEU",
    "bleu_lowercased": "BLEU, lowercased",
    "bleu_moses": "BLEU, lowercased Moses",
    "chrf": "chrF",
    "psnr": "PSNR, dB",
    "psnr_shown": "PSNR of the input, dB",
    "psnr_rollout": "PSNR of generated frames, dB",
    "psnr_last_frame": "PSNR of the last frame, dB",
    "f1": "F1, %",
    "accuracy": "accuracy, %",
    "exact_match": "exact match, %",
    "matthews": "Matthews correlation",
    "rouge_1": "ROUGE-1",
    "rouge_2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "nll": "nats per token",
    "random_windows_nll": "nats, random windows",
    "word_error_rate": "word error rate, %",
    "phoneme_error_rate": "phoneme error rate, %",
}
PERCENTAGES = ("accuracy", "exact_match")
CHOSEN = {
    "published": "published",
    "fixed": "fixed",
    "validation": "validation",
    "same": "validation, the same data",
    "test": "**test in view**",
    "unknown": "not recorded",
}
ABOUT = """# Results of the recipes

Made by `python docs/results_page.py > docs/results.md` from the records in `benchmarks/results/recipes/`, which
`benchmarks/record_result.py` writes from run folders: no score of a run is typed, and a recipe without a record has
no figure here. To repeat a row: `seqwright train RECIPE --run RUN`, then `seqwright evaluate RUN --on FILE`. Data sets
are looked for under `SEQWRIGHT_DATA`; recipes marked ∘ need none, but their texts come from Python's library and differ
by its version. [Experiments](experiments.md) has what else was tried, [speed](performance.md) what it costs.

- **split**: the data of the score. Training may select its best weights on *validation* data, so that such a score
  is optimistic; tiny Shakespeare and Truyện Kiều have no third split.
- **score**: with its 95 % interval, a bootstrap over examples. Several seeds have their mean, and the interval of
  the mean over seeds (Student's t) is added in quadrature; scores over random windows have that of the seeds alone.
  Scores of 0 and 100 % have the bound of the rule of three.
- **seeds**: their number n and, from two on, the standard deviation. The interval of one seed does not have the
  spread over seeds. Counted n-grams have no randomness.
- **beside**: figures of others, each with a verdict: *better* or *worse* if it is outside the interval, otherwise
  *tie*; *equal* if all of its digits are equal. Intervals of published figures are not known and not part of the
  verdict. Figures with a remark in parentheses were taken on other data or under other conditions: no verdict.
- **settings**: *published*: those of a paper or of the rival; *fixed*: set before and not tuned; *validation*:
  chosen on validation data; *validation, the same data*: chosen on the data of the score; *test in view*: chosen
  after test scores had been seen, so that the score is optimistic; *not recorded*: unknown.
- **trained**: seconds of training (machines may have been busy), machine, version of Python for data marked ∘ where
  the record has it, and the commit or the hash of the sources.
"""


@dataclass(frozen=True)
class Result:
    """A score over the seeds of a recipe."""

    metric: str
    split: str
    on: tuple[str, ...]
    values: tuple[float, ...]
    low: float | None
    high: float | None
    unit: str
    """Number and kind of examples, from the signature: "893 examples"."""

    @property
    def mean(self) -> float:
        return fmean(self.values)

    def verdict(self, rival: float) -> str:
        """Comparison with a figure: better or worse only where it is outside the interval."""
        if round(self.mean, _decimals(rival)) == rival and _decimals(rival) > 1:
            return "equal"
        if self.low is None or self.high is None:
            return "no interval, no verdict"
        if self.low <= rival <= self.high:
            return "tie"
        return "better" if (self.mean > rival) != is_lower(self.metric) else "worse"


def result(metric: str, evaluations: list[Mapping[str, Any]]) -> Result:
    """One score over the evaluations of all seeds on the same data."""
    scores = [evaluation["scores"][metric] for evaluation in evaluations]
    values = tuple(float(score["value"]) for score in scores)
    others = (score.get("signature", "") for score in evaluations[0]["scores"].values())
    unit = next(filter(None, map(example_count, (scores[0].get("signature", ""), *others))), "")
    bounds = [(score["low"], score["high"]) if "low" in score and "high" in score else None for score in scores]
    low, high = interval_over_seeds(values, bounds) or (None, None)
    count = int(unit.split(" ")[0].replace(",", "")) if unit else 0
    if metric in PERCENTAGES and low is not None and low == high and low in (0.0, 100.0) and count:
        low, high = rule_of_three(low, count)  # records of versions whose bootstrap had no width there
    first = evaluations[0]
    return Result(metric, first["split"], tuple(first["on"]), values, low, high, unit)


def example_count(signature: str) -> str:
    """Number and kind of examples in a signature: "examples:893" is "893 examples". BLEU and its like have none."""
    match = re.search(r"\|(examples|sentences|pairs|images|tokens):(\d+)\b", signature)
    return f"{int(match[2]):,} {match[1]}" if match else ""


def results(record: Mapping[str, Any], measures: tuple[str, ...]) -> Iterator[tuple[Result, Result | None]]:
    """Scores on test data, each with that on validation data; validation scores where no test data were read."""
    by_data: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for run in record["runs"]:
        for evaluation in run["evaluations"]:
            by_data.setdefault((evaluation["split"], *evaluation["on"]), []).append(evaluation)
    seeds = len(record["runs"])
    complete = {key: found for key, found in by_data.items() if len(found) == seeds and key[0] != "training"}
    tested = [key for key in complete if key[0] == "test"]
    held_out = next((complete[key] for key in complete if key[0] == "validation"), None)
    for key in tested or list(complete):
        for metric in measures:
            if all(metric in evaluation["scores"] for evaluation in complete[key]):
                beside = held_out if tested and held_out and all(metric in e["scores"] for e in held_out) else None
                yield result(metric, complete[key]), beside and result(metric, beside)


def row(
    record: Mapping[str, Any], entry: Mapping[str, Any], score: Result, valid: Result | None, *, stale: bool
) -> str:
    """A line of a table."""
    # Digits of a rival's figure are shown of ours, too.
    rivals = [rival for rival in entry.get("rivals", ()) if score.metric in rival]
    least = DECIMALS.get(score.metric, 2)
    decimals = max([least, *(_decimals(figure_of(rival, score.metric)) for rival in rivals)])
    bounds = "" if score.low is None or score.high is None else f" ({score.low:.{least}f} – {score.high:.{least}f})"
    held_out = f"; validation {valid.mean:.{decimals}f}" if valid else ""
    n = len(score.values)
    seeds = f"n = {n}" + (f", sd {stdev(score.values):.2g}" if n > 1 else "")
    runs = record["runs"]
    beside = []
    for rival in rivals:
        figure, remark = figure_of(rival, score.metric), rival.get("remark")
        beside.append(f"{rival['name']} {figure}" + (f" ({remark})" if remark else f": {score.verdict(figure)}"))
    cells = [
        label(record, entry) + (" (recipe edited since)" if stale else ""),
        entry.get("on", ""),
        f"{score.split}, {score.unit}" if score.unit else score.split,
        title(score.metric),
        f"{score.mean:.{decimals}f}{bounds}{held_out}",
        "counted" if record["kind"] == "ngram" else seeds,
        "; ".join(beside),
        chosen(entry),
        f"{seconds(fmean(run['seconds'] for run in runs))} s, "
        + ", ".join(dict.fromkeys(run["machine"] for run in runs))
        + python_of(record)
        + "; "
        + ", ".join(dict.fromkeys(version(run) for run in runs)),
    ]
    return f"| {' | '.join(cells)} |"


def figure_of(rival: Mapping[str, Any], metric: str) -> float:
    """A figure to compare with: typed if it is of others, else "RECORD", our mean, or "FILE:KEY.KEY" of a benchmark."""
    figure = rival[metric]
    if not isinstance(figure, str):
        return float(figure)
    name, _, keys = figure.partition(":")
    if keys:
        value = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for key in keys.split("."):
            value = value[key]
    else:
        record = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
        value = next(results(record, (metric,)))[0].mean
    return round(float(value), DECIMALS.get(metric, 2))


def label(record: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """The recipe, with what was overridden; that of the entry, or the name of the record, where there is none."""
    changed = "".join(f" `--set {key}={typed(value)}`" for key, value in record["changed"].items())
    return (
        f"`{record['recipe']}`{mark(record['recipe'])}{changed}"
        if record["recipe_hash"]
        else entry.get("label", record["name"])
    )


def typed(value: Any) -> str:
    """A value as after `--set KEY=`."""
    return value if isinstance(value, str) else json.dumps(value)


def mark(recipe: str) -> str:
    """∘ for a recipe on embedded data."""
    path = shipped_recipes().get(recipe)
    return " ∘" if path and '"embedded:' in path.read_text(encoding="utf-8") else ""


def chosen(entry: Mapping[str, Any]) -> str:
    """How the settings were chosen, with a remark."""
    remark = entry.get("remark")
    return CHOSEN[entry.get("settings", "unknown")] + (f": {remark}" if remark else "")


def seconds(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def python_of(record: Mapping[str, Any]) -> str:
    """The versions of Python whose library embedded texts were taken from, where the record has them."""
    versions = sorted({run["python"] for run in record["runs"] if run.get("python")})
    return f", Python {', '.join(versions)}" if versions and mark(record["recipe"]) else ""


def version(run: Mapping[str, Any]) -> str:
    return f"`{run['commit'][:7]}`" if run.get("commit") else f"sources `{run['sources'][:7]}`"


def title(metric: str) -> str:
    return TITLES.get(metric, metric.replace("_", " "))


def is_lower(metric: str) -> bool:
    """Whether a lower score is better."""
    return metric.endswith(LOWER)


def section_of(recipe: str) -> str:
    path = shipped_recipes().get(recipe)
    return FOLDERS[path.parent.name] if path else "Mixtures and variants"


def is_stale(record: Mapping[str, Any]) -> bool:
    """Whether the recipe has other settings now than when it was recorded."""
    path = shipped_recipes().get(record["recipe"])
    return path is None or settings_hash(tomllib.loads(path.read_text(encoding="utf-8"))) != record["recipe_hash"]


def best_of_each_text(rungs: list[tuple[str, Mapping[str, Any], Result]]) -> str:
    """The recorded model with the best likelihood of each text (`on` up to its first comma) that several have scored.

    Models that adapt to the text they read are left out: they see more of it than the others.
    """
    by_text: dict[tuple[str, ...], list[tuple[str, Result]]] = {}
    for shown, entry, score in rungs:
        if score.metric in ("perplexity", "nll") and not entry.get("adapts"):
            key = entry.get("on", "").partition(",")[0], score.split, score.metric
            by_text.setdefault(key, []).append((shown, score))
    sentences = []
    for (text, split, metric), several in by_text.items():
        shown, score = min(several, key=lambda one: one[1].mean)
        if text and len(several) > 1:
            sentences.append(f"{text}: {shown}, {score.mean:.{DECIMALS.get(metric, 2)}f} {title(metric)} ({split})")
    return "Best recorded static model of each text. " + "; ".join(sentences) + "."


def lines() -> Iterator[str]:
    """Tables of recorded results by section, then the recipes without a record."""
    entries = tomllib.loads((RESULTS / "recipes.toml").read_text(encoding="utf-8"))
    records = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("*.json"))}
    yield ABOUT.rstrip()
    for section in (*dict.fromkeys(FOLDERS.values()), "Mixtures and variants"):
        rows: list[str] = []
        rungs: list[tuple[str, Mapping[str, Any], Result]] = []
        for name in sorted(records, key=[*entries, *records].index):
            record, entry = records[name], entries.get(name, {})
            place = section_of(record["recipe"]) if not record["changed"] else "Mixtures and variants"
            if place == section:
                measures = tuple(entry.get("measures") or MEASURES.get(section, ("accuracy",)))
                stale = bool(record["recipe_hash"]) and is_stale(record)
                found = list(results(record, measures))
                rows += [row(record, entry, score, valid, stale=stale) for score, valid in found]
                rungs += [(label(record, entry), entry, score) for score, _ in found]
        if rows:
            yield f"\n## {section}\n"
            if section == "Language models":
                yield best_of_each_text(rungs) + "\n"
            yield "| recipe | on | split | measure | score | seeds | beside | settings | trained |"
            yield "|---|---|---|---|---|---|---|---|---|"
            yield from rows
    yield "\n## Recipes without a record\n"
    yield "No figure is claimed of these; what [experiments](experiments.md) has of them was not recorded.\n"
    for section, names in without_record(records).items():
        yield f"- {section}: {', '.join(f'`{name}`{mark(name)}' for name in names)}"


def without_record(records: Mapping[str, Any]) -> dict[str, list[str]]:
    """Shipped recipes with data of their own that no record is of, by section."""
    found: dict[str, list[str]] = {}
    for name, path in shipped_recipes().items():
        if "train" in tomllib.loads(path.read_text(encoding="utf-8")).get("data", {}) and name not in records:
            found.setdefault(section_of(name), []).append(name)
    return found


def page() -> str:
    return "\n".join(lines()) + "\n"


def _decimals(value: float) -> int:
    return len(repr(value).partition(".")[2])


if __name__ == "__main__":
    print(page(), end="")
