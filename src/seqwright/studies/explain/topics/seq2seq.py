"""Sequence to sequence: encoder, bottleneck or attention, teacher forcing, and decoding without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from seqwright import build
from seqwright.core.batch import Batch, Source, Vocabularies, Vocabulary
from seqwright.core.config import UserError
from seqwright.decoding.attention_recorder import alignments, attends_source
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Figure, matrix, table
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.explain.recording import recorded, set_sinusoidal_parameters
from seqwright.studies.explain.text import notes_of, run_example
from seqwright.tasks.translation.task import TranslationRun
from seqwright.training.config import TrainingConfig
from seqwright.training.optimizer import optimizer

SOURCE = ("<pad>", "tôi", "học", "đọc", "sách")
TARGET = ("<pad>", "<sos>", "<eos>", "i", "study", "read", "books")
SOS, EOS = 1, 2
WIDTH = 4


@dataclass(frozen=True, kw_only=True)
class Seq2SeqOptions(TopicOptions):
    source: tuple[int, ...] = (1, 3, 4)
    """Source ids: tôi đọc sách."""
    target: tuple[int, ...] = (3, 5, 6)
    """Target ids: i read books."""
    cell: Literal["rnn", "lstm", "gru"] = "gru"
    attention: Literal["none", "dot", "scaled-dot", "general", "additive", "concat"] = "dot"
    """Attention to the source; none is the bottleneck."""
    steps: int = 20
    """Training steps on this one pair."""
    learning_rate: float = 0.3
    text: str = ""
    """Source that a run is shown on."""

    resizable: ClassVar[tuple[str, ...]] = ("source", "target")

    def __post_init__(self) -> None:
        if not all(1 <= id < len(SOURCE) for id in self.source):
            raise UserError(f"source ids go from 1 to {len(SOURCE) - 1}: {', '.join(SOURCE[1:])}.")
        if not all(3 <= id < len(TARGET) for id in self.target):
            raise UserError(f"target ids go from 3 to {len(TARGET) - 1}: {', '.join(TARGET[3:])}.")
        if not 0 <= self.steps <= 200:
            raise UserError(f"steps must be 0 to 200, not {self.steps}.")
        if self.learning_rate <= 0:
            raise UserError(f"learning_rate must be above 0, not {self.learning_rate}.")


def fixed_model(options: Seq2SeqOptions) -> Any:
    """A recurrent encoder-decoder whose weights are a formula, so that no random generator is part of the example."""
    config: dict[str, Any] = {
        "kind": options.cell,
        "width": WIDTH,
        "attention": options.attention,
        "bidirectional": False,
    }
    config |= {"dropout": 0.0, "tied": "none"}
    sizes = Vocabularies(
        source=Vocabulary(size=len(SOURCE), pad=0), target=Vocabulary(size=len(TARGET), pad=0, sos=SOS, eos=EOS)
    )
    model = build.model(build.model_config(config, task="pairs"), sizes, task="pairs").double()
    set_sinusoidal_parameters(model)
    return model


def seq2seq(options: Seq2SeqOptions, run: Run | None = None) -> Explanation:
    """One sentence pair through a recurrent encoder-decoder; or a source and the output of a trained translator."""
    if run is not None:
        return _of_run(options.text, run)
    source_words = [SOURCE[id] for id in options.source]
    input, target = [SOS, *options.target], [*options.target, EOS]
    source = Source(ids=torch.tensor([options.source]), mask=torch.ones(1, len(options.source), dtype=torch.bool))
    batch = Batch(source=source, input=torch.tensor([input]), target=torch.tensor([target]))
    names = [TARGET[id] for id in target]
    model = fixed_model(options)
    with torch.no_grad(), recorded(model) as record:
        log_probs = model.head.log_probs(model.hidden(batch)[0])[0]
    states, memory = record.outputs["reader.network"][0], model.memory(source)
    before = _decoded(model, source, len(target))
    losses = _trained(model, batch, options)
    with torch.no_grad():
        after = model.head.log_probs(model.hidden(batch)[0])[0]
    outputs: list[Figure] = []
    if options.attention != "none":
        (aligned,) = alignments(model, source, [list(options.target)], sos=SOS, eos=EOS)
        outputs.append(matrix("attention weights", aligned, rows=names, columns=source_words, heat=True))
    steps = [
        Step(
            "Encode the source",
            "The encoder reads the source; its hidden states are the memory, its last one the start of the decoder.",
            "h_s = cell(x_s, h_(s-1))    decoder starts from h_S",
            [
                matrix("encoder states", states, rows=source_words),
                matrix("final state", memory.last[0, 0], rows=["layer 1"]),
            ],
        ),
        Step(
            "Teacher forcing",
            "In training the decoder reads the reference, not its own output: input and target are the same sentence,"
            " shifted by one.",
            "<sos> y₁ … y_n  →  y₁ … y_n <eos>",
            [
                table(
                    "shifted", ["input", "target"], [(TARGET[a], TARGET[b]) for a, b in zip(input, target, strict=True)]
                )
            ],
        ),
        Step(
            "Predictions and loss",
            "All positions at once: the probability of every next token, given the source and the reference so far.",
            "L = -1/n Σ log p(y_t | y_1 … y_(t-1), x)",
            [
                matrix("p", log_probs.exp(), rows=[f"→ {name}" for name in names], columns=TARGET, heat=True),
                matrix("L", float(-log_probs[range(len(target)), target].mean())),
            ],
        ),
        Step(
            "Decode without the reference",
            "At test time there is no reference: each token is chosen from the model's own output so far, <pad>"
            " and <sos> never. Untrained, it is wrong at once, and an early error changes all that follows (exposure"
            " bias).",
            "y_t = argmax p(w | own output, x) over all w but <pad> and <sos>",
            [table("output before training", ["output", "log p"], [before])],
        ),
        Step(
            f"{options.steps} steps of SGD",
            "Teacher forcing on this one pair.",
            f"θ ← θ - {options.learning_rate:g} ∂L/∂θ",
            [
                table("losses", ["step", "loss"], losses),
                matrix("p after", after.exp(), rows=[f"→ {name}" for name in names], columns=TARGET, heat=True),
                table("output after training", ["output", "log p"], [_decoded(model, source, len(target))]),
            ],
        ),
    ]
    if outputs:
        prose = f"After {options.steps} steps of training, each target position averages the encoder states with these"
        prose += " weights; the bottleneck has none of it."
        steps.append(Step("Attention to the source", prose, "context = Σ_s weight_s h_s", outputs))
    about = "An encoder reads one sequence, a decoder writes another (Sutskever et al. 2014; Bahdanau et al. 2015)."
    return Explanation("seq2seq", "Sequence to sequence", about, steps)


def _decoded(model: Any, source: Source, limit: int) -> tuple[str, float]:
    """Greedy output and its log-probability."""
    choices = SearchOptions(kind="greedy", max_tokens=limit, length_penalty="none")
    with torch.inference_mode():
        ((best,),) = search(model, source, choices, sos=SOS, eos=EOS, banned=[0, SOS])
    words = [*(TARGET[id] for id in best.ids), "<eos>" if best.reason == "end" else "…"]
    return " ".join(words), best.log_prob


def _trained(model: Any, batch: Batch, options: Seq2SeqOptions) -> list[tuple[int, float]]:
    config = TrainingConfig(optimizer="sgd", learning_rate=options.learning_rate, weight_decay=0.0)
    sgd, losses = optimizer(model, config), []
    for step in range(options.steps + 1):
        model.zero_grad()
        total, count = model.head.loss(model.hidden(batch)[0], batch.target)
        (total / count).backward()
        losses.append((step, float((total / count).detach())))
        if step < options.steps:
            sgd.step()
    return [row for row in losses if row[0] % max(1, options.steps // 10) == 0]


@torch.inference_mode()
def _of_run(text: str, run: Run) -> Explanation:
    if not isinstance(run, TranslationRun):
        raise UserError(f"{run.path} {run.description}; sequence to sequence is what translators do: train --pairs.")
    example = run_example(run, text)
    log_probs = run.model(example.batch)[0].float().log_softmax(-1).cpu()  # (T, V)
    target = example.batch.target[0].cpu()
    chosen = log_probs.gather(1, target.unsqueeze(1)).squeeze(1)
    ranks = 1 + (log_probs > chosen.unsqueeze(1)).sum(1)
    best = run.tokenizers.target.tokens(log_probs.argmax(-1).tolist())
    rows = list(zip(example.tokens, example.targets, chosen.exp().tolist(), ranks.tolist(), best, strict=True))
    steps = [
        Step(
            "The source",
            "What the encoder reads, and the output that the search of the run finds for it.",
            figures=[
                table("source", ["position", "token"], list(enumerate(example.source))),
                table("output", ["position", "token"], list(enumerate(example.targets))),
            ],
        ),
        Step(
            "Teacher forcing",
            "In training the decoder reads the reference, here the output, and predicts it shifted by one: all"
            " positions at once, each from the source and the tokens before it.",
            "L = -1/n Σ log p(y_t | y_1 … y_(t-1), x)",
            [
                table("shifted", ["input", "target", "p(target)", "rank", "most probable"], rows),
                matrix("L", -float(chosen.mean())),
            ],
        ),
    ]
    about = "A trained translator under teacher forcing."
    if attends_source(run.model):
        about += " `explain cross-attention` has its alignment."
    about += notes_of(example)
    return Explanation("seq2seq", f"Sequence to sequence of {run.path}", about, steps)
