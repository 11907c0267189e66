"""Masked language modeling: which tokens are selected, and what the model sees in their place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError, check_not_negative
from seqwright.data.text.masked import MASK, MASKED, RANDOM, Ints, Masking
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Cell, joined, matrix, table, visible
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.explain.text import PROVERBS, documents
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

REPETITIONS = 10_000
"""Rows over which shares are measured."""
MAX_WORDS = 40


@dataclass(frozen=True, kw_only=True)
class BertOptions(TopicOptions):
    text: str = PROVERBS
    """Text to mask; its words are the vocabulary."""
    mask_rate: float = 0.3
    """Share of tokens that are selected; BERT's is 0.15, which selects few of a short text."""
    seed: int = 1

    either: ClassVar[tuple[str, ...]] = ("mask_rate", "seed")

    def __post_init__(self) -> None:
        check_not_negative(self, "seed")
        if not 0 < self.mask_rate < 1:
            raise UserError(f"mask_rate must be between 0 and 1, not {self.mask_rate}.")


def bert(options: BertOptions, run: Run | None = None) -> Explanation:
    """The input and the targets of one text in three epochs; with a run, also what it predicts."""
    lines = documents(options.text)
    if run is None:
        special_tokens = ("<unk>", "<pad>", "<sos>", "<eos>", MASK)
        tokenizer = train(TokenizerConfig(kind="words", special_tokens=special_tokens), lines)
    elif "fill" in run.verbs:
        tokenizer = run.tokenizer
    else:
        raise UserError(f"{run.path} {run.description}; name a masked language model: `seqwright train --masked FILE`.")
    assert tokenizer.mask is not None
    ids = np.array([[tokenizer.sos, *tokenizer.encode(" ".join(lines))[:MAX_WORDS]]], np.int64)
    masking = Masking(mask=tokenizer.mask, plain=tokenizer.is_text, rate=options.mask_rate)
    input, target = masking.apply(ids, seed=options.seed, step=0)
    epochs = [masking.apply(ids, seed=options.seed, step=step)[0] for step in range(3)]
    steps = [
        Step(
            "The text as ids",
            "A bidirectional encoder sees both sides, so that it cannot be trained to predict the next token: it would"
            " see it.",
            "",
            [matrix("ids", ids[0].tolist(), columns=tokenizer.tokens(ids[0].tolist()))],
        ),
        Step(
            "Select, then replace",
            f"{options.mask_rate:.0%} of the tokens are selected. Of these, {MASKED:.0%} become {MASK}, {RANDOM:.0%} a"
            " random token, and the rest stay: since any input token may be wrong, the model must represent them all."
            + _trained_rate(options, run),
            "loss = mean over selected positions of -log p(token | masked text)",
            [table("masked", ["position", "token", "input", "target"], _rows(tokenizer, ids, input, target))],
        ),
        Step(
            "A new mask at every step",
            "Masks are a function of (seed, step): the same text is masked differently each time (Liu et al. 2019).",
            "",
            [
                table(
                    "masks by step",
                    ["step", "input"],
                    [(n, joined(tokenizer.tokens(one[0].tolist()))) for n, one in enumerate(epochs)],
                )
            ],
        ),
        Step(
            "Shares",
            f"Measured over {REPETITIONS:,} rows of this text; special tokens are never selected.",
            "",
            [table("shares", ["what", "share"], _shares(masking, ids, options.seed))],
        ),
    ]
    if run is not None:
        steps.insert(2, _predicted(run, tokenizer, input, target))
    about = "BERT learns to fill gaps: some tokens are hidden, and predicted from both sides (Devlin et al. 2019)."
    return Explanation("bert", "BERT's masks", about, steps)


@torch.inference_mode()
def _predicted(run: Run, tokenizer: Tokenizer, input: Ints, target: Ints) -> Step:
    """What a run predicts at the selected positions."""
    length = min(input.shape[1], run.model.context or input.shape[1])
    ids = torch.from_numpy(input[:, :length]).to(run.device)
    batch = Batch.of_source(Source(mask=torch.ones_like(ids, dtype=torch.bool), ids=ids), ids)
    log_probs = run.model.head.log_probs(run.model.hidden(batch)[0][0]).cpu()  # (S, V)
    rows: list[Sequence[Cell]] = []
    for position in np.flatnonzero(target[0, :length] != IGNORE).tolist():
        best = log_probs[position].topk(3)
        names = tokenizer.tokens(best.indices.tolist())
        guesses = "  ".join(
            f"{visible(name)} {p:.3f}" for name, p in zip(names, best.values.exp().tolist(), strict=True)
        )
        right = int(target[0, position])
        probability = float(log_probs[position, right].exp())
        rows.append((position, tokenizer.tokens([right])[0], probability, -math.log(max(probability, 1e-38)), guesses))
    return Step(
        "What the model predicts",
        f"{run.path} at the selected positions, from both sides of each.",
        "loss = -log p(token | masked text), in nats",
        [table("predictions", ["position", "target", "p", "loss", "most probable"], rows)],
    )


def _trained_rate(options: BertOptions, run: Run | None) -> str:
    """That BERT, or the run, was trained with another rate, if so."""
    if run is None:
        return " BERT selects 15%, which would be few of a short text." if options.mask_rate > 0.15 else ""
    if run.settings.data.mask_rate == options.mask_rate:
        return ""
    rate, name = run.settings.data.mask_rate, run.path.name
    return f" {name} was trained with {rate:.0%}, which selects few of a short text (--set mask_rate={rate:g})."


def _rows(tokenizer: Tokenizer, ids: Ints, input: Ints, target: Ints) -> list[Sequence[Cell]]:
    tokens, inputs = tokenizer.tokens(ids[0].tolist()), tokenizer.tokens(input[0].tolist())
    targets = [token if id != IGNORE else "–" for token, id in zip(tokens, target[0].tolist(), strict=True)]
    return list(zip(range(len(tokens)), tokens, inputs, targets, strict=True))


def _shares(masking: Masking, ids: Ints, seed: int) -> list[Sequence[Cell]]:
    repeated = np.repeat(ids, REPETITIONS, 0)
    input, target = masking.apply(repeated, seed=seed, step=0)
    selected = target != IGNORE
    text = masking.plain[repeated]
    hidden, kept = (input == masking.mask) & selected, (input == repeated) & selected
    total = max(1, int(selected.sum()))
    return [
        ("selected, of all text tokens", float(selected.sum() / max(1, text.sum()))),
        (f"{MASK}, of the selected", float(hidden.sum() / total)),
        ("unchanged (some random tokens are the same by chance)", float(kept.sum() / total)),
        ("another token", float((selected & ~hidden & ~kept).sum() / total)),
    ]
