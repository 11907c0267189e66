"""HTML report of one run: scores, learning curves, samples, events, hyperparameters and environment."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from seqwright.reporting.classification import class_sections
from seqwright.reporting.markup import Html, element, image, join
from seqwright.reporting.numbers import count, duration, figure, interval
from seqwright.reporting.page import grid, keys, page, section, show, table, tiles
from seqwright.reporting.run_facts import Record, RunFacts, flatten, headline, scored_on, title, unit
from seqwright.reporting.svg import SMALL, Axis, Series, chart, downsampling_note

STEPS = Axis(title="step")
TIME = Axis(title="training time", time=True)
HEADLINE_SCORES = (
    ("accuracy",),
    ("psnr", "psnr_shown", "psnr_last_frame"),
    ("exact_match", "word_error_rate"),
    ("bleu", "chrf"),
)
"""Scores shown in the page header where a run has them: task metrics rather than likelihood."""
ARROW = " → "
"""Between a source and its output; outputs of classifiers and taggers begin with it in the log."""
SAMPLES = 12
"""Maximum number of steps whose samples are shown, evenly spaced over the run."""

PREVIEW_CHARACTERS = 160
"""Maximum number of characters in the preview of a collapsed sample, at most half of them from the prompt."""


def report(run: RunFacts) -> str:
    """A self-contained HTML report of one run."""
    parts = (
        _header,
        _scores,
        _parts,
        _other_scores,
        _classes,
        _next_steps,
        _curves,
        _samples,
        _events,
        _laws,
        _settings,
    )
    return page(run.name, *(part(run) for part in parts), environment(run.environment))


def sample(record: Record) -> Html:
    """A generated sample: source image, prompt in bold, output; where there is a reference, each on its own."""
    if "reference" in record and "image" not in record:
        parts = {
            "source": record["prompt"],
            "output": record["text"].removeprefix(ARROW),
            "reference": record["reference"],
        }
        rows = [join([element("dt", name), element("dd", text)]) for name, text in parts.items() if text]
        return element("div", element("dl", *rows, class_="pair"), class_="sample")
    prompt = element("b", record["prompt"]) if record.get("prompt") else ""
    source_image = image(f"data:image/png;base64,{record['image']}", record["text"]) if "image" in record else ""
    reference = element("p", "reference:\n", record["reference"], class_="lead") if "reference" in record else ""
    return element("div", source_image, prompt, record["text"], reference, class_="sample")


def environment(table: Mapping[str, object]) -> Html:
    """Section with hardware and library versions."""
    entries = list(flatten(table))
    half = (len(entries) + 1) // 2
    return section("Environment", grid([keys(part) for part in (entries[:half], entries[half:]) if part], "cards two"))


def _header(run: RunFacts) -> Html:
    figures = {title(name, run.scores): _value(run.scores[name]) for name in _headline_scores(run)}
    counts = {
        "parameters": ("parameters", count),
        "steps": ("steps", "{:,}".format),
        "trained_tokens": (f"training {unit(run.scores)}s", count),
        "seconds": ("training time", duration),
    }
    figures |= {name: write(run.summary[key]) for key, (name, write) in counts.items() if run.summary.get(key)}
    # The kind of a tokenizer that was named by its file is in that file; the key has the default.
    tokenizer = run.setting("tokenizer", "file") or run.setting("tokenizer", "kind")
    kinds = [run.setting("model", "kind"), tokenizer, run.setting("data", "train")]
    return element(
        "header",
        element("p", "Run", class_="kind"),
        element("h1", run.name),
        element("p", " · ".join(show(kind) for kind in kinds if kind), class_="lead"),
        tiles(figures),
    )


def _headline_scores(run: RunFacts) -> list[str]:
    """Names of the scores in the page header."""
    names = next((names for names in HEADLINE_SCORES if names[0] in run.scores), (headline([run]), "perplexity"))
    return [name for name in names if name and name in run.scores]


def _next_steps(run: RunFacts) -> Html:
    """Commands to run next."""
    steps = [join([element("dt", text), element("dd", element("code", command))]) for text, command in run.next_steps]
    return section("What next", element("dl", *steps, class_="next") if steps else Html(""))


def _other_scores(run: RunFacts) -> Html:
    """Scores of later `seqwright evaluate --on` calls, the latest of each signature."""
    latest = {
        (_data_name(record), name, score.get("signature")): score
        for record in run.log
        if record["kind"] == "scores"
        for name, score in record["scores"].items()
        if score
    }
    names = run.scores or {name for _, name, _ in latest}  # mixtures have no scores of their own
    rows = [
        (
            on,
            title(name, names),
            _value(score),
            interval(score.get("low"), score.get("high")),
            element("code", signature or ""),
        )
        for (on, name, signature), score in latest.items()
    ]
    columns = ("data", "score", "value", "interval", "signature")
    lead = "Added by seqwright evaluate --on."
    return section("Scores on other data", table(columns, rows, numeric=("value", "interval")), lead=lead)


def _data_name(record: Record) -> str:
    """The files of later scores, and whether the run was trained on one of them."""
    return " ".join(record["on"]) + (" (training data)" if record.get("trained_on") else "")


def _parts(run: RunFacts) -> Html:
    """The runs that a mixture was made of, beside the mixture."""
    tuned = run.summary.get("tuned", {})
    rows = [*run.summary.get("parts", []), {"run": run.name} | tuned]
    names = [name for name in ("weight", "interpolation") if name in rows[0]] + list(tuned)
    columns = ("run", *map(title, names))
    cells = [(row["run"], *(figure(row[name]) if name in row else "" for name in names)) for row in rows]
    lead = "Measured on the held-out data that tuned the weights: evaluate the mixture on other data." if tuned else ""
    return section("Parts", table(columns, cells if len(rows) > 1 else [], numeric=columns[1:]), lead=lead)


def _scores(run: RunFacts) -> Html:
    counted = run.summary.get("baseline", {})
    rows = [
        (
            title(name, run.scores),
            _value(score),
            interval(score.get("low"), score.get("high")),
            *([figure(counted[name]) if counted.get(name) is not None else ""] if counted else []),
            element("code", score.get("signature", "")),
        )
        for name, score in run.scores.items()
    ]
    columns = ("score", "value", "interval", *(["n-gram baseline"] if counted else []), "signature")
    numeric = ("value", "interval", "n-gram baseline")
    return section("Scores", table(columns, rows, numeric=numeric), lead=scored_on(run.summary))


def _value(score: Record) -> str:
    """A score as text; those that JSON has no number for are infinite."""
    return "infinite" if score["value"] is None else figure(score["value"])


def _classes(run: RunFacts) -> Html:
    """Confusion matrix and per-class scores of a classifier."""
    return class_sections(run.summary.get("details", {}))


def _curves(run: RunFacts) -> Html:
    """Learning curves, learning rate, gradient norm and throughput; empty for count-based models."""
    if not run.records("train"):
        return Html("")
    best = run.summary.get("best_step")
    marks = {"best": [best] if best else [], "resumed": [record["step"] for record in run.records("resume")]}
    loss = [
        chart("Loss over steps", _losses(run, "step"), x=STEPS, y=Axis(), marks=marks),
        chart("Loss over time", _losses(run, "seconds"), x=TIME, y=Axis()),
    ]
    if training := run.points("evaluation", "train_accuracy"):
        validation = Series(name="validation", points=run.points("evaluation", "accuracy"), color="var(--accent)")
        accuracies = [Series(name="training", points=training, color="var(--line-2)"), validation]
        loss.append(chart("Accuracy over steps", accuracies, x=STEPS, y=Axis()))
    loss_unit = unit(run.scores)
    names = {"learning_rate": "Learning rate", "gradient_norm": "Gradient norm"}
    names["tokens_per_second"] = f"{loss_unit.capitalize()}s per second"
    diagnostics = [_diagnostic(run, name, key) for key, name in names.items()]
    note = downsampling_note(len(run.records("train")))
    if smoothing := run.setting("training", "label_smoothing"):
        note += f" The training loss has label smoothing ({smoothing:g}), validation has none: it may be the lower one."
    return section(
        "Curves",
        grid(loss, "charts"),
        grid(diagnostics, "charts few"),
        lead=f"Loss in nats per {loss_unit}; hover over a chart to read its values. {note}",
    )


def _losses(run: RunFacts, over: str) -> list[Series]:
    training = Series(name="training", points=run.points("train", "loss", over), color="var(--quiet)", style="faint")
    validation = Series(name="validation", points=run.points("evaluation", "nll", over), color="var(--accent)")
    last = max((x for x, _ in validation.points), default=0.0)
    counted = [(x, float(record["nll"])) for record in run.records("baseline") for x in (0.0, last)]
    levels = [Series(name="n-gram baseline", points=counted, color="var(--line-3)", style="level")] if counted else []
    epochs = Series(name="epoch mean", points=run.points("epoch", "loss", over), color="var(--line-2)")
    return [training, epochs, validation, *levels]


def _diagnostic(run: RunFacts, name: str, key: str) -> Html:
    series = Series(name=name.lower(), points=run.points("train", key), color="var(--accent)", style="faint")
    return chart(name, [series], x=STEPS, y=Axis(zero=True), frame=SMALL)


def _samples(run: RunFacts) -> Html:
    """A collapsible entry per step with samples, the last one open; samples of a single step are shown directly."""
    records = run.records("sample")
    if len(records) == 1:
        return section("Sample", sample(records[0]))
    steps = [list(group) for _, group in itertools.groupby(records, key=lambda record: record["step"])]
    if len(steps) == 1:
        return section("Samples", *map(sample, records))
    shown = _evenly_spaced(steps, SAMPLES)
    note = f"{len(shown)} of {len(steps)} steps, evenly spaced; log.jsonl has all of them."
    lead = "" if len(shown) == len(steps) else note
    evaluations = {record["step"]: record for record in run.records("evaluation")}
    timeline = [
        element(
            "details",
            element(
                "summary",
                element("span", f"step {group[0]['step']:,}", class_="when"),
                element("span", _preview(group[0], evaluations.get(group[0]["step"], {})), class_="peek"),
            ),
            *map(sample, group),
            open=group is shown[-1],
        )
        for group in shown
    ]
    return section("Samples during training", *timeline, lead=lead)


def _preview(record: Record, evaluation: Record) -> str:
    """Preview of a collapsed sample: end of the prompt and output, or the PSNR at that step for images."""
    if "image" in record and "psnr" in evaluation:
        return f"{title('psnr')}: {figure(evaluation['psnr'])}"
    prompt = record["prompt"]
    if len(prompt) > PREVIEW_CHARACTERS // 2:
        prompt = f"… {prompt[-PREVIEW_CHARACTERS // 2 :]}"
    output = f"{ARROW}{record['text'].removeprefix(ARROW)}" if "reference" in record and prompt else record["text"]
    return " ".join((prompt + output).split())[:PREVIEW_CHARACTERS]


def _evenly_spaced(steps: list[list[Record]], limit: int) -> list[list[Record]]:
    if len(steps) <= limit:
        return steps
    return [steps[i * (len(steps) - 1) // (limit - 1)] for i in range(limit)]


def _events(run: RunFacts) -> Html:
    """Notes, resumes, loss spikes and stops, in chronological order."""
    messages = {
        "note": "{text}",
        "resume": "resumed",
        "stop": "stopped: {reason}",
        "diverged": "{reason}",
        "early": "early stopping: best at step {best_step}",
        "averaging": "NT-ASGD: averaging of the weights starts",
        "spike": "rolled back to this step: loss spike of {loss:.3g} at step {at}",
        "memory": "out of memory: micro-batch size reduced to {micro_batch_size}",
    }
    events = [
        part
        for record in run.log
        if record["kind"] in messages
        for part in (
            element("dt", f"step {record['step']:,}" if "step" in record else "note"),
            element("dd", messages[record["kind"]].format_map(record)),
        )
    ]
    return section("Events", element("dl", *events, class_="events") if events else Html(""))


def _laws(run: RunFacts) -> Html:
    """Laws that `seqwright check --save` verified, and the fingerprint of the model."""
    if not run.laws:
        return Html("")
    rows = [
        (law["law"], f"{law['difference']:.1e}", f"{law['tolerance']:.0e}", "holds" if law["holds"] else "BROKEN")
        for law in run.laws
    ]
    columns = ("law", "difference", "tolerance", "verdict")
    lead = f"Checked by `seqwright check --save` on the model of fingerprint {run.summary.get('fingerprint', '')[:16]}."
    return section("Checks", table(columns, rows, numeric=("difference", "tolerance")), lead=lead)


def _settings(run: RunFacts) -> Html:
    """The resolved recipe, one card per section: settings that differ from the defaults, the others folded."""
    top_level = {key: value for key, value in run.recipe.items() if key != "name" and not isinstance(value, Mapping)}
    sections = {"recipe": top_level} | {key: value for key, value in run.recipe.items() if isinstance(value, Mapping)}
    changed: dict[str, list[tuple[str, object]]] = {}
    rest: dict[str, list[tuple[str, object]]] = {}
    for name, entries in sections.items():
        defaults = dict(flatten(run.defaults.get(name, {})))
        for key, value in flatten(entries):
            at_default = key in defaults and _same(value, defaults[key])
            (rest if at_default else changed).setdefault(name, []).append((key, value))
    if not rest:
        return section("Hyperparameters", _cards(changed))
    folded_keys = sum(len(entries) for entries in rest.values())
    folded = element("details", element("summary", f"{folded_keys} settings at their defaults"), _cards(rest))
    return section("Hyperparameters", _cards(changed), folded, lead="Settings that differ from the defaults.")


def _cards(sections: Mapping[str, list[tuple[str, object]]]) -> Html:
    return grid([element("div", element("h3", name), keys(entries)) for name, entries in sections.items()], "cards")


def _same(value: object, default: object) -> bool:
    return (list(value) if isinstance(value, tuple) else value) == (
        list(default) if isinstance(default, tuple) else default
    )
