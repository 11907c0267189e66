"""From plain text to a translator that begins with what was learned of it, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from seqwright.core.storage import load_tensors
from tests.journeys.conftest import Command

RECIPE = """
[data]
kind = "denoising"
train = "text.txt"
split = "tail 20%"
length = 12
noise = "{noise}"
[tokenizer]
kind = "words"
[model]
width = 16
layers = 1
heads = 2
context = 32
[training]
steps = 4
batch_size = 8
evaluate_every = 2
"""


PAIR = ("a.src", "a.tgt")


@pytest.mark.parametrize("noise", ["infilling", "spans", "prefix"])
def test_a_translator_begins_with_restored_text(seqwright: Command, here: Path, noise: str) -> None:
    (here / "base.toml").write_text(RECIPE.format(noise=noise))
    said = seqwright("train", "base.toml", "--run", "base")
    assert said.status == 0, said.err
    assert {"nll", "perplexity"} <= seqwright("evaluate", "base", "--on", "text.txt", "--json").json.keys()
    assert seqwright("check", "base").status == 0
    assert "begin translators with" in seqwright("generate", "base", "one").err
    assert len(seqwright("embed", "base", input=b"one\n").out.split()) == 16
    (here / "a.src").write_text("one two\n" * 20)
    (here / "a.tgt").write_text("two one\n" * 20)
    still = ("--set", "training.steps=2", "--set", "training.learning_rate=1e-30", "--set", "training.weight_decay=0")
    said = seqwright("train", "--pairs", *PAIR, "--valid", *PAIR, "--from", "base", "--run", "pairs", *still)
    assert said.status == 0, said.err
    before, after = (load_tensors(here / run / "model.safetensors")[0] for run in ("base", "pairs"))
    assert before.keys() == after.keys()
    assert all(torch.allclose(after[name], before[name], atol=1e-12) for name in after)
    assert (here / "base" / "tokenizer.json").read_text() == (here / "pairs" / "tokenizer.json").read_text()
    assert seqwright("translate", "pairs", input=b"one two\n").status == 0
