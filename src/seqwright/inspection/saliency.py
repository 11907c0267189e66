"""Saliency: what each token adds to a prediction, by gradient × input and by integrated gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqwright.core.batch import IGNORE, Batch
from seqwright.data.labeled.labels import Labels
from seqwright.inspection.embeddings import input_embedding
from seqwright.inspection.figures import SignedStrip
from seqwright.inspection.labeled import LabeledTensor
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import MAX_ROWS, Figure, matrix, table
from seqwright.tasks.captioning.task import CaptioningRun
from seqwright.tasks.chat.task import ChatRun
from seqwright.tasks.classification.explanation import explains
from seqwright.tasks.classification.task import ClassificationRun
from seqwright.tasks.denoising.task import DenoisingRun
from seqwright.tasks.images.task import ImageRun
from seqwright.tasks.language.task import LanguageRun
from seqwright.tasks.tagging.explanation import ExplainsTags, explain_tags
from seqwright.tasks.tagging.task import TaggingRun
from seqwright.tasks.translation.task import TranslationRun

DECODERS = (LanguageRun, TranslationRun, ChatRun, CaptioningRun, DenoisingRun)
"""Runs whose models predict token by token."""
STEPS = 64
"""Points on the line from zero embeddings to the text's, at which gradients are averaged."""
POWER = 2
"""Points are squares of evenly spaced ones, and so denser near zero, where a normalization is steep: at the first token
of a GPT, which reads <sos> alone, evenly spaced points missed the score by 23%, these by 0.1%."""
MAX_TARGETS = 16
"""Predicted tokens of a decoder that are explained: each costs a backward pass."""
MAX_POSITIONS = 128
"""Tokens of a text whose predictions are explained in a decoder."""
MAX_WORDS = 64
"""Words of a tagger that are explained: each costs backward passes, too."""
PASS_TOKENS = 8192
"""Tokens of a forward pass along the line: bounds the memory of long texts."""
FORMULA = (
    "gradient × input(t) = x(t) · ∂score/∂x(t)\n"
    "integrated gradients(t) = x(t) · mean over α in (0, 1) of ∂score/∂x(t) at αx (Sundararajan et al. 2017)"
)


@dataclass(frozen=True, eq=False)
class Saliency:
    """Attributions of predictions (rows) to tokens (columns)."""

    gradient_input: LabeledTensor
    integrated_gradients: LabeledTensor
    """Rows sum to `differences`, up to the number of steps."""
    differences: tuple[float, ...]
    """Score of each prediction minus its score at zero embeddings."""


def attributions(
    model: nn.Module, batch: Batch, scores: Callable[[Batch], Tensor], count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient × input and integrated gradients (count, S), and the differences (count,), for one row.

    `scores(batch)` are the `count` scalars (N, count) of N rows. They are attributed to the tokens of the source or,
    in language models, of the input.
    """
    embedding = input_embedding(model, batch)
    assert embedding is not None
    ends = batch.input.new_tensor([1.0, 0.0], dtype=torch.get_default_dtype())
    both = _repeated(batch, 2)
    with _scaled(embedding, ends, both) as leaves:
        at_ends = scores(both)  # (2, count)
    x = leaves[0][:1].detach()  # (1, S, D)
    gradients = _gradients(at_ends[:1], leaves[0], count)
    path = torch.zeros_like(gradients)
    middle = (torch.arange(STEPS, device=ends.device, dtype=ends.dtype) + 0.5) / STEPS
    for points in torch.split(middle, max(1, PASS_TOKENS // (x.size(1) + batch.input.size(1)))):
        rows, weights = _repeated(batch, len(points)), POWER * points ** (POWER - 1) / STEPS
        with _scaled(embedding, points**POWER, rows) as leaves:
            along = scores(rows) * weights.unsqueeze(1)  # (N, count)
        path += _gradients(along, leaves[0], count)
    difference = (at_ends[0] - at_ends[1]).detach()
    return (gradients * x).sum(-1), (path * x).sum(-1), difference


def _gradients(scores: Tensor, leaf: Tensor, count: int) -> Tensor:
    """(count, S, D): gradients of the sum of each column of scores (N, count), summed over the rows."""
    return torch.stack(
        [torch.autograd.grad(scores[:, n].sum(), leaf, retain_graph=n < count - 1)[0].sum(0) for n in range(count)]
    )


def _repeated(batch: Batch, rows: int) -> Batch:
    zeros = torch.zeros(rows, dtype=torch.long, device=batch.input.device)
    return Batch(
        source=batch.source.select(zeros),
        input=batch.input.index_select(0, zeros),
        target=batch.target.index_select(0, zeros),
    )


@contextmanager
def _scaled(embedding: nn.Module, scales: Tensor, batch: Batch) -> Iterator[list[Tensor]]:
    """Multiplies the embeddings of each row by its scale (N,) by a forward hook; yields what the encoder gets, as a
    leaf of the graph. With tied embeddings, those of the decoder input stay as they are."""
    leaves: list[Tensor] = []
    source = batch.source.ids if batch.source.features is None else batch.source.features
    attributed = batch.input if source is None else source

    def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        if isinstance(inputs[0], Tensor) and inputs[0] is not attributed:
            return output
        leaves.append((output.detach() * scales.view(-1, 1, 1)).requires_grad_())
        return leaves[-1]

    handle = embedding.register_forward_hook(hook)
    try:
        # cuDNN computes no gradients of recurrent networks in evaluation mode.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            yield leaves
    finally:
        handle.remove()


def saliency_view(subject: Subject) -> ViewResult:
    """Of classifiers, taggers, translators and neural language models."""
    if isinstance(subject.run, TaggingRun):
        explained = isinstance(subject.run.model, ExplainsTags)
        return _features(subject, subject.run) if explained else _tagger(subject, subject.run)
    if isinstance(subject.run, DECODERS):
        return _decoder(subject)
    if isinstance(subject.run, ImageRun):
        return _classifier(subject, subject.run.codec.labels)
    assert isinstance(subject.run, ClassificationRun)
    explained = explains(subject.run.predictor)
    return _ngrams(subject, subject.run) if explained else _classifier(subject, subject.run.labels)


def _classifier(subject: Subject, labels: Labels) -> ViewResult:
    run = subject.run
    with torch.no_grad():
        logits = run.model(subject.example.batch)[0]
    first, *rest = logits.argsort(descending=True).tolist()
    against = rest[0] if labels.kind == "single" else None
    name = "value" if labels.kind == "regression" else labels.names[first]
    score = name if against is None else f"log p({name}) / p({labels.names[against]})"

    def scores(batch: Batch) -> Tensor:
        logits = run.model(batch)
        chosen = logits[:, first] if against is None else logits[:, first] - logits[:, against]
        return chosen.unsqueeze(1)

    saliency = _saliency(subject, scores, [score])
    first = int(isinstance(run, ImageRun))  # as attention counts: <sos> is 0, and so is the class token before patches
    span = subject.options.shown(len(saliency.integrated_gradients.columns), first)
    figures = [
        SignedStrip(
            f"{method}: {score}",
            values.columns[span],
            tuple(values.values[0, span].tolist()),
            "logits",
            first + span.start,
        )
        for method, values in (
            ("integrated gradients", saliency.integrated_gradients),
            ("gradient × input", saliency.gradient_input),
        )
    ]
    total = float(saliency.integrated_gradients.values.sum())
    prose = (
        f"Prediction: {name}. Tokens above zero support it, those below zero oppose it. Integrated gradients sum to"
        f" {total:.4f}; the score minus that of zero embeddings is {saliency.differences[0]:.4f}."
    )
    return ViewResult(Step("Saliency: what each token adds to the score", prose, FORMULA, figures), saliency)


def _tagger(subject: Subject, run: TaggingRun) -> ViewResult:
    batch, count = subject.example.batch, len(subject.example.words)
    shown = list(range(count)[subject.options.shown(count, 1)])
    chosen = shown[:MAX_WORDS]
    with torch.no_grad():
        tags = run.model.tag(batch.source)[0][0, chosen]  # (W,)

    def scores(batch: Batch) -> Tensor:
        """(N, W): logit of the predicted tag minus that of the best other."""
        logits = run.model(batch)[:, chosen]  # (N, W, C)
        index = tags.view(1, -1, 1).expand(len(logits), -1, 1)
        others = logits.scatter(-1, index, -torch.inf).amax(-1)
        return logits.gather(-1, index).squeeze(-1) - others

    words = [subject.example.words[n] for n in chosen]
    names = [f"{word}/{run.codec.tags[tag]}" for word, tag in zip(words, tags.tolist(), strict=True)]
    saliency = _saliency(subject, scores, names)
    prose = "Each row is a word with its predicted tag: what the tokens add to the tag's logit over the next best tag."
    if len(shown) > MAX_WORDS:
        prose += f" The first {MAX_WORDS} words are shown; --span A:B selects others."
    return ViewResult(Step("Saliency: what each token adds to a tag", prose, FORMULA, _matrices(saliency)), saliency)


def _decoder(subject: Subject) -> ViewResult:
    """log p of the last tokens, attributed to the source, or to the tokens before them."""
    model, example = subject.run.model, subject.example
    predicted = range(example.batch.target.size(1))[subject.options.shown(example.batch.target.size(1), 1)]
    real = [t for t in predicted if example.batch.target[0, t] != IGNORE][-MAX_TARGETS:]
    targets = example.batch.target[0, real]

    def scores(batch: Batch) -> Tensor:
        log_probs = model.head(model.hidden(batch)[0][:, real]).log_softmax(-1)  # (N, targets, V)
        return log_probs.gather(-1, targets.view(1, -1, 1).expand(len(log_probs), -1, 1)).squeeze(-1)

    saliency = _saliency(subject, scores, [example.targets[t] for t in real])
    where = "tokens before it"
    if example.source:
        where = "source tokens" if example.pixels is None else "patches"
    prose = f"Each row is a predicted token: what the {where} add to its log-probability (nats)."
    if len(real) == MAX_TARGETS:
        prose += f" The last {MAX_TARGETS} tokens are shown; --span A:B selects others."
    read = [] if example.source else [t + 1 for t in real]
    figures = _matrices(saliency, read)
    return ViewResult(Step("Saliency: what each token adds to a prediction", prose, FORMULA, figures), saliency)


def _matrices(saliency: Saliency, read: Sequence[int] = ()) -> list[Figure]:
    """Both methods; a prediction that read only the first so many tokens has empty cells behind them."""
    figures: list[Figure] = []
    for one in (saliency.integrated_gradients, saliency.gradient_input):
        values: list[list[float | None]] = one.values.tolist()
        width = max(read, default=len(one.columns))
        for n, count in enumerate(read):
            values[n][count:] = [None] * (len(values[n]) - count)
        cut = [row[:width] for row in values]
        figures.append(matrix(one.name, cut, rows=one.rows, columns=one.columns[:width], signed=True))
    sums = saliency.integrated_gradients.values.sum(1).tolist()
    rows = list(zip(saliency.integrated_gradients.rows, sums, saliency.differences, strict=True))
    figures.append(table("sums of integrated gradients", ("prediction", "sum", "score minus that of zeros"), rows))
    return figures


def _saliency(subject: Subject, scores: Callable[[Batch], Tensor], names: Sequence[str]) -> Saliency:
    example = subject.example
    gradient, integrated, differences = attributions(subject.run.model, example.batch, scores, len(names))
    rows, columns = tuple(names), example.source or example.tokens
    return Saliency(
        LabeledTensor("gradient × input", gradient.cpu(), rows, columns),
        LabeledTensor("integrated gradients", integrated.cpu(), rows, columns),
        tuple(differences.tolist()),
    )


def _ngrams(subject: Subject, run: ClassificationRun) -> ViewResult:
    """A bag of n-grams needs no gradients: its score is a sum over n-grams."""
    (classified,) = run.classify([subject.example.text.split("\t", run.labels.parts - 1)], explain=True)
    explanation = classified.explanation
    assert explanation is not None
    rows = [(ngram.text, ngram.unit, ngram.contribution) for ngram in explanation.ngrams]
    rows += [("bias", "", explanation.bias), ("all other n-grams", "", explanation.others)]
    rather = f" rather than {explanation.against}" if explanation.against is not None else ""
    step = Step(
        "Saliency: what each n-gram adds to the score",
        f"Prediction: {explanation.label}{rather}, score {explanation.score:+.4f}: the sum of the rows.",
        "score = bias + Σ contribution of each n-gram",
        [table("contributions", ("n-gram", "of", "contribution"), rows)],
    )
    return ViewResult(step, explanation)


def _features(subject: Subject, run: TaggingRun) -> ViewResult:
    """A perceptron needs no gradients: the score of a path is a sum over features and tag bigrams."""
    example = subject.example
    explained = list(explain_tags(run.model, example.batch.source, example.words, run.codec.tags))
    explanations = explained[subject.options.shown(len(explained), 1)]
    margins = [(one.word, one.tag, one.against, one.margin, one.transitions) for one in explanations]
    top = min(subject.options.top, max(1, MAX_ROWS // len(explanations)))
    features = [
        (one.word if n == 0 else "", name, weight)
        for one in explanations
        for n, (name, weight) in enumerate(one.features[:top])
    ]
    step = Step(
        "Saliency: what each feature adds to a tag",
        "Predicted tags, and the next best tag in the place of each. The margin between both is a sum over features of"
        " the word and the tag bigrams on both sides; the strongest features are listed (--top N), those above zero"
        " support the predicted tag.",
        "margin = Σ over features f of w(f, tag) - w(f, next best) + difference of tag bigrams",
        [
            table("margins", ("word", "tag", "next best", "margin", "bigrams"), margins),
            table("strongest features", ("word", "feature", "adds"), features),
        ],
    )
    return ViewResult(step, tuple(explanations))
