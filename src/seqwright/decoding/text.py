"""Text in, text out: prompts to continuations, streamed as whole characters and ended by stop strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from seqwright.core.batch import Source
from seqwright.core.protocols import Autoregressive
from seqwright.decoding.generate import Row, generate
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.sampling import SamplingOptions
from seqwright.decoding.search import search
from seqwright.text.tokenizer import StreamingDecoder, Tokenizer


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """What a model said after a prompt."""

    prompt: str
    text: str
    ids: list[int]
    log_prob: float
    """Of all ids said, natural log."""
    reason: str
    """Why it ended: "length", "end" or "stop"."""
    unread: int
    """Tokens at the front of the prompt that did not fit the model's context."""


class StopStrings:
    """Lets text through as it comes, but for a tail that may yet turn out to be the beginning of a stop string."""

    def __init__(self, stops: Sequence[str]):
        self.stops = stops
        self.held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """What may be shown now."""
        self.held += text
        found = [(place + len(stop), place) for stop in self.stops if (place := self.held.find(stop)) >= 0]
        if found:
            # The first to be complete ends the text: then nothing depends on the pieces in which the text came.
            self.stopped = True
            shown, self.held = self.held[: min(found)[1]], ""
            return shown
        keep = max((self._overlap(stop) for stop in self.stops), default=0)
        shown, self.held = self.held[: len(self.held) - keep], self.held[len(self.held) - keep :]
        return shown

    def finish(self) -> str:
        """What was held back for a stop string that never came."""
        shown, self.held = self.held, ""
        return shown

    def _overlap(self, stop: str) -> int:
        """The longest end of what is held that begins `stop`."""
        longest = min(len(stop) - 1, len(self.held))
        return next((size for size in range(longest, 0, -1) if self.held.endswith(stop[:size])), 0)


def complete(
    model: Autoregressive,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    options: SamplingOptions,
    *,
    seeds: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
    listen: Callable[[int, str], None] = lambda row, text: None,
) -> list[Continuation]:
    """Continues each prompt; `listen(row, text)` hears each row's text as it comes, in whole characters."""
    vocabulary = tokenizer.vocabulary
    beginning = [] if vocabulary.sos is None else [vocabulary.sos]
    spoken = speak(
        model,
        tokenizer,
        [beginning + tokenizer.encode(prompt) for prompt in prompts],
        options,
        end=vocabulary.eos,
        banned=[id for id in (vocabulary.unk, vocabulary.pad, vocabulary.sos) if id is not None],
        seeds=seeds,
        device=device,
        listen=listen,
        after=prompts,
    )
    return [
        Continuation(
            prompt=prompt,
            text=text,
            ids=row.ids,
            log_prob=row.log_prob,
            reason="stop" if stopped else row.reason,
            unread=max(0, len(row.prompt) - model.context) if model.context is not None else 0,
        )
        for prompt, (row, text, stopped) in zip(prompts, spoken, strict=True)
    ]


def best_continuations(
    model: Autoregressive,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    options: SearchOptions,
    *,
    device: torch.device | str = "cpu",
) -> list[list[Continuation]]:
    """The most probable continuations of each prompt that a search finds, best first."""
    vocabulary = tokenizer.vocabulary
    found = search(
        model,
        Source.empty(len(prompts), device),
        options,
        sos=vocabulary.sos,
        eos=vocabulary.eos,
        banned=[id for id in (vocabulary.unk, vocabulary.pad, vocabulary.sos) if id is not None],
        prompts=[tokenizer.encode(prompt) for prompt in prompts],
    )
    return [
        [
            Continuation(
                prompt=prompt,
                text=_text(tokenizer, prompt, one.ids),
                ids=one.ids,
                log_prob=one.log_prob,
                reason=one.reason,
                unread=0,
            )
            for one in several
        ]
        for prompt, several in zip(prompts, found, strict=True)
    ]


def _text(tokenizer: Tokenizer, prompt: str, ids: Sequence[int]) -> str:
    """What ids add to the text of a prompt."""
    decoder = StreamingDecoder(tokenizer, after=prompt)
    return "".join(decoder.feed(id) for id in ids) + decoder.finish()


def speak(
    model: Autoregressive,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    options: SamplingOptions,
    *,
    end: int | None,
    banned: Sequence[int],
    seeds: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
    listen: Callable[[int, str], None] = lambda row, text: None,
    after: Sequence[str] | None = None,
) -> list[tuple[Row, str, bool]]:
    """Each row of ids continued: its ids, its text up to a stop string, and whether one ended it.

    `after` are the texts that the rows' own go on from; without them a row begins a text of its own.
    """
    decoders = [StreamingDecoder(tokenizer, after="" if after is None else after[n]) for n in range(len(prompts))]
    watches = [StopStrings(options.stop) for _ in prompts]
    texts = ["" for _ in prompts]

    def show(row: int, text: str) -> None:
        if text:
            texts[row] += text
            listen(row, text)

    def hear(row: int, id: int) -> bool:
        show(row, watches[row].feed(decoders[row].feed(id)))
        return watches[row].stopped

    rows = generate(model, prompts, options, end=end, banned=banned, seeds=seeds, device=device, listen=hear)
    for row in range(len(prompts)):
        if not watches[row].stopped:
            show(row, watches[row].feed(decoders[row].finish()))
        if not watches[row].stopped:
            show(row, watches[row].finish())
    return [(row, texts[n], watches[n].stopped) for n, row in enumerate(rows)]
