"""HTML reports: well-formed, self-contained and escaped, whatever a model generates."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from seqwright.core.config import UserError
from seqwright.reporting.comparison import comparison
from seqwright.reporting.page import differences
from seqwright.reporting.report import SAMPLES, report, sample
from seqwright.reporting.run_facts import RunFacts, headline
from tests.reporting.made_up_runs import HOSTILE, counted_run, trained_run

VOID = {"meta", "link"}
RUNS = [counted_run("trigram"), trained_run("gpt"), trained_run("lstm", final=1.7, pace=0.02)]
PAGES = {
    "trained": report(trained_run()),
    "long": report(trained_run(records=5000)),
    "counted": report(counted_run()),
    "empty": report(RunFacts(name="empty", recipe={}, environment={}, log=[], summary={})),
    "leaderboard": comparison(RUNS),
    "counted only": comparison([counted_run("bigram", nll=2.4), counted_run("trigram")]),
}


class Outline(HTMLParser):
    """Parses a page: tags, attributes and the text of elements."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    return PAGES[request.param]


def test_html_tags_are_balanced(page: str) -> None:
    outline = Outline(page)
    assert outline.open == []
    assert {"html", "head", "body", "main", "h1"} <= set(outline.tags)


def test_page_loads_no_external_resources(page: str) -> None:
    outline = Outline(page)
    assert not {"img", "iframe", "object", "embed", "base", "form"} & set(outline.tags)
    sources = [value for name, value in outline.attributes if name in ("src", "href", "srcset", "action", "data")]
    assert sources == ["data:,"]
    styles = " ".join(outline.texts["style"] + [value for name, value in outline.attributes if name == "style"])
    assert "url(" not in styles
    assert "@import" not in styles


def test_page_is_valid_text(page: str) -> None:
    page.encode("utf-8")  # no lone surrogates
    assert not [c for c in page if ord(c) < 0x20 and c not in "\n\t"]
    geometry = {"points", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy"}
    assert not [value for name, value in Outline(page).attributes if name in geometry and "n" in value]  # nan, inf


def test_model_output_is_escaped() -> None:
    outline = Outline(PAGES["counted"])
    assert outline.tags.count("script") == 1  # ours
    text = "".join(outline.texts["div"])
    assert '<script>alert("x")</script> & naïve 🙂␀␛[31m' in text
    assert "�" in text


def test_names_and_hyperparameters_are_escaped() -> None:
    run = trained_run("<b>&\"'")
    hostile = replace(
        run,
        recipe={"model": {"<i>": "</dd>"}},
        environment={"</main>": "<u>"},
        log=[*run.log, {"kind": "note", "text": "{text}<s>"}],
    )
    for page in (report(hostile), comparison([hostile, counted_run("</title>")])):
        outline = Outline(page)
        assert outline.open == []
        assert not {"u", "s"} & set(outline.tags)
        assert "<b>&\"'" in "".join(outline.texts["h1"] + outline.texts["td"])


def test_report_has_all_sections() -> None:
    texts = Outline(PAGES["trained"]).texts
    parts = ["Scores", "Curves", "Samples during training", "Events", "Hyperparameters", "Environment"]
    assert texts["h2"] == parts
    assert {"4.711", "10.7 M", "1,200", "1 m 12 s"} <= set(texts["dd"])
    assert any("stride:half" in code for code in texts["code"])
    assert {"Loss over steps", "Loss over time", "Learning rate", "Gradient norm"} <= set(texts["span"])


def test_count_model_has_no_learning_curves() -> None:
    outline = Outline(PAGES["counted"])
    assert outline.texts["h2"] == ["Scores", "Sample", "Hyperparameters", "Environment"]
    assert "svg" not in outline.tags


def test_many_records_are_downsampled_with_a_note() -> None:
    assert "Downsampled from 5,000 records to 400" in PAGES["long"]
    assert "Downsampled" not in PAGES["trained"]
    assert len(PAGES["long"]) < 250_000


def test_many_samples_are_evenly_spaced_with_a_note() -> None:
    samples = [{"kind": "sample", "step": step, "prompt": "", "text": f"text {step}"} for step in range(100)]
    outline = Outline(report(replace(counted_run(), log=samples)))
    assert outline.tags.count("details") == SAMPLES
    assert {"step 0", "step 99"} <= set(outline.texts["span"])
    assert f"{SAMPLES} of 100" in " ".join(outline.texts["p"])


def test_samples_are_grouped_by_step() -> None:
    samples = [
        {"kind": "sample", "step": step, "prompt": prompt, "text": f"→ {step}", "reference": "X"}
        for step in (5, 10)
        for prompt in ("one", "two")
    ]
    page = report(replace(counted_run(), log=samples))
    outline = Outline(page)
    assert outline.tags.count("details") == 2
    assert page.count('class="pair"') == 4


def test_preview_of_a_long_prompt_shows_the_output() -> None:
    samples = [{"kind": "sample", "step": step, "prompt": "word " * 99, "text": f"→ {step}"} for step in (5, 10)]
    previews = re.findall(r'class="peek">(.*?)<', report(replace(counted_run(), log=samples)))
    assert [preview.split()[-2:] for preview in previews] == [["→", "5"], ["→", "10"]]


def test_preview_of_a_translation_has_an_arrow_after_its_source() -> None:
    samples = [
        {"kind": "sample", "step": step, "prompt": "a dog", "text": text, "reference": "ein Hund"}
        for step, text in ((5, "ein"), (10, " → ein Hund"))
    ]
    previews = re.findall(r'class="peek">(.*?)<', report(replace(counted_run(), log=samples)))
    assert previews == ["a dog → ein", "a dog → ein Hund"]


def test_preview_of_image_samples_shows_psnr() -> None:
    log = [
        record
        for step in (5, 10)
        for record in (
            {"kind": "evaluation", "step": step, "nll": 1.0, "psnr": 20.0 + step},
            {"kind": "sample", "step": step, "prompt": "", "text": "above: …", "image": "AAAA"},
        )
    ]
    page = report(replace(counted_run(), log=log))
    assert re.findall(r'class="peek">(.*?)<', page) == ["PSNR in dB: 25.00", "PSNR in dB: 30.00"]


def test_later_records_win_after_a_resume() -> None:
    log = [
        {"kind": "train", "step": s, "seconds": s, "loss": loss} for s, loss in ((1, 3.0), (2, 2.9), (2, 2.8), (3, 2.7))
    ]
    run = replace(trained_run(), log=log)
    assert run.points("train", "loss") == [(1, 3.0), (2, 2.8), (3, 2.7)]


def test_non_finite_values_are_omitted() -> None:
    losses = [2.0, float("nan"), float("inf"), None, 1.0]
    log = [{"kind": "train", "step": step, "loss": loss} for step, loss in enumerate(losses)]
    assert replace(trained_run(), log=log).points("train", "loss") == [(0, 2.0), (4, 1.0)]


def test_leaderboard_is_sorted_and_draws_every_run() -> None:
    outline = Outline(PAGES["leaderboard"])
    cells = outline.texts["td"]
    assert [cell for cell in cells if cell in ("gpt", "lstm", "trigram")][:3] == ["gpt", "lstm", "trigram"]
    names = [value for name, value in outline.attributes if name == "data-name"]
    assert names == ["gpt", "lstm", "trigram"] * 2
    assert outline.texts["h2"] == ["Leaderboard", "Curves", "Samples", "Hyperparameter differences", "Environment"]


def test_keys_that_only_some_recipes_have_are_folded_unless_those_differ() -> None:
    keys = {"model.kind": ("ngram", "gpt", "gpt"), "model.width": (None, 64, 128), "model.heads": (None, 4, 4)}
    open_table, folded = differences(["a", "b", "c"], keys)
    assert Outline(open_table).texts["td"] == ["model.kind", "ngram", "gpt", "gpt", "model.width", "–", "64", "128"]
    assert folded.startswith("<details><summary>Show keys that are set in some of these recipes only: 1</summary>")
    assert Outline(folded).texts["td"] == ["model.heads", "–", "4", "4"]
    assert differences(["a", "b"], {"model.width": (64, 128)})[1] == ""
    open_table, folded = differences(["a", "b"], {"training.patience": (None, 4)})  # of one kind: what was changed
    assert Outline(open_table).texts["td"] == ["training.patience", "–", "4"]
    assert folded == ""


def test_runs_are_ranked_by_a_common_score() -> None:
    lossy = counted_run("words")
    scores = {**lossy.scores, "bits_per_byte": None}
    lossy = replace(lossy, summary={**lossy.summary, "scores": scores})
    assert headline([lossy, trained_run()]) == "bits_per_character"
    assert headline([trained_run()]) == "bits_per_byte"
    tokens_only = replace(lossy, summary={"scores": {"nll": lossy.scores["nll"]}})
    assert "same tokenizer" in comparison([tokens_only, trained_run()])
    with pytest.raises(UserError, match="evaluate each"):
        comparison([replace(lossy, summary={}), trained_run()])


def test_accuracy_ranks_higher_first() -> None:
    runs = [
        replace(counted_run(name), summary={"scores": {"nll": {"value": nll}, "accuracy": {"value": accuracy}}})
        for name, nll, accuracy in (("sure", 0.9, 91.0), ("right", 1.2, 93.0), ("wrong", 0.7, 60.0))
    ]
    page = comparison(runs)
    assert "Ranked by accuracy, higher is better." in page
    assert [cell for cell in Outline(page).texts["td"] if cell in ("sure", "right", "wrong")][:3] == [
        "right",
        "sure",
        "wrong",
    ]


def test_loss_unit_depends_on_the_task() -> None:
    classifier = replace(trained_run(), summary={"scores": {"nll": {"value": 0.5}, "accuracy": {"value": 91.0}}})
    assert "Loss in nats per label" in report(classifier)
    assert "Loss in nats per token" in report(trained_run())
    assert "Loss in nats per target" in report(replace(trained_run(), summary={}))
    restored = replace(trained_run(), summary={"scores": {"nll": {"value": 0.9}, "squared_error": {"value": 0.01}}})
    assert "Loss in nats per value" in report(restored)


def test_hostile_text_covers_the_hard_cases() -> None:
    assert {"\x00", "\x1b", "\ud800", "<", "&", "🙂"} <= set(HOSTILE)


@pytest.mark.parametrize(
    ("names", "leading"),
    [
        (("nll", "perplexity", "exact_match", "word_error_rate"), ["exact match", "word error rate"]),
        (("nll", "squared_error", "psnr", "psnr_shown"), ["PSNR in dB", "PSNR of input in dB"]),
        (("nll", "perplexity"), ["nats per token", "perplexity"]),
    ],
)
def test_header_shows_the_task_metrics(names: tuple[str, ...], leading: list[str]) -> None:
    run = trained_run()
    scores = {name: {"value": 1.0, "low": 0.5, "high": 1.5, "signature": name} for name in names}
    page = report(replace(run, summary={"scores": scores}))
    header = page[page.index("<header") : page.index("</header>")]
    assert re.findall(r"<dt>(.*?)</dt>", header)[: len(leading)] == leading


def test_sample_shows_image_output_and_reference() -> None:
    record = {"kind": "sample", "step": 9, "prompt": "", "text": "two\none", "reference": "two\n<b>", "image": "AAAA"}
    drawn = str(sample(record))
    assert 'src="data:image/png;base64,AAAA"' in drawn
    assert drawn.index("AAAA") < drawn.rindex("two\none") < drawn.index("reference:")
    assert "two\n&lt;b&gt;" in drawn
    pair = str(sample({"prompt": "a", "text": " → b", "reference": "c"}))
    assert pair.count("<dt>") == 3
    assert "<dt>source</dt><dd>a</dd><dt>output</dt><dd>b</dd><dt>reference</dt><dd>c</dd>" in pair
    assert "reference" not in str(sample({"prompt": "a", "text": "b"}))


def test_settings_at_their_defaults_are_folded() -> None:
    run = replace(trained_run(), defaults={"model": {"layers": 6, "width": 128, "dropout": 0.2}})
    text = report(run)
    shown, _, folded = text.partition("2 settings at their defaults")
    assert "<dt>width</dt><dd>384</dd>" in shown
    assert "<dt>layers</dt><dd>6</dd>" in folded
    assert "<dt>layers</dt>" not in shown


def test_parts_of_a_mixture_stand_beside_it() -> None:
    parts = [{"run": f"runs/{name}", "weight": 0.5, "perplexity": 20.0} for name in ("gpt", "ngram")]
    run = replace(trained_run(), summary={"parts": parts, "tuned": {"perplexity": 18.25}})
    shown = report(run)
    assert ">Parts<" in shown
    assert "runs/ngram" in shown
    assert "18.25" in shown
    assert ">Parts<" not in report(trained_run())


def test_scores_of_training_data_are_marked() -> None:
    record = {"kind": "scores", "on": ["mine.txt"], "scores": {"nll": {"value": 1.0}}, "trained_on": True}
    run = trained_run()
    assert "mine.txt (training data)" in report(replace(run, log=[*run.log, record]))


def test_later_scores_and_next_steps_are_shown() -> None:
    scores = {"bits_per_byte": {"value": 1.2345, "low": 1.2, "high": 1.3, "signature": "bits_per_byte|text:<b>"}}
    records = [{"kind": "scores", "on": ["test.txt"], "scores": scores}] * 2
    run = replace(trained_run(), next_steps=[("Use it", "seqwright generate 'a <run>'")])
    text = report(replace(run, log=[*run.log, *records]))
    assert text.count("test.txt") == 1
    assert "1.234" in text
    assert "text:&lt;b&gt;" in text
    assert "seqwright generate &#x27;a &lt;run&gt;&#x27;" in text


def test_later_scores_of_a_mixture_have_their_unit() -> None:
    scores = {"nll": {"value": 1.0}, "perplexity": {"value": 2.718}}
    mixture = replace(counted_run(), summary={}, log=[{"kind": "scores", "on": ["test.txt"], "scores": scores}])
    assert mixture.scores == {}
    assert "nats per token" in report(mixture)
