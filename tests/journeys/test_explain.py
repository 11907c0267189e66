"""`seqwright explain`: topics listed, printed, as JSON and as a page; refusals."""

from __future__ import annotations

import json
from pathlib import Path

from seqwright.studies.explain.catalog import KEYWORDS, TOPICS
from tests.journeys.conftest import Command


def test_explain_lists_topics_and_prints_one(seqwright: Command, workdir: Path) -> None:
    listed = seqwright("explain")
    assert listed.status == 0
    assert "layer-norm" in listed.out
    printed = seqwright("explain", "layer-norm", "--set", "x=[2,2,2,6]")
    assert "1.7320" in printed.out
    assert "--set changes: x, gain" in printed.out
    step = json.loads(seqwright("explain", "bpe", "--on", "aaa aab", "--step", "2", "--json").out)
    assert step["steps"][0]["figures"][0]["rows"][0] == {"pair": "a a", "count": 3}
    page = seqwright("explain", "bpe", "--on", "text.txt", "--html", "bpe.html")
    assert page.out == "page: bpe.html\n"
    assert (workdir / "bpe.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_explain_says_how_much_of_a_file_it_uses(seqwright: Command, workdir: Path) -> None:
    (workdir / "long.txt").write_text("một hai ba\r\n" * 1200, encoding="utf-8")
    done = seqwright("explain", "pairs", "--on", "long.txt", "--step", "2")
    assert "only the first 1,000 lines are used" in done.err
    assert "… 2,940 more rows" in done.out


def test_explain_refuses_what_it_cannot_do(seqwright: Command, workdir: Path) -> None:
    (workdir / "empty.txt").write_text("")
    for arguments, message in (
        (("bpee",), "Did you mean 'bpe'?"),
        (("bptt",), "Did you mean 'rnn'?"),
        (("beam search",), "Did you mean 'search'?"),
        (("kneser-ney",), "Did you mean 'ngram'?"),
        (("Softmax",), "Did you mean 'attention'?"),
        (("--step", "1"), "name a topic"),
        (("bpe", "--html", "x.html", "--json"), "leave --json and --step out"),
        (("bpe", "--on", "empty.txt"), "the text is empty"),
        (("bpe", "--on", "missing.txt"), "no file missing.txt"),
    ):
        refused = seqwright("explain", *arguments)
        assert refused.status == 2
        assert message in refused.err


def test_other_words_for_topics_belong_to_one_topic_each() -> None:
    words = [word for topic_words in KEYWORDS.values() for word in topic_words]
    assert len({*words, *TOPICS}) == len(words) + len(TOPICS)
    assert KEYWORDS.keys() <= TOPICS.keys()
