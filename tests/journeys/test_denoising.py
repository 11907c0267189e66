"""Denoising pre-training and a translator fine-tuned from it, through the command line."""

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
def test_translator_fine_tuned_from_denoising(seqwright: Command, workdir: Path, noise: str) -> None:
    (workdir / "base.toml").write_text(RECIPE.format(noise=noise))
    result = seqwright("train", "base.toml", "--run", "base")
    assert result.status == 0, result.err
    assert {"nll", "perplexity"} <= seqwright("evaluate", "base", "--on", "text.txt", "--json").json.keys()
    assert seqwright("check", "base").status == 0
    assert "to initialize translators" in seqwright("generate", "base", "one").err
    assert len(seqwright("embed", "base", input=b"one\n").out.split()) == 16
    (workdir / "a.src").write_text("one two\n" * 20)
    (workdir / "a.tgt").write_text("two one\n" * 20)
    still = ("--set", "training.steps=2", "--set", "training.learning_rate=1e-30", "--set", "training.weight_decay=0")
    result = seqwright("train", "--pairs", *PAIR, "--valid", *PAIR, "--from", "base", "--run", "pairs", *still)
    assert result.status == 0, result.err
    before, after = (load_tensors(workdir / run / "model.safetensors")[0] for run in ("base", "pairs"))
    assert before.keys() == after.keys()
    assert all(torch.allclose(after[name], before[name], atol=1e-12) for name in after)
    assert (workdir / "base" / "tokenizer.json").read_text() == (workdir / "pairs" / "tokenizer.json").read_text()
    assert seqwright("translate", "pairs", input=b"one two\n").status == 0
