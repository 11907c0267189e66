"""Generation: prompts to continuations through the decoding engine, as ids or as streamed text with stop strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.core.notebook import NotebookTable
from seqwright.core.protocols import Autoregressive
from seqwright.decoding.engine import Engine
from seqwright.decoding.options import SamplingOptions, SearchOptions
from seqwright.decoding.requests import Generation, Request
from seqwright.decoding.search import search
from seqwright.decoding.speculation import Draft
from seqwright.text.tokenizer import StreamingDecoder, Tokenizer


def generate(
    model: Autoregressive,
    prompts: Sequence[Sequence[int]],
    options: SamplingOptions,
    *,
    end: int | None = None,
    banned: Sequence[int] = (),
    seeds: Sequence[int] | None = None,
    source: Source | None = None,
    device: torch.device | str = "cpu",
    on_token: Callable[[int, int], bool] | None = None,
    draft: Draft | None = None,
) -> list[Generation]:
    """Continues each prompt (at least one id); `on_token(row, id)` is called for every generated id, and True stops
    the row.

    A row that fills the model's context continues from its most recent half, which is read again. A draft makes
    decoding speculative, with the same outputs.
    """
    if isinstance(seeds, int):
        raise UserError(f"seeds are a list, one for each prompt; seed={seeds} is that of all.")
    seeds = [options.seed] * len(prompts) if seeds is None else seeds
    if len(seeds) != len(prompts):
        raise UserError(f"{len(prompts)} prompts need as many seeds, not {len(seeds)}.")

    def callback(row: int) -> Callable[[int], bool] | None:
        return None if on_token is None else lambda id: on_token(row, id)

    requests = [
        Request(prompt=prompt, options=options, seed=seed, on_token=callback(row))
        for row, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True))
    ]
    engine = Engine(model, end=end, banned=banned, device=device, draft=draft)
    generations = engine.admit(requests, source)
    engine.finish()
    return generations


@dataclass(frozen=True, kw_only=True)
class Continuation(NotebookTable):
    """The text that a model generated after a prompt."""

    prompt: str
    text: str
    ids: list[int]
    log_prob: float
    """Of all generated ids, natural log."""
    reason: str
    """Why it ended: "length", "end" or "stop"."""
    unread: int
    """Tokens at the front of the prompt that did not fit the model's context."""


class StopStrings:
    """Passes text on as it comes, but for a tail that may still become a stop string."""

    def __init__(self, stops: Sequence[str]):
        self.stops = stops
        self.held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """The text that can be shown now."""
        self.held += text
        found = [(place + len(stop), place) for stop in self.stops if (place := self.held.find(stop)) >= 0]
        if found:
            # The first to be complete ends the text: then the output does not depend on how the text was cut.
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
        """Length of the longest suffix of the held text that is a prefix of `stop`."""
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
    on_text: Callable[[int, str], None] | None = None,
    draft: Draft | None = None,
) -> list[Continuation]:
    """Continues each prompt; `on_text(row, text)` is called with each row's text as it comes, in whole characters."""
    beginning = [] if tokenizer.sos is None else [tokenizer.sos]
    outputs = stream(
        model,
        tokenizer,
        [beginning + tokenizer.encode(prompt) for prompt in prompts],
        options,
        end=tokenizer.eos,
        seeds=seeds,
        device=device,
        on_text=on_text,
        after=prompts,
        draft=draft,
    )
    return [
        Continuation(
            prompt=prompt,
            text=text,
            ids=row.ids,
            log_prob=row.log_prob,
            reason="stop" if stopped else str(row.reason),
            unread=max(0, len(row.prompt) - model.context) if model.context is not None else 0,
        )
        for prompt, (row, text, stopped) in zip(prompts, outputs, strict=True)
    ]


def stream(
    model: Autoregressive,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    options: SamplingOptions,
    *,
    end: int | None,
    seeds: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
    on_text: Callable[[int, str], None] | None = None,
    after: Sequence[str] | None = None,
    draft: Draft | None = None,
) -> list[tuple[Generation, str, bool]]:
    """Each row of ids continued: its ids, its text up to a stop string, and whether a stop string ended it.

    `after` are the texts that the outputs continue; without them an output begins a text of its own.
    """
    decoders = [StreamingDecoder(tokenizer, after="" if after is None else after[n]) for n in range(len(prompts))]
    stops = [StopStrings(options.stop) for _ in prompts]
    texts = ["" for _ in prompts]

    def show(row: int, text: str) -> None:
        if text:
            texts[row] += text
            if on_text is not None:
                on_text(row, text)

    def on_token(row: int, id: int) -> bool:
        show(row, stops[row].feed(decoders[row].feed(id)))
        return stops[row].stopped

    banned = tokenizer.never_generated(end)
    rows = generate(
        model, prompts, options, end=end, banned=banned, seeds=seeds, device=device, on_token=on_token, draft=draft
    )
    for row in range(len(prompts)):
        if not stops[row].stopped:
            show(row, stops[row].feed(decoders[row].finish()))
        if not stops[row].stopped:
            show(row, stops[row].finish())
    return [(row, texts[n], stops[n].stopped) for n, row in enumerate(rows)]


def best_continuations(
    model: Autoregressive,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    options: SearchOptions,
    *,
    device: torch.device | str = "cpu",
) -> list[list[Continuation]]:
    """The most probable continuations of each prompt that a search finds, best first."""
    outputs = search(
        model,
        Source.empty(len(prompts), device),
        options,
        sos=tokenizer.sos,
        eos=tokenizer.eos,
        banned=tokenizer.never_generated(tokenizer.eos),
        prompts=[tokenizer.encode(prompt) for prompt in prompts],
    )
    return [
        [
            Continuation(
                prompt=prompt,
                text=_text(tokenizer, prompt, hypothesis.ids),
                ids=hypothesis.ids,
                log_prob=hypothesis.log_prob,
                reason=hypothesis.reason,
                unread=0,
            )
            for hypothesis in hypotheses
        ]
        for prompt, hypotheses in zip(prompts, outputs, strict=True)
    ]


def _text(tokenizer: Tokenizer, prompt: str, ids: Sequence[int]) -> str:
    """The text that ids add to a prompt."""
    decoder = StreamingDecoder(tokenizer, after=prompt)
    return "".join(decoder.feed(id) for id in ids) + decoder.finish()
