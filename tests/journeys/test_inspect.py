"""`seqwright inspect`: a view printed, as JSON and as a page; files; refusals."""

from __future__ import annotations

import json
from pathlib import Path

from tests.journeys.conftest import Command


def test_inspect_prints_views_json_and_a_page(seqwright: Command, trained: Path, workdir: Path) -> None:
    printed = seqwright("inspect", trained, "the cat")
    assert printed.status == 0
    assert "bits per token" in printed.out
    assert "other views (--view NAME, or --html FILE for all): saliency, attention, logit-lens" in printed.out
    head = json.loads(seqwright("inspect", trained, "the cat", "--view", "attention", "--head", "1", "--json").out)
    (figure,) = head["views"]["attention"]["figures"]
    assert figure["heads"] == [1]
    assert abs(sum(figure["weights"][0][0][-1]) - 1) < 1e-5
    page = seqwright("inspect", trained, "text.txt", "--html", "page.html")
    assert page.out == "page: page.html\n"
    assert "the model sees at most 16 tokens at a time" in page.err
    assert (workdir / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_inspect_reads_files_with_any_line_ends(seqwright: Command, trained: Path, workdir: Path) -> None:
    (workdir / "crlf.txt").write_bytes("the cá 🙂\r\nsat\r\n".encode())
    done = seqwright("inspect", trained, "crlf.txt", "--json")
    assert done.json["text"] == "the cá 🙂\nsat"
    assert done.json["notes"] == ["tokens outside the vocabulary, read as <unk>: 2."]
    assert seqwright("inspect", trained, "-", "--json", input=b"the cat\n").json["text"] == "the cat"


def test_inspect_refuses_what_it_cannot_show(seqwright: Command, trained: Path, workdir: Path) -> None:
    (workdir / "empty.txt").write_text("")
    for arguments, message in (
        (("nowhere", "text"), "no run at nowhere"),
        ((trained, "empty.txt"), "the text is empty"),
        ((trained, ""), "the text is empty"),
        ((trained, "missing.txt"), "no file missing.txt"),
        ((trained, "the", "--view", "back-of"), "Did you mean 'back-off'?"),
        ((trained, "the", "--view", "back-off"), "which has no view 'back-off'; it has tokens, saliency"),
        ((trained, "the", "--html", "x.html", "--json"), "leave --json out"),
    ):
        refused = seqwright("inspect", *arguments)
        assert refused.status == 2
        assert message in refused.err
