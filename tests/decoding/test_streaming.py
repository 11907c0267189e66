"""Streaming: the streamed text is the text before the first stop string, however it is split into chunks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqwright import build
from seqwright.decoding.generate import StopStrings, complete
from seqwright.decoding.options import SamplingOptions
from seqwright.models.language_model import LanguageModel
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train
from tests.contract.kinds import configured

texts = st.text("abc", max_size=12)
stop_strings = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3)


def before_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """The text before the stop string that ends first (of those that end together, the longest); whether it stops."""
    for end in range(len(text) + 1):
        matches = [stop for stop in stops if text[:end].endswith(stop)]
        if matches:
            return text[: end - max(map(len, matches))], True
    return text, False


@given(st.lists(texts, max_size=6), stop_strings)
def test_streamed_text_ends_before_the_first_stop_string(chunks: list[str], stops: list[str]) -> None:
    expected, expect_stop = before_first_stop("".join(chunks), stops)
    matcher = StopStrings(stops)
    streamed = ""
    for chunk in chunks:
        if not matcher.stopped:
            streamed += matcher.feed(chunk)
            assert expected.startswith(streamed)  # nothing is retracted
    assert matcher.stopped == expect_stop
    if not matcher.stopped:
        streamed += matcher.finish()
    assert streamed == expected


@given(st.lists(texts, max_size=6), stop_strings)
def test_only_prefixes_of_stop_strings_are_held_back(chunks: list[str], stops: list[str]) -> None:
    matcher = StopStrings(stops)
    for chunk in chunks:
        matcher.feed(chunk)
        if matcher.stopped:
            return
        assert not matcher.held or any(stop.startswith(matcher.held) for stop in stops)


def test_text_without_stop_strings_is_streamed_at_once() -> None:
    matcher = StopStrings(())
    assert [matcher.feed(chunk) for chunk in ("on", "ce ", "upon")] == ["on", "ce ", "upon"]
    assert matcher.finish() == ""


def test_prefix_of_a_stop_string_is_held_until_it_is_decided() -> None:
    matcher = StopStrings(["\n\n"])
    assert matcher.feed("a\n") == "a"
    assert matcher.feed("b\n") == "\nb"
    assert matcher.feed("\nc") == ""
    assert matcher.stopped


PROMPTS = ["ăn", "", "quả nhớ kẻ trồng cây"]


@pytest.fixture(scope="module", params=["characters", "bytes"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train(TokenizerConfig(kind=request.param), ["ăn quả nhớ kẻ trồng cây", "có chí thì nên"])


@pytest.fixture
def model(tokenizer: Tokenizer) -> LanguageModel:
    torch.manual_seed(0)
    made = build.model(configured("gpt", layers=1, width=8, heads=2, context=12), tokenizer.vocabulary)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.double().eval()


def test_streamed_text_is_the_text_of_the_ids(model: LanguageModel, tokenizer: Tokenizer) -> None:
    streamed = ["", "", ""]

    def on_text(row: int, text: str) -> None:
        streamed[row] += text

    options = SamplingOptions(max_tokens=30, seed=5)
    for row, output in enumerate(complete(model, tokenizer, PROMPTS, options, on_text=on_text)):
        assert output.text == streamed[row]
        decoded = tokenizer.decode(tokenizer.encode(output.prompt) + output.ids)
        assert decoded == output.prompt + output.text
        assert output.reason in ("length", "end")


def test_stop_string_truncates_the_text(model: LanguageModel, tokenizer: Tokenizer) -> None:
    unstopped = complete(model, tokenizer, PROMPTS, SamplingOptions(max_tokens=30), seeds=[1, 2, 3])
    stop = unstopped[0].text[4:6]
    stopped = complete(model, tokenizer, PROMPTS, SamplingOptions(max_tokens=30, stop=(stop,)), seeds=[1, 2, 3])
    for output, full in zip(stopped, unstopped, strict=True):
        assert output.text == full.text.partition(stop)[0]
        assert output.reason == ("stop" if stop in full.text else full.reason)
    assert stopped[0].reason == "stop"


def test_truncated_prompt_tokens_are_counted(model: LanguageModel, tokenizer: Tokenizer) -> None:
    outputs = complete(model, tokenizer, PROMPTS, SamplingOptions(max_tokens=2))
    lengths = [1 + len(tokenizer.encode(prompt)) for prompt in PROMPTS]
    assert [row.unread for row in outputs] == [max(0, length - 12) for length in lengths]
    assert outputs[2].unread > 0
