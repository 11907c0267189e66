"""Evaluation of outputs with references: their likelihood, and metrics such as BLEU, chrF, ROUGE and error rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from rich.table import Table

from seqwright import __version__
from seqwright.core.config import check_not_negative
from seqwright.core.protocols import Autoregressive
from seqwright.data.bucketing import BucketedFeed
from seqwright.data.parallel.buckets import Buckets, EncodedPairs
from seqwright.decoding.options import SearchOptions
from seqwright.metrics.brackets import bracket_score
from seqwright.metrics.counts import BootstrapConfig, Counts, by_length, nll_counts, scores_json
from seqwright.metrics.edit_distance import error_rate
from seqwright.metrics.examples import Examples, text_examples
from seqwright.metrics.ngram_overlap import rouge, simplified_bleu, word_overlap
from seqwright.metrics.score import Floats, signature
from seqwright.metrics.translation import References, bleu, chrf, exact_match, ter
from seqwright.tasks.scores import Scores
from seqwright.tasks.scoring import score_epoch, target_nll, visited
from seqwright.text.moses import Language, lower_tokens
from seqwright.text.tokenizer import Tokenizer

BATCH_TOKENS = 4096
"""Tokens per batch."""

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
    """Error rate of whitespace-separated units: words, phonemes, actions."""
    split = [[reference.split() for reference in several] for several in references]
    return error_rate([output.split() for output in outputs], split, unit)


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


LOWERCASED: dict[str, Callable[[Sequence[str], References], Counts]] = {
    "bleu": lambda outputs, references: bleu(outputs, references, lowercase=True),
    "chrf": lambda outputs, references: chrf(outputs, references, lowercase=True),
}
"""Metrics with lowercased references, beside the usual ones where outputs are lowercased."""


@dataclass(frozen=True, kw_only=True)
class OutputEvaluationConfig:
    metrics: tuple[Metric, ...] = ("bleu", "chrf")
    """Metrics of outputs against references, beside the likelihood of these."""
    moses: Language | None = None
    """Language of the target: also reports BLEU on lowercased text tokenized by Moses rules."""
    sentences: int = 64
    """Validation sources decoded greedily at each evaluation during training, for the log; 0 for none."""
    resamples: int = 1000
    """Bootstrap resamples for confidence intervals; 0 for none."""
    seed: int = 1
    """Seed of the bootstrap."""

    def __post_init__(self) -> None:
        check_not_negative(self, "sentences", "resamples", "seed")


@dataclass(frozen=True, kw_only=True)
class TranslationEvaluationConfig(OutputEvaluationConfig):
    tag: str | None = None
    """Special token before the sources of other files, for runs that were trained with tags."""
    extractive: bool = False
    """Also report ROUGE of extractive baselines: the first line, a naive Bayes keep-or-drop model, and the oracle."""


class OutputScores(Scores):
    """Scores of outputs, with a warning where case spoils the comparison."""

    def details(self) -> Iterator[str | Table]:
        if self.get("lower_case"):
            yield (
                "outputs are lowercased (tokenizer.lowercase): lowercased scores compare them with lowercased"
                " references (case:lc), the others with cased ones."
            )
        if degenerate := self.get("degenerate"):
            yield (
                f"degenerate: {degenerate:,} of {self['outputs']:,} outputs (empty, repeating, copied or too long);"
                " `seqwright translate` names them."
            )


def likelihood(model: Autoregressive, pairs: EncodedPairs, device: torch.device | str) -> Floats:
    """(pairs, 2): nll sum and token count of each target with its `<eos>`; zeros where a side exceeds the context."""
    longest = model.context or int(max(pairs.source.lengths.max(), pairs.target.lengths.max()))
    feed = Buckets(pairs, seed=0, tokens=BATCH_TOKENS, batch=1, max_length=longest)
    return feed_likelihood(feed, model, len(pairs), device)


def feed_likelihood(feed: BucketedFeed, model: Autoregressive, count: int, device: torch.device | str) -> Floats:
    """(count, 2): nll sum and token count of every target that a feed visits in an epoch; zeros for the others."""
    rows = np.zeros((count, 2))
    rows[visited(feed)] = score_epoch(model, feed, target_nll(model), device=device)
    return rows


def likelihood_counts(rows: Floats, target: Tokenizer, **data: str) -> list[Counts]:
    """nll and perplexity of a target token; signatures have the hash of the data, by what it is of."""
    too_long = int((rows[:, 1] == 0).sum())
    facts = signature(
        pairs=len(rows) - too_long,
        too_long=too_long or None,
        tokens=int(rows[:, 1].sum()),
        tokenizer=target.signature,
        **{name: fingerprint[:8] for name, fingerprint in data.items()},
        seqwright=__version__,
    )
    return nll_counts(rows, facts)


def pair_likelihood(model: Autoregressive, pairs: EncodedPairs, device: torch.device | str) -> list[Counts]:
    """nll and perplexity of a target token of these pairs."""
    return likelihood_counts(likelihood(model, pairs, device), pairs.tokenizers.target, ids=pairs.fingerprint)


def quality_counts(
    outputs: Sequence[str],
    references: References,
    config: OutputEvaluationConfig,
    options: SearchOptions,
    *,
    lowercased: bool,
) -> Iterator[Counts]:
    """Counts of each output of a search with these options, for each metric of the config.

    `lowercased` outputs have signatures that say so, and BLEU and chrF also with lowercased references.
    """
    facts = signature(outputs="lowercased" if lowercased else None, search=options.signature)
    for counts in _quality_counts(outputs, references, config, lowercased=lowercased):
        yield replace(counts, signature=signature(counts.signature, facts))


def output_examples(
    unit: str,
    inputs: Sequence[str],
    references: References,
    outputs: Sequence[str],
    config: OutputEvaluationConfig,
) -> Examples:
    """Inputs with their outputs, and the metrics of these."""
    return text_examples(
        unit,
        list(_quality_counts(outputs, references, config, lowercased=False)),
        inputs=inputs,
        references=list(map(" | ".join, references)),
        outputs=outputs,
    )


def extractive_counts(
    extracts: Mapping[str, Sequence[str]], references: References, config: OutputEvaluationConfig
) -> Iterator[Counts]:
    """The ROUGE metrics of the config, of extractive baselines by name."""
    for metric in config.metrics:
        for name, outputs in extracts.items() if metric.startswith("rouge") else ():
            counts = METRICS[metric](outputs, references)
            facts = signature(f"{metric}_{name}", counts.signature.partition("|")[2], extractive=name)
            yield replace(counts, name=f"{metric}_{name}", signature=facts)


def _quality_counts(
    outputs: Sequence[str], references: References, config: OutputEvaluationConfig, *, lowercased: bool
) -> Iterator[Counts]:
    for name in config.metrics:
        yield METRICS[name](outputs, references)
        if lowercased and name in LOWERCASED:
            counts = LOWERCASED[name](outputs, references)
            facts = signature(f"{name}_lowercased", counts.signature.partition("|")[2])
            yield replace(counts, name=f"{name}_lowercased", signature=facts)
    if config.moses is not None:
        language = config.moses
        tokenized = [[lower_tokens(reference, language) for reference in several] for several in references]
        counts = bleu([lower_tokens(output, language) for output in outputs], tokenized, tokenize="none")
        facts = signature("bleu_moses", f"words:moses-{language}-lowercased", counts.signature.partition("|")[2])
        yield replace(counts, name="bleu_moses", signature=facts)


def scores_by_length(counts: Sequence[Counts], config: BootstrapConfig, lengths: Sequence[int]) -> dict[str, Any]:
    """Scores with intervals and signatures, and values by the length of the source in words."""
    buckets = {one.name: by_length(one, lengths) for one in counts if len(one.rows) == len(lengths)}
    table = {name: [{"length": at, "sources": n, "value": v} for at, n, v in rows] for name, rows in buckets.items()}
    return scores_json(counts, config) | {"by_source_length": table}
