"""Runs that turn sources into targets: trained, opened, asked and scored as users do, on a language made up here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.core.wording import on_command_line
from seqwright.data.parallel.sides import Sides
from seqwright.pipeline.wanted import wanted_recipe
from seqwright.tasks.translation import task as translation
from seqwright.tasks.translation.task import TranslationRun
from seqwright.tasks.translation.translate import TranslationOptions, wished
from seqwright.text.backend import Kind
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig
from seqwright.text.trainers import train as train_tokenizer

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "big", "dogs"]


def sentences(count: int, seed: int) -> list[list[str]]:
    chosen = random.Random(seed)
    return [chosen.choices(WORDS, k=chosen.randint(1, 5)) for _ in range(count)]


def write(folder: Path, name: str, count: int, seed: int) -> list[str]:
    """A source, and its words backwards in capitals."""
    lines = sentences(count, seed)
    (folder / f"{name}.src").write_text("".join(" ".join(line) + "\n" for line in lines))
    (folder / f"{name}.tgt").write_text("".join(" ".join(reversed(line)).upper() + "\n" for line in lines))
    return [str(folder / f"{name}.{side}") for side in ("src", "tgt")]


SMALL = [
    *("tokenizer.kind=words", "model.layers=1", "model.width=32", "model.dropout=0.0", "data.batch_tokens=256"),
    *("training.steps=200", "training.learning_rate=2e-2", "training.evaluate_every=250"),
    "evaluation.resamples=50",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(scope="module")
def run(folder: Path) -> TranslationRun:
    train, valid = write(folder, "train", 600, 1), write(folder, "valid", 30, 2)
    made = sw.train(pairs=train, valid=valid, set=[*SMALL, "model.heads=2", "model.ffn_width=64"], run=folder / "run")
    assert isinstance(made, TranslationRun)
    return made


def test_it_learns_to_translate(run: TranslationRun) -> None:
    said = [one.text for one in run.translate(["the cat sat", "", "big dogs"])]
    assert said == ["SAT CAT THE", "", "DOGS BIG"]


def test_outputs_obey_prefix_required_and_forbidden_phrases(run: TranslationRun) -> None:
    def said(**options: object) -> str:
        return run.translate("the cat sat", **options).text

    assert said() == "SAT CAT THE"
    assert said(prefix="BIG DOGS").startswith("BIG DOGS ")
    assert "MAT" in said(required=["MAT"]).split()
    assert "CAT" not in said(forbidden=("CAT",)).split()
    (one,) = run.translate(["the cat"], prefix="BIG", attention=True)
    assert one.attention is not None
    assert one.attention.target[0] == "BIG"
    assert said(prefix="MAT SAT", required=("SAT",)) == said(prefix="MAT SAT")  # said already
    for asked in ({"required": ("COW",)}, {"forbidden": ("COW",)}, {"prefix": "THE COW"}):
        with pytest.raises(UserError, match="has no 'COW'"):
            said(**asked)
    with pytest.raises(UserError, match="cannot spell nothing"):
        said(forbidden=(" ",))
    with pytest.raises(UserError, match="'BIG CAT' is required, but holds something forbidden"):
        said(required=("BIG CAT",), forbidden=("CAT",))
    with pytest.raises(UserError, match="already contains a forbidden phrase"):
        said(prefix="CAT", forbidden=("CAT",))


@pytest.mark.parametrize("kind", ["words", "characters", "bytes", "bpe", "byte-bpe", "unigram", "wordpiece"])
def test_a_phrase_is_recognized_in_every_segmentation(kind: Kind) -> None:
    texts = ["the cats saw the cat", "a catalog of cats, that cat!", "ca t at t c"] * 9
    target = train_tokenizer(
        TokenizerConfig(kind=kind, size=None if kind in ("words", "characters", "bytes") else 300), texts
    )
    never, (wanted,) = wished(target, ("cat",), ())[0], wished(target, (), ("cat",))[1]
    assert never is not None
    cuts = list(cuts_of(b" saw cat ", target))
    assert cuts, "no cut at all"
    assert len(cuts) > 9 or kind in ("words", "characters", "bytes")
    for ids in cuts:
        assert never.occurs_at_end[never.read(ids)]
        assert wanted.automaton.occurred[wanted.automaton.read([*ids, target.eos])]  # type: ignore[list-item]
    for ids in ([], target.encode("saw cats"), target.encode("scat") if kind != "words" else []):
        assert not never.occurs_at_end[never.read(ids)]
    whole = [
        id for id, piece in enumerate(target.token_bytes) if piece.strip() == b"cat" and [id] in (target.encode("cat"),)
    ]
    for id in whole:  # in one piece it is the word, whatever follows
        assert never.occurred[never.read([id, *target.encode("s")])] or kind == "words"


def cuts_of(text: bytes, target: Tokenizer, at: int = 0) -> Iterator[list[int]]:
    """Every way to say a text, with or without the spaces around it."""
    if at >= len(text.rstrip()):
        yield []
    for id, piece in enumerate(target.token_bytes):
        if piece and text.startswith(piece, at):
            yield from ([id, *rest] for rest in cuts_of(text, target, at + len(piece)))


def test_weights_are_packed_once_for_all_lines(run: TranslationRun, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = []
    monkeypatch.setattr(translation, "optimize_for_inference", lambda model: packed.append(model) or model)
    opened = sw.open(run.path)
    for line in ("the cat", "big dogs"):
        list(opened.translate([line]))
    assert packed == [opened.model]


def test_a_line_in_a_batch_is_translated_as_if_alone(run: TranslationRun) -> None:
    lines = [" ".join(line) for line in sentences(20, 9)]
    together = [(one.text, round(one.log_prob, 4)) for one in run.translate(lines)]
    alone = [(one.text, round(one.log_prob, 4)) for line in lines for one in run.translate([line])]
    assert together == alone


def test_attention_is_returned_on_request(run: TranslationRun) -> None:
    plain, aligned = (run.translate("the cat sat", attention=attention) for attention in (False, True))
    assert plain.attention is None
    assert aligned.attention is not None
    assert aligned.attention.source == ["the", "cat", "sat", "<eos>"]
    assert aligned.attention.target == ["SAT", "CAT", "THE", "<eos>"]
    assert [round(sum(row), 4) for row in aligned.attention.weights] == [1.0] * 4
    assert 0 < aligned.attention.coverage <= 1
    assert len(aligned.attention.links.split()) == 3
    assert (aligned.text, aligned.log_prob) == (plain.text, plain.log_prob)


def test_a_coverage_penalty_raises_coverage(run: TranslationRun) -> None:
    lines = [" ".join(line) for line in sentences(40, 11) if len(line) > 3]

    def covered(strength: float) -> float:
        options = {"coverage_penalty": strength, "length_penalty": "none", "beam_size": 8, "min_tokens": 0}
        found = [one.attention for one in run.translate(lines, attention=True, **options)]
        return sum(one.coverage for one in found if one is not None) / len(lines)

    assert covered(2.0) > covered(0.0)


def test_statistics_of_training_targets_are_saved_for_the_degeneration_check(run: TranslationRun) -> None:
    assert run.codec.typical.ratio == 1.0
    (said,) = run.translate(["the cat sat"], kind="sample", temperature=50.0, seed=3)
    assert all(flag.coverage is not None and flag.confidence is not None for flag in said.warnings)


def test_swapped_files_are_refused(run: TranslationRun) -> None:
    assert run.codec.sides.swapped(["the cat sat"] * 20) is None
    with pytest.raises(UserError, match="in that order"):
        Sides(source=("der", "hund"), target=("the", "dog")).refuse_swapped(["The dog"] * 10, "b.en b.de")
    assert Sides(source=("der",), target=("the",)).swapped(["the"] * 19) is None  # too few words to tell


def test_scores_equal_those_of_training_and_state_the_search(run: TranslationRun, folder: Path) -> None:
    files = [str(folder / "valid.src"), str(folder / "valid.tgt")]
    scores = run.evaluate(files)
    assert scores["nll"] == pytest.approx(run.directory.summary()["nll"], abs=1e-6)
    assert scores["bleu"] > 60
    assert scores["scores"]["bleu"]["signature"].endswith("search:beam-5-gnmt-0.6")
    assert "|ids:" in scores["scores"]["nll"]["signature"]  # which differ between tokenizers; the hash of a text is not
    assert sum(bucket["sources"] for bucket in scores["by_source_length"]["bleu"]) == 30
    twice = run.evaluate([*files, files[1]])  # a second reference
    assert "nrefs:2" in twice["scores"]["bleu"]["signature"]
    assert twice["bleu"] == pytest.approx(scores["bleu"])


def test_extractive_baselines_are_scored_beside_rouge(run: TranslationRun, folder: Path) -> None:
    files = [str(folder / "valid.src"), str(folder / "valid.tgt")]
    scores = run.evaluate(files, metrics=("rouge_1", "exact_match"), extractive=True, resamples=0)
    # The targets are the source's words backwards: keeping them all is perfect, but for repeated ones.
    assert 80 < scores["rouge_1_oracle"] <= 100
    assert scores["rouge_1_keep_drop"] == pytest.approx(scores["rouge_1_oracle"])
    assert scores["scores"]["rouge_1_lead"]["signature"].endswith("extractive:lead")
    assert not any(name.startswith("exact_match_") for name in scores)


def test_test_pairs_are_scored_by_name(folder: Path) -> None:
    train = write(folder, "parted", 60, 5)
    asked = ['data.split="documents 20%"', "data.test=0.2", "training.steps=2", "model.width=8", "tokenizer.kind=words"]
    made = sw.train(pairs=train, model="gru", set=[*asked, "evaluation.resamples=0"], run=folder / "parted")
    assert isinstance(made, TranslationRun)
    test, valid = made.pairs("test").pairs, made.pairs().pairs
    assert not {pair.sources for pair in test} & {pair.sources for pair in valid}
    assert made.evaluate("test")["nll"] != made.evaluate()["nll"]


def test_the_likelihood_of_a_batch_is_that_of_each_pair(run: TranslationRun) -> None:
    from seqwright.data.parallel.buckets import encode_pairs
    from seqwright.tasks.translation.scores import likelihood

    pairs = run.pairs().pairs
    together = likelihood(run.model, encode_pairs(pairs, run.tokenizers), "cpu")
    for n in (0, 7, 29):
        alone = likelihood(run.model, encode_pairs([pairs[n]], run.tokenizers), "cpu")
        assert together[n] == pytest.approx(alone[0], abs=1e-4)


def test_sources_beyond_the_context_are_refused_or_truncated(run: TranslationRun) -> None:
    long = " ".join(["cat"] * 600)
    with pytest.raises(UserError, match=r"source 2 has 601 tokens.*--truncate"):
        run.translate(["cat", long])
    said = run.translate(["cat", long], truncate=True)
    assert [one.unread for one in said] == [0, 601 - 512]


def test_minimum_bayes_risk_needs_several_candidates(run: TranslationRun) -> None:
    (said,) = run.translate(["the cat sat"], n_best=3, mbr="chrf")
    assert len(said.others) == 2
    with pytest.raises(UserError, match="raise n_best"):
        run.translate(["the cat sat"], mbr="chrf")


def test_signatures_name_the_utility_of_minimum_bayes_risk() -> None:
    options = TranslationOptions(beam_size=8, n_best=4)
    assert options.signature == "beam-8-gnmt-0.6"
    assert replace(options, mbr="chrf").signature == "beam-8-gnmt-0.6-mbr-4-chrf"
    assert replace(options, kind="sample", mbr="bleu").signature == "sample-mbr-4-bleu"


def test_the_log_has_samples_and_quick_scores(run: TranslationRun) -> None:
    samples = [record for record in run.directory.records() if record["kind"] == "sample"]
    assert samples[0]["reference"] == run.pairs().pairs[0].targets[0]
    evaluations = [record for record in run.directory.records() if record["kind"] == "evaluation"]
    assert {"nll", "bleu", "chrf"} <= evaluations[-1].keys()


def test_an_unsupported_verb_names_the_supported_ones(run: TranslationRun) -> None:
    with pytest.raises(UserError, match="turns sources into targets; try `seqwright translate`"):
        run.generate("x")
    with on_command_line(False), pytest.raises(UserError, match=r"turns sources into targets; try run\.translate\(…\)"):
        run.generate("x")


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_recurrent_translators_with_separate_vocabularies(kind: str, folder: Path) -> None:
    train, valid = write(folder, f"{kind}-train", 60, 1), write(folder, f"{kind}-valid", 10, 2)
    steps = ["training.steps=5", "tokenizer.joint=false", "tokenizer.source_kind=characters"]
    made = sw.train(pairs=train, valid=valid, model=kind, set=[*SMALL, *steps], run=folder / kind)
    assert made.tokenizers.source.kind == "characters"
    assert not made.tokenizers.joint
    assert len(list(made.translate(["cat", "mat"]))) == 2
    assert sw.open(folder / kind).evaluate()["nll"] == pytest.approx(made.directory.summary()["nll"], abs=1e-6)


def test_tags_control_the_output(folder: Path) -> None:
    lines = sentences(300, 3)
    for name, turn in (("up", str.upper), ("down", str.lower)):
        (folder / f"tag.{name}").write_text("".join(turn(" ".join(line)) + "\n" for line in lines))
    source = str(folder / "tag.down")
    files = [source, str(folder / "tag.up"), source, source]
    made = sw.train(
        pairs=files,
        model="gru",
        set=[*SMALL, 'data.tags=["<up>", "<down>"]', "data.split=tail 5%"],
        run=folder / "tags",
    )
    said = {tag: made.translate("the cat", tag=tag).text for tag in ("<up>", "<down>")}
    assert said["<up>"].isupper()
    assert said["<down>"].islower()
    assert made.evaluate(files[:2], tag="<up>")["nll"] < made.evaluate(files[:2], tag="<down>")["nll"]
    with pytest.raises(UserError, match=r"which of <up>, <down> is wanted"):
        made.evaluate(files[:2])
    with pytest.raises(UserError, match="it has <up>, <down>"):
        list(made.translate(["the cat"], tag="<left>"))


def test_default_sizes_follow_the_size_of_the_data(folder: Path) -> None:
    files = write(folder, "sizes", 5, 0)
    small = wanted_recipe(None, pairs=files)
    assert (small.model.config.width, small.data.split) == (64, "documents 3%")
    for name in ("big.a", "big.b"):
        (folder / name).write_text("word " * 2_000_000)
    big = wanted_recipe(None, pairs=[str(folder / "big.a"), str(folder / "big.b")])
    assert big.model.config.width > small.model.config.width
    with pytest.raises(UserError, match="different kinds of data"):
        wanted_recipe(None, pairs=files, text=files[0])
