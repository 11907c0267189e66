"""`seqwright compare` and `sweep`: printed, as JSON and as a page; refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.journeys.commands import synthetic_text
from tests.journeys.conftest import Command


def test_a_sweep_and_a_comparison_of_its_runs(seqwright: Command, workdir: Path) -> None:
    (workdir / "test.txt").write_text(synthetic_text(200, seed=1))
    (workdir / "empty.txt").write_text("")
    (workdir / "crlf.txt").write_bytes(b"the cat sat\r\non a mat\r\n")
    ngram = ("--text", "text.txt", "--model", "ngram", "--set", "tokenizer.kind=characters")
    swept = seqwright("sweep", *ngram, "--set", "model.order=1,4", "-q", "--run", "runs")
    assert swept.status == 0
    unknown = "by scores without an interval, so that ties are not known"  # of a text this short
    assert f"chosen of 2 settings on validation {unknown}: model.order=4 (runs/order=4)." in swept.out
    assert "lower is better" in swept.out
    assert (workdir / "runs" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    again = seqwright("sweep", *ngram, "--set", "model.order=1,4", "--run", "runs", "--json")
    assert again.json["chosen"]["runs"] == ["runs/order=4"]

    runs = ("runs/order=1", "runs/order=4")
    printed = seqwright("compare", *runs, "--on", "test.txt", "--html", "page.html")
    assert printed.status == 0
    assert "order=4 is better than order=1 in bits per byte." in printed.out
    assert "Where order=4 and order=1 differ most:" in printed.out
    page = (workdir / "page.html").read_text(encoding="utf-8")
    assert "model.order" in page
    assert page.count("<section>") == 4
    few = seqwright("compare", *runs, "--on", "crlf.txt", "--json")
    assert few.json["examples"] == 1
    assert few.json["tests"][0]["difference"]["verdict"] == "tie"
    assert "1 block of text: too few for an interval, so every pair is a tie." in few.err
    for arguments, message in (
        ((runs[0],), "two runs or more"),
        ((*runs, "--on", "empty.txt"), "empty.txt is empty"),
        ((*runs, "--on", "nowhere.txt"), "no file nowhere.txt"),
        ((runs[0], "runs/order=3"), "Did you mean"),
        (runs, "--on FILE"),  # n-grams are refitted on their validation text
    ):
        refused = seqwright("compare", *arguments)
        assert refused.status == 2
        assert message in refused.err


def test_columns_of_tables_in_a_sweep_a_comparison_and_the_list_of_runs(seqwright: Command, workdir: Path) -> None:
    rows = [f"{n},{'a good' if n % 2 else 'a bad'} film {n % 7},{'yes' if n % 2 else 'no'}" for n in range(60)]
    (workdir / "train.csv").write_text("\n".join(["id,review,liked", *rows]), encoding="utf-8")
    (workdir / "test.csv").write_text("\n".join(["mark;text", *("no;a bad film\nyes;a good Việt 🎬" for _ in rows)]))
    data = ("--labeled", "train.csv", "--model", "bag", "--set", "data.split=tail 20%")
    swept = seqwright(
        *("sweep", *data, "--columns", "text=review,label=liked"), "--set", "model.order=1,2", "-q", "--run", "runs"
    )
    assert swept.status == 0, swept.err
    runs = ("runs/order=1", "runs/order=2")
    compared = seqwright("compare", *runs, "--on", "test.csv", "--columns", "text=text,label=mark", "--json")
    assert compared.status == 0, compared.err
    assert (compared.json["examples"], compared.json["metrics"]) == (120, ["accuracy", "macro_f1"])
    refused = seqwright("compare", *runs, "--on", "test.csv", "--columns", "text=text,label=sign")
    assert refused.status == 2
    assert "sign" in refused.err
    refused = seqwright("sweep", "sst2", "--columns", "text=1,label=2", "--set", "model.order=1,2")
    assert "in a recipe, set data.columns" in refused.err
    listed = [json.loads(line) for line in seqwright("runs", "runs", "--json").out.splitlines()]
    assert [row["score_name"] for row in listed] == ["accuracy"] * 2  # not F1 of the positive class


def test_a_ladder_is_resumed_and_says_that_its_data_has_changed(
    seqwright: Command, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("ladder", "--text", "text.txt", "--model", "ngram", "--minutes", "0.1")
    with monkeypatch.context() as patch:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("seqwright.studies.ladder.train", interrupted)
        stopped = seqwright(*command)
    assert stopped.status == 130
    assert "stopped; the same command resumes." in stopped.err
    resumed = seqwright(*command)
    assert resumed.status == 0, resumed.err
    assert "ngram is enough: it has the best bits per byte" in resumed.out
    assert "was modified after" not in resumed.err
    later = (workdir / "runs" / "ladder-text" / "ngram" / "summary.json").stat().st_mtime + 10
    os.utime(workdir / "text.txt", (later, later))
    stale = seqwright(*command)
    assert stale.status == 0
    assert "text.txt was modified after runs/ladder-text/ngram was finished" in stale.err
