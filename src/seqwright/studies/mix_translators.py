"""`mix` of translators: an ensemble whose next-token probabilities are averaged, arithmetically or geometrically."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright import build
from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError
from seqwright.data.files import as_list
from seqwright.data.parallel.buckets import Buckets, encode_pairs
from seqwright.metrics.interpolation import geometric_weights, interpolation_weights
from seqwright.metrics.score import Floats
from seqwright.pipeline.untrained import keep
from seqwright.runs.overlap import training_overlap
from seqwright.runs.run import Run
from seqwright.studies.mix_weights import idle_parts
from seqwright.tasks.translation.scores import BATCH_TOKENS
from seqwright.text.tokenizer import Tokenizer

MAX_LOG_PROBS = 1 << 24
"""Log-probabilities held in memory to tune a geometric mean, whose normalizer needs whole distributions."""


def mix_translators(runs: Sequence[Any], on: str | Sequence[str], path: Path, *, geometric: bool) -> dict[str, Any]:
    """Writes an ensemble of translators with the same vocabularies, with equal weights or maximum-likelihood weights on
    held-out pairs; the summary has the weight of each and, where tuned, the perplexities."""
    first = runs[0]
    for run in runs:
        _check_compatible(first, run)
    weights, tuned = (_tuned if on else _equal)(runs, on, geometric)
    warnings = [*training_overlap(runs, on), *idle_parts([run.path for run in runs], weights)]
    parts = {str(n): run.settings.table()["model"] for n, run in enumerate(runs, 1)}
    mean = "geometric" if geometric else "arithmetic"
    settings = first.settings.remade(
        path.name, {"kind": "mixture", "weights": weights.tolist(), "mean": mean, "parts": parts}
    )
    model = build.model(settings.model, first.codec.sizes, task="pairs")
    model.models = [run.model for run in runs]
    perplexities = tuned.pop("alone", [{}] * len(runs))
    part_facts = [
        {"run": str(run.path), "weight": float(weight)} | perplexity
        for run, weight, perplexity in zip(runs, weights, perplexities, strict=True)
    ]
    extra_files = [first.directory.source_tokenizer_path, first.directory.degeneration_path]
    return keep(
        settings,
        path,
        tokenizer=first.tokenizer.json,
        model=model,
        notes=[f"{weight:.4f} of {run.path.name} ({mean})" for weight, run in zip(weights, runs, strict=True)]
        + warnings,
        beside={file.name: file.read_text(encoding="utf-8") for file in extra_files if file.exists()},
        parts=part_facts,
        mean=mean,
        warnings=warnings,
        **tuned,
    )


def _equal(runs: Sequence[Any], on: str | Sequence[str], geometric: bool) -> tuple[Floats, dict[str, Any]]:
    """Equal weights."""
    return np.full(len(runs), 1 / len(runs)), {}


def _tuned(runs: Sequence[Any], on: str | Sequence[str], geometric: bool) -> tuple[Floats, dict[str, Any]]:
    """Maximum-likelihood weights on held-out pairs, and the perplexities there."""
    batches = list(_batches(runs, on))
    tokens = sum(int((batch.target != IGNORE).sum()) for batch in batches)
    of_targets = np.stack([_target_log_probs(run, batches) for run in runs], 1)  # (T, M)
    facts: dict[str, Any] = {"tuned_on": as_list(on), "tuned_tokens": tokens}
    if geometric:
        log_probs, targets = _distributions(runs, batches)  # (M, N, V)
        weights = geometric_weights(log_probs, targets)
        pooled = np.einsum("m,mnv->nv", weights, log_probs)
        mixed = pooled[np.arange(len(targets)), targets] - np.logaddexp.reduce(pooled, axis=1)
        facts["tuned_tokens"] = len(targets)
    else:
        weights = interpolation_weights(of_targets)
        with np.errstate(divide="ignore"):
            mixed = np.logaddexp.reduce(of_targets + np.log(weights), axis=1)
    facts["tuned"] = _perplexity(mixed)
    return weights, facts | {"alone": [_perplexity(of_run) for of_run in of_targets.T[:, : len(mixed)]]}


def _batches(runs: Sequence[Any], on: str | Sequence[str]) -> Iterator[Batch]:
    """Batches of the pairs that fit the context of every run."""
    encoded = encode_pairs(runs[0].pairs(on, tag=runs[0].settings.evaluation.tag).pairs, runs[0].tokenizers)
    contexts = [run.model.context for run in runs if run.model.context is not None]
    max_length = min(contexts, default=int(max(encoded.source.lengths.max(), encoded.target.lengths.max())))
    feed = Buckets(encoded, seed=0, tokens=BATCH_TOKENS, batch=1, max_length=max_length)
    return (feed.batch(step) for step in range(feed.steps_per_epoch))


@torch.inference_mode()
def _target_log_probs(run: Any, batches: Sequence[Batch]) -> Floats:
    """log p of every target token, (T,)."""
    scored = [run.model.score(batch.to(run.device))[0].cpu()[batch.target != IGNORE] for batch in batches]
    return torch.cat(scored).double().numpy()


@torch.inference_mode()
def _distributions(runs: Sequence[Any], batches: Sequence[Batch]) -> tuple[Floats, NDArray[np.int64]]:
    """Log-probabilities (M, N, V) of the first N target tokens, as many as fit in memory, and their ids (N,)."""
    room = MAX_LOG_PROBS // (len(runs) * runs[0].tokenizers.target.size)
    chunks: list[tuple[Tensor, Tensor]] = []
    for batch in batches:
        if room <= 0:
            break
        real = batch.target != IGNORE
        log_probs_chunk = torch.stack([run.model(batch.to(run.device)).log_softmax(-1).cpu()[real] for run in runs])
        chunks.append((log_probs_chunk[:, :room], batch.target[real][:room]))
        room -= log_probs_chunk.size(1)
    log_probs, targets = (torch.cat(tensors, -1 - (n == 0)) for n, tensors in enumerate(zip(*chunks, strict=True)))
    return log_probs.double().numpy(), targets.numpy()


def _perplexity(log_probs: Floats) -> dict[str, float]:
    return {"perplexity": float(np.exp(-log_probs.mean()))}


def _check_compatible(one: Any, other: Run) -> None:
    """Raises unless two runs are translators with the same vocabularies, number of sources and tags."""
    for side, key in (("target", "file"), ("source", "source_file")):
        mine, theirs = (getattr(run.tokenizers, side) for run in (one, other))
        if mine.hash != theirs.hash:
            raise UserError(
                _different_tokenizers(one, other, side, "file" if one.tokenizers.joint else key, mine, theirs)
            )
    for key in ("sources", "tags"):
        mine, theirs = (getattr(run.settings.data, key) for run in (one, other))
        if mine != theirs:
            raise UserError(
                f"data.{key} is {mine} for {one.path} and {theirs} for {other.path}; train both with the same value."
            )


def _different_tokenizers(one: Any, other: Any, side: str, key: str, mine: Tokenizer, theirs: Tokenizer) -> str:
    directory = one.directory
    file = directory.source_tokenizer_path if key == "source_file" else directory.tokenizer_path
    return (
        f"{one.path} and {other.path} have different {side} tokenizers ({mine.hash[:12]} and {theirs.hash[:12]}), so"
        f" their probabilities are not over the same tokens; train the second with --set tokenizer.{key}={file}."
    )
