"""`seqwright where`: printed, as JSON and as a page; files; refusals."""

from __future__ import annotations

from pathlib import Path

from tests.journeys.conftest import Command


def test_where_prints_matches_json_and_a_page(seqwright: Command, run_copy: Path, workdir: Path) -> None:
    first = (workdir / "text.txt").read_text().split("\n")[0]
    (workdir / "crlf.txt").write_bytes(f"{first}\r\n".encode())
    shown = seqwright("where", run_copy, "--on", "crlf.txt", "--min-tokens", "3")
    assert shown.status == 0
    assert "100.0% of them in matches of at least 3 tokens" in shown.out
    assert "line 1" in shown.out
    found = seqwright("where", run_copy, first, "--json").json
    assert found["texts"][0]["text"] == first
    page = seqwright("where", run_copy, "--samples", "2", "--max-tokens", "8", "--html", "page.html")
    assert page.out == "page: page.html\n"
    assert (workdir / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_where_refuses_what_it_cannot_search(seqwright: Command, run_copy: Path, workdir: Path) -> None:
    (workdir / "empty.txt").write_text("")
    for arguments, message in (
        (("nowhere", "text"), "no run at nowhere"),
        ((run_copy, ""), "the text is empty"),
        ((run_copy, "--on", "empty.txt"), "empty.txt is empty"),
        ((run_copy, "--on", "missing.txt"), "no file missing.txt"),
        ((run_copy, "the cat", "--samples", "2"), "one of them"),
        ((run_copy, "the cat", "--temperature", "2"), "options of samples"),
        ((run_copy, "the", "--html", "x.html", "--json"), "leave --json out"),
    ):
        refused = seqwright("where", *arguments)
        assert refused.status == 2
        assert message in refused.err
