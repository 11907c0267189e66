"""Sampling: temperature, top-k, top-p and min-p of one distribution, and how a token is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.decoding import filters
from seqwright.decoding.options import SamplingOptions
from seqwright.decoding.sampling import draw, uniform
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Table, joined, table
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.explain.text import run_ids
from seqwright.studies.explain.topics.ngram import (
    CONTEXT,
    COWS,
    Models,
    NGramOptions,
    busiest_context,
    next_probabilities,
)

SHOWN = 12
"""Most probable tokens that are shown."""
DRAWS = 12


@dataclass(frozen=True, kw_only=True)
class SamplingExample(TopicOptions):
    text: str = COWS
    """Text whose trigrams give the distribution; with a run, the prompt."""
    context: str = CONTEXT
    """Words before the token; of another text, the two with the most different successors."""
    temperature: float = 0.5
    """Softmax temperature."""
    top_k: int = 2
    """Tokens that top-k keeps."""
    top_p: float = 0.8
    """Mass that top-p keeps."""
    min_p: float = 0.3
    """Probability, relative to the most probable token, that min-p keeps."""
    seed: int = 0
    """Seed of the draws."""

    either: ClassVar[tuple[str, ...]] = ("temperature", "top_k", "top_p", "min_p", "seed")

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise UserError("temperature must be above 0 here; 0 is greedy: the most probable token always.")
        SamplingOptions(
            top_k=self.top_k, top_p=self.top_p, min_p=self.min_p, seed=self.seed
        )  # refuses what decoding refuses


def sampling(options: SamplingExample, run: Run | None = None) -> Explanation:
    """One distribution under every filter; with a run, that of the next token after a prompt."""
    log_probs, names, shown = _of_text(options) if run is None else _of_run(options, run)
    order = log_probs.argsort(descending=True, stable=True)
    order = order[log_probs[order].isfinite()][:SHOWN]
    tokens = [names[n] for n in order.tolist()]
    tempered = {t: filters.temper(log_probs[None], t)[0] for t in (0.5, options.temperature, 1.0, 2.0)}
    top_k = filters.top_k(log_probs[None], options.top_k)[0]
    top_p = filters.top_p(log_probs[None], options.top_p)[0]
    min_p = filters.min_p(log_probs[None], options.min_p)[0]
    # The order of the engine: temperature, then top-k, top-p and min-p.
    final = filters.top_k(tempered[options.temperature][None], options.top_k)
    final = filters.min_p(filters.top_p(final, options.top_p), options.min_p)
    positions = torch.arange(DRAWS)
    uniforms = uniform(torch.full((DRAWS,), options.seed), positions)
    drawn = draw(final.expand(DRAWS, -1), uniforms)

    def compared(name: str, **columns: Tensor) -> Table:
        rows = [
            (token, *(float(column[n].exp()) for column in columns.values()))
            for token, n in zip(tokens, order, strict=True)
        ]
        return table(name, ["token", *columns], rows)

    probabilities = log_probs.exp()
    cumulative = probabilities[order].cumsum(0)
    steps = [
        Step(
            "The distribution",
            f"Probabilities of the token after “{shown}”; the {len(tokens)} most probable of {len(log_probs):,}.",
            "p = softmax(logits)",
            [
                table(
                    "p",
                    ["token", "p", "cumulative"],
                    [
                        (token, float(probabilities[n]), float(mass))
                        for token, n, mass in zip(tokens, order, cumulative, strict=True)
                    ],
                )
            ],
        ),
        Step(
            "Temperature",
            "Below 1 the distribution is sharper, above 1 flatter; towards 0 it becomes greedy.",
            "p_T(w) ∝ p(w)^(1/T)",
            [compared("temperature", **{f"T = {t:g}": column for t, column in tempered.items()})],
        ),
        Step(
            f"Top-k, k = {options.top_k}",
            "The k most probable tokens, and those tied with the last of them, renormalized (Fan et al. 2018).",
            "",
            [compared("top-k", p=log_probs, **{"top-k": top_k})],
        ),
        Step(
            f"Top-p, p = {options.top_p:g}",
            "The fewest most probable tokens that hold this mass: many where the model is unsure, few where it is sure"
            " (Holtzman et al. 2020).",
            "smallest set with Σ p ≥ top_p",
            [compared("top-p", p=log_probs, **{"top-p": top_p})],
        ),
        Step(
            f"Min-p, p = {options.min_p:g}",
            "Tokens at least this many times as probable as the most probable one (Nguyen et al. 2024).",
            "p(w) ≥ min_p · max p",
            [compared("min-p", p=log_probs, **{"min-p": min_p})],
        ),
        Step(
            "Draw a token",
            f"Temperature {options.temperature:g}, then top-k, top-p and min-p, each of what the one before it left; a"
            " uniform number of (seed, position) picks the token whose share of the cumulative sum it falls into. Seed"
            f" {options.seed} gives the same tokens every time.",
            "token = first w with cumulative(w) > u",
            [
                compared("after all filters", p=final[0]),
                table(
                    "draws",
                    ["position", "u", "token"],
                    [(n, float(u), names[int(id)]) for n, (u, id) in enumerate(zip(uniforms, drawn, strict=True))],
                ),
            ],
        ),
    ]
    about = "A language model gives a distribution; sampling draws the next token from it, sharpened or truncated."
    return Explanation("sampling", "Sampling", about, steps)


def _of_text(options: SamplingExample) -> tuple[Tensor, Sequence[str], str]:
    """Relative frequencies of the words after a context."""
    own_text = options.text != COWS and options.context == CONTEXT
    words = busiest_context(options.text, 2) if own_text else options.context.split()
    models = Models(NGramOptions(text=options.text))
    context = models.tokenizer.encode(" ".join(words))[-2:]
    if not context:
        raise UserError("context must have a word or more, such as context='cows eat'.")
    probabilities = next_probabilities(models.fitted(len(context) + 1, "mle"), context).double()
    names = models.tokenizer.tokens(range(models.tokenizer.size))
    return probabilities.log(), names, joined(models.tokenizer.tokens(context))


@torch.inference_mode()
def _of_run(options: SamplingExample, run: Run) -> tuple[Tensor, Sequence[str], str]:
    ids, _ = run_ids(run, options.text, limit=None)
    state = run.model.start(Source.empty(1, run.device), capacity=len(ids))
    log_probs, _ = run.model.step(torch.tensor([ids], device=run.device), state)
    log_probs = log_probs[0].double().cpu()
    log_probs[run.tokenizer.never_generated(run.tokenizer.eos)] = -torch.inf
    return log_probs.log_softmax(-1), run.tokenizer.tokens(range(run.tokenizer.size)), options.text[-40:]
