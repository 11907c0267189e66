"""Token embeddings: nearest neighbors by cosine, and a map by principal components."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from seqwright.core.batch import Batch
from seqwright.inspection.figures import PointMap
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import table, visible
from seqwright.tasks.translation.task import TranslationRun
from seqwright.text.tokenizer import Tokenizer

MAX_TOKENS = 24
"""Distinct tokens of the text that are shown."""
PCA_TOKENS = 20_000
"""First ids of the vocabulary that principal components are computed from."""


def token_embedding(model: Any) -> nn.Embedding | None:
    """The embedding of the text's tokens: the first of a model."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return next((module for module in modules if isinstance(module, nn.Embedding)), None)


def input_embedding(model: Any, batch: Batch) -> nn.Module | None:
    """The embedding of what is read: of the text's tokens, or of patches, the first linear layer of their size."""
    features = batch.source.features
    if features is None:
        return token_embedding(model)
    linear = (module for module in model.modules() if isinstance(module, nn.Linear))
    return next((module for module in linear if module.in_features == features.size(-1)), None)


def neighbors_view(subject: Subject) -> ViewResult:
    """Nearest tokens of the vocabulary by the cosine of their embeddings."""
    ids, tokenizer, weight = _text_tokens(subject)
    unit = nn.functional.normalize(weight, dim=-1)
    banned = torch.tensor(sorted(tokenizer.special_tokens.values()), dtype=torch.long)
    cosines = (unit[ids] @ unit.T).index_fill(1, banned, -torch.inf)  # (N, V)
    cosines[torch.arange(len(ids)), ids] = -torch.inf
    best = cosines.topk(min(subject.options.top, cosines.size(1)))
    rows = []
    values = {}
    for id, near, at in zip(ids, best.values.tolist(), best.indices.tolist(), strict=True):
        token = tokenizer.tokens([id])[0]
        values[token] = list(zip(tokenizer.tokens(at), near, strict=True))
        rows.append((token, "  ".join(f"{visible(name)} {cosine:.2f}" for name, cosine in values[token])))
    step = Step(
        "Nearest neighbors of the embeddings",
        "Tokens of the vocabulary whose embeddings have the greatest cosine with that of a token of the text.",
        "cos(u, v) = u · v / (|u| |v|)",
        [table("neighbors", ("token", "nearest tokens, with cosine"), rows)],
    )
    return ViewResult(step, values)


def map_view(subject: Subject) -> ViewResult:
    """Tokens of the text and their nearest neighbors on the first two principal components of the vocabulary."""
    ids, tokenizer, weight = _text_tokens(subject)
    unit = nn.functional.normalize(weight, dim=-1)
    nearest = (unit[ids] @ unit.T).topk(min(3, len(weight))).indices.flatten().tolist()
    shown = list(dict.fromkeys([*ids, *nearest]))
    points, share = principal_components(weight[:PCA_TOKENS], weight[shown])
    picture = PointMap(
        "embeddings, first two principal components",
        tuple(tokenizer.tokens(shown)),
        tuple((x, y) for x, y in points.tolist()),
        tuple(n < len(ids) for n in range(len(shown))),
    )
    step = Step(
        "Map of the embeddings",
        f"Principal components of the vocabulary's embeddings; these two hold {share:.0%} of the variance. Tokens of"
        " the text are marked, the others are their nearest neighbors.",
        "coordinates = (x - mean) V, V the right singular vectors of the centered embedding matrix",
        [picture],
    )
    return ViewResult(step, picture)


def principal_components(vectors: Tensor, of: Tensor) -> tuple[Tensor, float]:
    """Coordinates (N, 2) of vectors on the two directions of greatest variance, and their share of it."""
    mean = vectors.mean(0)
    variances, directions = torch.linalg.eigh(torch.cov(vectors.T.double()).reshape(vectors.size(1), -1))
    axes = directions[:, -2:].flip(1)
    axes = axes * axes.sum(0).sign().where(axes.sum(0) != 0, 1.0)  # the sign of an eigenvector is arbitrary
    coordinates = (of - mean).double() @ axes
    return nn.functional.pad(coordinates, (0, 2 - coordinates.size(1))), float(variances[-2:].sum() / variances.sum())


def _text_tokens(subject: Subject) -> tuple[list[int], Tokenizer, Tensor]:
    """Distinct ids of the text (special tokens only where there are no others), their tokenizer, and the embedding
    matrix."""
    run, batch = subject.run, subject.example.batch
    tokenizer = run.tokenizers.source if isinstance(run, TranslationRun) else run.tokenizer
    embedding = token_embedding(run.model)
    assert embedding is not None
    ids = batch.input if batch.source.ids is None else batch.source.ids
    special = set(tokenizer.special_tokens.values())
    distinct = list(dict.fromkeys(ids[0].tolist()))
    known = [id for id in distinct if id not in special] or distinct
    return known[:MAX_TOKENS], tokenizer, embedding.weight.detach().float().cpu()
