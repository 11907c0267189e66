"""Text in, text out: what is shown is the text up to the first stop string, in whatever pieces it comes."""

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


def up_to_the_first(text: str, stops: list[str]) -> tuple[str, bool]:
    """The text before the stop string that is complete first (the longest of those that end together)."""
    for end in range(len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))], True
    return text, False


@given(st.lists(texts, max_size=6), stop_strings)
def test_the_pieces_shown_are_the_text_up_to_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    expected, stops_there = up_to_the_first("".join(pieces), stops)
    watch = StopStrings(stops)
    shown = ""
    for piece in pieces:
        if not watch.stopped:
            shown += watch.feed(piece)
            assert expected.startswith(shown)  # nothing has to be taken back
    assert watch.stopped == stops_there
    if not watch.stopped:
        shown += watch.finish()
    assert shown == expected


@given(st.lists(texts, max_size=6), stop_strings)
def test_no_more_is_held_back_than_could_begin_a_stop(pieces: list[str], stops: list[str]) -> None:
    watch = StopStrings(stops)
    for piece in pieces:
        watch.feed(piece)
        if watch.stopped:
            return
        assert not watch.held or any(stop.startswith(watch.held) for stop in stops)


def test_text_without_stops_passes_at_once() -> None:
    watch = StopStrings(())
    assert [watch.feed(piece) for piece in ("on", "ce ", "upon")] == ["on", "ce ", "upon"]
    assert watch.finish() == ""


def test_the_beginning_of_a_stop_is_held_until_it_is_clear() -> None:
    watch = StopStrings(["\n\n"])
    assert watch.feed("a\n") == "a"
    assert watch.feed("b\n") == "\nb"
    assert watch.feed("\nc") == ""
    assert watch.stopped


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
    for row, said in enumerate(complete(model, tokenizer, PROMPTS, options, on_text=on_text)):
        assert said.text == streamed[row]
        whole = tokenizer.decode(tokenizer.encode(said.prompt) + said.ids)
        assert whole == said.prompt + said.text
        assert said.reason in ("length", "end")


def test_a_stop_string_cuts_the_text_that_would_have_come(model: LanguageModel, tokenizer: Tokenizer) -> None:
    free = complete(model, tokenizer, PROMPTS, SamplingOptions(max_tokens=30), seeds=[1, 2, 3])
    stop = free[0].text[4:6]
    cut = complete(model, tokenizer, PROMPTS, SamplingOptions(max_tokens=30, stop=(stop,)), seeds=[1, 2, 3])
    for ours, whole in zip(cut, free, strict=True):
        assert ours.text == whole.text.partition(stop)[0]
        assert ours.reason == ("stop" if stop in whole.text else whole.reason)
    assert cut[0].reason == "stop"


def test_the_unread_front_of_a_prompt_is_counted(model: LanguageModel, tokenizer: Tokenizer) -> None:
    said = complete(model, tokenizer, PROMPTS, SamplingOptions(max_tokens=2))
    lengths = [1 + len(tokenizer.encode(prompt)) for prompt in PROMPTS]
    assert [row.unread for row in said] == [max(0, length - 12) for length in lengths]
    assert said[2].unread > 0
