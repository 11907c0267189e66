"""Scores of a model on a text, with everything that belongs into their signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from seqwright import __version__
from seqwright.data.stream import Stream
from seqwright.interface import Autoregressive
from seqwright.metrics.likelihood import EvaluationConfig, likelihood_scores, random_windows, score_text
from seqwright.text.tokenizer import Tokenizer


def evaluate_text(
    model: Autoregressive,
    tokenizer: Tokenizer,
    stream: Stream,
    config: EvaluationConfig,
    *,
    device: torch.device | str = "cpu",
    rows: int = 1,
    watch: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """nll, perplexity, bits per byte and character of a whole text; `rows` > 1 is faster, but begins so many times."""
    if isinstance(model, torch.nn.Module):
        model.eval()
    ids = torch.from_numpy(stream.ids.astype(np.int64))
    scored = score_text(
        model, ids, sos=stream.sos, stride=config.stride, batch=config.batch, rows=rows, device=device, watch=watch
    )
    signature = _signature(model, tokenizer, stream, config, rows)
    scores = likelihood_scores(
        scored,
        bytes=stream.bytes,
        characters=stream.characters,
        signature=signature,
        lossy=_lossy(tokenizer, stream),
        resamples=config.resamples,
        seed=config.seed,
    )
    scores["unknown"] = stream.unknown
    scores["impossible"] = int(np.isneginf(scored.log_probs).sum())
    if config.random_batches:
        context = model.context or 128
        scores["random_windows_nll"] = random_windows(
            model,
            ids,
            context=context,
            batch=config.random_batch,
            batches=config.random_batches,
            seed=config.seed,
            device=device,
        )
        scores["random_windows"] = f"{config.random_batches}x{config.random_batch}x{context}|seed:{config.seed}"
    return scores


def _signature(model: Autoregressive, tokenizer: Tokenizer, stream: Stream, config: EvaluationConfig, rows: int) -> str:
    if model.context is None:
        adapted = ["adaptive"] if getattr(model, "adaptive", False) else []
        sight = ["state:carried", *adapted, *([f"rows:{rows}"] if rows > 1 else [])]
    else:
        sight = [f"context:{model.context}", f"stride:{config.stride or max(1, model.context // 2)}"]
    return "|".join(
        [
            f"tokens:{stream.targets}",
            *sight,
            f"tokenizer:{tokenizer.kind}-{tokenizer.size}-{tokenizer.hash[:8]}",
            f"text:{stream.fingerprint[:8]}",
            f"bootstrap:{config.resamples}-{config.seed}",
            f"seqwright:{__version__}",
        ]
    )


def _lossy(tokenizer: Tokenizer, stream: Stream) -> str | None:
    """Why the tokens do not determine this text, or None where they do."""
    if stream.exact:
        return None
    if stream.unknown:
        return (
            f"{stream.unknown:,} tokens of this text are <unk> to the {tokenizer.kind} tokenizer: not all was predicted"
        )
    return f"the {tokenizer.kind} tokenizer does not keep this text exactly (white space, case or normal form)"
