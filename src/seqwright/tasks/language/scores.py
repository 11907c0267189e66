"""Scores of a model on a text, with everything that belongs into their signature."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from seqwright import __version__
from seqwright.core.protocols import Autoregressive, Watch, unwatched
from seqwright.data.text.stream import Stream
from seqwright.metrics.likelihood import (
    EvaluationConfig,
    effective_stride,
    likelihood_scores,
    random_windows,
    score_text,
)
from seqwright.text.tokenizer import Tokenizer
from seqwright.training import machine


def evaluate_text(
    model: Autoregressive,
    tokenizer: Tokenizer,
    stream: Stream,
    config: EvaluationConfig,
    *,
    device: torch.device | str = "cpu",
    rows: int = 1,
    apart: bool = False,
    watch: Watch = unwatched,
) -> dict[str, Any]:
    """nll, perplexity, bits per byte and character of a whole text; `rows` > 1 is faster, but begins so many times.

    `apart` lets the tokens of a window see their own document only.
    """
    if isinstance(model, torch.nn.Module):
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
            mask_documents=apart,
            device=device,
            watch=watch,
        )
    signature = _signature(model, tokenizer, stream, config, rows, apart)
    scores = likelihood_scores(scored, sizes=stream.sizes, signature=signature, lossy=stream.lossy, config=config)
    scores["unknown"] = stream.unknown
    scores["impossible"] = int(np.isneginf(scored.log_probs).sum())
    if config.random_batches:
        context = model.context or 128
        scores["random_windows_nll"] = random_windows(
            model,
            ids,
            sos=stream.sos,
            context=context,
            batch_size=config.random_batch_size,
            batches=config.random_batches,
            seed=config.seed,
            mask_documents=apart,
            device=device,
        )
        scores["random_windows"] = f"{config.random_batches}x{config.random_batch_size}x{context}|seed:{config.seed}"
    return scores


def _signature(
    model: Autoregressive, tokenizer: Tokenizer, stream: Stream, config: EvaluationConfig, rows: int, apart: bool
) -> str:
    if model.context is None:
        adapted = ["adaptive"] if getattr(model, "adaptive", False) else []
        sight = ["state:carried", *adapted, *([f"rows:{rows}"] if rows > 1 else [])]
        sight += ["stride:unused"] if config.stride is not None else []
    else:
        sight = [f"context:{model.context}", f"stride:{effective_stride(model.context, config.stride)}"]
    return "|".join(
        [
            f"tokens:{stream.targets}",
            *sight,
            *(["documents:apart"] if apart else []),
            f"tokenizer:{tokenizer.signature}",
            f"text:{stream.fingerprint[:8]}",
            f"bootstrap:{config.resamples}-{config.seed}",
            f"seqwright:{__version__}",
        ]
    )
