"""Logit lens: what the model would predict after each layer (nostalgebraist 2020)."""

from __future__ import annotations

import math

import torch

from seqwright.core.batch import IGNORE
from seqwright.inspection.figures import TokenTable
from seqwright.inspection.labeled import LabeledTensor, check_index
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import Figure, matrix


@torch.inference_mode()
def logit_lens_view(subject: Subject) -> ViewResult:
    """Of Transformer decoders and masked language models: hidden states after each block through the final
    normalization and the output head."""
    lens, example, tokenizer = subject.forward.lens, subject.example, subject.target_tokenizer
    assert lens is not None
    names = ["embedding", *(f"layer {n}" for n in range(len(lens.hidden) - 1))]
    layers = list(range(len(names)))
    if subject.options.layer is not None:
        check_index("layer", subject.options.layer, len(names) - 1)
        layers = [subject.options.layer + 1]
    targets = example.batch.target[0].cpu()
    real = targets != IGNORE
    best, bits = [], []
    for layer in layers:
        log_probs = lens.log_probs(layer).cpu()  # (T, V)
        best.append(tokenizer.tokens(log_probs.argmax(-1).tolist()))
        chosen = log_probs.gather(1, targets.clamp(min=0).unsqueeze(1)).squeeze(1)
        bits.append(-chosen / math.log(2))
    surprisal = torch.stack(bits, 1)  # (T, L)
    columns, labels = [names[layer] for layer in layers], example.targets
    predicted = tuple((target or "…", *(column[t] for column in best)) for t, target in enumerate(example.targets))
    shown, known = subject.options.shown(len(predicted), 1), [t for t, there in enumerate(real.tolist()) if there]
    inside = [t for t in known if t in range(len(labels))[shown]]
    figures: list[Figure] = [
        TokenTable("most probable token after each layer", ("target", *columns), predicted[shown]),
        matrix("surprisal of the target (bits)", surprisal[inside], rows=[labels[t] for t in inside], columns=columns),
    ]
    step = Step(
        "Logit lens: predictions by layer",
        "The last layer is what the model predicts. Where columns agree, later layers changed nothing.",
        "p(layer) = softmax(W norm(hidden state after the layer))",
        figures,
    )
    every = tuple(labels[t] for t in known)
    return ViewResult(step, LabeledTensor("surprisal by layer (bits)", surprisal[known], every, tuple(columns)))
