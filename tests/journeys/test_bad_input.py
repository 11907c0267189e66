"""Invalid user input: one error message with the next move, exit status 2, no files left behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import click
import pytest
import torch

from seqwright import build
from seqwright.commands.hints import usage_message
from tests.journeys.commands import TINY, TINY_GPT, files, finish, start, synthetic_text
from tests.journeys.conftest import Command

KINDS_WITH_DROPOUT = {
    task: [kind for kind in task_spec.models if any(key.name == "dropout" for key in build.model_keys(kind, task=task))]
    for task, task_spec in build.TASKS.items()
}
"""Model kinds that have a dropout key, by task."""


def tiny(*settings: str) -> list[str]:
    return [*TINY_GPT, *(item for setting in settings for item in ("--set", setting))]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "bad.txt is empty; name a file with text."),
        (b"\xef\xbb\xbf", "bad.txt is empty; name a file with text."),
        (b"\r\n \n\n", "bad.txt has only blank lines; name a file with text."),
        (
            b"one line\n",
            "text has 8 tokens, fewer than one window of 16; set model.context to 2 or so, count n-grams",
        ),
        (
            b"two words",
            "fewer than one window of 16; set model.context to 2 or so, count n-grams",
        ),
        (b"x", "leaves one side empty; hold out another share, or name a file in data.valid."),
        (
            bytes(range(256)) * 4,
            "looks binary or UTF-16: NUL at byte 0 (line 1); give a text file, or name its encoding: --set data.enc",
        ),
        (b"PK\x03\x04\x14", "is a ZIP archive, as spreadsheets (.xlsx, .ods) and documents (.docx) are; save"),
        (
            b"fine\n" * 400 + b"ol\xe9\n",
            "is not UTF-8: 0xe9 at byte 2,002 (line 401); it looks like latin-1: add --set data.encoding=latin-1.",
        ),
    ],
    ids=["empty", "BOM only", "blank lines", "one line", "two words", "one letter", "binary", "ZIP", "invalid UTF-8"],
)
def test_invalid_training_texts_are_rejected(seqwright: Command, workdir: Path, content: bytes, message: str) -> None:
    (workdir / "bad.txt").write_bytes(content)
    before = files(workdir)
    result = seqwright("train", "--text", "bad.txt", *TINY_GPT, "--run", "runs/bad")
    assert result.status == 2
    assert message in result.err
    assert files(workdir) - before <= {"runs"}


@pytest.mark.parametrize("kind", ["masked", "labeled", "tagged", "chat", "pairs"])
def test_files_of_blank_lines_are_rejected(seqwright: Command, workdir: Path, kind: str) -> None:
    (workdir / "blank.txt").write_text("\n \n\n")
    files = ["blank.txt", "blank.txt"] if kind == "pairs" else ["blank.txt"]
    result = seqwright("train", f"--{kind}", *files, "--run", "run")
    assert result.status == 2
    assert "blank.txt has only blank lines; name a file with text." in result.err


def test_one_example_is_too_few_with_the_next_move(seqwright: Command, workdir: Path) -> None:
    turns = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
    (workdir / "talk.jsonl").write_text(turns)
    assert (
        "talk.jsonl holds one conversation; give more, or --valid FILE."
        in seqwright("train", "--chat", "talk.jsonl", "--run", "run").err
    )
    (workdir / "pair.tsv").write_text("one\teins\n")
    assert (
        "of 1 pair leaves one side empty; give more pairs"
        in seqwright("train", "--pairs", "pair.tsv", "--run", "run").err
    )


def test_empty_files_of_a_folder_are_skipped(seqwright: Command, workdir: Path) -> None:
    (workdir / "texts").mkdir()
    (workdir / "texts" / "a.txt").write_text("to be or not to be\n" * 20)
    (workdir / "texts" / "b.txt").write_text("\n")
    result = seqwright("train", "--text", "texts", "--model", "ngram", "--run", "run")
    assert result.status == 0, result.err
    assert "b.txt has no text and is skipped." in result.err
    (workdir / "texts" / "a.txt").write_text("")
    assert "no file has text" in seqwright("train", "--text", "texts", "--model", "ngram", "--run", "other").err


def test_two_words_suffice_for_an_ngram_model(seqwright: Command, workdir: Path) -> None:
    (workdir / "two.txt").write_text("two words")
    assert seqwright("train", "--text", "two.txt", "--model", "ngram", "--run", "counted").status == 0
    assert seqwright("generate", "counted", "two", "--max-tokens", "3").status == 0


def test_data_errors_replace_decodes_invalid_utf8(seqwright: Command, workdir: Path) -> None:
    (workdir / "bad.txt").write_bytes(synthetic_text(60).encode() + b"ol\xe9\n")
    result = seqwright("train", "--text", "bad.txt", *tiny("data.errors=replace"), "--run", "run")
    assert result.status == 0, result.err
    assert "bad.txt: 1 decoding errors were replaced by U+FFFD." in " ".join(result.err.split())


def test_latin_1_is_read_in_its_encoding_by_train_and_evaluate(seqwright: Command, workdir: Path) -> None:
    text = synthetic_text(60) + "olé señor\n"
    (workdir / "latin.txt").write_bytes(text.encode("latin-1"))
    (workdir / "utf8.txt").write_text(text, encoding="utf-8")
    options = ("--model", "ngram", "--set", "data.encoding=latin-1")
    assert seqwright("train", "--text", "latin.txt", *options, "--run", "run").status == 0
    on_latin = seqwright("evaluate", "run", "--on", "latin.txt")
    on_utf8 = seqwright("evaluate", "run", "--on", "utf8.txt", "--set", "data.encoding=utf-8")
    assert on_latin.out == on_utf8.out
    assert "valid UTF-8" in " ".join(seqwright("evaluate", "run", "--on", "utf8.txt").err.split())
    unknown = seqwright("train", "--text", "latin.txt", "--set", "data.encoding=latin_11", "--run", "no")
    assert unknown.status == 2
    assert "no encoding 'latin_11'. Did you mean 'latin-1'?" in unknown.err.replace("latin1", "latin-1")


RECIPE = """
[data]
train = "text.txt"
[modl]
kind = "gpt"
[model]
kind = "gpt"
layer = 3
[training]
learning_rate = "fast"
bacth_size = 2
"""


def test_all_recipe_errors_are_reported_at_once(seqwright: Command, workdir: Path) -> None:
    (workdir / "mine.toml").write_text(RECIPE)
    result = seqwright("train", "mine.toml", "--set", "decoding.top_q=3")
    assert result.status == 2
    for problem in (
        "mine.toml: a recipe has no section [modl]. Did you mean 'model'?",
        "mine.toml: [model] has no key 'layer'. Did you mean 'layers'?",
        'mine.toml: training.learning_rate must be a number, not "fast".',
        "mine.toml: [training] has no key 'bacth_size'. Did you mean 'batch_size'?",
        "--set decoding.top_q=3: [decoding] has no key 'top_q'. Did you mean 'top_p'?",
    ):
        assert problem in result.err
    assert files(workdir) == {"text.txt", "mine.toml"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "txet.txt"], "no file txet.txt. Did you mean 'text.txt'?"),
        ([], "name a recipe, or give your own data with --text FILE"),
        (["--text", "-"], "--text -: training reads its data several times. Save it to a file."),
        (["--run", "nowhere"], "no run at nowhere to go on with; name a recipe, or give your own data"),
        (["--valid", "text.txt", "--run", "nowhere"], "give your own data with --text FILE"),
        (["gpt3-smal"], "no recipe 'gpt3-smal'. Did you mean 'gpt3-small'?"),
        (["gpt3-small"], "train names no file; give your own text with --text FILE."),
        (["text.txt"], "text.txt is no recipe (.toml); `seqwright train --text text.txt`"),
        (["--labeled", "./text.txt", "text.txt"], "named one by one: --labeled ./text.txt --labeled text.txt."),
        (["--text", "text.txt", "--model", "lsmt"], "no model kind 'lsmt'. Did you mean 'lstm'?"),
        (["--text", "text.txt", "--set", "tokenizer.kind=word"], "Did you mean 'words'?"),
        (["--text", "text.txt", "--set", "model.layers"], "expected key=value, as in --set training.steps=100."),
        (["--text", "text.txt", "--set", "model.width=100", "--set", "model.heads=8"], "try 96 or 104."),
        (["--text", "text.txt", "--set", "training.seed=-1"], "seed must be 0 or more"),
        (
            ["--text", "text.txt", "--set", "training.learning_rate=nan"],
            "training.learning_rate must be a number, not NaN.",
        ),
        (["--text", "text.txt", "--set", "data.split=10%"], 'write "tail 5%" or "documents 5%".'),
        (["--text", "text.txt", "--set", "data=3"], "'data' is a section"),
        (
            ["--text", "text.txt", "--set", "training.sequence_length=4096"],
            "but the model sees at most 32 tokens; lower it.",
        ),
        (["--text", "text.txt", "--set", "model.context=4096"], "fewer than one window of 4096; set model.context to"),
        (["--text", "text.txt", "--set", "data.examples=bptt"], "lower training.sequence_length"),
        (
            ["--text", "text.txt", "--set", "data.examples=bptt", "--set", "model.positions=learned"],
            "set model.positions to rope, alibi, t5 or none",
        ),
        (
            ["--text", "text.txt", "--set", "training.device=cuda"],
            "no 'cuda' device; training.device can be auto or cpu",
        ),
        (["--text", "text.txt", "--run", "text.txt"], "text.txt is a file. Name a new folder with --run."),
        (["--text", "text.txt", "--run", "."], "holds other things (text.txt). Choose an empty folder with --run."),
        (["--text", "ol\udce9.txt"], r"the argument 'ol\udce9.txt' is not UTF-8"),
    ],
    ids=lambda value: " ".join(value).encode("ascii", "replace").decode() if isinstance(value, list) else "",
)
def test_train_rejects_invalid_arguments(seqwright: Command, workdir: Path, arguments: list[str], message: str) -> None:
    result = seqwright("train", *arguments)
    assert result.status == 2
    assert message in result.err
    assert result.out == ""
    assert files(workdir) - {"runs"} == {"text.txt"}


def test_a_table_in_place_of_a_recipe_is_labeled_first(seqwright: Command, workdir: Path) -> None:
    (workdir / "table.csv").write_text("text,label\na,b\n")
    assert "is no recipe (.toml); `seqwright train --labeled table.csv`" in seqwright("train", "table.csv").err


SHARE = "must be at least 0 and below 1, not"
OUT_OF_RANGE = [
    *[
        ("text", kind, f"model.dropout={share}", SHARE)
        for kind in KINDS_WITH_DROPOUT["text"]
        for share in ("1.5", "-0.5", "3")
    ],
    *[
        ("pairs", kind, f"model.dropout={share}", SHARE)
        for kind in KINDS_WITH_DROPOUT["pairs"]
        for share in ("1.5", "-0.5", "3")
    ],
    ("text", "gpt", "model.latent_dropout=0.2", "set softmaxes above 1, or leave it out"),
    *[("text", "gpt", f"model.ffn_width={size}", "ffn_width must be at least 1") for size in (-3, 0)],
    *[("pairs", "transformer", f"model.ffn_width={size}", "ffn_width must be at least 1") for size in (-3, 0)],
    *[
        ("text", kind, f"model.embedding={n}", "embedding must be at least 1")
        for kind in ("lstm", "feedforward")
        for n in (-2, 0)
    ],
    ("pairs", "gru", "model.embedding=0", "embedding must be at least 1"),
    *[("text", "gpt", f"training.{key}=1", f"{key} {SHARE} 1.0") for key in ("beta1", "beta2")],
    ("text", "gpt", "name=3", "name must be a string that can name a folder, without / or \\, not 3."),
    ("text", "gpt", "name=", "name must be a string that can name a folder"),
    ("text", "gpt", "name=..", "name must be a string that can name a folder"),
    ("text", "gpt", "name=a/b", "name must be a string that can name a folder"),
    ("text", "gpt", "name=a\\b", "name must be a string that can name a folder"),
]


@pytest.mark.parametrize(("data", "kind", "setting", "message"), OUT_OF_RANGE)
def test_hyperparameters_out_of_range_are_rejected(
    seqwright: Command, workdir: Path, data: str, kind: str, setting: str, message: str
) -> None:
    data_options = ["--text", "text.txt"] if data == "text" else ["--pairs", "text.txt", "text.txt"]
    result = seqwright("train", *data_options, "--model", kind, "--set", setting)
    assert result.status == 2
    assert result.err.startswith(f"error: --set {setting}: ")
    assert message in result.err
    assert files(workdir) == {"text.txt"}


@pytest.mark.parametrize("settings", [[], ["--set", "model.context=4096"]], ids=["valid", "invalid"])
def test_train_never_overwrites_a_users_recipe(seqwright: Command, workdir: Path, settings: list[str]) -> None:
    (workdir / "exp").mkdir()
    written = '[data]\ntrain = "../text.txt"\n'
    (workdir / "exp" / "recipe.toml").write_text(written)
    for _ in range(2):
        result = seqwright("train", "exp/recipe.toml", *TINY_GPT, *settings, "--run", "exp")
        assert result.status == 2
        assert "exp is not a run and holds other things (recipe.toml). Choose an empty folder with --run." in result.err
    assert (workdir / "exp" / "recipe.toml").read_text() == written
    assert files(workdir) == {"text.txt", "exp", "exp/recipe.toml"}


def test_train_leaves_a_users_empty_folder_alone(seqwright: Command, workdir: Path) -> None:
    (workdir / "exp").mkdir()
    result = seqwright("train", "--text", "text.txt", "--set", "model.context=4096", "--run", "exp")
    assert result.status == 2
    assert files(workdir) == {"text.txt", "exp"}


def test_check_rejects_models_with_a_too_short_context(seqwright: Command, workdir: Path) -> None:
    for context, status in (("1", 2), ("2", 2), ("3", 0)):
        run = f"run{context}"
        short = tiny(f"model.context={context}", "training.steps=1")
        assert seqwright("train", "--text", "text.txt", *short, "--run", run).status == 0
        result = seqwright("check", run)
        assert result.status == status, result.out
        assert status == 0 or f"{run} has a context of {context} tokens, but the laws need 3" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "RUN", "--temperature", "-1"], "temperature must be 0 (greedy) or more, not -1.0."),
        (["generate", "RUN", "--temperature", "nan"], "decoding.temperature must be a number"),
        (["generate", "RUN", "--top-p", "1.5"], "top_p is a probability: above 0 and at most 1, not 1.5."),
        (["generate", "RUN", "--top-k", "0"], "top_k must be at least 1, not 0."),
        (["generate", "RUN", "--max-tokens", "0"], "max_tokens must be at least 1, not 0."),
        (["generate", "RUN", "--stop", ""], "it would end every output at once."),
        (["generate", "RUN", "--seed", str(1 << 63)], "seed must fit in 64 bits"),
        (["generate", "RUN", "--set", "decoding.top_q=1"], "[decoding] has no key 'top_q'. Did you mean 'top_p'?"),
        (["generate", "RUN", "--set", "model.width=1"], "here only keys of [decoding] can be set"),
        (["generate", "RUN", "--device", "gpu"], "'gpu' is not one of"),
        (["generate", "RUN", "ol\udce9"], r"the argument 'ol\udce9' is not UTF-8"),
        (["generate", "RUN", "--prompts", "none.txt"], "no file none.txt."),
        (["evaluate", "RUN", "--set", "evaluation.strid=1"], "Did you mean 'stride'?"),
        (["evaluate", "RUN", "--set", "evaluation.seed=-1"], "seed must not be below 0"),
        (["evaluate", "RUN", "text.txt"], "name files with --on, as in --on text.txt."),
        (["evaluate", "RUN", "--on", "txet.txt"], "no file txet.txt. Did you mean 'text.txt'?"),
        (["score", "RUN", "none.txt"], "no file none.txt."),
        (["tokenize", "text.txt"], "text.txt"),
        (["check", "nowhere"], "no run at nowhere. Train one: `seqwright train --text FILE --run nowhere`"),
        (["check", "text.txt"], "text.txt is a file. Name the folder of a run."),
        (["check", "."], ". is not a run: environment.json is missing."),
        (["runs", "nowhere"], "no runs in nowhere; `seqwright train --text FILE` makes one."),
        (["recipes", "gtp2"], "no recipe 'gtp2'. Did you mean 'gpt2'?"),
        (["recipe"], "no command 'recipe'. Did you mean 'recipes'?"),
        (["generate"], "error: missing argument 'RUN'."),
    ],
    ids=lambda value: " ".join(value).encode("ascii", "replace").decode() if isinstance(value, list) else "",
)
def test_commands_reject_invalid_arguments(
    seqwright: Command, workdir: Path, trained: Path, arguments: list[str], message: str
) -> None:
    result = seqwright(*(str(trained) if item == "RUN" else item for item in arguments))
    assert result.status == 2
    assert message in result.err
    assert files(workdir) == {"text.txt"}


def test_stdin_that_is_not_utf8_is_rejected(seqwright: Command, trained: Path) -> None:
    result = seqwright("score", trained, input=b"fine\nbro\xffken\n")
    assert result.status == 2
    assert "standard input, line 2: not UTF-8 at byte 4 of the line (0x" in result.err


def test_argv_that_is_not_utf8_is_rejected(workdir: Path, trained: Path) -> None:
    result = finish(start("generate", trained, "ol\udce9", cwd=workdir))
    assert (result.status, result.out) == (2, "")
    assert result.err == "error: the argument 'ol\\udce9' is not UTF-8; write it (or rename the file) in UTF-8.\n"


def test_invalid_validation_text_is_rejected(seqwright: Command, workdir: Path) -> None:
    (workdir / "empty.txt").touch()
    result = seqwright("train", "--text", "text.txt", "--valid", "empty.txt", *TINY, "--run", "run")
    assert result.status == 2
    assert "empty.txt is empty; name a file with text." in result.err
    assert files(workdir) == {"text.txt", "empty.txt"}


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("--pairs", "a cat\tone c\xe9t\n"),
        ("--labeled", "cat\tone c\xe9t\ndog\ta dog\n"),
        ("--chat", '{"messages": [{"role": "assistant", "content": "c\xe9t"}]}\n'),
    ],
)
def test_replaced_bytes_of_validation_data_are_reported(
    seqwright: Command, workdir: Path, kind: str, line: str
) -> None:
    names = [name + (".tsv" if "\t" in line else ".jsonl") for name in ("train", "valid")]
    for name, encoding in zip(names, ("utf-8", "latin-1"), strict=True):
        (workdir / name).write_text(line * 20, encoding=encoding)
    settings = ("--set", "data.errors=replace", "--set", "training.steps=1")
    result = seqwright("train", kind, names[0], "--valid", names[1], *settings, "--run", "run")
    assert result.status == 0, result.err
    assert f"{names[1]}: 20 decoding errors were replaced by U+FFFD." in result.err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["train", "--text", "text.txt", "--steps", "10"], "--set training.steps=…"),
        (["train", "--text", "text.txt", "--lr", "0.1"], "--set training.learning_rate=…"),
        (["train", "--text", "text.txt", "--set", "steps=10"], "Did you mean training.steps?"),
        (["train", "--text", "text.txt", "--set", "n_layer=2"], "Did you mean model.layers?"),
        (["generate", "run", "--max-new-tokens", "3"], "Did you mean --max-tokens?"),
        (["generate", "run", "--num-beams", "3"], "Did you mean --beam?"),
        (["resume", "run"], "`seqwright train --run RUN` resumes"),
        (["predict", "run"], "`seqwright classify`"),
        (["serve", "run"], "Not yet a command"),
        (["evaluate", "trained"], "Did you mean runs/trained?"),
        (["evaluate", "runs/deep"], "Did you mean runs/deeper/deep?"),
        (["train", "--text", "latin.txt"], "--set data.encoding=latin-1"),
        (["score", "runs/trained", "latin.txt"], "--set data.encoding=latin-1"),
        (["score", "runs/trained", "latin.txt", "--encoding", "latin-1"], "--set data.encoding=…"),
    ],
)
def test_habits_of_other_tools_are_met_with_the_right_name(
    seqwright: Command, workdir: Path, trained: Path, arguments: list[str], hint: str
) -> None:
    shutil.copytree(trained, workdir / "runs" / "trained")
    shutil.copytree(trained, workdir / "runs" / "deeper" / "deep")
    (workdir / "latin.txt").write_bytes("un café au lait\n".encode("latin-1"))
    result = seqwright(*arguments)
    assert result.status == 2
    assert hint in result.err


def test_missing_device_names_its_option(seqwright: Command, trained: Path) -> None:
    missing = "mps" if torch.cuda.is_available() else "cuda"  # no machine has both
    assert "--device can be auto or cpu" in seqwright("generate", trained, "the", "--device", missing).err
    result = seqwright("train", "--text", "text.txt", "--set", f"training.device={missing}")
    assert "training.device can be auto or cpu" in result.err


@pytest.mark.parametrize(
    ("type", "message"),
    [
        (click.IntRange(1), "--n must be at least 1, not 0."),
        (click.FloatRange(0, min_open=True), "--n must be above 0, not 0.0."),
        (click.IntRange(1, 100), "--n must be from 1 to 100, not 0."),
        (click.FloatRange(0, 1, min_open=True, max_open=True), "0.0 is not in the range 0<x<1."),
        (click.FloatRange(1e-5), "0.0 is not in the range x>=1e-05."),
    ],
)
def test_numbers_outside_of_their_range_are_refused_with_its_bounds(type: click.ParamType, message: str) -> None:
    command = click.Command("plan", params=[click.Option(["--n"], type=type)])
    with pytest.raises(click.UsageError) as caught:
        command.main(["--n", "0"], prog_name="seqwright", standalone_mode=False)
    assert usage_message(caught.value).endswith(f"{message} `seqwright --help` shows the usage.")
