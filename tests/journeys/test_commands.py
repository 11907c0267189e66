"""Language models end to end: every command, and the same functions in Python."""

from __future__ import annotations

import json
import re
import subprocess
import unicodedata
from pathlib import Path

import pytest

import seqwright as sw
from seqwright import build
from seqwright.commands import common
from seqwright.core.config import UserError
from seqwright.pipeline.shipped import shipped
from tests.journeys.commands import TINY, TINY_GPT, files, finish, records, start, synthetic_text
from tests.journeys.conftest import Command

LECTURES = [name for name in shipped() if re.fullmatch(r"lecture-generation(-transformer)?(-way\d)?", name)]
SHRUNK_GPT3 = [
    *("--set", "model.layers=1", "--set", "model.width=24", "--set", "model.context=16", "--set", "tokenizer.size=300"),
    *("--set", "training.steps=2", "--set", "training.batch_size=2", "--set", "training.precision=fp32"),
]


def test_train_and_generate_as_subprocesses(workdir: Path) -> None:
    result = finish(start("train", "--text", "text.txt", *TINY_GPT, "--run", "runs/mine", cwd=workdir))
    assert result.status == 0, result.err
    assert "is finished" in result.out
    assert "held out for validation: tail 5%" in result.err
    assert "perplexity" in result.out
    names = files(workdir / "runs" / "mine")
    assert {"recipe.toml", "tokenizer.json", "model.safetensors", "log.jsonl"} < names
    assert {"summary.json", "environment.json", "report.html"} < names
    result = finish(start("generate", "runs/mine", "the cat", "--max-tokens", "9", cwd=workdir))
    assert result.status == 0, result.err
    assert result.out.startswith("the cat")
    assert len(result.out.removesuffix("\n")) == len("the cat") + 9


def test_every_command_prints_text(seqwright: Command, trained: Path, workdir: Path) -> None:
    (workdir / "words.txt").write_text("the\ncat\n")
    runs = trained.parent
    expected = {
        ("evaluate", trained): "next token accuracy",
        ("evaluate", trained, "--on", "text.txt", "text.txt"): "perplexity",
        ("generate", trained, "the", "--samples", "2", "--max-tokens", "5"): "--- 2 (seed 1)",
        ("score", trained, "text.txt", "--tokens"): "the",
        ("check", trained): "holds",
        (
            "search-audit",
            trained,
            "words.txt",
            "--max-tokens",
            "2",
            "--beam-sizes",
            "1,30",
        ): "2 of 2 lines have a proven optimum",
        ("tokenize", trained, "text.txt", "--summary"): "lossy characters vocabulary of 23",
        ("runs", runs): "text.txt",
        ("recipes",): "gpt3-175b",
        ("recipes", "lecture-generation"): 'kind = "words"',
        ("recipes", "--keys"): "training.steps",
        ("recipes", "--lectures"): "lecture-generation-ngram",
        ("plan", "lecture-generation"): "290,024 parameters",
    }
    for arguments, word in expected.items():
        result = seqwright(*arguments)
        assert result.status == 0, result.err
        assert word in result.out


def test_no_command_prints_the_help(seqwright: Command) -> None:
    result = seqwright()
    assert (result.status, result.err) == (0, "")
    assert result.out == seqwright("--help").out


def test_values_that_are_no_numbers_are_named(seqwright: Command, trained: Path) -> None:
    for option, kind in (("--label-errors", "whole number"), ("--processes", "whole number"), ("--minutes", "number")):
        command = ("evaluate", trained) if option == "--label-errors" else ("train",)
        assert f"'{option}': 'x' is no {kind}." in seqwright(*command, option, "x").err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("train", "--output", "x"), "Did you mean --run FOLDER?"),
        (("train", "--gpu"), "--set training.device=cuda"),
        (("train", "--cpu"), "--set training.device=cpu"),
        (("train", "--epochs", "3"), "--set training.epochs=…"),
        (("sweep", "--lr", "3"), "--set training.learning_rate=…"),
        (("train", "--input", "a.txt"), "--text FILE"),
        (("train", "--source", "a.en"), "Did you mean --pairs SOURCE TARGET?"),
        (("tag", "--model", "x"), "The run is an argument: seqwright tag RUN."),
        (("train", "--resume"), "`seqwright train --run RUN` resumes"),
        (("train", "--label-column", "x"), "--columns text=NAME"),
        (("classify", "--output", "x"), "Did you mean --out FILE?"),
        (("classify", "-o", "x"), "Did you mean --out FILE?"),
        (("classify", "--cuda"), "Did you mean --device cuda?"),
        (("classify", "--model-path", "x"), "The run is an argument: seqwright classify RUN."),
        (("translate", "--input", "x"), "The file is an argument: seqwright translate RUN FILE."),
        (("translate", "--beam-size", "3"), "Did you mean --beam?"),
        (("generate", "--topk", "3"), "Did you mean --top-k?"),
        (("generate", "--num-beams", "3"), "Did you mean --beam?"),
        (("generate", "--prompt", "a"), "seqwright generate RUN PROMPT"),
        (("evaluate", "--test", "x"), "Did you mean --on FILE?"),
        (("compare", "--output", "x"), "Did you mean --html FILE?"),
        (("export", "--format", "arpa"), "Did you mean --to FORMAT?"),
        (("export", "--out", "x.arpa"), "The file is an argument: seqwright export RUN FILE."),
    ],
)
def test_options_of_other_tools_are_answered_with_ours(
    seqwright: Command, arguments: tuple[str, ...], meant: str
) -> None:
    result = seqwright(*arguments)
    assert (result.status, meant in result.err) == (2, True), result.err


@pytest.mark.parametrize("name", ["empty.txt", "empty.csv", "empty.tsv", "empty.jsonl"])
def test_an_empty_input_has_an_empty_output(seqwright: Command, trained: Path, workdir: Path, name: str) -> None:
    (workdir / name).write_text("")
    result = seqwright("score", trained, name)
    assert (result.status, result.out, result.err) == (0, "", f"{name} is empty.\n")
    assert seqwright("score", trained, name, "--out", f"out-{name}").status == 0
    assert (workdir / f"out-{name}").read_text() == ""
    piped = seqwright("score", trained, "--format", "csv")
    assert (piped.status, piped.out, piped.err) == (0, "", "standard input is empty.\n")


def test_every_command_prints_json(seqwright: Command, trained: Path) -> None:
    assert seqwright("train", "--run", trained, "--json").json["already"]
    scores = seqwright("evaluate", trained, "--json").json
    assert scores["bits_per_byte"] > 0
    assert scores["scores"]["perplexity"]["signature"]
    samples = seqwright("generate", trained, "the", "--samples", "3", "--max-tokens", "5", "--json").lines
    assert [row["seed"] for row in samples] == [0, 1, 2]
    assert all(row["warnings"] == [] or row["warnings"][0]["measure"] for row in samples)
    audit = seqwright(
        "search-audit", trained, "--max-tokens", "2", "--beam-sizes", "1,40", "--json", input=b"the\ncat\n"
    ).json
    assert (audit["proven"], audit["widths"][-1]["missed"]) == (2, 0)
    scored = seqwright("score", trained, "--json", "--tokens", input=b"the cat\nsat\n").lines
    assert [row["text"] for row in scored] == ["the cat", "sat"]
    assert len(scored[1]["surprisals"]) == 3
    assert seqwright("check", trained, "--json").json["holds"]
    *cut, counts = seqwright("tokenize", trained, "--json", input="the cát\n".encode()).lines
    assert cut[0]["unknown"] == 1
    assert counts["lines_not_exact"] == 1
    assert seqwright("runs", trained.parent, "--json").lines[0]["state"] == "finished"
    recipes = seqwright("recipes", "--json").lines
    listed = [line for line in seqwright("recipes").out.splitlines() if line.strip()]
    assert (len(listed), max(map(len, listed))) == (2 + len(recipes), 120)  # title, rule, and a line for each
    assert {"task", "name", "about"} == recipes[0].keys()
    tasks = [row["task"] for row in recipes]
    assert tasks == sorted(tasks)  # grouped
    translators = seqwright("recipes", "--task", "translation", "--json").lines
    assert translators == [row for row in recipes if row["task"] == "translation"]
    assert "Did you mean 'translation'?" in seqwright("recipes", "--task", "translations").err
    assert seqwright("recipes", "gpt2", "--json").json["name"] == "gpt2"
    assert {row["name"] for row in seqwright("recipes", "Shakespeare", "--json").lines} >= {"shakespeare-cpu"}
    lectures = seqwright("recipes", "--lectures", "--json").lines
    assert [row["lecture"] for row in lectures] == sorted(row["lecture"] for row in lectures)
    assert {"title", "topics", "recipe", "shows", "seconds", "hardware"} < lectures[0].keys()
    assert "leave the other options out" in seqwright("recipes", "gpt2", "--lectures").err
    planned = seqwright("plan", "lecture-generation", "--set", "training.steps=10", "--json").json
    assert planned["training_flops"] == 6 * 290_024 * 10 * 32 * 40
    assert "no recipe 'zyx'" in seqwright("recipes", "zyx").err
    assert "training.steps" in {row["key"] for row in seqwright("recipes", "--keys", "--json").lines}


def test_beam_search_n_best_is_sorted_and_beats_greedy(seqwright: Command, trained: Path) -> None:
    beam = ("generate", trained, "the c", "--beam", "4", "--max-tokens", "6", "--set", "decoding.length_penalty=none")
    rows = seqwright(*beam, "--n-best", "3", "--json").lines
    assert [row["rank"] for row in rows] == [1, 2, 3]
    assert [row["log_prob"] for row in rows] == sorted((row["log_prob"] for row in rows), reverse=True)
    greedy = seqwright("generate", trained, "the c", "--temperature", "0", "--max-tokens", "6", "--json").lines[0]
    assert rows[0]["log_prob"] >= greedy["log_prob"] - 1e-4
    assert seqwright(*beam).out == f"--- 1 (rank 1)\nthe c{rows[0]['text']}\n"
    assert "--top-k is for sampling" in seqwright(*beam, "--top-k", "2").err
    assert "--samples is for sampling" in seqwright(*beam, "--samples", "2").err
    wide = seqwright("generate", trained, "the c", "--max-tokens", "6", "--n-best", "8", "--json").lines
    assert [row["rank"] for row in wide] == [*range(1, 9)]
    assert "leave it or --n-best out" in seqwright("generate", trained, "--n-best", "2", "--top-k", "2").err


def test_score_streams_standard_input(trained: Path) -> None:
    process = start("score", trained, "--json", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for text in ("the cat", "sat"):
        process.stdin.write(text + "\n")
        process.stdin.flush()
        # Hangs if the command waits for more than one line.
        assert json.loads(process.stdout.readline())["text"] == text
    assert finish(process).status == 0


def test_stdin_lines_split_over_reads_are_joined(
    seqwright: Command, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "READ_BYTES", 3)
    result = seqwright("score", trained, "--json", input="the cát\r\n\nsat\nno end".encode())
    assert [row["text"] for row in result.lines] == ["the cát", "", "sat", "no end"]
    assert "line 2: not UTF-8 at byte 2 of the line (0xff" in seqwright("score", trained, input=b"sat\na\xff\n").err


@pytest.mark.parametrize("kind", sorted(build.LANGUAGE_MODELS.keys() - build.DERIVED.keys()))
def test_every_language_model_kind_trains_and_generates(seqwright: Command, kind: str, workdir: Path) -> None:
    quick = TINY_GPT if kind == "gpt" else TINY
    model_options = ["--model", kind] if kind != "rnn" else ["--set", "model.kind=rnn"]  # equivalent
    result = seqwright("train", "--text", "text.txt", *model_options, *quick, "--json")
    assert result.status == 0, result.err
    assert result.json["summary"]["kind"] == kind
    assert result.json["run"] == f"runs/text-{kind}"
    assert "perplexity" in result.json["summary"]
    assert seqwright("generate", result.json["run"], "the", "--max-tokens", "4", "--json").json["text"]
    assert seqwright("check", result.json["run"]).status == 0


@pytest.mark.parametrize("name", LECTURES)
def test_lecture_recipes_train_without_files(seqwright: Command, name: str, workdir: Path) -> None:
    short = ["--set", "training.epochs=0.001", "--set", "training.batch_size=4", "--set", "data.split=documents 0.5%"]
    result = seqwright("train", name, *short, "--json")
    assert result.status == 0, result.err
    assert any("40 tokens" in note["text"] for note in records(workdir / "runs" / name, "note"))
    assert seqwright("generate", f"runs/{name}", "a class", "--max-tokens", "6").status == 0


def test_paper_recipe_with_user_text(seqwright: Command) -> None:
    result = seqwright("train", "gpt3-small", "--text", "text.txt", *SHRUNK_GPT3, "--json")
    assert result.status == 0, result.err
    assert result.json["run"] == "runs/gpt3-small"
    assert result.json["summary"]["steps"] == 2


def test_python_api_matches_the_commands(workdir: Path) -> None:
    run = sw.train(text="text.txt", set=[item for item in TINY_GPT if item != "--set"], run="mine")
    output = run.generate("the", max_tokens=5, seed=3)
    assert sw.open("mine").generate("the", max_tokens=5, seed=3) == output
    assert sw.open("mine").evaluate() == run.evaluate()
    assert run.evaluate("text.txt", resamples=0)["nll"] > 0
    assert [line.text for line in run.score(["the cat", ""])] == ["the cat", ""]
    assert run.score("the cat").log_prob == run.score(["the cat"])[0].log_prob
    assert run.score(lines="the cat").text == "the cat"
    assert run.embed("the cat").vector.tolist() == next(run.embed(text for text in ["the cat"])).vector.tolist()
    assert sw.train(run="mine", set={"training.steps": 8}).directory.summary()["steps"] == 8
    with pytest.raises(sw.UserError, match=r"\('a', 'b'\) \(tuple\) is no file"):
        sw.train(labeled=[("a", "b")])  # type: ignore[list-item]
    with pytest.raises(sw.UserError, match="half of a surrogate pair"):
        run.generate("\ud800")
    with pytest.raises(sw.UserError, match="half of a surrogate pair"):
        run.score(["\ud800"])
    with pytest.raises(sw.UserError, match="seed must fit in 64 bits"):
        run.generate("the", seeds=[1 << 64])
    with pytest.raises(sw.UserError, match=r"no option 'temperaturex'\. Did you mean 'temperature'\?"):
        run.generate("the", temperaturex=1)
    with pytest.raises(sw.UserError, match=r"top_k must be a whole number, not \"all\"\."):
        run.generate("the", top_k="all")
    with pytest.raises(sw.UserError, match="1 prompts need as many seeds, not 2"):
        run.generate("the", seeds=[1, 2])


def test_wrong_names_in_python_are_errors_that_name_ours(trained: Path) -> None:
    with pytest.raises(UserError, match=r'set=\["training.steps=3"\]'):
        sw.train(text="text.txt", steps=3)  # type: ignore[call-arg]
    run = sw.open(trained)
    for call, message in (
        (lambda: run.score("the", progressx=None), r"score has no option 'progressx'\. Did you mean 'progress'\?"),
        (lambda: run.embed("the", poling="max"), r"embed has no option 'poling'\. Did you mean 'pooling'\?"),
        (lambda: run.inspect("the", view="tokens"), r"inspect has no option 'view'\. Did you mean 'views'\?"),
        (lambda: sw.sweep(text="a", set="model.width=1,2", seed=3), r"no option 'seed'\. Did you mean 'seeds'\?"),
        (lambda: sw.list_runs(trained, sort="tme"), r"not sorted by 'tme'\. Did you mean 'time'\?"),  # type: ignore[arg-type]
    ):
        with pytest.raises(sw.UserError, match=message):
            call()
    with pytest.raises(TypeError, match=r"open has no option 'devise'\. Did you mean 'device'\?"):
        sw.open(trained, devise="cpu")  # type: ignore[call-arg]
    with pytest.raises(UserError, match=r"is a run, no recipe.*seqwright\.open"):
        sw.load(trained)
    for value in (3, None, b"the", [None], [b"the"], ["the", 3], {"the": 1}):
        with pytest.raises(UserError, match=r"is no text; (decode|give)"):  # before the result is iterated
            sw.open(trained).score(value)
    with pytest.raises(AttributeError, match=r"'predict'\. It continues text; try run\.generate\(…\) or run\.score"):
        sw.open(trained).predict("the")
    with pytest.raises(AttributeError, match=r"run\.tokenizer\.encode\(…\)"):
        sw.open(trained).tokenize("the")
    scores = run.evaluate()
    assert scores["nats per token"] == scores["nll"]
    for key, hint in {
        "ppl": "'perplexity'",
        "accuracy": "'next_token_accuracy'",
        "bits_per_bite": "'bits_per_byte'",
    }.items():
        with pytest.raises(KeyError, match=f"Did you mean {hint}"):
            scores[key]
    assert scores.get("zzz") is None
    for name, hint in {"opwn": "'open'", "fit": "'train'", "evaluate": r"open\(RUN\)\.evaluate"}.items():
        with pytest.raises(AttributeError, match=hint):
            getattr(sw, name)


def test_tokenize_shows_tokens_and_ids_of_a_text(seqwright: Command, trained: Path) -> None:
    ids = seqwright("tokenize", trained, "a cat", "--json").lines[0]["ids"]
    rows = [line.split() for line in seqwright("tokenize", trained, "a cat").out.splitlines()[3:] if line.strip()]
    assert [int(row[-1]) for row in rows] == ids
    assert [row[0] for row in rows[:2]] == ["a", "▁"]
    assert "no file nowhere.txt" in seqwright("tokenize", trained, "nowhere.txt").err


def test_tokens_of_a_file_are_separated_by_spaces_and_their_own_are_visible(seqwright: Command, workdir: Path) -> None:
    seqwright("train", "--text", "text.txt", "--model", "ngram", "--set", "tokenizer.size=260", "--run", "bytes")
    (workdir / "short.txt").write_text("a é\n", encoding="utf-8")
    result = seqwright("tokenize", "bytes", "short.txt")
    assert result.out == "a ▁ \\xc3 \\xa9\n"
    assert "1 line, 2 words, 4 tokens, 4 bytes, 0 unknown" in result.err


def test_a_recipe_without_its_data_names_the_data_and_your_own(seqwright: Command) -> None:
    error = seqwright("train", "shakespeare-cpu").err
    assert "The recipe is for tiny Shakespeare" in error
    assert "`seqwright train shakespeare-cpu --text FILE`" in error


def test_export_of_a_network_names_its_files(seqwright: Command, trained: Path) -> None:
    error = seqwright("export", trained, "model.onnx").err
    assert f'safetensors.torch.load_file("{trained / "model.safetensors"}")' in error


def test_print_and_notebooks_show_what_a_run_is(trained: Path) -> None:
    run = sw.open(trained)
    shown = str(run)
    for fact in ("gpt, which continues text", "text: text.txt", "characters", "bits per byte", "text:"):
        assert fact in shown
    assert repr(run) == f"<LanguageRun '{trained}': gpt>"
    assert "<th" in run._repr_html_()
    assert "bits per byte" in run.evaluate(resamples=0)._repr_html_()
    assert "&lt;b&gt;" in run.generate("<b>", max_tokens=1)._repr_html_()
    assert "array of shape (16,)" in run.embed("the")._repr_html_()


def test_long_prompt_is_truncated_on_the_left_with_a_warning(seqwright: Command, trained: Path) -> None:
    result = seqwright("generate", trained, "the cat " * 10, "--max-tokens", "3")
    assert result.status == 0
    assert "the first 65 tokens of the prompt exceed the context and were dropped." in result.err
    assert seqwright("generate", trained, "the cat " * 10, "--max-tokens", "3", "--json").json["unread"] == 65


def test_generate_from_an_empty_prompt(seqwright: Command, trained: Path) -> None:
    assert seqwright("generate", trained, "", "--max-tokens", "5", "--json").json["text"]
    assert seqwright("generate", trained, "--prompts", "-", "--max-tokens", "2", "--json", input=b"the\n\n").lines[1]


@pytest.mark.parametrize("kind", ["words", "characters", "bytes", "byte-bpe"])
def test_unicode_scripts_and_crlf(seqwright: Command, workdir: Path, kind: str) -> None:
    (workdir / "mixed.txt").write_bytes("Ăn quả nhớ kẻ trồng cây 🌳\r\nCó chí thì nên 👩‍👩‍👧\r\n".encode() * 30)
    result = seqwright("train", "--text", "mixed.txt", *TINY_GPT, "--set", f"tokenizer.kind={kind}", "--run", "mixed")
    assert result.status == 0, result.err
    (row,) = seqwright("generate", "mixed", "Có chí 👩‍👩‍👧", "--max-tokens", "6", "--json").lines
    assert row["prompt"] == "Có chí 👩‍👩‍👧"
    assert "\\r" not in (workdir / "mixed" / "tokenizer.json").read_text()


def test_ngram_training_on_a_line_of_ten_megabytes(seqwright: Command, workdir: Path) -> None:
    (workdir / "long.txt").write_text(synthetic_text(330_000).replace("\n", " "))
    result = seqwright("train", "--text", "long.txt", "--model", "ngram", "--json")
    assert result.status == 0, result.err
    assert (workdir / "long.txt").stat().st_size > 9_500_000


def test_unknown_validation_tokens_are_counted(seqwright: Command, workdir: Path) -> None:
    (workdir / "valid.txt").write_text("the cat sat on ünknown ñames\n" * 5)
    result = seqwright("train", "--text", "text.txt", "--valid", "valid.txt", *TINY_GPT, "--run", "run")
    assert result.status == 0
    assert "15 of 145 validation tokens are <unk>." in " ".join(result.err.split())
    result = seqwright("evaluate", "run")
    assert "bits per byte is not reported: 15 tokens of this text are <unk>" in result.out


def test_classifiers_of_the_same_texts_with_other_labels_are_marked(seqwright: Command, workdir: Path) -> None:
    rows = (f"{'en' if n % 2 else 'de'},{'low' if n % 3 else 'high'},text {n % 2} of {n % 3}" for n in range(60))
    (workdir / "tickets.csv").write_text("\n".join(["lang,queue,text", *rows]) + "\n")
    trained = (("lang", "single", 3), ("queue", "single", 3), ("lang", "multi", 3), ("lang", "single", 2))
    for name, (column, labels, order) in zip("abcd", trained, strict=True):
        data = ("--labeled", "tickets.csv", "--columns", f"text=text,label={column}", "--set", f"data.labels={labels}")
        model = ("--model", "bag", "--set", f"model.order={order}")
        assert seqwright("train", *data, *model, "--run", f"runs/{name}", "-q").status == 0
    assert [row["text"] for row in seqwright("runs", "--json").lines] == ["A", "B", "C", "A"]


def test_closed_stdout_ends_quietly(workdir: Path, trained: Path) -> None:
    (workdir / "many.txt").write_text(synthetic_text(20_000))
    process = start("tokenize", trained, "many.txt", cwd=workdir)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(60) == 1


def test_runs_are_sorted_and_scores_of_different_texts_are_marked(seqwright: Command, workdir: Path) -> None:
    (workdir / "other.txt").write_text(synthetic_text(90, seed=5))
    words = ("--model", "ngram", "--set", "tokenizer.kind=words", "-q")
    for name, text, order in (("a", "text.txt", 2), ("deep/b", "text.txt", 1), ("c", "other.txt", 2)):
        command = ("train", "--text", text, *words, "--set", f"model.order={order}", "--run", f"runs/{name}")
        assert seqwright(*command).status == 0
    rows = seqwright("runs", "--json").lines
    assert [row["run"] for row in rows] == ["runs/a", "runs/c", "runs/deep/b"]
    assert [row["text"] for row in rows] == ["A", "B", "A"]
    assert {row["data"] for row in rows} == {"text.txt", "other.txt"}
    rows = seqwright("runs", "--sort", "score", "--json").lines
    assert [row["score"] for row in rows] == sorted(row["score"] for row in rows)
    dates = [row["date"] for row in seqwright("runs", "--sort", "date", "--json").lines]
    assert dates == sorted(dates, reverse=True)
    shown = seqwright("runs").out
    assert max(map(len, shown.splitlines())) <= 120
    long = f"runs/{'long-name-' * 8}"
    assert seqwright("mix", "runs/a", "runs/deep/b", "--on", "other.txt", "--run", long).status == 0
    (mixed,) = (row for row in seqwright("runs", "--json").lines if row["kind"] == "mixture")
    assert mixed["score_name"] == "perplexity"  # words are lossy
    listed = seqwright("runs")
    assert long in listed.out  # columns are left out rather than parts of names
    assert "left out for width: state, parameters, tokenizer, data; --json has all." in listed.err
    assert f"seqwright evaluate {long} --on FILE" in (workdir / long / "report.html").read_text()
    assert "Scores of different held-out texts" in shown


def test_one_text_under_two_names_has_one_letter(seqwright: Command, workdir: Path) -> None:
    (workdir / "bom.txt").write_bytes(b"\xef\xbb\xbf" + (workdir / "text.txt").read_bytes())
    for name, text, kind in (("a", "text", "bytes"), ("b", "bom", "bytes"), ("c", "bom", "characters")):
        keys = ("--set", f"tokenizer.kind={kind}", "-q")
        seqwright("train", "--text", f"{text}.txt", "--model", "ngram", *keys, "--run", f"runs/{name}")
    assert [row["text"] for row in seqwright("runs", "--json").lines] == ["A", "A", "A"]


def test_recipes_are_searched_by_name_and_by_whole_words(seqwright: Command) -> None:
    found = [row["name"] for row in seqwright("recipes", "lecture", "--json").lines]
    assert found
    assert all("lecture" in name for name in found)
    found = [row["name"] for row in seqwright("recipes", "shakespeare", "--json").lines]
    assert found == sorted(found, key=lambda name: "shakespeare" not in name)
    assert "wikitext2-transformer" not in found[:3]


def test_the_run_comes_first(seqwright: Command, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = seqwright("generate", "the", trained)
    assert result.status == 2
    assert f"the run comes first, as in `seqwright generate {trained} the`" in result.err


def test_units_of_printed_scores_are_named(seqwright: Command, trained: Path) -> None:
    result = seqwright("score", trained, "the cat", "--tokens")
    assert (
        "log-probability in nats, perplexity per token, text; below, its tokens with their surprisal in bits"
        in result.err
    )
    assert len(result.out.splitlines()) == 2


def test_report_is_titled_by_its_folder_and_shows_later_scores(seqwright: Command, run_copy: Path) -> None:
    assert seqwright("evaluate", "run", "--on", "text.txt").status == 0
    page = (run_copy / "report.html").read_text()
    assert "<title>run</title>" in page
    assert "Scores on other data" in page
    assert "seqwright evaluate run --on FILE" in page
    assert "settings at their defaults" in page
    assert (
        seqwright("evaluate", "run", "--on", "text.txt").status == 0
    )  # the log has grown, and still fits its manifest


def test_decomposed_text_is_pointed_out_once(seqwright: Command, workdir: Path) -> None:
    (workdir / "viet.txt").write_text("trăm năm trong cõi người ta\n" * 40)
    assert seqwright("train", "--text", "viet.txt", "--model", "ngram", "--run", "run", "-q").status == 0
    (workdir / "nfd.txt").write_text(unicodedata.normalize("NFD", "người ta\ncõi người\n"))
    assert seqwright("score", "run", "nfd.txt").err.count("decomposed letters (Unicode NFD)") == 1
    assert seqwright("score", "run", "viet.txt").err == ""


def test_composed_text_is_pointed_out_to_a_model_of_decomposed_text(seqwright: Command, workdir: Path) -> None:
    text = "trăm năm trong cõi người ta, chữ tài chữ mệnh khéo là ghét nhau\n" * 40
    (workdir / "nfd.txt").write_text(unicodedata.normalize("NFD", text))
    (workdir / "nfc.txt").write_text(text)
    trained = seqwright("train", "--text", "nfd.txt", "--model", "ngram", "--run", "run")
    assert "1 of 1 documents contain decomposed characters" in trained.out + trained.err
    assert "composed letters (Unicode NFC)" in seqwright("score", "run", "nfc.txt").err
    assert "composed letters (Unicode NFC)" in seqwright("evaluate", "run", "--on", "nfc.txt").err
    assert seqwright("score", "run", "nfd.txt").err == ""
    for train, valid, said in (("nfd", "nfc", "composed letters (Unicode NFC)"), ("nfc", "nfd", "(Unicode NFD)")):
        files = ("--text", f"{train}.txt", "--valid", f"{valid}.txt")
        trained = seqwright("train", *files, "--model", "ngram", "--run", f"of-{train}")
        assert f"validation: the text has {'de' * (train == 'nfc')}composed" in trained.out + trained.err
        assert said in trained.out + trained.err


@pytest.mark.parametrize("copied", [False, True])
def test_validation_on_training_text_is_pointed_out(seqwright: Command, workdir: Path, copied: bool) -> None:
    text = "".join(f"line {n} of a text that is read to the end\n" for n in range(400))
    (workdir / "all.txt").write_text(text)
    (workdir / "part.txt").write_text(text[4000:9000])
    valid = "part.txt" if copied else "all.txt"
    result = seqwright("train", "--text", "all.txt", "--valid", valid, "--model", "ngram", "--run", "run")
    assert "is training text: scores of it are none of unseen text" in result.out + result.err


def test_an_empty_line_has_the_log_probability_zero(seqwright: Command, trained: Path) -> None:
    assert seqwright("score", trained, input=b"\n").out.splitlines()[0].startswith("0.0000\t")
