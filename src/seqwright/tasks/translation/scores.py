"""Scores of a translator: how probable the references are to it, and how good what it says is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from seqwright import __version__
from seqwright.core.batch import IGNORE
from seqwright.core.config import check_not_negative
from seqwright.core.protocols import Autoregressive
from seqwright.data.bucketing import ByLength
from seqwright.data.parallel.buckets import Buckets, EncodedPairs
from seqwright.decoding.options import SearchOptions
from seqwright.metrics.brackets import bracket_score
from seqwright.metrics.counts import BootstrapConfig, Counts, by_length, nll_counts, scores_json
from seqwright.metrics.edit_distance import error_rate
from seqwright.metrics.ngram_overlap import rouge, simplified_bleu, word_overlap
from seqwright.metrics.score import Floats
from seqwright.metrics.translation import References, bleu, chrf, exact_match, ter
from seqwright.text.moses import Language, lower_tokens
from seqwright.text.tokenizer import Tokenizer

TOKENS = 4096
"""Tokens scored at a time."""

Metric = Literal[
    "bleu",
    "chrf",
    "ter",
    "exact_match",
    "word_error_rate",
    "phoneme_error_rate",
    "rouge_1",
    "rouge_2",
    "rouge_l",
    "word_precision",
    "word_recall",
    "word_f1",
    "simplified_bleu",
    "bracket_precision",
    "bracket_recall",
    "bracket_f1",
]


def error_rate_of(outputs: Sequence[str], references: References, unit: str) -> Counts:
    """Of what white space parts: words, phonemes, actions."""
    parted = [[reference.split() for reference in several] for several in references]
    return error_rate([output.split() for output in outputs], parted, unit)


METRICS: dict[str, Callable[[Sequence[str], References], Counts]] = {
    "bleu": bleu,
    "chrf": chrf,
    "ter": ter,
    "exact_match": exact_match,
    "word_error_rate": lambda outputs, references: error_rate_of(outputs, references, "word"),
    "phoneme_error_rate": lambda outputs, references: error_rate_of(outputs, references, "phoneme"),
    "rouge_1": lambda outputs, references: rouge(outputs, references, "1"),
    "rouge_2": lambda outputs, references: rouge(outputs, references, "2"),
    "rouge_l": lambda outputs, references: rouge(outputs, references, "L"),
    "word_precision": lambda outputs, references: word_overlap(outputs, references, "precision"),
    "word_recall": lambda outputs, references: word_overlap(outputs, references, "recall"),
    "word_f1": lambda outputs, references: word_overlap(outputs, references, "f1"),
    "simplified_bleu": simplified_bleu,
    "bracket_precision": lambda outputs, references: bracket_score(outputs, references, "precision"),
    "bracket_recall": lambda outputs, references: bracket_score(outputs, references, "recall"),
    "bracket_f1": lambda outputs, references: bracket_score(outputs, references, "f1"),
}


@dataclass(frozen=True, kw_only=True)
class OutputEvaluationConfig:
    metrics: tuple[Metric, ...] = ("bleu", "chrf")
    """How outputs are compared with their references, beside the likelihood of these."""
    moses: Language | None = None
    """The target's language: BLEU is then also counted on lower-cased text, cut into words by Moses' rules."""
    sentences: int = 64
    """Validation sources translated (greedily) at each evaluation during training, for the log; 0 for none."""
    resamples: int = 1000
    """Bootstrap resamples behind an interval; 0 for none."""
    seed: int = 1
    """Fixes the bootstrap."""

    def __post_init__(self) -> None:
        check_not_negative(self, "sentences", "resamples", "seed")


@dataclass(frozen=True, kw_only=True)
class TranslationEvaluationConfig(OutputEvaluationConfig):
    tag: str | None = None
    """The reserved token put before the sources of other files, for runs that were trained with tags."""
    extractive: bool = False
    """Whether ROUGE is also given of what keeps words of the source: its first line, a counted keep-or-drop model, and
    the best that keeping words can do."""


def likelihood(model: Autoregressive, pairs: EncodedPairs, device: torch.device | str) -> Floats:
    """(pairs, 2): nll sum and token count of each target, its end included; none where a side exceeds the context."""
    longest = model.context or int(max(pairs.source.lengths.max(), pairs.target.lengths.max()))
    feed = Buckets(pairs, seed=0, tokens=TOKENS, batch=1, max_length=longest)
    return likelihood_in(feed, model, len(pairs), device)


@torch.inference_mode()
def likelihood_in(feed: Buckets | ByLength, model: Autoregressive, count: int, device: torch.device | str) -> Floats:
    """(count, 2): nll sum and token count of every target that a feed visits in an epoch; zeros for the others."""
    if isinstance(model, torch.nn.Module):
        model.eval()
    found = np.zeros((count, 2))
    for step in range(feed.steps_per_epoch):
        batch = feed.batch(step)
        log_probs, _ = model.score(batch.to(device))
        counts = (batch.target != IGNORE).sum(1)
        found[feed.rows(step)] = np.stack([-log_probs.cpu().double().sum(1).numpy(), counts.double().numpy()], 1)
    return found


def likelihood_counts(rows: Floats, target: Tokenizer, fingerprint: str) -> list[Counts]:
    """nll and perplexity of a target token."""
    too_long = int((rows[:, 1] == 0).sum())
    facts = [
        f"pairs:{len(rows) - too_long}",
        *([f"too_long:{too_long}"] if too_long else []),
        f"tokens:{int(rows[:, 1].sum())}",
        f"tokenizer:{target.signature}",
        f"text:{fingerprint[:8]}",
        f"seqwright:{__version__}",
    ]
    return nll_counts(rows, "|".join(facts))


def pair_likelihood(model: Autoregressive, pairs: EncodedPairs, device: torch.device | str) -> list[Counts]:
    """nll and perplexity of a target token of these pairs."""
    return likelihood_counts(likelihood(model, pairs, device), pairs.tokenizers.target, pairs.fingerprint)


def quality_counts(
    outputs: Sequence[str], references: References, config: OutputEvaluationConfig, options: SearchOptions
) -> Iterator[Counts]:
    """What each metric that was asked for counts in every output that a search with these options gave."""
    how = f"search:{options.kind}"
    if options.kind == "beam":
        how += f"-{options.beam_size}-{options.length_penalty}-{options.length_alpha}"
    for counts in _quality_counts(outputs, references, config):
        yield replace(counts, signature=f"{counts.signature}|{how}")


def extractive_counts(
    extracts: Mapping[str, Sequence[str]], references: References, config: OutputEvaluationConfig
) -> Iterator[Counts]:
    """ROUGE, as far as it was asked for, of words kept from the sources, by the name of who kept them."""
    for metric in config.metrics:
        for name, outputs in extracts.items() if metric.startswith("rouge") else ():
            counts = METRICS[metric](outputs, references)
            signature = f"{metric}_{name}|{counts.signature.partition('|')[2]}|extractive:{name}"
            yield replace(counts, name=f"{metric}_{name}", signature=signature)


def _quality_counts(outputs: Sequence[str], references: References, config: OutputEvaluationConfig) -> Iterator[Counts]:
    for name in config.metrics:
        yield METRICS[name](outputs, references)
    if config.moses is not None:
        language = config.moses
        parted = [[lower_tokens(reference, language) for reference in several] for several in references]
        counted = bleu([lower_tokens(output, language) for output in outputs], parted, tokenize="none")
        rest = counted.signature.partition("|")[2]
        yield replace(counted, name="bleu_moses", signature=f"bleu_moses|words:moses-{language}-lowercased|{rest}")


def scored_by_length(counts: Sequence[Counts], config: BootstrapConfig, lengths: Sequence[int]) -> dict[str, Any]:
    """Values, scores with interval and signature, and values by the length of the source, in words."""
    apart = {one.name: by_length(one, lengths) for one in counts if len(one.rows) == len(lengths)}
    table = {name: [{"length": at, "sources": n, "value": v} for at, n, v in rows] for name, rows in apart.items()}
    return scores_json(counts, config) | {"by_source_length": table}
