"""Stop strings: what is shown is the text up to the first of them, in whatever pieces the text comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seqwright.decoding.text import StopWatch

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
    watch = StopWatch(stops)
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
    watch = StopWatch(stops)
    for piece in pieces:
        watch.feed(piece)
        if watch.stopped:
            return
        assert not watch.held or any(stop.startswith(watch.held) for stop in stops)


def test_text_without_stops_passes_at_once() -> None:
    watch = StopWatch(())
    assert [watch.feed(piece) for piece in ("on", "ce ", "upon")] == ["on", "ce ", "upon"]
    assert watch.finish() == ""


def test_the_beginning_of_a_stop_is_held_until_it_is_clear() -> None:
    watch = StopWatch(["\n\n"])
    assert watch.feed("a\n") == "a"
    assert watch.feed("b\n") == "\nb"
    assert watch.feed("\nc") == ""
    assert watch.stopped
