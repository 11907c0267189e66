"""Assistants end to end: pre-training, fine-tuning on conversations, chat."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import seqwright
from seqwright.core.config import UserError
from seqwright.core.storage import load_tensors
from seqwright.data.chat import Message
from seqwright.tasks.chat.task import fitting
from tests.journeys.commands import TINY_GPT, records
from tests.journeys.conftest import Command

STEPS = ("--set", "training.steps=8", "--set", "training.batch_size=4", "--set", "training.schedule=constant")


@pytest.fixture
def conversations(workdir: Path) -> Path:
    """A small file of conversations: each question is a color, each answer an animal."""
    pairs = {"red": "cat", "blue": "dog", "green": "owl"}
    lines = [
        json.dumps({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]})
        for _ in range(8)
        for question, answer in pairs.items()
    ]
    (workdir / "talks.jsonl").write_text("\n".join(lines))
    return workdir / "talks.jsonl"


def test_fine_tuning_a_language_model_into_an_assistant(
    seqwright: Command, run_copy: Path, conversations: Path
) -> None:
    result = seqwright("train", "--chat", "talks.jsonl", "--from", "run", *STEPS, "--run", "helper", "--json")
    assert result.status == 0, result.err
    old, new = (json.loads((Path(run) / "tokenizer.json").read_text()) for run in ("run", "helper"))
    assert new["model"] == old["model"]
    assert [token["content"] for token in new["added_tokens"][-4:]] == [
        *("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
    ]
    before, after = (load_tensors(Path(run) / "model.safetensors")[0] for run in ("run", "helper"))
    assert before.keys() == after.keys()
    assert len(after["embedding.weight"]) == len(before["embedding.weight"]) + 4
    result = seqwright("chat", "helper", "--json", "--max-tokens", "5", input=b"red\nblue\n/new\n\nred\n/quit\nnever\n")
    assert result.status == 0, result.err
    assert [set(line) for line in result.lines] == [{"role", "content", "reason", "forgotten", "unread"}] * 3
    assert result.lines[0] == result.lines[2]  # the same history, the same reply
    plain = seqwright("chat", "helper", "--max-tokens", "5", input=b"red\n")
    assert seqwright("chat", "helper", "red", "--max-tokens", "5").out == plain.out
    assert plain.out == result.lines[0]["content"] + "\n"
    assert seqwright("evaluate", "helper", "--on", "talks.jsonl", "--json").json["tokens"] == 24 * 4


def test_assistant_learns_conversations(seqwright: Command, workdir: Path, conversations: Path) -> None:
    steps = (
        "--set",
        "training.steps=150",
        "--set",
        "training.learning_rate=0.01",
        "--set",
        "training.evaluate_every=0",
    )
    result = seqwright("train", "--chat", "talks.jsonl", *TINY_GPT, *steps, "--valid", "talks.jsonl", "--run", "helper")
    assert result.status == 0, result.err
    run = seqwright_open("helper")
    replies = {question: run.chat(question, temperature=0.0) for question in ("red", "blue", "green")}
    assert {question: reply.content for question, reply in replies.items()} == {
        "red": "cat",
        "blue": "dog",
        "green": "owl",
    }
    assert {reply.reason for reply in replies.values()} == {"end"}
    for messages in ([{"role": "usr", "content": "red"}], {"role": "user", "content": "red"}, None, 5, []):
        with pytest.raises(UserError, match="no conversation: "):
            run.chat(messages)


def seqwright_open(path: str) -> seqwright.Run:
    return seqwright.open(path)


@pytest.mark.parametrize("options", [{}, {"lora_rank": 2, "ema_decay": 0.9}])
def test_fine_tuning_resumes_bitwise(
    seqwright: Command, run_copy: Path, conversations: Path, options: dict[str, object]
) -> None:
    sets = [part for key, value in options.items() for part in ("--set", f"training.{key}={value}")]
    train = ("train", "--chat", "talks.jsonl", "--from", "run", *sets)
    uninterrupted = seqwright(
        *train, *STEPS, "--set", "training.checkpoint_every=1", "--set", "training.keep_last=20", "--run", "one"
    )
    assert uninterrupted.status == 0, uninterrupted.err
    shutil.copytree("one", "other")
    for name in ("summary.json", "model.safetensors"):
        (Path("other") / name).unlink()
    for step in range(4, 9):
        shutil.rmtree(Path("other") / "checkpoints" / f"step-{step:08d}")
    (Path("other") / "checkpoints" / "latest").write_text("3\n")
    shutil.rmtree("run")  # the base run is not needed to resume
    assert seqwright("train", "--run", "other").status == 0
    assert [record["step"] for record in records(Path("other"), "resume")] == [3]
    one, other = (load_tensors(Path(name) / "model.safetensors")[0] for name in ("one", "other"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not any("parametrizations" in name for name in one)


def test_lora_changes_only_linear_weights_of_the_encoder(
    seqwright: Command, run_copy: Path, conversations: Path
) -> None:
    lora = ("--set", "training.lora_rank=2")
    assert seqwright("train", "--chat", "talks.jsonl", "--from", "run", *STEPS, *lora, "--run", "helper").status == 0
    before, after = (load_tensors(Path(run) / "model.safetensors")[0] for run in ("run", "helper"))
    for name in before:
        if name.startswith("encoder."):
            changed = not torch.equal(before[name], after[name])
            assert changed == (name.endswith("weight") and before[name].dim() == 2 and "positions" not in name), name


def test_chat_drops_the_oldest_turns_beyond_the_context(
    seqwright: Command, run_copy: Path, conversations: Path
) -> None:
    assert seqwright("train", "--chat", "talks.jsonl", "--from", "run", *STEPS, "--run", "helper").status == 0
    run = seqwright_open("helper")
    history = (Message("system", "be"), *(Message("user", "red") for _ in range(4)))
    prompt, forgotten = fitting(run.turns, history, context=16, tokens=4)
    assert forgotten == 3
    assert prompt == run.turns.prompt((history[0], history[-1]))
    assert fitting(run.turns, history, context=None, tokens=4) == (run.turns.prompt(history), 0)
    messages = [{"role": "user", "content": "red"}] * 5
    assert run.chat(messages, max_tokens=2).forgotten > 0
    question = "red " * 50
    unread = len(run.turns.prompt((Message("user", question),))) - run.model.context
    result = seqwright("chat", "helper", "--max-tokens", "2", input=f"{question}\n".encode())
    assert f"(the first {unread} tokens of your message exceed the context and were dropped.)" in result.err
    assert run.chat("red", max_tokens=2).unread == 0


def test_invalid_chat_requests_are_rejected(seqwright: Command, run_copy: Path, conversations: Path) -> None:
    result = seqwright("chat", "run", input=b"red\n")
    assert result.status == 2
    assert "which continues text; try `seqwright generate`" in result.err
    result = seqwright("train", "--chat", "talks.jsonl", "--text", "text.txt", "--run", "x")
    assert (result.status, "give one of them" in result.err) == (2, True)
    result = seqwright("train", "--chat", "talks.jsonl", *TINY_GPT, "--set", "training.lora_rank=2", "--run", "x")
    assert (result.status, "--from" in result.err) == (2, True)
    result = seqwright("train", "--chat", "talks.jsonl", "--from", "run", "--set", "model.width=32", "--run", "x")
    assert (result.status, "of another shape" in result.err) == (2, True)
