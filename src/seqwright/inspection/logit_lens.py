"""Logit lens: what the model would predict after each layer (nostalgebraist 2020)."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from seqwright.core.batch import IGNORE
from seqwright.inspection.figures import TokenTable
from seqwright.inspection.labeled import LabeledTensor, check_index
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.inspection.tokens import masked_pass
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import Cell, Figure, matrix
from seqwright.tasks.masked.task import MaskedRun


@torch.inference_mode()
def logit_lens_view(subject: Subject) -> ViewResult:
    """Of Transformer decoders and masked language models: hidden states after each block through the final
    normalization and the output head."""
    lens, example, tokenizer = subject.forward.lens, subject.example, subject.target_tokenizer
    assert lens is not None
    targets, labels = example.batch.target[0].cpu(), example.targets
    prose = "The last layer is what the model predicts. Where columns agree, later layers changed nothing."
    if isinstance(subject.run, MaskedRun):  # at a visible token, the model would only copy it
        behind = masked_pass(subject.run, example, lens.modules)
        lens, targets, labels = replace(lens, hidden=behind.hidden[:-1]), behind.targets, behind.names
        prose = f"Each token is masked in turn, and predicted from all others. {prose}"
    names = ["embedding", *(f"layer {n}" for n in range(len(lens.hidden) - 1))]
    layers = list(range(len(names)))
    if subject.options.layer is not None:
        check_index("layer", subject.options.layer, len(names) - 1)
        layers = [subject.options.layer + 1]
    real = targets != IGNORE
    best, bits = [], []
    for layer in layers:
        log_probs = lens.log_probs(layer).cpu()  # (T, V)
        best.append(tokenizer.tokens(log_probs.argmax(-1).tolist()))
        chosen = log_probs.gather(1, targets.clamp(min=0).unsqueeze(1)).squeeze(1)
        bits.append(-chosen / math.log(2))
    surprisal = torch.stack(bits, 1)  # (T, L)
    columns = [names[layer] for layer in layers]
    predicted: tuple[tuple[Cell, ...], ...] = tuple(
        (t + 1, target or "…", *(column[t] for column in best)) for t, target in enumerate(labels)
    )
    shown, known = subject.options.shown(len(predicted), 1), [t for t, there in enumerate(real.tolist()) if there]
    inside = [t for t in known if t in range(len(labels))[shown]]
    figures: list[Figure] = [
        TokenTable("most probable token after each layer", ("", "target", *columns), predicted[shown])
    ]
    if inside:  # the last position has no target
        rows = [labels[t] for t in inside]
        figures.append(matrix("surprisal of the target (bits)", surprisal[inside], rows=rows, columns=columns))
    step = Step(
        "Logit lens: predictions by layer",
        prose,
        "p(layer) = softmax(W norm(hidden state after the layer))",
        figures,
    )
    every = tuple(labels[t] for t in known)
    return ViewResult(step, LabeledTensor("surprisal by layer (bits)", surprisal[known], every, tuple(columns)))
