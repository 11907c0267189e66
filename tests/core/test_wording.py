"""Messages name options on the command line and parameters in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import seqwright as sw
from seqwright.core.config import UserError
from seqwright.core.wording import on_command_line, worded


@pytest.mark.parametrize(
    ("message", "in_python"),
    [
        ("name others with --on FILE.", 'name others with on="FILE".'),
        ("--on SOURCE TARGET", 'on=["SOURCE", "TARGET"]'),
        ("train it with --set data.refit=false.", 'train it with set=["data.refit=false"].'),
        ("values, as in --set model.width=64,128.", 'values, as in set=["model.width=64,128"].'),
        ('--set data.split="tail 5%"', "set=['data.split=\"tail 5%\"']"),
        ("--columns label=NAME,text=NAME.", 'columns={"label": "NAME", "text": "NAME"}.'),
        ("give --vocabulary N, or --measure", "give vocabulary=N, or measured=True"),
        ("--trust, --skip-bad-rows", 'trust=True, set=["data.bad_rows=skip"]'),
        ("another folder: --run runs/a-2, or --from runs/a", 'another folder: run="runs/a-2", or base="runs/a"'),
        ("words: --on 'a few words'.", "words: on='a few words'."),
        # A command is for a shell, and what Python has no parameter for stays as it is.
        ("go on: `seqwright train --run runs/a`, or see --html FILE", None),
    ],
)
def test_options_are_parameters_in_python(message: str, in_python: str | None) -> None:
    with on_command_line(False):
        assert str(UserError(message)) == worded(message) == (in_python or message)
        assert worded(worded(message)) == worded(message)
    with on_command_line():
        assert str(UserError(message)) == message


def test_errors_and_warnings_of_the_api_name_parameters(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c\n" * 50, encoding="utf-8")
    latin = tmp_path / "latin.txt"
    latin.write_text("größer\n" * 50, encoding="utf-8")
    with on_command_line(False):
        run = sw.train(text=text, model="ngram", run=tmp_path / "run")
        with pytest.raises(UserError, match=r'with on="FILE", or train it without: `seqwright train'):
            run.evaluate()
        with pytest.raises(UserError, match=r"^minutes and training.steps both set the length"):
            sw.train(text=text, minutes=1, set="training.steps=3")
        with pytest.raises(UserError, match='text="FILE"'):
            sw.train()
        with pytest.raises(UserError, match=r'^set=\["training.stps=3"\]: '):
            sw.train(text=text, set="training.stps=3")
        with pytest.warns(sw.SeqwrightWarning, match=r'set=\["data.encoding=utf-8"\] reads it as UTF-8'):
            sw.train(text=latin, model="ngram", set="data.encoding=latin-1", run=tmp_path / "latin")
