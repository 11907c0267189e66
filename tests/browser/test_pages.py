"""Pages in a real browser: reports, inspections, explanations and `where` are drawn, respond, and load nothing.

playwright drives Debian's chromium (decision 163). Where there is none the tests are skipped; in continuous integration
they must run.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import seqwright as sw

with suppress(ImportError):
    from playwright.sync_api import expect, sync_playwright

HOSTILE = "<img src=x onerror=alert(1)> <script>alert(1)</script> the cat"
TEXT = f"the cat sat on the mat <b>&amp;</b>\n{HOSTILE}\nthe dog sat on the cat\n"
PAGES = ("report", "comparison", "inspect", "image", "explain", "gradients", "search", "where")
"""One of each kind, and those of explanations and inspections that draw something else: charts, trees, images."""
WIDE, NARROW = 1280, 400
AA = 4.5
"""Least contrast of text and background (WCAG 2, level AA)."""

Open = Callable[..., Any]


def unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if "sync_playwright" not in globals():
        unavailable("needs playwright: pip install -c constraints.txt -e '.[dev]'")
    chromium = shutil.which("chromium")
    if chromium is None:
        unavailable("needs Debian's chromium: make browser")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def folder(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of each kind, of a tiny GPT on text that looks like markup."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "text.txt").write_text(TEXT * 10)
    keys = ("tokenizer.kind=words", "model.layers=2", "model.heads=2", "model.width=8", "model.context=16")
    keys += ("training.steps=4", "training.batch_size=2", "training.log_every=1", "training.sequence_length=8")
    run = sw.train(text=str(folder / "text.txt"), model="gpt", set=keys, run=folder / "run")
    shutil.copy(run.path / "report.html", folder / "report.html")
    run.inspect(HOSTILE).write_html(folder / "inspect.html")
    run.inspect("the cat sat", beside="the dog sat").write_html(folder / "pair.html")
    run.where(["the dog sat on the cat", f"mat mat {HOSTILE}"], min_tokens=3).write_html(folder / "where.html")
    sw.explain("attention").write_html(folder / "explain.html")
    for topic in ("gradients", "search"):
        sw.explain(topic).write_html(folder / f"{topic}.html")
    other = sw.train(text=str(folder / "text.txt"), model="gpt", set=[*keys, "training.steps=5"], run=folder / "<b>2")
    sw.compare([run, other]).write_html(folder / "comparison.html")
    pixels = np.random.default_rng(1).integers(0, 256, (40, 4, 6), np.uint8)
    np.savez(folder / "images.npz", images=pixels, labels=np.array(["<i>left", "right"])[np.arange(40) % 2])
    keys = ("training.steps=2", "model.width=8", "model.layers=1", "model.heads=2")
    image_run = sw.train(images=str(folder / "images.npz"), set=keys, run=folder / "images")
    image_run.inspect().write_html(folder / "image.html")
    return folder


@pytest.fixture
def open_page(browser: Any, folder: Path) -> Iterator[Open]:
    """Opens a page; at the end of the test nothing may have failed, been loaded or popped up."""
    contexts, troubles = [], []

    def opened(name: str, width: int = WIDE) -> Any:
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme="light"))
        page = contexts[-1].new_page()
        address = (folder / f"{name}.html").as_uri()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", lambda request: troubles.append(request.url) if _outside(request.url, address) else None)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles


def _outside(url: str, address: str) -> bool:
    return url.split("#")[0] != address and not url.startswith("data:")


def luminance(color: str) -> float:
    """Relative luminance of a CSS color `rgb(…)` (WCAG 2)."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_readable_in_light_and_dark_wide_and_narrow(open_page: Open, name: str) -> None:
    page = open_page(name)
    if page.locator("#all").count():
        page.click("#all")
    for width, scheme in ((WIDE, "light"), (WIDE, "dark"), (NARROW, "light"), (NARROW, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
        style = page.evaluate(
            "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
        )
        text, ground = map(luminance, style)
        assert (text < ground) == (scheme == "light")
        assert (max(text, ground) + 0.05) / (min(text, ground) + 0.05) >= AA
        assert page.locator("h1").is_visible()


@pytest.mark.parametrize("name", ["inspect", "image", "explain", "gradients", "search", "where"])
def test_steps_are_taken_by_click_and_keyboard(open_page: Open, name: str) -> None:
    page = open_page(name, NARROW)
    count = page.locator(".step").count()
    shown = page.locator(".step:visible")

    def at(number: int) -> None:
        expect(page.locator("#position")).to_have_text(f"step {number} of {count}")
        expect(shown).to_have_count(1)
        expect(shown).to_have_id(f"step-{number}")

    at(1)
    expect(page.locator("#back")).to_be_disabled()
    page.click("#next")
    at(2)
    expect(page.locator("#step-2 h2")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    at(1)
    page.keyboard.press("End")
    at(count)
    expect(page.locator("#next")).to_be_disabled()
    page.keyboard.press("Home")
    page.locator(".contents a").nth(1).click()
    at(2)
    page.go_back()
    at(1)
    page.click("#all")
    expect(shown).to_have_count(count)


def test_attention_cells_have_the_weights_and_follow_the_chosen_head(open_page: Open) -> None:
    page = open_page("inspect")
    page.click("#all")
    figure = page.locator("figure.attention").first
    cells = figure.locator("rect[role=img]")
    labels = cells.evaluate_all("cells => cells.map(cell => cell.getAttribute('aria-label'))")
    rows: dict[str, float] = {}
    for label in labels:
        row, weight = label.split(" → ")[0], float(label.rsplit(": ", 1)[1])
        rows[row] = rows.get(row, 0.0) + weight
    tokens = len(rows)
    assert len(labels) == tokens * (tokens + 1) // 2, "causal attention is a triangle"
    assert list(rows.values()) == pytest.approx([1.0] * tokens, abs=0.01)
    cells.nth(1).hover()
    expect(figure.locator(".detail")).to_have_text(labels[1])
    drawn = figure.locator("svg").get_attribute("aria-label")
    figure.get_by_label("self attention: head").select_option("1")
    expect(figure.locator("svg")).to_have_attribute("aria-label", drawn.replace("head 0", "head 1"))


def test_attention_is_drawn_as_lines_that_follow_the_pointer(open_page: Open) -> None:
    page = open_page("inspect")
    page.click("#all")
    figure = page.locator("figure.attention").first
    figure.get_by_label("self attention: form").select_option("lines")
    queries = figure.locator("g.query")
    third = queries.nth(2)
    expect(third.locator("line")).to_have_count(3)  # causal
    other = queries.nth(1).locator("line").first
    expect(other).to_be_visible()
    third.locator("text").hover()
    expect(other).to_be_hidden()
    expect(figure.locator(".detail")).to_have_text(third.get_attribute("aria-label"))


def test_two_texts_stand_beside_each_other_with_one_choice_of_head(open_page: Open) -> None:
    page = open_page("pair")
    page.get_by_role("link", name="Attention by layer and head").click()
    figures = page.locator("figure.attention")
    expect(figures).to_have_count(2)
    left, right = (figures.nth(n).bounding_box() for n in (0, 1))
    assert left["y"] == right["y"]
    figures.first.get_by_label("first text: layer").select_option("1")
    expect(figures.last.locator("svg")).to_have_attribute("aria-label", "self attention, second text, layer 1, head 0")


def test_tokens_are_described_under_the_pointer_and_in_focus(open_page: Open) -> None:
    page = open_page("inspect")
    strip = page.locator("#step-1 figure").first
    strip.locator(".chip").nth(1).hover()
    expect(strip.locator(".detail")).to_have_text(re.compile(r"\d bits, p .*, rank \d+"))
    strip.locator(".chip").first.focus()
    page.keyboard.press("Tab")
    expect(strip.locator(".detail")).to_have_text(strip.locator(".chip").nth(1).get_attribute("aria-label"))
    assert page.locator("img").count() == 0, "a token is never markup"


def test_matches_are_shaded_and_named(open_page: Open) -> None:
    page = open_page("where")
    page.locator(".contents a").last.click()
    figure = page.locator("#step-3 figure").first
    chips = figure.locator(".chip")
    shaded = chips.evaluate_all("chips => chips.map(chip => Number(chip.style.getPropertyValue('--weight')) > 0)")
    assert any(shaded)
    assert not all(shaded)
    chips.nth(shaded.index(True)).hover()
    expect(figure.locator(".detail")).to_have_text(re.compile(r"in a match of \d+ tokens: .*text.txt, line \d+"))
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#step-2 td", has_text="text.txt, line").first).to_be_visible()


def test_charts_of_reports_show_values_under_the_pointer(open_page: Open) -> None:
    page = open_page("report")
    chart = page.locator("svg.chart").first
    tip = page.locator(".canvas .tip").first
    expect(tip).to_be_hidden()
    chart.hover()
    expect(tip).to_be_visible()
    expect(tip).to_have_text(re.compile(r"\d"))


def test_charts_of_explanations_show_values_under_the_pointer(open_page: Open) -> None:
    page = open_page("gradients")
    page.click("#next")
    chart = page.locator("#step-2 svg.chart")
    lines = chart.locator("polyline, path")
    assert lines.count() >= 4, "RNN, LSTM, GRU and attention"
    chart.hover()
    expect(page.locator("#step-2 .canvas .tip")).to_have_text(re.compile(r"Elman RNN.*attention", re.DOTALL))


def test_the_search_tree_has_its_branches_and_strikes_out_what_was_pruned(open_page: Open) -> None:
    page = open_page("search")
    page.keyboard.press("End")
    page.locator(".contents a").nth(2).click()
    tree = page.locator("#step-3 ul.tree").first
    expect(tree.locator("b", has_text="END").first).to_be_visible()
    pruned = tree.locator(".pruned > b").first
    assert "line-through" in pruned.evaluate("node => getComputedStyle(node).textDecorationLine")


def test_comparisons_draw_a_point_for_each_run_with_names_as_text(open_page: Open) -> None:
    page = open_page("comparison")
    expect(page.locator("h1")).to_contain_text("<b>2")
    points = page.locator("table").first.locator("svg circle")
    expect(points).to_have_count(2)
    assert len({points.nth(n).evaluate("node => getComputedStyle(node).fill") for n in (0, 1)}) == 2
    expect(page.get_by_role("heading", name="Paired tests")).to_be_visible()


def test_patches_are_described_under_the_pointer(open_page: Open) -> None:
    page = open_page("image")
    figure = page.locator("#step-1 figure", has=page.locator(".patch")).first
    patch = figure.locator(".patch").nth(1)
    patch.hover()
    expect(figure.locator(".detail")).to_have_text(re.compile(r"patch 0,1: 0\.\d{4}"))
    expect(page.locator("#step-1")).to_contain_text("<i>left")  # the name of a class


def test_the_map_of_embeddings_is_legible_on_a_phone(open_page: Open) -> None:
    page = open_page("inspect", NARROW)
    page.keyboard.press("End")
    labels = page.locator("svg.map text:visible")
    assert labels.count() > 3
    frame = page.locator("svg.map").bounding_box()
    for n in range(labels.count()):
        box = labels.nth(n).bounding_box()
        assert box["height"] >= 9, "scaled down"
        assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1, "cut off at the edge"
