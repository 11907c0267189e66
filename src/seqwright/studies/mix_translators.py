"""`mix` of translators: at every step their probabilities are averaged, or multiplied, and one search asks them all."""

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
from seqwright.metrics.interpolation import best_weights, geometric_weights
from seqwright.metrics.score import Floats
from seqwright.pipeline import training as session
from seqwright.runs.run import Run
from seqwright.studies.mix_files import learned
from seqwright.tasks.translation.scores import TOKENS
from seqwright.text.tokenizer import Tokenizer

HELD = 1 << 24
"""Log-probabilities held at once to tune a product, whose weights depend on those of all tokens."""


def mix_translators(runs: Sequence[Any], on: str | Sequence[str], path: Path, *, geometric: bool) -> dict[str, Any]:
    """Makes a run of translators between the same vocabularies, with equal weights or those under which the targets of
    held-out pairs are most probable; the weight of each and, where pairs were given, the perplexities."""
    first = runs[0]
    for run in runs:
        _refuse_unlike(first, run)
    weights, tuned = (_tuned if on else _equal)(runs, on, geometric)
    warnings = [*learned(runs, on)]
    parts = {str(n): run.settings.table()["model"] for n, run in enumerate(runs, 1)}
    mean = "geometric" if geometric else "arithmetic"
    made = first.settings.remade(
        path.name, {"kind": "mixture", "weights": weights.tolist(), "mean": mean, "parts": parts}
    )
    model = build.model(made.model, type(first).sizes(first.directory), task="pairs")
    model.models = [run.model for run in runs]
    alone = tuned.pop("alone", [{}] * len(runs))
    shown = [
        {"run": str(run.path), "weight": float(weight)} | own
        for run, weight, own in zip(runs, weights, alone, strict=True)
    ]
    beside = [first.directory.source_tokenizer_path, first.directory.degeneration_path]
    return session.keep(
        made,
        path,
        tokenizer=first.tokenizer.json,
        model=model,
        notes=[f"{weight:.4f} of {run.path.name} ({mean})" for weight, run in zip(weights, runs, strict=True)]
        + warnings,
        beside={file.name: file.read_text(encoding="utf-8") for file in beside if file.exists()},
        parts=shown,
        mean=mean,
        warnings=warnings,
        **tuned,
    )


def _equal(runs: Sequence[Any], on: str | Sequence[str], geometric: bool) -> tuple[Floats, dict[str, Any]]:
    return np.full(len(runs), 1 / len(runs)), {}


def _tuned(runs: Sequence[Any], on: str | Sequence[str], geometric: bool) -> tuple[Floats, dict[str, Any]]:
    """Weights that suit held-out pairs, and what was measured on them."""
    batches = list(_batches(runs, on))
    tokens = sum(int((batch.target != IGNORE).sum()) for batch in batches)
    own = np.stack([_own(run, batches) for run in runs], 1)  # (T, M)
    facts: dict[str, Any] = {"tuned_on": as_list(on), "tuned_tokens": tokens}
    if geometric:
        log_probs, wanted = _whole(runs, batches)  # (M, N, V)
        weights = geometric_weights(log_probs, wanted)
        pooled = np.einsum("m,mnv->nv", weights, log_probs)
        together = pooled[np.arange(len(wanted)), wanted] - np.logaddexp.reduce(pooled, axis=1)
        facts["tuned_tokens"] = len(wanted)
    else:
        weights = best_weights(own)
        with np.errstate(divide="ignore"):
            together = np.logaddexp.reduce(own + np.log(weights), axis=1)
    facts["tuned"] = _perplexity(together)
    return weights, facts | {"alone": [_perplexity(each) for each in own.T[:, : len(together)]]}


def _batches(runs: Sequence[Any], on: str | Sequence[str]) -> Iterator[Batch]:
    """The pairs that all runs can read, mixed."""
    encoded = encode_pairs(runs[0].pairs(on, tag=runs[0].settings.evaluation.tag).pairs, runs[0].tokenizers)
    sights = [run.model.context for run in runs if run.model.context is not None]
    longest = min(sights, default=int(max(encoded.source.lengths.max(), encoded.target.lengths.max())))
    feed = Buckets(encoded, seed=0, tokens=TOKENS, batch=1, max_length=longest)
    return (feed.batch(step) for step in range(feed.steps_per_epoch))


@torch.inference_mode()
def _own(run: Any, batches: Sequence[Batch]) -> Floats:
    """(T,): log p of every target token."""
    scored = [run.model.score(batch.to(run.device))[0].cpu()[batch.target != IGNORE] for batch in batches]
    return torch.cat(scored).double().numpy()


@torch.inference_mode()
def _whole(runs: Sequence[Any], batches: Sequence[Batch]) -> tuple[Floats, NDArray[np.int64]]:
    """(M, N, V), (N,): all that each says of the first target tokens, as many as can be held, and what was wanted."""
    room = HELD // (len(runs) * runs[0].tokenizers.target.size)
    held: list[tuple[Tensor, Tensor]] = []
    for batch in batches:
        if room <= 0:
            break
        real = batch.target != IGNORE
        said = torch.stack([run.model(batch.to(run.device)).log_softmax(-1).cpu()[real] for run in runs])
        held.append((said[:, :room], batch.target[real][:room]))
        room -= said.size(1)
    log_probs, wanted = (torch.cat(tensors, -1 - (n == 0)) for n, tensors in enumerate(zip(*held, strict=True)))
    return log_probs.double().numpy(), wanted.numpy()


def _perplexity(log_probs: Floats) -> dict[str, float]:
    return {"perplexity": float(np.exp(-log_probs.mean()))}


def _refuse_unlike(one: Any, other: Run) -> None:
    """Raises unless two runs translate between the same vocabularies, told in the same way what is wanted."""
    if "translate" not in other.verbs:
        raise UserError(f"{other.path} holds a model that {other.does}; only translators can be mixed with {one.path}.")
    for side, key in (("target", "file"), ("source", "source_file")):
        mine, theirs = (getattr(run.tokenizers, side) for run in (one, other))
        if mine.hash != theirs.hash:
            raise UserError(_unlike(one, other, side, "file" if one.tokenizers.joint else key, mine, theirs))
    for key in ("sources", "tags"):
        mine, theirs = (getattr(run.settings.data, key) for run in (one, other))
        if mine != theirs:
            raise UserError(f"data.{key} is {mine} for {one.path} and {theirs} for {other.path}; train both alike.")


def _unlike(one: Any, other: Any, side: str, key: str, mine: Tokenizer, theirs: Tokenizer) -> str:
    directory = one.directory
    kept = directory.source_tokenizer_path if key == "source_file" else directory.tokenizer_path
    return (
        f"{one.path} and {other.path} cut {side}s differently (tokenizers {mine.hash[:12]} and {theirs.hash[:12]}), so"
        f" their probabilities are of different things; train the second with --set tokenizer.{key}={kept}."
    )
