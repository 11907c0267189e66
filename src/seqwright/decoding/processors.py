"""Logits processors: bans, bias, penalties, n-gram blocking and sampling filters, with options of each row's own.

One pipeline for sampling and beam search. Every option is a tensor with an entry for each row, so that requests with
different options share a batch; a processor that no row uses is skipped, and a row that does not use one keeps its
numbers to the bit. A row therefore never depends on its neighbors.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqwright.core.batch import accumulator_dtype
from seqwright.core.config import UserError
from seqwright.core.state import State
from seqwright.decoding import filters
from seqwright.decoding.options import ProcessorOptions, SamplingOptions
from seqwright.decoding.sampling import draw, uniform
from seqwright.layers.inference.top_k import argmax

NOTHING = -1
"""Padding in tables of ids."""


@dataclass
class History(State):
    """The tokens of each row, prompt and output, right-padded; written in place."""

    tokens: Tensor  # (R, T)
    length: Tensor  # (R,)
    prompt: Tensor  # (R,): how many of them are the prompt's

    @classmethod
    def of(cls, prompts: Sequence[Sequence[int]], device: torch.device | str) -> History:
        """That of rows which have read their prompts."""
        width = max(map(len, prompts), default=0)
        rows = [[*prompt, *[NOTHING] * (width - len(prompt))] for prompt in prompts]
        length = torch.tensor([len(prompt) for prompt in prompts], device=device)
        tokens = torch.tensor(rows, dtype=torch.long, device=device).view(len(prompts), width)
        return cls(tokens, length, length.clone())

    @classmethod
    def aligned(cls, states: Sequence[History]) -> list[History]:
        width = max(state.tokens.size(1) for state in states)
        return [state.widened(width) for state in states]

    def append_(self, ids: Tensor) -> None:
        """Writes one more id (R,) to each row; full rows, which are those of free slots or need no history, stay
        full."""
        width = self.tokens.size(1)
        self.tokens.scatter_(1, self.length.clamp(max=width - 1).unsqueeze(1), ids.unsqueeze(1))
        self.length.add_(1).clamp_(max=width)

    def widened(self, width: int) -> History:
        """With room for `width` tokens in each row; itself where it has as much."""
        more = width - self.tokens.size(1)
        if more <= 0:
            return self
        tokens = torch.nn.functional.pad(self.tokens, (0, more), value=NOTHING)
        return History(tokens, self.length, self.prompt)

    @property
    def output(self) -> Tensor:
        """(R, T): the generated tokens, padding where the prompt stands."""
        places = torch.arange(self.tokens.size(1), device=self.tokens.device)
        return self.tokens.masked_fill(places < self.prompt.unsqueeze(1), NOTHING)


@dataclass
class RowOptions(State):
    """The options of each row as tensors (R,); a neutral number where a row does not use one."""

    seed: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    typical_p: Tensor
    epsilon_cutoff: Tensor
    repetition_penalty: Tensor
    presence_penalty: Tensor
    frequency_penalty: Tensor
    no_repeat_ngram: Tensor
    min_tokens: Tensor
    bias: Tensor
    """(R, V): logit bias, -inf for banned ids of the row's own; (R, 0) where no row has any."""
    forced: Tensor
    """(R, F): ids that outputs begin with, padded."""

    @classmethod
    def of(
        cls, options: Sequence[SamplingOptions], vocabulary: int, device: torch.device | str, seeds: Sequence[int]
    ) -> RowOptions:
        def numbers(dtype: torch.dtype, **neutral: float) -> dict[str, Tensor]:
            """One tensor (R,) for each option, all of them sent to the device at once."""
            values = [[getattr(one, name) for one in options] for name in neutral]
            filled = [
                [default if value is None else value for value in row]
                for row, default in zip(values, neutral.values(), strict=True)
            ]
            return dict(zip(neutral, torch.tensor(filled, dtype=dtype).to(device).unbind(), strict=True))

        fractions = numbers(
            accumulator_dtype(torch.device(device)),
            temperature=1.0,
            top_p=1.0,
            min_p=0.0,
            typical_p=1.0,
            epsilon_cutoff=0.0,
            repetition_penalty=1.0,
            presence_penalty=0.0,
            frequency_penalty=0.0,
        )
        whole = numbers(torch.long, top_k=torch.iinfo(torch.long).max, no_repeat_ngram=0, min_tokens=0)
        return cls(
            seed=torch.tensor(list(seeds), dtype=torch.long, device=device),
            **fractions,
            **whole,
            bias=_bias(options, vocabulary, device),
            forced=_forced(options, vocabulary, device),
        )

    @classmethod
    def aligned(cls, states: Sequence[RowOptions]) -> list[RowOptions]:
        pad = torch.nn.functional.pad
        wide = max(state.bias.size(1) for state in states)
        long = max(state.forced.size(1) for state in states)
        return [
            state
            if (state.bias.size(1), state.forced.size(1)) == (wide, long)
            else replace(
                state,
                bias=pad(state.bias, (0, wide - state.bias.size(1))),
                forced=pad(state.forced, (0, long - state.forced.size(1)), value=NOTHING),
            )
            for state in states
        ]


def _bias(options: Sequence[SamplingOptions], vocabulary: int, device: torch.device | str) -> Tensor:
    used = any(row.logit_bias or row.banned_ids for row in options)
    bias = torch.zeros(len(options), vocabulary if used else 0, dtype=accumulator_dtype(torch.device(device)))
    for n, row in enumerate(options):
        _check_ids("logit_bias", [id for id, _ in row.logit_bias], vocabulary)
        _check_ids("banned_ids", row.banned_ids, vocabulary)
        for id, number in row.logit_bias:
            bias[n, id] += number
        if row.banned_ids:
            bias[n, list(row.banned_ids)] = -torch.inf
    return bias.to(device)


def _forced(options: Sequence[SamplingOptions], vocabulary: int, device: torch.device | str) -> Tensor:
    rows = [one.forced_ids for one in options]
    for ids in rows:
        _check_ids("forced_ids", ids, vocabulary)
    width = max(map(len, rows), default=0)
    padded = [[*ids, *[NOTHING] * (width - len(ids))] for ids in rows]
    return torch.tensor(padded, dtype=torch.long, device=device).view(len(rows), width)


def _check_ids(key: str, ids: Sequence[int], vocabulary: int) -> None:
    if outside := [id for id in ids if not 0 <= id < vocabulary]:
        raise UserError(f"{key} names the id {outside[0]}, but the vocabulary ends at {vocabulary - 1}.")


@dataclass(frozen=True, kw_only=True)
class LogitsProcessors:
    """The processors that some row of a batch uses, in their order. `eos` and `banned` hold for all rows."""

    options: tuple[ProcessorOptions, ...]
    eos: int = NOTHING
    banned: Tensor
    """(N,) ids that no row generates."""
    banned_ids: tuple[int, ...]
    """The same for the host."""

    @classmethod
    def of(
        cls,
        options: Sequence[ProcessorOptions],
        *,
        eos: int | None,
        banned: Sequence[int],
        device: torch.device | str,
    ) -> LogitsProcessors:
        never = tuple(sorted(set(banned)))
        tensor = torch.tensor(never, dtype=torch.long, device=device)
        return cls(options=tuple(options), eos=NOTHING if eos is None else eos, banned=tensor, banned_ids=never)

    @functools.cached_property
    def needs_history(self) -> bool:
        """Whether any row's processors look at the tokens it has."""
        return any(one.needs_history for one in self.options)

    @functools.cached_property
    def signature(self) -> tuple[int, frozenset[tuple[int | bool, ...]]]:
        """What decides which operations `sample` consists of, where the numbers are those of `RowOptions`: batches of
        equal signature can share a CUDA graph."""
        return max((one.top_k or 0 for one in self.options), default=0), frozenset(
            (
                one.temperature == 0,
                one.temperature == 1,
                one.top_k is None,
                one.top_p is None or one.top_p == 1,
                one.min_p is None,
                one.typical_p is None or one.typical_p == 1,
                one.epsilon_cutoff is None,
                one.repetition_penalty == 1,
                bool(one.presence_penalty or one.frequency_penalty),
                one.no_repeat_ngram,
                one.min_tokens > 0,
            )
            for one in self.options
        )

    @functools.cached_property
    def min_tokens(self) -> int:
        return max((one.min_tokens for one in self.options), default=0)

    @functools.cached_property
    def unfinished(self) -> Tensor:
        """The banned ids and <eos>."""
        return self.banned if self.eos == NOTHING else torch.cat([self.banned, self.banned.new_tensor([self.eos])])

    def never(self, length: int) -> Tensor:
        """Ids that no hypothesis of a search may generate after `length` ids: few, so that a search leaves them out of
        its candidates instead of masking a whole vocabulary."""
        return self.unfinished if length < self.min_tokens else self.banned

    def constrain(self, log_probs: Tensor, history: History | None) -> Tensor:
        """Log-probabilities (R, V) of a search under the options that all its rows share, not renormalized: -inf for
        repeated n-grams, penalties taken off. Ids that `never` lists are left to the search."""
        (options,) = self.options
        if history is None:
            return log_probs
        vocabulary = log_probs.size(-1)
        if options.repetition_penalty != 1:
            counts = filters.counts_of(history.tokens, vocabulary)
            log_probs = torch.where(counts > 0, log_probs * options.repetition_penalty, log_probs)
        if options.presence_penalty or options.frequency_penalty:
            counts = filters.counts_of(history.output, vocabulary).to(log_probs)
            log_probs = log_probs - options.frequency_penalty * counts - options.presence_penalty * (counts > 0)
        if options.no_repeat_ngram:
            again = filters.repeated_ngrams(history.tokens, history.length, options.no_repeat_ngram, vocabulary)
            log_probs = log_probs.masked_fill(again, -torch.inf)
        return log_probs

    def sample(self, log_probs: Tensor, rows: RowOptions, generated: Tensor, history: History | None) -> Tensor:
        """One id (R,) from each row of log-probabilities (R, V), as its options have it; `generated` (R,) counts the
        tokens of its output so far, which is the position of its uniform."""
        processed = self.process(log_probs, rows, generated, history)
        greedy = [one.temperature == 0 for one in self.options]
        if all(greedy):
            return argmax(processed)
        drawn = draw(self._filtered(processed, rows), uniform(rows.seed, generated))
        return torch.where(rows.temperature == 0, argmax(processed), drawn) if any(greedy) else drawn

    def process(self, log_probs: Tensor, rows: RowOptions, generated: Tensor, history: History | None) -> Tensor:
        """Bias, bans, penalties, blocked n-grams and forced ids, renormalized."""
        size, dtype = log_probs.size(-1), log_probs.dtype
        if rows.bias.size(1):
            biased = (log_probs + rows.bias.to(dtype)).log_softmax(-1)
            log_probs = _where((rows.bias != 0).any(1), biased, log_probs)
        if len(self.banned):
            log_probs = log_probs.index_fill(-1, self.banned, -torch.inf).log_softmax(-1)
        if self.min_tokens and self.eos != NOTHING:
            early = log_probs.index_fill(-1, self.unfinished[-1:], -torch.inf)
            early = torch.where(early.isneginf().all(-1, keepdim=True), log_probs, early).log_softmax(-1)
            log_probs = _where(generated < rows.min_tokens, early, log_probs)
        if any(one.repetition_penalty != 1 for one in self.options):
            assert history is not None
            counts, penalty = filters.counts_of(history.tokens, size), _column(rows.repetition_penalty, dtype)
            penalized = filters.penalize_repetition(log_probs, counts, penalty)
            log_probs = _where(rows.repetition_penalty != 1, penalized, log_probs)
        for n in sorted({one.no_repeat_ngram for one in self.options} - {0}):
            assert history is not None
            again = filters.repeated_ngrams(history.tokens, history.length, n, size)
            left = log_probs.masked_fill(again, -torch.inf)
            # Where every token would repeat, the row stays as it was: sampling has to generate something.
            stuck = left.isneginf().all(-1, keepdim=True)
            blocked = torch.where(stuck, log_probs, left).log_softmax(-1)
            log_probs = _where(rows.no_repeat_ngram == n, blocked, log_probs)
        if any(one.presence_penalty or one.frequency_penalty for one in self.options):
            assert history is not None
            presence, frequency = (_column(p, dtype) for p in (rows.presence_penalty, rows.frequency_penalty))
            counts = filters.counts_of(history.output, size)
            penalized = filters.penalize_counts(log_probs, counts, presence=presence, frequency=frequency)
            log_probs = _where((presence != 0).squeeze(1) | (frequency != 0).squeeze(1), penalized, log_probs)
        if rows.forced.size(1):
            log_probs = self._forced(log_probs, rows.forced, generated)
        return log_probs

    def _forced(self, log_probs: Tensor, forced: Tensor, generated: Tensor) -> Tensor:
        """All mass on the id (R,) that is due in rows whose output still has to begin with some."""
        due = forced.gather(1, generated.clamp(max=forced.size(1) - 1).unsqueeze(1)).squeeze(1)
        due = due.masked_fill(generated >= forced.size(1), NOTHING)
        every = torch.arange(log_probs.size(-1), device=log_probs.device)
        certain = torch.where(every == due.unsqueeze(-1), 0.0, -torch.inf).to(log_probs.dtype)
        return _where(due != NOTHING, certain, log_probs)

    def _filtered(self, log_probs: Tensor, rows: RowOptions) -> Tensor:
        """Temperature and truncation, in transformers' order: temperature, top-k, top-p, min-p, typical, epsilon."""
        dtype, options = log_probs.dtype, self.options
        if any(uses := [one.temperature not in (0, 1) for one in options]):
            used = (rows.temperature != 0) & (rows.temperature != 1)
            by = _column(torch.where(used, rows.temperature, 1.0), dtype)
            log_probs = _where(used, filters.temper(log_probs, by), log_probs, every=all(uses))
        if any(uses := [one.top_k is not None for one in options]):
            most = max(one.top_k for one in options if one.top_k is not None)
            cut = filters.top_k(log_probs, rows.top_k.clamp(max=most).unsqueeze(1), most)
            log_probs = _where(rows.top_k <= most, cut, log_probs, every=all(uses))
        if any(uses := [one.top_p is not None and one.top_p < 1 for one in options]):
            cut = filters.top_p(log_probs, _column(rows.top_p, dtype))
            log_probs = _where(rows.top_p < 1, cut, log_probs, every=all(uses))
        if any(uses := [one.min_p is not None for one in options]):
            used = rows.min_p > 0
            cut = filters.min_p(
                log_probs, _column(torch.where(used, rows.min_p, 1.0), accumulator_dtype(log_probs.device))
            )
            log_probs = _where(used, cut, log_probs, every=all(uses))
        if any(uses := [one.typical_p is not None and one.typical_p < 1 for one in options]):
            cut = filters.typical(log_probs, _column(rows.typical_p, dtype))
            log_probs = _where(rows.typical_p < 1, cut, log_probs, every=all(uses))
        if any(uses := [one.epsilon_cutoff is not None for one in options]):
            used = rows.epsilon_cutoff > 0
            floor = torch.where(used, rows.epsilon_cutoff, 1.0)
            cut = filters.epsilon_cutoff(log_probs, _column(floor, accumulator_dtype(log_probs.device)))
            log_probs = _where(used, cut, log_probs, every=all(uses))
        return log_probs


def _where(rows: Tensor, processed: Tensor, plain: Tensor, *, every: bool = False) -> Tensor:
    """The processed rows where marked (R,), the others untouched; `every` where all are known to be marked."""
    return processed if every else torch.where(rows.unsqueeze(1), processed, plain)


def _column(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    return numbers.to(dtype).unsqueeze(1)
