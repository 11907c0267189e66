"""What users get wrong: one clear error that says the next move, exit code 2, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwright import build
from seqwright.core.config import describe
from tests.journeys.commands import TINY, TINY_GPT, ended, files, start, text_of
from tests.journeys.conftest import Command

DROPPING = {
    task: [
        kind for kind, (config, _) in task_spec.models.items() if any(key.name == "dropout" for key in describe(config))
    ]
    for task, task_spec in build.TASKS.items()
}
"""Kinds with dropout, by task."""


def tiny(*settings: str) -> list[str]:
    return [*TINY_GPT, *(item for setting in settings for item in ("--set", setting))]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "bad.txt is empty."),
        (b"\xef\xbb\xbf", "bad.txt is empty."),
        (
            b"one line\n",
            "text has 8 tokens, fewer than one window of 16; set model.context to 2 or so, or give more text.",
        ),
        (b"two words", "fewer than one window of 16; set model.context to 2 or so, or give more text."),
        (b"x", "leaves one side empty; hold out another share, or name a file in data.valid."),
        (
            bytes(range(256)) * 4,
            "looks binary or UTF-16: NUL at byte 0 (line 1); give a UTF-8 text file, or set data.errors",
        ),
        (
            b"fine\n" * 400 + b"ol\xe9\n",
            "is not UTF-8: 0xe9 at byte 2,002 (line 401); give a UTF-8 text file, or set data.e",
        ),
    ],
    ids=["empty", "mark only", "one line", "two words", "one letter", "binary", "broken UTF-8"],
)
def test_texts_that_cannot_be_learned(seqwright: Command, here: Path, content: bytes, message: str) -> None:
    (here / "bad.txt").write_bytes(content)
    before = files(here)
    said = seqwright("train", "--text", "bad.txt", *TINY_GPT, "--run", "runs/bad")
    assert said.status == 2
    assert message in said.err
    assert files(here) - before <= {"runs"}


def test_a_line_and_two_words_are_enough_to_count(seqwright: Command, here: Path) -> None:
    (here / "two.txt").write_text("two words")
    assert seqwright("train", "--text", "two.txt", "--model", "ngram", "--run", "counted").status == 0
    assert seqwright("generate", "counted", "two", "--max-tokens", "3").status == 0


def test_broken_text_is_read_when_asked(seqwright: Command, here: Path) -> None:
    (here / "bad.txt").write_bytes(text_of(60).encode() + b"ol\xe9\n")
    said = seqwright("train", "--text", "bad.txt", *tiny("data.errors=replace"), "--run", "run")
    assert said.status == 0, said.err
    assert "bad.txt: 1 decoding errors were replaced by U+FFFD." in " ".join(said.err.split())


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


def test_every_problem_of_a_recipe_is_reported_at_once(seqwright: Command, here: Path) -> None:
    (here / "mine.toml").write_text(RECIPE)
    said = seqwright("train", "mine.toml", "--set", "decoding.top_q=3")
    assert said.status == 2
    for problem in (
        "mine.toml: a recipe has no section [modl]. Did you mean 'model'?",
        "mine.toml: [model] has no key 'layer'. Did you mean 'layers'?",
        'mine.toml: training.learning_rate must be a number, not "fast".',
        "mine.toml: [training] has no key 'bacth_size'. Did you mean 'batch_size'?",
        "--set decoding.top_q=3: [decoding] has no key 'top_q'. Did you mean 'top_p'?",
    ):
        assert problem in said.err
    assert files(here) == {"text.txt", "mine.toml"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "txet.txt"], "no file txet.txt. Did you mean 'text.txt'?"),
        ([], "name a recipe, or give your own data with --text FILE"),
        (["--run", "nowhere"], "no run at nowhere to go on with; name a recipe, or give your own data"),
        (["--valid", "text.txt", "--run", "nowhere"], "give your own data with --text FILE"),
        (["gpt3-smal"], "no recipe 'gpt3-smal'. Did you mean 'gpt3-small'?"),
        (["gpt3-small"], "train names no file; give your own text with --text FILE."),
        (["text.txt"], "text.txt is no valid TOML"),
        (["--labeled", "a.tsv", "text.txt"], "named one by one: --labeled a.tsv --labeled text.txt."),
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
        (["--text", "text.txt", "--set", "data.examples=bptt"], 'use data.examples = "windows".'),
        (["--text", "text.txt", "--set", "training.device=cuda"], "no 'cuda' device; use training.device=auto or cpu."),
        (["--text", "text.txt", "--run", "text.txt"], "Choose a folder that is yours to write."),
        (["--text", "text.txt", "--run", "."], "holds other things (text.txt). Choose an empty folder with --run."),
        (["--text", "ol\udce9.txt"], r"the argument 'ol\udce9.txt' is not UTF-8"),
    ],
    ids=lambda value: " ".join(value).encode("ascii", "replace").decode() if isinstance(value, list) else "",
)
def test_training_asked_for_wrongly(seqwright: Command, here: Path, arguments: list[str], message: str) -> None:
    said = seqwright("train", *arguments)
    assert said.status == 2
    assert message in said.err
    assert said.out == ""
    assert files(here) - {"runs"} == {"text.txt"}


SHARE = "is a share: 0 or more and below 1, not"
WRONG = [
    *[("text", kind, f"model.dropout={share}", SHARE) for kind in DROPPING["text"] for share in ("1.5", "-0.5", "3")],
    *[("pairs", kind, f"model.dropout={share}", SHARE) for kind in DROPPING["pairs"] for share in ("1.5", "-0.5", "3")],
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


@pytest.mark.parametrize(("data", "kind", "setting", "message"), WRONG)
def test_values_that_make_no_sense(
    seqwright: Command, here: Path, data: str, kind: str, setting: str, message: str
) -> None:
    given = ["--text", "text.txt"] if data == "text" else ["--pairs", "text.txt", "text.txt"]
    said = seqwright("train", *given, "--model", kind, "--set", setting)
    assert said.status == 2
    assert said.err.startswith(f"error: --set {setting}: ")
    assert message in said.err
    assert files(here) == {"text.txt"}


@pytest.mark.parametrize("settings", [[], ["--set", "model.context=4096"]], ids=["would do", "fails"])
def test_a_recipe_of_ones_own_is_never_lost(seqwright: Command, here: Path, settings: list[str]) -> None:
    (here / "exp").mkdir()
    written = '[data]\ntrain = "../text.txt"\n'
    (here / "exp" / "recipe.toml").write_text(written)
    for _ in range(2):
        said = seqwright("train", "exp/recipe.toml", *TINY_GPT, *settings, "--run", "exp")
        assert said.status == 2
        assert "exp is not a run and holds other things (recipe.toml). Choose an empty folder with --run." in said.err
    assert (here / "exp" / "recipe.toml").read_text() == written
    assert files(here) == {"text.txt", "exp", "exp/recipe.toml"}


def test_a_folder_of_ones_own_is_left_as_it_was(seqwright: Command, here: Path) -> None:
    (here / "exp").mkdir()
    said = seqwright("train", "--text", "text.txt", "--set", "model.context=4096", "--run", "exp")
    assert said.status == 2
    assert files(here) == {"text.txt", "exp"}


def test_a_model_that_sees_too_little_to_check(seqwright: Command, here: Path) -> None:
    for context, status in (("1", 2), ("2", 2), ("3", 0)):
        run = f"run{context}"
        short = tiny(f"model.context={context}", "training.steps=1")
        assert seqwright("train", "--text", "text.txt", *short, "--run", run).status == 0
        said = seqwright("check", run)
        assert said.status == status, said.out
        assert status == 0 or f"{run} sees {context} of the 3 tokens that the laws are checked on" in said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "RUN", "--temperature", "-1"], "temperature must be 0 (greedy) or more, not -1.0."),
        (["generate", "RUN", "--temperature", "nan"], "decoding.temperature must be a number"),
        (["generate", "RUN", "--top-p", "1.5"], "top_p is a share of the probability: above 0 and at most 1, not 1.5."),
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
        (["check", "nowhere"], "no run at nowhere. Train one with `seqwright train --run nowhere`."),
        (["check", "text.txt"], "text.txt is a file. Name the folder of a run."),
        (["check", "."], ". is not a run: environment.json is missing."),
        (["runs", "nowhere"], "no runs in nowhere; `seqwright train --text FILE` makes one."),
        (["recipes", "gtp2"], "no recipe 'gtp2'. Did you mean 'gpt2'?"),
        (["recipe"], "no command 'recipe'. Did you mean 'recipes'?"),
        (["generate"], "Missing argument 'RUN'."),
    ],
    ids=lambda value: " ".join(value).encode("ascii", "replace").decode() if isinstance(value, list) else "",
)
def test_a_run_used_wrongly(seqwright: Command, here: Path, trained: Path, arguments: list[str], message: str) -> None:
    said = seqwright(*(str(trained) if item == "RUN" else item for item in arguments))
    assert said.status == 2
    assert message in said.err
    assert files(here) == {"text.txt"}


def test_input_that_is_no_text(seqwright: Command, trained: Path) -> None:
    said = seqwright("score", trained, input=b"fine\nbro\xffken\n")
    assert said.status == 2
    assert "standard input, line 2: not UTF-8 at byte 3 of the line; save it as UTF-8." in said.err


def test_an_argument_that_is_no_text_in_a_process_of_its_own(here: Path, trained: Path) -> None:
    said = ended(start("generate", trained, "ol\udce9", cwd=here))
    assert (said.status, said.out) == (2, "")
    assert said.err == "error: the argument 'ol\\udce9' is not UTF-8; write it (or rename the file) in UTF-8.\n"


def test_the_validation_text_is_looked_at_too(seqwright: Command, here: Path) -> None:
    (here / "empty.txt").touch()
    said = seqwright("train", "--text", "text.txt", "--valid", "empty.txt", *TINY, "--run", "run")
    assert said.status == 2
    assert "empty.txt is empty." in said.err
    assert files(here) == {"text.txt", "empty.txt"}


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("--pairs", "a cat\tone c\xe9t\n"),
        ("--labeled", "cat\tone c\xe9t\ndog\ta dog\n"),
        ("--chat", '{"messages": [{"role": "assistant", "content": "c\xe9t"}]}\n'),
    ],
)
def test_what_is_mended_in_validation_data_is_said(seqwright: Command, here: Path, kind: str, line: str) -> None:
    names = [name + (".tsv" if "\t" in line else ".jsonl") for name in ("train", "valid")]
    for name, encoding in zip(names, ("utf-8", "latin-1"), strict=True):
        (here / name).write_text(line * 20, encoding=encoding)
    settings = ("--set", "data.errors=replace", "--set", "training.steps=1")
    said = seqwright("train", kind, names[0], "--valid", names[1], *settings, "--run", "run")
    assert said.status == 0, said.err
    assert f"{names[1]}: 20 decoding errors were replaced by U+FFFD." in said.err
