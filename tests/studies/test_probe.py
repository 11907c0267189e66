"""Probes: templates, gaps between minimal pairs, and errors that name the table."""

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


def scorer(**methods: Any) -> Any:
    return SimpleNamespace(path="run", does="does something", verbs=("score",), **methods)


def probe_file(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_template_is_filled_with_every_row(tmp_path: Path) -> None:
    pronouns, german = read_probes(probe_file(tmp_path, TEMPLATES))
    assert len(pronouns.cases) == 10
    assert (
        pronouns.cases[0].one,
        pronouns.cases[0].other,
        pronouns.cases[0].about,
    ) == ("The cook said he left.", "The cook said she left.", "cook")
    assert german.translates
    assert (german.cases[0].source, german.cases[0].other) == ("The teacher", "Die Lehrerin")


def test_gap_is_other_minus_one(tmp_path: Path) -> None:
    """`she` is two nats less probable, three beside `king`: mean, confidence interval and rows show it."""

    def score(lines: list[str]) -> Any:
        for line in lines:
            woman = "she" in line.lower().split()
            yield SimpleNamespace(log_prob=-5.0 - 2.0 * woman - 1.0 * (woman and "king" in line))

    (result,) = probe(scorer(score=score), read_probes(probe_file(tmp_path, TEMPLATES)))
    assert result["value"] == pytest.approx(-2.2)
    assert -2.6 < result["low"] <= result["value"] <= result["high"] <= -2.0
    assert result["rows"]["king"] == -3
    assert next(iter(result["rows"])) == "king"
    assert (result["cases"], result["same"], result["favors_other"]) == (10, 0, 0)


def test_gap_counts_of_equal_and_favoring_pairs(tmp_path: Path) -> None:
    job_gaps = {"guard": 0.0, "cook": 0.5}  # of ten cases two are the same and two favor the other

    def score(lines: list[str]) -> Any:
        for line in lines:
            gaps = (gap for job, gap in job_gaps.items() if job in line)
            yield SimpleNamespace(log_prob=next(gaps, -1.0) * ("she" in line.lower().split()))

    (result,) = probe(scorer(score=score), read_probes(probe_file(tmp_path, TEMPLATES)))
    assert (result["same"], result["favors_other"], result["value"]) == (2, 0.2, pytest.approx(-0.5))


def test_probe_of_a_classifier_compares_probabilities(tmp_path: Path) -> None:
    def classify(texts: list[str]) -> Any:
        for text in texts:
            probability = 0.75 if "she" in text.lower().split() else 0.5
            yield SimpleNamespace(probabilities={"bad": 1 - probability, "good": probability})

    labels = SimpleNamespace(kind="single", names=("bad", "good"), parts=1)
    run = SimpleNamespace(path="run", does="", verbs=("classify",), classify=classify, labels=labels)
    (result,) = probe(run, read_probes(probe_file(tmp_path, TEMPLATES)))  # type: ignore[arg-type]
    assert (result["answer"], result["value"], result["unit"]) == ("good", 0.25, "probability")


def test_default_probes_are_well_formed() -> None:
    probes = read_probes()
    assert {one.translates for one in probes} == {True, False}
    assert all(case.one != case.other for one in probes for case in one.cases)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no [[probe]]"),
        ("[[probe]", "cannot read"),
        ('[[probe]]\nname = "x"', "no 'one'"),
        ('[[probe]]\nname="x"\none=["{a}"]\nother=["b", "c"]\n[probe.slots]\na=["1"]', "same number of templates"),
        ('[[probe]]\nname="x"\none=["{a}"]\nother=["{c}"]\n[probe.slots]\na=["1"]', "not a slot"),
        ('[[probe]]\nname="x"\none=["{a}"]\nother=["b"]\n[probe.slots]\na=["1"]\nb=["1","2"]', "same number of words"),
        ('[[probe]]\nname="x"\nextra=1\none=["{a}"]\nother=["b"]\n[probe.slots]\na=["1"]', "no key 'extra'"),
    ],
)
def test_invalid_probe_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        read_probes(probe_file(tmp_path, text))
    assert message in str(refused.value)


def test_run_without_an_applicable_probe_is_refused(tmp_path: Path) -> None:
    only = TEMPLATES.partition('[[probe]]\nname = "German"')[0]
    run = SimpleNamespace(path="run", does="", verbs=("translate",))
    with pytest.raises(UserError, match="with a source"):
        probe(run, read_probes(probe_file(tmp_path, only)))  # type: ignore[arg-type]
    german = TEMPLATES.partition("probe.slots]")[2].partition("[[probe]]")[2]
    with pytest.raises(UserError, match="without a source"):
        probe(scorer(), read_probes(probe_file(tmp_path, "[[probe]]" + german)))


def test_probe_of_a_translator_compares_log_probabilities(tmp_path: Path) -> None:
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
    (result,) = probe(run, read_probes(probe_file(tmp_path, TEMPLATES)))
    one, other = (_log_prob(run, "The teacher", text) for text in ("Der Lehrer", "Die Lehrerin"))
    assert result["value"] == pytest.approx(other - one, abs=1e-5)
    assert result["unit"] == "nats"


def test_probe_of_bert_compares_pseudo_log_likelihoods(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("he is a king\nshe is a judge\nthe cook said he left\n" * 20, encoding="utf-8")
    small = ["model.layers=1", "model.width=8", "model.heads=2", "model.context=16", "training.steps=2"]
    words = ['tokenizer.kind="words"', "tokenizer.lowercase=true", "training.batch_size=2"]
    run: Any = sw.train(masked=str(tmp_path / "text.txt"), set=[*small, *words], run=tmp_path / "run")
    only = TEMPLATES.partition('[[probe]]\nname = "German"')[0].replace('"The {job} said he left.", ', "")
    (result,) = probe(run, read_probes(probe_file(tmp_path, only.replace('"The {job} said she left.", ', ""))))
    expected = []
    for text in ("He is a king.", "She is a king."):
        ids = [run.tokenizer.sos, *run.tokenizer.encode(text), run.tokenizer.eos]
        total = 0.0
        for place in range(1, len(ids) - 1):
            masked = torch.tensor([[*ids[:place], run.tokenizer.mask, *ids[place + 1 :]]])
            source = Source(mask=torch.ones_like(masked, dtype=torch.bool), ids=masked)
            with torch.no_grad():
                total += float(run.model(Batch.of_source(source, masked))[0, place].log_softmax(-1)[ids[place]])
        expected.append(total)
    assert result["rows"]["king"] == pytest.approx(expected[1] - expected[0], abs=1e-4)
    assert result["answer"] == "pseudo log p"


def test_probe_of_a_tagger_compares_probabilities_of_tags(tmp_path: Path) -> None:
    def tag(texts: list[str]) -> Any:
        for text in texts:
            yield SimpleNamespace(probabilities=(0.5, 0.7) if "she" in text.lower() else (0.9, 0.7))

    run = SimpleNamespace(path="run", verbs=("tag",), tag=tag)
    (result,) = probe(run, read_probes(probe_file(tmp_path, TEMPLATES)))  # type: ignore[arg-type]
    assert result["value"] == pytest.approx(-0.2)
    run.tag = lambda texts: [SimpleNamespace(probabilities=None) for _ in texts]
    with pytest.raises(UserError, match="without probabilities"):
        probe(run, read_probes(probe_file(tmp_path, TEMPLATES)))  # type: ignore[arg-type]


def _log_prob(run: Any, source: str, target: str) -> float:
    """log p(target | source) by teacher forcing, <eos> included."""
    ids = [*run.tokenizers.target.encode(target), run.tokenizers.target.eos]
    source_ids = torch.tensor([[*run.tokenizers.source.encode(source), run.tokenizers.source.eos]])
    input_ids = torch.tensor([[run.tokenizers.target.sos, *ids[:-1]]])
    encoded = Source(mask=torch.ones_like(source_ids, dtype=torch.bool), ids=source_ids)
    with torch.no_grad():
        logits = run.model(Batch(source=encoded, input=input_ids, target=torch.tensor([ids])))
    return float(logits.log_softmax(-1)[0, range(len(ids)), ids].sum())
