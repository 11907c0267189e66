"""Evaluation of language models: likelihood of a text, with the facts that its signature states."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from rich.table import Table

from seqwright import __version__
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Adapts, Autoregressive
from seqwright.data.text.stream import Stream
from seqwright.metrics.blocks import block_examples
from seqwright.metrics.counts import nll_counts
from seqwright.metrics.dynamic_evaluation import score_dynamically
from seqwright.metrics.examples import Examples, digest
from seqwright.metrics.likelihood import (
    EvaluationConfig,
    ScoredText,
    effective_stride,
    likelihood_scores,
    random_windows,
    score_text,
)
from seqwright.metrics.neural_cache import score_with_cache
from seqwright.metrics.next_token import MAX_LOGITS, next_token_correct
from seqwright.metrics.score import signature
from seqwright.tasks.base import Settings
from seqwright.tasks.codec import TextCodec
from seqwright.tasks.scores import Scores
from seqwright.text.tokenizer import Tokenizer
from seqwright.training import machine

SHORT = 1 << 14
"""Maximum number of tokens of a validation text that is scored during training as it is at the end."""
QUICK_ROWS = 16
"""Parallel slices when a model with carried state is evaluated during training."""
QUICK_TOKENS = 1 << 16
"""Maximum number of validation tokens scored during training; all of them are scored at the end."""
QUICK_SCORES = ("nll", "perplexity", "bits_per_byte", "bits_per_character")
ADAPTED = {"neural_cache": "with a neural cache", "dynamic_evaluation": "dynamic evaluation"}
"""Scores of models that adapt to the text they are scored on, and their titles."""
DEFAULT_WINDOW = 128
"""Tokens of a random window for models without a context limit."""


class LanguageScores(Scores):
    """nll, perplexity, bits per byte and bits per character of a text."""

    def details(self) -> Iterator[str | Table]:
        for name, reason in self.get("refused", {}).items():
            yield f"{name.replace('_', ' ')} is not reported: {reason}."
        if self.get("impossible"):
            yield (
                f"{self['impossible']:,} of {self['tokens']:,} tokens have probability zero under this model, so"
                " perplexity is infinite; model.unknown = true gives unknown tokens probability mass."
            )
        if "random_windows_nll" in self:
            yield f"NLL over random windows: {self['random_windows_nll']:.4f} ({self['random_windows']})"
        for name, title in ADAPTED.items():
            if name in self:
                scores = self[name]
                yield (
                    f"not static, {title}: perplexity {scores['perplexity']:.2f}, NLL {scores['nll']:.4f}"
                    f" ({scores['signature']})"
                )


def evaluate(
    model: Autoregressive,
    codec: TextCodec,
    stream: Stream,
    settings: Settings,
    *,
    device: torch.device | str = "cpu",
    quick: bool = False,
    progress: Progress = SILENT,
) -> Scores:
    """Likelihood of a text; a `quick` one reads less of a long text, with less context."""
    config: EvaluationConfig = settings.evaluation
    mask_documents: bool = settings.data.mask_documents
    if not quick:
        return evaluate_text(
            model, codec, stream, config, mask_documents=mask_documents, device=device, progress=progress
        )
    static = replace(config, cache_size=None, dynamic_rate=None)
    config, rows = replace(static, resamples=0, random_batches=0, accuracy=False), 1
    if stream.positions > SHORT:
        config, stream, rows = replace(config, stride=model.context), stream.first(QUICK_TOKENS), QUICK_ROWS
    scores = evaluate_text(model, codec, stream, config, mask_documents=mask_documents, device=device, rows=rows)
    return Scores({key: scores[key] for key in QUICK_SCORES})


def with_accuracy(config: EvaluationConfig, codec: TextCodec, stream: Stream) -> EvaluationConfig:
    """[evaluation] with next-token accuracy decided: as requested, or where a text has few logits."""
    if config.accuracy is not None:
        return config
    return replace(config, accuracy=stream.positions * codec.tokenizer.size <= MAX_LOGITS)


def evaluate_text(
    model: Autoregressive,
    codec: TextCodec,
    stream: Stream,
    config: EvaluationConfig,
    *,
    device: torch.device | str = "cpu",
    rows: int = 1,
    mask_documents: bool = False,
    progress: Progress = SILENT,
) -> LanguageScores:
    """nll, perplexity, bits per byte and per character of a text; `rows` > 1 is faster, but starts from that many empty
    states. `mask_documents` limits attention to a token's own document."""
    model.eval()
    ids = torch.from_numpy(stream.ids.astype(np.int64))
    with machine.explain_out_of_memory("scoring a text", advice="lower evaluation.batch_size"):
        scored = score_text(
            model,
            ids,
            sos=stream.sos,
            stride=config.stride,
            batch_size=config.batch_size,
            rows=rows,
            mask_documents=mask_documents,
            device=device,
            progress=progress,
        )
    if config.accuracy:
        correct = next_token_correct(
            model,
            ids,
            codec.tokenizer.size,
            sos=stream.sos,
            stride=config.stride,
            mask_documents=mask_documents,
            device=device,
        )
        scored = replace(scored, correct=correct)
    facts = signature(
        tokens=stream.targets,
        **_context_facts(model, config, rows),
        documents="apart" if mask_documents else None,
        tokenizer=codec.tokenizer.signature,
        **stream.signature,
        bootstrap=f"{config.resamples}-{config.seed}",
        seqwright=__version__,
    )
    scores = likelihood_scores(scored, sizes=stream.sizes, signature=facts, lossy=stream.lossy, config=config)
    scores["unknown"] = stream.unknown
    scores["impossible"] = int(np.isneginf(scored.log_probs).sum())
    if config.random_batches:
        context = model.context or DEFAULT_WINDOW
        scores["random_windows_nll"] = random_windows(
            model,
            ids,
            sos=stream.sos,
            context=context,
            batch_size=config.random_batch_size,
            batches=config.random_batches,
            seed=config.seed,
            mask_documents=mask_documents,
            device=device,
        )
        scores["random_windows"] = f"{config.random_batches}x{config.random_batch_size}x{context}|seed:{config.seed}"
    adapted = adapted_scores(model, ids, stream.sos, config, device=device, progress=progress)
    return LanguageScores(scores | adapted).with_examples(lambda: text_examples(scored, stream, codec.tokenizer))


def text_examples(scored: ScoredText, stream: Stream, tokenizer: Tokenizer) -> Examples:
    """Blocks of a text with bits per byte or, where tokens do not determine the text, documents with perplexity."""
    sizes = stream.sizes
    if stream.lossy is None:
        return block_examples(stream.text(tokenizer), sizes[:, 0], -scored.log_probs)
    counts = nll_counts(scored.bootstrap_units(sizes), f"tokens:{scored.tokens}")
    fingerprint = digest(stream.fingerprint, tokenizer.hash)
    return Examples(unit="document", counts=counts, fingerprint=fingerprint, lossy=stream.lossy)


def adapted_scores(
    model: Autoregressive,
    ids: torch.Tensor,
    sos: int | None,
    config: EvaluationConfig,
    *,
    device: torch.device | str = "cpu",
    progress: Progress = SILENT,
) -> dict[str, dict[str, Any]]:
    """nll and perplexity with a neural cache and under dynamic evaluation, where [evaluation] asks for them; never in
    place of static scores."""
    adapted: dict[str, dict[str, Any]] = {}
    if config.cache_size is not None:
        size, theta, weight = config.cache_size, config.cache_theta, config.cache_lambda
        scored = score_with_cache(model, ids, sos=sos, size=size, theta=theta, weight=weight, device=device)
        facts = signature(size=size, theta=theta, weight=weight)
        adapted["neural_cache"] = {"nll": scored.nll, "perplexity": math.exp(scored.nll), "signature": facts}
    if config.dynamic_rate is not None:
        rate, decay, segment = config.dynamic_rate, config.dynamic_decay, config.dynamic_segment
        scored = score_dynamically(
            model, ids, sos=sos, rate=rate, decay=decay, segment=segment, device=device, progress=progress
        )
        facts = signature(rate=rate, decay=decay, segment=segment)
        adapted["dynamic_evaluation"] = {"nll": scored.nll, "perplexity": math.exp(scored.nll), "signature": facts}
    return adapted


def _context_facts(model: Autoregressive, config: EvaluationConfig, rows: int) -> dict[str, object]:
    """How much context each token was scored with."""
    if model.context is not None:
        return {"context": model.context, "stride": effective_stride(model.context, config.stride)}
    return {
        "state": "carried",
        "adaptive": isinstance(model, Adapts) and model.adaptive,
        "rows": rows if rows > 1 else None,
        "stride": "unused" if config.stride is not None else None,
    }
