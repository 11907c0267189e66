"""Tokens: probability, rank and surprisal of every token, and the most probable ones in its place."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from seqwright.core.batch import IGNORE
from seqwright.inspection.figures import ScoredToken, TokenStrip
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.studies.explain.explanation import Step


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


def scored_tokens(subject: Subject, log_probs: Tensor, top: int) -> tuple[ScoredToken, ...]:
    """Probability, rank (from 1) and surprisal of the target at each position, and the `top` alternatives."""
    example, tokenizer = subject.example, subject.target_tokenizer
    best = log_probs.topk(min(top, log_probs.size(-1)))
    targets = example.batch.target[0].tolist()
    rows = []
    for t, target in enumerate(targets):
        alternatives = tuple(
            zip(tokenizer.tokens(best.indices[t].tolist()), best.values[t].exp().tolist(), strict=True)
        )
        if target == IGNORE:
            rows.append(ScoredToken("", None, None, None, alternatives))
            continue
        log_p = log_probs[t, target]
        rank = 1 + int((log_probs[t] > log_p).sum())
        rows.append(
            ScoredToken(example.targets[t], float(log_p.exp()), -float(log_p) / math.log(2), rank, alternatives)
        )
    return tuple(rows)


def tokens_view(subject: Subject) -> ViewResult:
    """Of language models, and of translators given the source."""
    log_probs = subject.forward.log_probs
    assert log_probs is not None
    scores = TokenScores(log_probs, scored_tokens(subject, log_probs, subject.options.top))
    bits = scores.bits
    mean = sum(bits) / len(bits) if bits else math.nan
    right = sum(token.rank == 1 for token in scores.tokens)
    about = "The higher the bar (on a page: the darker the token), the greater the surprisal."
    if bits:
        about += (
            f" {len(bits):,} tokens, {mean:.2f} bits per token (perplexity {2**mean:,.4g});"
            f" {right:,} of them were the model's first choice."
        )
    step = Step(
        "Tokens: surprisal, rank and next-token distribution",
        about,
        "surprisal(t) = -log₂ p(token t | tokens before it)",
        [TokenStrip("tokens", scores.tokens)],
    )
    return ViewResult(step, scores)
