"""Tokens: probability, rank and surprisal of every token, and the most probable ones in its place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.inspection.figures import ScoredToken, TokenStrip
from seqwright.inspection.forward import output_of
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.layers.recording import recorded_calls
from seqwright.studies.explain.explanation import Step
from seqwright.tasks.example import Example
from seqwright.tasks.masked.task import MaskedRun
from seqwright.text.tokenizer import Tokenizer

MAX_EXPONENT = 1000
"""Bits per token beyond which perplexity overflows."""
ROWS = 32
"""Rows of a batch in which tokens are masked one by one."""


@dataclass(frozen=True)
class TokenScores:
    """Scores of the tokens of a text under a model."""

    log_probs: Tensor
    """(T, V) of every position; the last of a language model is what follows the text."""
    tokens: tuple[ScoredToken, ...]

    @property
    def bits(self) -> list[float]:
        """Surprisal -log₂ p of each token that has one."""
        return [token.bits for token in self.tokens if token.bits is not None]


def scored_tokens(
    log_probs: Tensor, targets: Sequence[int], names: Sequence[str], tokenizer: Tokenizer, top: int
) -> tuple[ScoredToken, ...]:
    """Probability, rank (from 1) and surprisal of the target at each position (T, V), and the `top` alternatives."""
    best = log_probs.topk(min(top, log_probs.size(-1)))
    rows = []
    for t, target in enumerate(targets):
        tokens = tokenizer.tokens(best.indices[t].tolist())
        alternatives = tuple(zip(tokens, best.values[t].exp().tolist(), strict=True))
        if target == IGNORE:
            rows.append(ScoredToken(names[t], None, None, None, alternatives))
            continue
        log_p = log_probs[t, target]
        rank = 1 + int((log_probs[t] > log_p).sum())
        rows.append(ScoredToken(names[t], float(log_p.exp()), -float(log_p) / math.log(2), rank, alternatives))
    return tuple(rows)


def tokens_view(subject: Subject) -> ViewResult:
    """Of language models, of translators given the source, and of masked language models given all other tokens."""
    example, tokenizer, top = subject.example, subject.target_tokenizer, subject.options.top
    if masked := isinstance(subject.run, MaskedRun):
        behind = masked_pass(subject.run, example)
        with torch.inference_mode():
            log_probs = subject.run.model.head.log_probs(behind.hidden[-1]).cpu()
        targets, names, condition = behind.targets.tolist(), list(behind.names), "all other tokens"
    else:
        assert subject.forward.log_probs is not None
        log_probs, targets = subject.forward.log_probs, example.batch.target[0].tolist()
        names, condition = list(example.targets), "source, tokens before it" if example.source else "tokens before it"
    scores = TokenScores(log_probs, scored_tokens(log_probs, targets, names, tokenizer, top))
    bits, shown = scores.bits, subject.options.shown(len(scores.tokens), 1)
    about = "Bars and colors grow with the surprisal of a token."
    if bits:
        mean = sum(bits) / len(bits)
        perplexity = 2**mean if mean < MAX_EXPONENT else math.inf
        right = sum(token.rank == 1 for token in scores.tokens)
        about += (
            f" Tokens: {len(bits):,}; bits per token: {mean:.2f} (perplexity {perplexity:,.4g}); most probable in their"
            f" place: {right:,}."
        )
    step = Step(
        f"Tokens: surprisal, rank and {'distribution behind a mask' if masked else 'next-token distribution'}",
        about,
        f"surprisal(t) = -log₂ p(token t | {condition})",
        [TokenStrip("tokens", scores.tokens[shown], 1 + shown.start)],
    )
    return ViewResult(step, scores)


@dataclass(frozen=True)
class MaskedPass:
    """What a masked language model computes at the N positions of a text, each masked in turn (Salazar et al. 2020)."""

    hidden: list[Tensor]
    """(N, D): outputs of the modules that were named, then of the encoder."""
    targets: Tensor
    """(N,): the ids behind the masks; IGNORE where the text has `<mask>` itself."""
    names: tuple[str, ...]
    """The tokens behind the masks."""


@torch.inference_mode()
def masked_pass(run: MaskedRun, example: Example, modules: Sequence[nn.Module] = ()) -> MaskedPass:
    """Hidden states of modules and of the encoder, at each position while it is masked."""
    source, tokenizer = example.batch.source, run.tokenizer
    assert source.ids is not None
    assert tokenizer.mask is not None
    special = set(tokenizer.special_tokens.values()) - {tokenizer.unk, tokenizer.mask}
    places = [n for n, id in enumerate(source.ids[0].tolist()) if id not in special]
    hidden = []
    for first in range(0, len(places), ROWS):
        chunk = torch.tensor(places[first : first + ROWS], device=run.device)
        rows = torch.arange(len(chunk), device=run.device)
        ids = source.ids.repeat(len(chunk), 1)
        ids[rows, chunk] = tokenizer.mask
        batch = Batch.of_source(Source(mask=source.mask.repeat(len(chunk), 1), ids=ids), ids)
        with recorded_calls(modules, output_of) as calls:
            last = run.model.hidden(batch)[0]
        hidden.append([states[rows, chunk] for states in (*(each[-1] for each in calls), last)])
    targets = source.ids[0, places].cpu()
    return MaskedPass(
        [torch.cat(states) for states in zip(*hidden, strict=True)],
        targets.masked_fill(targets == tokenizer.mask, IGNORE),
        tuple(example.tokens[place] for place in places),
    )
