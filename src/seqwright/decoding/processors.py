"""LogitsProcessors: what may be said next and how gladly, given what each row has been told and has said itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqwright.core.config import UserError
from seqwright.decoding.filters import ban, bias, counts_of, force, no_repeat, penalize_counts, penalize_repetition
from seqwright.decoding.sampling import SamplingOptions


class LogitsProcessors:
    """The options that look at ids and at history, as one filter. Each row is judged by its own history alone."""

    def __init__(
        self, options: SamplingOptions, vocabulary: int, banned: Sequence[int], device: torch.device | str = "cpu"
    ):
        self.options = options
        named = {
            "banned": options.banned_ids,
            "forced": options.forced_ids,
            "bias": [id for id, _ in options.logit_bias],
        }
        for key, ids in named.items():
            if outside := [id for id in ids if not 0 <= id < vocabulary]:
                raise UserError(f"{key} names the id {outside[0]}, but the vocabulary ends at {vocabulary - 1}.")
        never = sorted({*banned, *options.banned_ids})
        if len(never) == vocabulary:
            raise UserError("every id is banned, so nothing can be said; ban fewer.")
        self.banned = torch.tensor(never, dtype=torch.long, device=device)
        self.added: Tensor | None = None
        if options.logit_bias:
            self.added = torch.zeros(vocabulary, device=device)
            for id, number in options.logit_bias:
                self.added[id] += number

    def __call__(self, log_probs: Tensor, prompts: Sequence[list[int]], said: Sequence[list[int]]) -> Tensor:
        """(B, V) from (B, V); row b was given prompts[b] and has said said[b]."""
        options, size, device = self.options, log_probs.size(-1), log_probs.device
        if self.added is not None:
            log_probs = bias(log_probs, self.added.to(log_probs.dtype))
        if len(self.banned):
            log_probs = ban(log_probs, self.banned)
        if options.repetition_penalty != 1 or options.no_repeat_ngram is not None:
            history = padded([given + own for given, own in zip(prompts, said, strict=True)], device)
            if options.repetition_penalty != 1:
                log_probs = penalize_repetition(log_probs, counts_of(history, size), options.repetition_penalty)
            if options.no_repeat_ngram is not None:
                log_probs = no_repeat(log_probs, history, options.no_repeat_ngram)
        if options.presence_penalty or options.frequency_penalty:
            presence, frequency = options.presence_penalty, options.frequency_penalty
            counts = counts_of(padded(said, device), size)
            log_probs = penalize_counts(log_probs, counts, presence=presence, frequency=frequency)
        if options.forced_ids:
            due = [options.forced_ids[len(own)] if len(own) < len(options.forced_ids) else -1 for own in said]
            log_probs = force(log_probs, torch.tensor(due, device=device))
        return log_probs


def padded(rows: Sequence[list[int]], device: torch.device | str = "cpu") -> Tensor:
    """Rows of ids as one tensor (B, T), padded on the left with -1, so that all end together."""
    width = max((len(row) for row in rows), default=0)
    return torch.tensor([[-1] * (width - len(row)) + row for row in rows], dtype=torch.long, device=device)
