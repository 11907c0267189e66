"""Assistants as a user meets them: pre-train, fine-tune on conversations, talk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import seqwright
from seqwright.core.storage import load_tensors
from seqwright.data.chat import Message
from seqwright.tasks.chat.task import fitting
from tests.journeys.commands import TINY_GPT, records
from tests.journeys.conftest import Command

STEPS = ("--set", "training.steps=8", "--set", "training.batch_size=4", "--set", "training.schedule=constant")


@pytest.fixture
def talks(here: Path) -> Path:
    """A small file of conversations: a color is answered by an animal."""
    pairs = {"red": "cat", "blue": "dog", "green": "owl"}
    lines = [
        json.dumps({"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]})
        for _ in range(8)
        for asked, said in pairs.items()
    ]
    (here / "talks.jsonl").write_text("\n".join(lines))
    return here / "talks.jsonl"


def test_a_language_model_becomes_an_assistant(seqwright: Command, copy: Path, talks: Path) -> None:
    said = seqwright("train", "--chat", "talks.jsonl", "--from", "run", *STEPS, "--run", "helper", "--json")
    assert said.status == 0, said.err
    old, new = (json.loads((Path(run) / "tokenizer.json").read_text()) for run in ("run", "helper"))
    assert new["model"] == old["model"]
    assert [token["content"] for token in new["added_tokens"][-4:]] == [
        *("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
    ]
    before, after = (load_tensors(Path(run) / "model.safetensors")[0] for run in ("run", "helper"))
    assert before.keys() == after.keys()
    assert len(after["embedding.weight"]) == len(before["embedding.weight"]) + 4
    said = seqwright("chat", "helper", "--json", "--max-tokens", "5", input=b"red\nblue\n/new\n\nred\n/quit\nnever\n")
    assert said.status == 0, said.err
    assert [set(line) for line in said.lines] == [{"role", "content", "reason", "forgotten", "unread"}] * 3
    assert said.lines[0] == said.lines[2]  # the same beginning, the same answer
    plain = seqwright("chat", "helper", "--max-tokens", "5", input=b"red\n")
    assert plain.out == said.lines[0]["content"] + "\n"
    assert seqwright("evaluate", "helper", "--on", "talks.jsonl", "--json").json["tokens"] == 24 * 4


def test_conversations_are_learned(seqwright: Command, here: Path, talks: Path) -> None:
    steps = (
        "--set",
        "training.steps=150",
        "--set",
        "training.learning_rate=0.01",
        "--set",
        "training.evaluate_every=0",
    )
    said = seqwright("train", "--chat", "talks.jsonl", *TINY_GPT, *steps, "--valid", "talks.jsonl", "--run", "helper")
    assert said.status == 0, said.err
    run = seqwright_open("helper")
    answers = {asked: run.chat(asked, temperature=0.0) for asked in ("red", "blue", "green")}
    assert {asked: reply.content for asked, reply in answers.items()} == {"red": "cat", "blue": "dog", "green": "owl"}
    assert {reply.reason for reply in answers.values()} == {"end"}


def seqwright_open(path: str) -> seqwright.Run:
    return seqwright.open(path)


@pytest.mark.parametrize("options", [{}, {"lora_rank": 2, "ema_decay": 0.9}])
def test_fine_tuning_resumes_to_the_same_bits(
    seqwright: Command, copy: Path, talks: Path, options: dict[str, object]
) -> None:
    sets = [part for key, value in options.items() for part in ("--set", f"training.{key}={value}")]
    train = ("train", "--chat", "talks.jsonl", "--from", "run", *sets)
    whole = seqwright(
        *train, *STEPS, "--set", "training.checkpoint_every=1", "--set", "training.keep_last=20", "--run", "one"
    )
    assert whole.status == 0, whole.err
    shutil.copytree("one", "other")
    for name in ("summary.json", "model.safetensors"):
        (Path("other") / name).unlink()
    for step in range(4, 9):
        shutil.rmtree(Path("other") / "checkpoints" / f"step-{step:08d}")
    (Path("other") / "checkpoints" / "latest").write_text("3\n")
    shutil.rmtree("run")  # what it began with is not needed any more
    assert seqwright("train", "--run", "other").status == 0
    assert [record["step"] for record in records(Path("other"), "resume")] == [3]
    one, other = (load_tensors(Path(name) / "model.safetensors")[0] for name in ("one", "other"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not any("parametrizations" in name for name in one)


def test_corrections_leave_the_rest_of_the_encoder_alone(seqwright: Command, copy: Path, talks: Path) -> None:
    lora = ("--set", "training.lora_rank=2")
    assert seqwright("train", "--chat", "talks.jsonl", "--from", "run", *STEPS, *lora, "--run", "helper").status == 0
    before, after = (load_tensors(Path(run) / "model.safetensors")[0] for run in ("run", "helper"))
    for name in before:
        if name.startswith("encoder."):
            changed = not torch.equal(before[name], after[name])
            assert changed == (name.endswith("weight") and before[name].dim() == 2 and "positions" not in name), name


def test_a_long_talk_forgets_its_oldest_turns(seqwright: Command, copy: Path, talks: Path) -> None:
    assert seqwright("train", "--chat", "talks.jsonl", "--from", "run", *STEPS, "--run", "helper").status == 0
    run = seqwright_open("helper")
    talk = (Message("system", "be"), *(Message("user", "red") for _ in range(4)))
    prompt, forgotten = fitting(run.turns, talk, context=16, tokens=4)
    assert forgotten == 3
    assert prompt == run.turns.prompt((talk[0], talk[-1]))
    assert fitting(run.turns, talk, context=None, tokens=4) == (run.turns.prompt(talk), 0)
    messages = [{"role": "user", "content": "red"}] * 5
    assert run.chat(messages, max_tokens=2).forgotten > 0
    asked = "red " * 50
    unread = len(run.turns.prompt((Message("user", asked),))) - run.model.context
    said = seqwright("chat", "helper", "--max-tokens", "2", input=f"{asked}\n".encode())
    assert f"(the first {unread} tokens of what you said do not fit and were not read.)" in said.err
    assert run.chat("red", max_tokens=2).unread == 0


def test_what_cannot_be_is_said(seqwright: Command, copy: Path, talks: Path) -> None:
    said = seqwright("chat", "run", input=b"red\n")
    assert said.status == 2
    assert "which continues text; try `seqwright generate`" in said.err
    said = seqwright("train", "--chat", "talks.jsonl", "--text", "text.txt", "--run", "x")
    assert (said.status, "give one of them" in said.err) == (2, True)
    said = seqwright("train", "--chat", "talks.jsonl", *TINY_GPT, "--set", "training.lora_rank=2", "--run", "x")
    assert (said.status, "--from" in said.err) == (2, True)
    said = seqwright("train", "--chat", "talks.jsonl", "--from", "run", "--set", "model.width=32", "--run", "x")
    assert (said.status, "of another shape" in said.err) == (2, True)
