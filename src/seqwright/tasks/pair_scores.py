"""Scores of a translator: how probable the references are to it, and how good what it says is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from seqwright import __version__
from seqwright.batch import IGNORE
from seqwright.config import UserError
from seqwright.data.buckets import Buckets, EncodedPairs
from seqwright.data.pair_formats import Pair
from seqwright.interface import Autoregressive
from seqwright.metrics.score import Floats, Score, bootstrap
from seqwright.tasks.translating import Translation

TOKENS = 4096
"""Tokens scored at a time."""


@dataclass(frozen=True, kw_only=True)
class PairEvaluationConfig:
    sentences: int = 64
    """Validation sources translated at each evaluation during training, for the log; 0 for none."""
    resamples: int = 1000
    """Bootstrap resamples behind an interval; 0 for none."""
    seed: int = 1
    """Fixes the bootstrap."""

    def __post_init__(self) -> None:
        for name in ("sentences", "resamples", "seed"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must not be below 0, but is {getattr(self, name)}.")


@torch.inference_mode()
def likelihood(model: Autoregressive, pairs: EncodedPairs, device: torch.device | str) -> Floats:
    """(pairs, 2): nll sum and token count of each target, its end included."""
    if isinstance(model, torch.nn.Module):
        model.eval()
    longest = model.context or int(max(pairs.source.lengths.max(), pairs.target.lengths.max()))
    feed = Buckets(pairs, seed=0, tokens=TOKENS, batch=1, longest=longest)
    parts = []
    for step in range(feed.steps_per_epoch):
        batch = feed.batch(step)
        scored, _ = model.score(batch.to(device))
        counts = (batch.target != IGNORE).sum(1)
        parts.append(np.stack([-scored.double().sum(1).cpu().numpy(), counts.double().numpy()], 1))
    return np.concatenate(parts)


def likelihood_scores(counts: Floats, config: PairEvaluationConfig, signature: str) -> dict[str, Any]:
    """nll and perplexity of a target token, with intervals."""
    formulas: dict[str, Callable[[Floats], Floats]] = {
        "nll": lambda sums: sums[:, 0] / sums[:, 1],
        "perplexity": lambda sums: np.exp(sums[:, 0] / sums[:, 1]),
    }
    scores = {}
    for name, formula in formulas.items():
        low, high = bootstrap(counts, formula, resamples=config.resamples, seed=config.seed)
        value = float(formula(counts.sum(0, keepdims=True))[0])
        scores[name] = Score(value=value, low=low, high=high, signature=f"{name}|{signature}").as_json()
    return scores


def signature_of(pairs: EncodedPairs) -> str:
    """What the likelihood was taken over."""
    target = pairs.tokenizers.target
    return "|".join(
        [
            f"pairs:{len(pairs)}",
            f"tokens:{len(pairs.target.ids)}",
            f"tokenizer:{target.kind}-{target.size}-{target.hash[:8]}",
            f"text:{pairs.fingerprint[:8]}",
            f"seqwright:{__version__}",
        ]
    )


def quality(translations: Sequence[Translation], pairs: Sequence[Pair]) -> dict[str, float]:
    """BLEU and exact match of translations against every reference."""
    import sacrebleu

    said = [translation.text for translation in translations]
    most = max(len(pair.targets) for pair in pairs)
    references = [[pair.targets[n] if n < len(pair.targets) else "" for pair in pairs] for n in range(most)]
    exact = sum(text in pair.targets for text, pair in zip(said, pairs, strict=True)) / len(said)
    return {"bleu": sacrebleu.corpus_bleu(said, references).score, "exact_match": exact}
