"""Chat data: the chat template, loss on the assistant's tokens only, and errors that name file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.data.chat import (
    ChatConfig,
    ChatTemplate,
    Conversations,
    Message,
    messages_of,
    read_conversations,
    read_splits,
)
from seqwright.data.samples.text import embedded_text
from seqwright.text.special_tokens import with_special_tokens
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

TALK = (
    Message("system", "be"),
    Message("user", "hi"),
    Message("assistant", "yes"),
    Message("user", "<|end|>"),
    Message("assistant", ""),
)


def chat_template() -> ChatTemplate:
    config = ChatConfig(train="talks.jsonl")
    return ChatTemplate(with_special_tokens(train(TokenizerConfig(kind="bytes"), []), config.markers), config)


def line(*messages: tuple[str, str]) -> str:
    return json.dumps({"messages": [{"role": role, "content": content} for role, content in messages]})


def test_loss_mask_covers_assistant_tokens_and_end_markers_only() -> None:
    template = chat_template()
    ids, loss_mask = template.encode(TALK)
    tokens = template.tokenizer.tokens(ids)
    shown = [f"[{token}]" if loss else token for token, loss in zip(tokens, loss_mask, strict=True)]
    assert " ".join(shown) == (
        "<sos> <|system|> b e <|end|> <|user|> h i <|end|> <|assistant|> [y] [e] [s] [<|end|>] "
        "<|user|> < | e n d | > <|end|> <|assistant|> [<|end|>]"  # text is never encoded as a marker
    )
    assert template.prompt(TALK[:2]) == ids[:10]


def test_targets_are_the_next_ids_of_the_assistant() -> None:
    template = chat_template()
    feed = Conversations([TALK, TALK[1:3]], template, context=64, batch=2, seed=0)
    batch = feed.batch(0)
    for input, target in zip(batch.input, batch.target, strict=True):
        positions = (target != IGNORE).nonzero().flatten().tolist()
        assert all(target[t] == input[t + 1] for t in positions if t + 1 < len(input) and input[t + 1] != feed.pad)
    assert feed.targets == batch.count == (4 + 1) + 4
    assert (feed.cut, feed.steps_per_epoch) == (0, 1)


def test_every_conversation_once_per_epoch_in_a_different_order() -> None:
    talks = [(Message("user", str(n)), Message("assistant", str(n))) for n in range(10, 21)]
    feed = Conversations(talks, chat_template(), context=64, batch=4, seed=3)
    epochs = [[tuple(row) for n in range(3) for row in feed.batch(3 * epoch + n).input.tolist()] for epoch in (0, 1)]
    assert len(set(epochs[0])) == 11
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert epochs[0] != epochs[1]


def test_long_conversations_are_split_into_chunks_and_counted() -> None:
    talk = (Message("user", "x" * 40), Message("assistant", "y" * 13))
    feed = Conversations([talk, TALK[1:3]], chat_template(), context=16, batch=8, seed=0)
    assert (feed.cut, feed.without_loss) == (1, 2)
    whole = Conversations([talk, TALK[1:3]], chat_template(), context=1000, batch=8, seed=0)
    assert feed.targets == whole.targets == 14 + 4
    assert all(len(input) <= 16 for input, _ in feed.examples)
    assert feed.fingerprint != whole.fingerprint


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("not json", "line 2 is no JSON object"),
        ("[]", "not an object with keys"),
        ("{}", 'line 2 is no conversation: write {"messages"'),
        ('{"messages": [{"role": "user"}]}', 'has a "role" and a string "content"'),
        (line(("user", "a"), ("assistance", "b")), "no role 'assistance'. Did you mean 'assistant'?"),
        (line(("user", "a")), "no turn of the assistant"),
    ],
)
def test_malformed_conversations_are_errors_with_their_line(tmp_path: Path, bad: str, message: str) -> None:
    file = tmp_path / "talks.jsonl"
    file.write_text(line(("user", "a"), ("assistant", "b")) + "\n" + bad + "\n")
    with pytest.raises(UserError) as caught:
        read_conversations(str(file))
    assert message in str(caught.value)
    assert f"{file}, line 2" in str(caught.value)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ({"role": "user", "content": "a"}, r"write \[{\"role\": \"user\""),
        (5, "write .*, not 5"),
        (None, "write .*, not None"),
        ([], r"write .*, not \[\]"),
        ([{"role": "user", "content": None}], 'one is {"role": "user", "content": null}'),
        ([{"content": "a"}], 'a message has a "role" and a string "content"'),
        (["a"], 'one is "a"'),
        ([{"role": "usr", "content": "a"}], "no role 'usr'. Did you mean 'user'"),
    ],
)
def test_malformed_messages_say_what_is_wrong(messages: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        messages_of(messages)


def test_a_json_array_of_conversations_is_no_file_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    file.write_text(f"[{line(('user', 'a'), ('assistant', 'b'))}]")
    with pytest.raises(UserError, match="is a JSON array; write one conversation a line"):
        read_conversations(str(file))


def test_split_of_conversations_is_disjoint(tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    file.write_text("\n".join(line(("user", str(n)), ("assistant", "yes")) for n in range(50)) + "\n\n")
    training, held_out, _ = read_splits(ChatConfig(train=str(file), split="documents 20%"))
    assert held_out
    assert len(training) + len(held_out) == 50
    assert not set(training) & set(held_out)


@pytest.mark.parametrize("options", [{}, {"train": "a", "user": "<|end|>"}, {"train": "a", "split": "x"}])
def test_invalid_chat_config_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        ChatConfig(**options)


def test_embedded_questions() -> None:
    lines = embedded_text("embedded:questions").split("\n")
    assert len(lines) > 500
    assert any("calendar" in line for line in lines)


@pytest.mark.parametrize("kind", ["words", "characters", "bytes", "byte-bpe", "bpe", "unigram", "wordpiece"])
def test_added_special_tokens_come_last_and_keep_other_ids(kind: Any) -> None:
    text = "to be or not to be <eos> "
    size = {"byte-bpe": 300, "bpe": 40, "unigram": 40, "wordpiece": 40}.get(kind)
    before = train(TokenizerConfig(kind=kind, size=size), [text])
    after = with_special_tokens(before, ["<|user|>", "<eos>", "<|end|>"])
    assert after.size == before.size + 2
    assert after.special_tokens == before.special_tokens | {"<|user|>": before.size, "<|end|>": before.size + 1}
    assert after.encode(text) == before.encode(text)
    assert before.size not in after.encode("say <|user|>")  # typed, it stays text
    assert after.decode([*after.encode(text), before.size]) == before.decode(before.encode(text))
    assert Tokenizer(after.json).special_tokens == after.special_tokens
    assert with_special_tokens(after, ["<|end|>"]) is after


def test_a_word_of_the_vocabulary_cannot_become_a_special_token() -> None:
    known = train(TokenizerConfig(kind="words"), ["say <|user|> twice"])
    with pytest.raises(UserError, match="choose another name"):
        with_special_tokens(known, ["<|user|>"])
