"""The page of one run: what it reached, how it got there, what it said on the way, and what it was made of."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from seqwright.reporting.classification import class_sections
from seqwright.reporting.markup import Html, element, image
from seqwright.reporting.numbers import count, duration, figure, interval
from seqwright.reporting.page import grid, keys, page, section, show, table, tiles
from seqwright.reporting.run_facts import Record, RunFacts, flatten, headline, title, unit
from seqwright.reporting.svg import SMALL, Axis, Series, chart, thinning

STEPS = Axis(title="step")
TIME = Axis(title="training time", time=True)
LEADING = (("accuracy",), ("psnr", "psnr_shown"), ("exact_match", "word_error_rate"))
"""Scores that stand at the head of a page where there are any: of answers rather than of likelihood."""
SAMPLES = 12
"""Steps whose samples are shown on a page, spread evenly over the run."""

PEEK = 160
"""Characters seen of a sample that is not opened, at most half of them the prompt's."""


def report(run: RunFacts) -> str:
    """A self-contained HTML document about one run."""
    parts = (_header, _scores, _classes, _curves, _samples, _events, _settings)
    return page(run.name, *(part(run) for part in parts), environment(run.environment))


def sample(record: Record) -> Html:
    """What a model said, its prompt set apart, below what it saw and above what was wanted."""
    prompt = element("b", record["prompt"]) if record.get("prompt") else ""
    seen = image(f"data:image/png;base64,{record['picture']}", record["text"]) if "picture" in record else ""
    wanted = element("p", "wanted:\n", record["reference"], class_="lead") if "reference" in record else ""
    return element("div", seen, prompt, record["text"], wanted, class_="sample")


def environment(table: Mapping[str, object]) -> Html:
    """Machine and versions."""
    entries = list(flatten(table))
    half = (len(entries) + 1) // 2
    return section("Environment", grid([keys(part) for part in (entries[:half], entries[half:]) if part], "cards two"))


def _header(run: RunFacts) -> Html:
    figures = {title(name, run.scores): figure(run.scores[name]["value"]) for name in _leading(run)}
    written = {
        "parameters": ("parameters", count),
        "steps": ("steps", "{:,}".format),
        "trained_tokens": (f"{unit(run.scores)}s learned from", count),
        "seconds": ("training time", duration),
    }
    figures |= {name: write(run.summary[key]) for key, (name, write) in written.items() if run.summary.get(key)}
    makings = [run.setting(*place) for place in (("model", "kind"), ("tokenizer", "kind"), ("data", "train"))]
    return element(
        "header",
        element("p", "Run", class_="kind"),
        element("h1", run.name),
        element("p", " · ".join(show(word) for word in makings if word), class_="lead"),
        tiles(figures),
    )


def _leading(run: RunFacts) -> list[str]:
    """The scores that stand at the head of the page."""
    own = next((names for names in LEADING if names[0] in run.scores), (headline([run]), "perplexity"))
    return [name for name in own if name and name in run.scores]


def _scores(run: RunFacts) -> Html:
    rows = [
        (
            title(name, run.scores),
            figure(score["value"]),
            interval(score.get("low"), score.get("high")),
            element("code", score.get("signature", "")),
        )
        for name, score in run.scores.items()
    ]
    columns = ("score", "value", "interval", "signature")
    return section("Scores", table(columns, rows, numeric=("value", "interval")))


def _classes(run: RunFacts) -> Html:
    """What a classifier mistakes for what."""
    return class_sections(run.summary.get("details", {}))


def _curves(run: RunFacts) -> Html:
    """Loss over steps and over time, and what drove it. A counted model was not driven: it has no curves."""
    if not run.records("train"):
        return Html("")
    best = run.summary.get("best_step")
    marks = {"best": [best] if best else [], "resumed": [record["step"] for record in run.records("resume")]}
    loss = [
        chart("Loss over steps", _losses(run, "step"), x=STEPS, y=Axis(), marks=marks),
        chart("Loss over time", _losses(run, "seconds"), x=TIME, y=Axis()),
    ]
    learned = unit(run.scores)
    names = {"learning_rate": "Learning rate", "gradient_norm": "Gradient norm"}
    names["tokens_per_second"] = f"{learned.capitalize()}s per second"
    drivers = [_driver(run, name, key) for key, name in names.items()]
    return section(
        "Curves",
        grid(loss, "charts"),
        grid(drivers, "charts few"),
        lead=f"Loss in nats per {learned}; point at a chart to read its values. {thinning(len(run.records('train')))}",
    )


def _losses(run: RunFacts, over: str) -> list[Series]:
    training = Series(name="training", points=run.points("train", "loss", over), color="var(--quiet)", style="faint")
    validation = Series(name="validation", points=run.points("evaluation", "nll", over), color="var(--accent)")
    epochs = Series(name="mean of epoch", points=run.points("epoch", "loss", over), color="var(--line-2)")
    return [training, epochs, validation]


def _driver(run: RunFacts, name: str, key: str) -> Html:
    series = Series(name=name.lower(), points=run.points("train", key), color="var(--accent)", style="faint")
    return chart(name, [series], x=STEPS, y=Axis(zero=True), frame=SMALL)


def _samples(run: RunFacts) -> Html:
    """A line for each step that had samples, opening to all of them; the last stands open. One step needs no line."""
    records = run.records("sample")
    if len(records) == 1:
        return section("Sample", sample(records[0]))
    steps = [list(several) for _, several in itertools.groupby(records, key=lambda record: record["step"])]
    if len(steps) == 1:
        return section("Samples", *map(sample, records))
    shown = _spread(steps, SAMPLES)
    some = f"{len(shown)} of {len(steps)} steps, spread evenly; log.jsonl has them all."
    lead = "" if len(shown) == len(steps) else some
    reached = {record["step"]: record for record in run.records("evaluation")}
    timeline = [
        element(
            "details",
            element(
                "summary",
                element("span", f"step {several[0]['step']:,}", class_="when"),
                element("span", _peek(several[0], reached.get(several[0]["step"], {})), class_="peek"),
            ),
            *map(sample, several),
            open=several is shown[-1],
        )
        for several in shown
    ]
    return section("Samples over time", *timeline, lead=lead)


def _peek(record: Record, reached: Record) -> str:
    """What is seen of a closed sample: how a prompt ends and what was said, or how good answers that are pictures were
    by then."""
    if "picture" in record and "psnr" in reached:
        return f"{title('psnr')}: {figure(reached['psnr'])}"
    prompt = record["prompt"]
    if len(prompt) > PEEK // 2:
        prompt = f"… {prompt[-PEEK // 2 :]}"
    return " ".join((prompt + record["text"]).split())[:PEEK]


def _spread(steps: list[list[Record]], limit: int) -> list[list[Record]]:
    if len(steps) <= limit:
        return steps
    return [steps[i * (len(steps) - 1) // (limit - 1)] for i in range(limit)]


def _events(run: RunFacts) -> Html:
    """Notes, resumptions and the reason of the end, in the order they happened."""
    told = {
        "note": "{text}",
        "resume": "resumed",
        "stop": "stopped: {reason}",
        "early": "ended early: no better than at step {best_step}",
        "spike": "went back here: the loss spiked to {loss:.3g} at step {at}",
        "memory": "out of memory: {micro_batch_size} rows at a time from here on",
    }
    events = [
        part
        for record in run.log
        if record["kind"] in told
        for part in (
            element("dt", f"step {record['step']:,}" if "step" in record else "note"),
            element("dd", told[record["kind"]].format_map(record)),
        )
    ]
    return section("What happened", element("dl", *events, class_="events") if events else Html(""))


def _settings(run: RunFacts) -> Html:
    """The resolved recipe, a card a section; keys outside of sections come first, but for the name in the title."""
    loose = {key: value for key, value in run.recipe.items() if key != "name" and not isinstance(value, Mapping)}
    sections = {"recipe": loose} | {key: value for key, value in run.recipe.items() if isinstance(value, Mapping)}
    cards = [
        element("div", element("h3", name), keys(flatten(entries))) for name, entries in sections.items() if entries
    ]
    return section("Settings", grid(cards, "cards"))
