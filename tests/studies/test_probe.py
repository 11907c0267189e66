"""Probes: templates filled as written, gaps that are differences of what a run says, refusals that name the place."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import seqwright as sw
from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError
from seqwright.studies.probe import probe, read_probes

TEMPLATES = """
[[probe]]
name = "pronouns"
one = ["The {job} said he left.", "He is a {job}."]
other = ["The {job} said she left.", "She is a {job}."]
[probe.slots]
job = ["cook", "guard", "king", "clerk", "judge"]

[[probe]]
name = "German"
source = ["The {job}"]
one = ["Der {man}"]
other = ["Die {man}in"]
[probe.slots]
job = ["teacher"]
man = ["Lehrer"]
"""


def scorer(**does: Any) -> Any:
    return SimpleNamespace(path="run", does="does something", verbs=("score",), **does)


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_template_meets_every_row(tmp_path: Path) -> None:
    pronouns, german = read_probes(written(tmp_path, TEMPLATES))
    assert len(pronouns.cases) == 10
    assert (
        pronouns.cases[0].one,
        pronouns.cases[0].other,
        pronouns.cases[0].about,
    ) == ("The cook said he left.", "The cook said she left.", "cook")
    assert german.translates
    assert (german.cases[0].source, german.cases[0].other) == ("The teacher", "Die Lehrerin")


def test_a_gap_is_the_other_less_the_one(tmp_path: Path) -> None:
    """A model that finds `she` two nats less probable, and kings one more, says so in mean, interval and rows."""

    def score(lines: list[str]) -> Any:
        for line in lines:
            woman = "she" in line.lower().split()
            yield SimpleNamespace(log_prob=-5.0 - 2.0 * woman - 1.0 * (woman and "king" in line))

    (found,) = probe(scorer(score=score), read_probes(written(tmp_path, TEMPLATES)))
    assert found["value"] == pytest.approx(-2.2)
    assert -2.6 < found["low"] <= found["value"] <= found["high"] <= -2.0
    assert found["rows"]["king"] == -3
    assert next(iter(found["rows"])) == "king"
    assert (found["cases"], found["same"], found["favors_other"]) == (10, 0, 0)


def test_rows_that_differ_in_nothing_and_in_favor_are_counted(tmp_path: Path) -> None:
    more = {"guard": 0.0, "cook": 0.5}  # of ten cases two are the same and two favor the other

    def score(lines: list[str]) -> Any:
        for line in lines:
            gaps = (gap for job, gap in more.items() if job in line)
            yield SimpleNamespace(log_prob=next(gaps, -1.0) * ("she" in line.lower().split()))

    (found,) = probe(scorer(score=score), read_probes(written(tmp_path, TEMPLATES)))
    assert (found["same"], found["favors_other"], found["value"]) == (2, 0.2, pytest.approx(-0.5))


def test_a_classifier_is_asked_for_probabilities(tmp_path: Path) -> None:
    def classify(texts: list[str]) -> Any:
        for text in texts:
            share = 0.75 if "she" in text.lower().split() else 0.5
            yield SimpleNamespace(probabilities={"bad": 1 - share, "good": share})

    labels = SimpleNamespace(kind="single", names=("bad", "good"), parts=1)
    run = SimpleNamespace(path="run", does="", verbs=("classify",), classify=classify, labels=labels)
    (found,) = probe(run, read_probes(written(tmp_path, TEMPLATES)))  # type: ignore[arg-type]
    assert (found["answer"], found["value"], found["unit"]) == ("good", 0.25, "probability")


def test_what_ships_is_well_formed() -> None:
    shipped = read_probes()
    assert {one.translates for one in shipped} == {True, False}
    assert all(case.one != case.other for one in shipped for case in one.cases)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no [[probe]]"),
        ("[[probe]", "cannot read"),
        ('[[probe]]\nname = "x"', "no 'one'"),
        ('[[probe]]\nname="x"\none=["{a}"]\nother=["b", "c"]\n[probe.slots]\na=["1"]', "equally many templates"),
        ('[[probe]]\nname="x"\none=["{a}"]\nother=["{c}"]\n[probe.slots]\na=["1"]', "no slot"),
        ('[[probe]]\nname="x"\none=["{a}"]\nother=["b"]\n[probe.slots]\na=["1"]\nb=["1","2"]', "equally many words"),
        ('[[probe]]\nname="x"\nextra=1\none=["{a}"]\nother=["b"]\n[probe.slots]\na=["1"]', "no key 'extra'"),
    ],
)
def test_a_faulty_file_is_refused_with_its_fault(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        read_probes(written(tmp_path, text))
    assert said in str(refused.value)


def test_a_run_without_a_suited_probe_says_what_it_needs(tmp_path: Path) -> None:
    only = TEMPLATES.partition('[[probe]]\nname = "German"')[0]
    run = SimpleNamespace(path="run", does="", verbs=("translate",))
    with pytest.raises(UserError, match="with a source"):
        probe(run, read_probes(written(tmp_path, only)))  # type: ignore[arg-type]
    german = TEMPLATES.partition("probe.slots]")[2].partition("[[probe]]")[2]
    with pytest.raises(UserError, match="without a source"):
        probe(scorer(), read_probes(written(tmp_path, "[[probe]]" + german)))


def test_a_translator_is_asked_how_probable_both_translations_are(tmp_path: Path) -> None:
    for name, words in (("en", "the teacher sings"), ("de", "Der Lehrer Die Lehrerin singt")):
        (tmp_path / name).write_text(f"{words}\n" * 30, encoding="utf-8")
    small = ["model.layers=1", "model.width=8", "model.heads=2", "model.ffn_width=8", "training.steps=2"]
    run = sw.train(
        pairs=[str(tmp_path / "en"), str(tmp_path / "de")],
        valid=[str(tmp_path / "en"), str(tmp_path / "de")],
        model="transformer",
        set=[*small, 'tokenizer.kind="words"', "evaluation.sentences=0"],
        run=tmp_path / "run",
    )
    (found,) = probe(run, read_probes(written(tmp_path, TEMPLATES)))
    one, other = (_log_prob(run, "The teacher", text) for text in ("Der Lehrer", "Die Lehrerin"))
    assert found["value"] == pytest.approx(other - one, abs=1e-5)
    assert found["unit"] == "nats"


def _log_prob(run: Any, source: str, target: str) -> float:
    """By the seam: the log-probabilities of the target's tokens, and of its end."""
    ids = [*run.tokenizers.target.encode(target), run.tokenizers.target.eos]
    given = torch.tensor([[*run.tokenizers.source.encode(source), run.tokenizers.source.eos]])
    known = torch.tensor([[run.tokenizers.target.sos, *ids[:-1]]])
    read = Source(mask=torch.ones_like(given, dtype=torch.bool), ids=given)
    with torch.no_grad():
        logits = run.model(Batch(source=read, input=known, target=torch.tensor([ids])))
    return float(logits.log_softmax(-1)[0, range(len(ids)), ids].sum())
