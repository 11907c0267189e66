"""n-gram models through the command line: perplexity, filtering, ARPA files, interpolation, and errors."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import pytest

from seqwright.runs.directory import RunDirectory
from tests.journeys.commands import TINY_GPT, files, synthetic_text
from tests.journeys.conftest import Command

WORDS = ("--model", "ngram", "--set", "tokenizer.kind=words")


@pytest.fixture
def run(workdir: Path, seqwright: Command) -> Path:
    """A word trigram model of a text that contains names of special tokens, as PTB and WikiText do."""
    (workdir / "text.txt").write_text(synthetic_text(60) + "the <unk> sat on <s>\n\nthe \\<unk> </s> ran <0x20>\n")
    result = seqwright("train", "--text", "text.txt", *WORDS, "--set", "model.order=3", "--run", "run")
    assert result.status == 0, result.err
    assert "order" in result.out
    assert "D3+" in result.out
    return workdir / "run"


def test_the_command_that_fitted_a_model_says_that_it_is_finished(workdir: Path, seqwright: Command) -> None:
    (workdir / "text.txt").write_text(synthetic_text(60))
    command = ("train", "--text", "text.txt", *WORDS, "--minutes", "1", "--run", "run")
    assert seqwright(*command).status == 0
    again = seqwright(*command)
    assert again.status == 0, again.err
    assert "finished" in again.out


@pytest.mark.parametrize(("order", "perplexity"), [(2, 185.7049), (5, 141.1862)])
def test_ngram_perplexity_equals_kenlm(data_root: Path, seqwright: Command, order: int, perplexity: float) -> None:
    text, test = (data_root / "ptb" / f"ptb.{part}.txt.xz" for part in ("train", "test"))
    options = ("--set", f"model.order={order}", "--set", "model.smoothing=kneser-ney")
    summary = seqwright("train", "--text", text, *WORDS, *options, "--run", "R", "--json").json["summary"]
    assert summary["types"][:2] == [10002, 264990]
    assert f"{summary['discounts'][0][2]:.6g}" == "1.26492"
    assert seqwright("evaluate", "R", "--on", test, "--json").json["perplexity"] == pytest.approx(perplexity, abs=5e-5)


def test_blank_lines_are_sentences_and_the_final_newline_is_optional(
    workdir: Path, seqwright: Command, run: Path
) -> None:
    scores = []
    for text in ("the cat\n\nsat\n", "the cat\n\nsat", "  the \t cat\r\n\r\nsat\r\n"):
        (workdir / "on.txt").write_bytes(text.encode())
        scores.append(seqwright("evaluate", run, "--on", "on.txt", "--json").json)
    assert [score["tokens"] for score in scores] == [6, 6, 6]
    assert len({score["nll"] for score in scores}) == 1


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_arpa_export_and_import_round_trip(workdir: Path, seqwright: Command, run: Path, name: str) -> None:
    assert seqwright("export", run, "--to", "arpa", name, "--json").json["types"][0] > 13
    assert (workdir / name).read_bytes()[:2] == (b"\x1f\x8b" if name.endswith(".gz") else b"\\d")
    assert seqwright("import", name, "--run", "again", "--json").json["summary"]["kind"] == "arpa"
    before, after = (seqwright("evaluate", r, "--on", "text.txt", "--json").json for r in (run, "again"))
    assert after["unknown"] == 0
    assert after["nll"] == pytest.approx(before["nll"], abs=1e-6)
    output = seqwright("generate", "again", "the cat", "--max-tokens", "4", "--json").json
    assert output["text"].startswith(" ")
    assert "FAILS" not in seqwright("check", "again").out
    assert "no validation text of its own" in seqwright("evaluate", "again").err
    assert "already holds a run" in seqwright("import", name, "--run", "again").err


def test_arpa_round_trip_of_a_character_model(workdir: Path, seqwright: Command) -> None:
    seqwright("train", "--text", "text.txt", "--model", "ngram", "--set", "tokenizer.kind=characters", "--run", "run")
    seqwright("export", "run", "--to", "arpa", "c.arpa")
    seqwright("import", "c.arpa", "--run", "again")
    before, after = (seqwright("evaluate", r, "--on", "text.txt", "--json").json for r in ("run", "again"))
    assert after["bits_per_byte"] == pytest.approx(before["bits_per_byte"], abs=1e-5)


def test_training_without_the_held_out_text_is_named_by_a_command_that_works(workdir: Path, seqwright: Command) -> None:
    seqwright("train", "--text", "text.txt", *WORDS, "--run", "run")
    refused = seqwright("train", "--run", "run", "--set", "data.refit=false").err
    again = "`seqwright train run/recipe.toml --run run-2 --set data.refit=false`"
    assert again in refused
    assert again in seqwright("evaluate", "run").err
    assert seqwright(*shlex.split(again.strip("`"))[1:]).status == 0
    assert seqwright("evaluate", "run-2").status == 0


@pytest.mark.parametrize("kind", ["words", "characters", "bytes", "bpe", "byte-bpe", "unigram", "wordpiece"])
def test_arpa_round_trip_with_the_tokenizer(workdir: Path, seqwright: Command, kind: str) -> None:
    """Import with the tokenizer is the run that was exported, also for tokens that are no words."""
    (workdir / "odd.txt").write_text("a cat \tsat\x01 <0x41> <s> on\u3000the mät\n" * 40)
    keys = ["--set", f"tokenizer.kind={kind}", "--set", "tokenizer.lowercase=true"]
    seqwright("train", "--text", "odd.txt", "--model", "ngram", *keys, "--run", "run")
    back = seqwright("export", "run", "m.arpa", "--json").json["import"]
    assert seqwright(*shlex.split(back.replace("FOLDER", "again"))[1:]).status == 0
    (workdir / "new.txt").write_text("The cat \x7f\tat <0x41>\u3000mät é\n" * 4)
    before, after = (seqwright("evaluate", r, "--on", "new.txt", "--json").json for r in ("run", "again"))
    assert after["tokens"] == before["tokens"]
    assert after["nll"] == pytest.approx(before["nll"], abs=1e-6)
    tokenizers = [(workdir / name / "tokenizer.json").read_text() for name in ("run", "again")]
    assert tokenizers[0] == tokenizers[1]


def test_import_without_a_tokenizer_says_what_it_needs(workdir: Path, seqwright: Command) -> None:
    for kind, said in (("byte-bpe", "--tokenizer RUN/tokenizer.json"), ("wordpiece", "seems to hold subwords ('##")):
        seqwright("train", "--text", "text.txt", "--model", "ngram", "--set", f"tokenizer.kind={kind}", "--run", kind)
        seqwright("export", kind, f"{kind}.arpa")
        assert said in seqwright("import", f"{kind}.arpa", "--run", f"{kind}-again").err
    refused = seqwright("import", "byte-bpe.arpa", "--run", "x", "--tokenizer", "wordpiece")
    assert "the tokenizer has no token" in refused.err


def test_invalid_exports_and_imports_are_rejected(workdir: Path, seqwright: Command, trained: Path, run: Path) -> None:
    assert (
        "holds a network of kind 'gpt', which needs no export"
        in seqwright("export", trained, "--to", "arpa", "x.arpa").err
    )
    assert "no export kind 'arps'. Did you mean 'arpa'?" in seqwright("export", run, "--to", "arps", "x").err
    (workdir / "labels.tsv").write_text("a\tgood\nb\tbad\n" * 20, encoding="utf-8")
    seqwright("train", "--labeled", "labels.tsv", "--model", "bag", "--run", "bag")
    assert "kind 'bag', which has no export" in seqwright("export", "bag", "bag.onnx").err
    assert "unknown file extension" in seqwright("import", "text.txt", "--run", "x").err
    seqwright("export", run, "--to", "arpa", "good.arpa")
    (workdir / "bad.arpa").write_text((workdir / "good.arpa").read_text().replace("\tthe\t", "\tthe\tO", 1))
    result = seqwright("import", "bad.arpa", "--run", "x")
    assert result.status == 2
    assert "bad.arpa, line " in result.err
    assert "expected a number" in result.err
    (workdir / "cut.arpa.gz").write_bytes(gzip.compress((workdir / "good.arpa").read_bytes())[:-20])
    assert "cannot read cut.arpa.gz" in seqwright("import", "cut.arpa.gz", "--run", "x").err
    assert not (workdir / "x").exists()


def test_perplexity_filter_keeps_lines_unchanged_and_in_order(workdir: Path, seqwright: Command, run: Path) -> None:
    lines = [*synthetic_text(700).split("\n")[:-1], "mat mat mat mat", "a b c d e f g"]
    records = [json.dumps({"id": n, "text": line}) for n, line in enumerate(lines)]
    (workdir / "big.jsonl").write_text("\n".join(records))
    scores = seqwright("score", run, "big.jsonl", "--columns", "text=text", "--json").lines
    assert [score["text"] for score in scores] == lines
    result = seqwright("score", run, "big.jsonl", "--columns", "text=text", "--keep-below", "13", "--keep-above", "11")
    kept = [record for record, score in zip(records, scores, strict=True) if 11 < score["perplexity"] < 13]
    assert result.out.split("\n")[:-1] == kept
    assert 0 < len(kept) < len(records)
    high = sum(score["perplexity"] >= 13 for score in scores)
    assert (
        f"kept {len(kept):,} of {len(lines):,} lines; dropped {high:,} with a perplexity of 13 or more, " in result.err
    )
    kept_file = seqwright("score", run, "big.jsonl", "--keep-below", "13", "--keep-above", "11", "--out", "kept.jsonl")
    assert kept_file.out == ""
    assert (workdir / "kept.jsonl").read_text().split("\n")[:-1] == kept
    (workdir / "few.csv").write_text("body,n\nthe cat,1\n")
    scored = seqwright("score", run, "few.csv", "--columns", "text=body").out.splitlines()
    assert scored[0] == "body,n,log_prob,perplexity,tokens"
    assert scored[1].startswith("the cat,1,-")
    (workdir / "plain.txt").write_text("\n".join(lines))
    by_line = seqwright("score", run, "plain.txt", "--keep-below", "13", "--json").lines
    assert [score["text"] for score in by_line] == [s["text"] for s in scores if s["perplexity"] < 13]


def test_json_line_without_the_field_is_named(workdir: Path, seqwright: Command, run: Path) -> None:
    for bad in ('{"txt": "a"}', "text", '["text"]', '{"text": 3}'):
        (workdir / "bad.jsonl").write_text('{"text": "a"}\n' + bad + "\n")
        result = seqwright("score", run, "bad.jsonl", "--keep-below", "9")
        assert result.status == 2
        assert "bad.jsonl, line 2" in result.err


def test_back_off_orders_and_weights(seqwright: Command, run: Path, trained: Path) -> None:
    (line,) = seqwright("score", run, "-", "--back-off", "--tokens", "--json", input=b"the cat zebra\n").lines
    assert [answer["token"] for answer in line["back_off"]] == ["the", "cat", "<unk>", "<eos>"]
    for answer, (_, surprisal) in zip(line["back_off"], line["surprisals"], strict=True):
        assert answer["probability"] == pytest.approx(2.718281828459045**-surprisal, rel=1e-5)
    assert line["back_off"][2]["order"] == 1
    assert len(line["back_off"][2]["weights"]) >= 1
    assert "back-off weights" in seqwright("score", run, "-", "--back-off", input=b"the cat\n").out
    output = seqwright("generate", run, "the cat", "--max-tokens", "3", "--back-off", "--json").json
    assert len(output["back_off"]) == len(output["ids"])
    assert "back-off weights" in seqwright("generate", run, "the cat", "--max-tokens", "3", "--back-off").out
    assert "does not back off" in seqwright("generate", trained, "the", "--back-off").err


def test_ngram_and_gpt_are_interpolated(workdir: Path, seqwright: Command) -> None:
    (workdir / "held-out.txt").write_text(synthetic_text(20, seed=1))
    characters = ("--set", "tokenizer.kind=characters")
    seqwright("train", "--text", "text.txt", "--valid", "held-out.txt", *TINY_GPT, "--run", "gpt")
    seqwright("train", "--text", "text.txt", "--model", "ngram", *characters, "--run", "ngram")
    summary = seqwright("mix", "gpt", "ngram", "--on", "held-out.txt", "--run", "mixed", "--json").json["summary"]
    weights = [part["weight"] for part in summary["parts"]]
    assert sum(weights) == pytest.approx(1)
    best = min(part["perplexity"] for part in summary["parts"])
    assert summary["tuned"]["perplexity"] <= best * (1 + 1e-6)  # EM only approaches a weight of zero
    mixed = seqwright("evaluate", "mixed", "--on", "held-out.txt", "--json").json
    assert mixed["perplexity"] == pytest.approx(
        summary["tuned"]["perplexity"], rel=0.02
    )  # windows instead of carried state
    assert seqwright("generate", "mixed", "the", "--max-tokens", "5").out.startswith("the")
    assert "FAILS" not in seqwright("check", "mixed").out
    assert not any("was trained on" in warning for warning in summary["warnings"])
    result = seqwright("mix", "mixed", "ngram", "--on", "text.txt", "--run", "more")
    assert "weight" in result.out
    assert "ngram was trained on it" in result.err
    seqwright("train", "--text", "held-out.txt", *WORDS, "--run", "words")
    result = seqwright("mix", "ngram", "words", "--on", "held-out.txt", "--run", "x")
    assert result.status == 2
    assert "have different tokenizers (" in result.err
    assert "two runs or more" in seqwright("mix", "ngram", "--on", "held-out.txt", "--run", "x").err
    assert not (workdir / "x").exists()


def test_adaptive_ngram_is_in_the_score_signature(workdir: Path, seqwright: Command) -> None:
    adaptive = ("--set", "model.adaptive.shortest=1", "--set", "model.adaptive.longest=3")
    seqwright("train", "--text", "text.txt", *WORDS, *adaptive, "--run", "run")
    scores = seqwright("evaluate", "run", "--on", "text.txt", "--json").json
    assert "state:carried|adaptive|" in scores["scores"]["nll"]["signature"]
    assert "without model.adaptive" in seqwright("export", "run", "--to", "arpa", "x.arpa").err


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("", (), "is empty"),
        ("a b\nb\n", ("--set", "model.order=9"), "there are no 5-grams: the longest document has 4 tokens"),
        ("a b\n", ("--model", "mixture"), "make one with `seqwright mix RUN RUN"),
        ("a b\n", ("--model", "arpa"), "make one with `seqwright import FILE.arpa"),
    ],
)
def test_failed_ngram_training_leaves_no_run(
    workdir: Path, seqwright: Command, text: str, options: tuple[str, ...], reason: str
) -> None:
    (workdir / "bad.txt").write_text(text)
    result = seqwright("train", "--text", "bad.txt", *WORDS, *options, "--run", "bad")
    assert result.status == 2
    assert reason in result.err
    assert not (workdir / "bad").exists()


def test_closed_vocabulary_with_an_unknown_word(workdir: Path, seqwright: Command) -> None:
    (workdir / "new.txt").write_text("the zebra\n")
    seqwright("train", "--text", "text.txt", *WORDS, "--set", "model.unknown=false", "--run", "closed")
    scores = seqwright("evaluate", "closed", "--on", "new.txt", "--json").json
    assert scores["perplexity"] is None
    assert scores["impossible"] == 1
    assert "1 of 3 tokens have probability zero" in seqwright("evaluate", "closed", "--on", "new.txt").out
    none = ("--set", 'tokenizer.special_tokens=["<sos>", "<eos>"]')
    seqwright("train", "--text", "text.txt", *WORDS, *none, "--run", "none")
    assert (
        "'zebra' is not in the vocabulary, and there is no <unk>"
        in seqwright("evaluate", "none", "--on", "new.txt").err
    )


def test_interrupted_import_leaves_no_run(workdir: Path, seqwright: Command, run: Path, monkeypatch) -> None:
    seqwright("export", run, "--to", "arpa", "good.arpa")
    before = files(workdir)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("seqwright.pipeline.untrained.report", interrupted)
    assert seqwright("import", "good.arpa", "--run", "x").status == 130
    assert files(workdir) == before


def test_interrupted_ngram_training_leaves_no_run(workdir: Path, seqwright: Command, monkeypatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = files(workdir)
    with monkeypatch.context() as patched:
        patched.setattr("seqwright.models.ngram.model.estimate", interrupted)
        assert seqwright("train", "--text", "text.txt", *WORDS, "--run", "run").status == 130
    assert files(workdir) == before
    assert seqwright("train", "--text", "text.txt", *WORDS, "--run", "run").status == 0


def test_ngrams_reject_drafts_before_anything_is_printed(seqwright: Command, run: Path) -> None:
    result = seqwright("generate", run, "the", "--draft", "lookup")
    assert (result.status, result.out) == (2, "")
    assert "only Transformers" in result.err


def test_ngrams_reject_half_precision(seqwright: Command, run: Path) -> None:
    result = seqwright("generate", run, "--precision", "bf16")
    assert result.status == 2
    assert "leave" in result.err
    assert "fp32" in result.err


def test_ngram_is_scored_on_held_out_text_and_fitted_again_on_all(seqwright: Command, workdir: Path) -> None:
    characters = ("--model", "ngram", "--set", "tokenizer.kind=characters")
    result = seqwright("train", "--text", "text.txt", *characters, "--run", "all")
    assert "then fitted again on all text" in result.err
    saved = RunDirectory.open("all").fingerprint[:8]
    assert f"the saved model ({saved}) was then fitted on all data." in result.out
    assert f"|model:{saved}" not in result.out  # the scores are of another model
    result = seqwright("train", "--text", "text.txt", *characters, "--set", "data.refit=false", "--run", "part")
    assert f"|model:{RunDirectory.open('part').fingerprint[:8]}" in result.out
    scores = [RunDirectory.open(name).summary()["bits_per_byte"] for name in ("all", "part")]
    assert scores[0] == scores[1] == seqwright("evaluate", "part", "--json").json["bits_per_byte"]
    result = seqwright("evaluate", "all")
    assert result.status == 2
    assert "Name other text with --on FILE" in result.err
    likelihood = [seqwright("evaluate", name, "--on", "text.txt", "--json").json["nll"] for name in ("all", "part")]
    assert likelihood[0] < likelihood[1]  # the held-out end was counted, too
    gpt = seqwright("train", "--text", "text.txt", *TINY_GPT, "--set", "data.refit=true", "--run", "gpt")
    assert "data.refit is for counted models" in gpt.err
