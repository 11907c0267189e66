"""N-gram models (worked example 2): counts, maximum likelihood, smoothing and back-off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from seqwright import build
from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError
from seqwright.core.protocols import ExplainsBackOff
from seqwright.data.text.corpus import Corpus
from seqwright.data.text.stream import make_stream
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Cell, joined, matrix, table
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.explain.text import documents, run_ids
from seqwright.tasks.language.back_off import back_off
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

COWS = """the cows eat grass
our cows eat hay daily
factory-farm cows eat corn
on an organic farm , cows eat hay and
do your cows eat grass or corn ?
what do cows eat if they have
cows eat corn when there is no
which cows eat which foods depends
if cows eat grass
when cows eat corn their stomachs
should we let cows eat corn ?"""
"""The lecture's corpus."""
CONTEXT = "cows eat"
KINDS = ("mle", "add-k", "absolute", "witten-bell", "kneser-ney", "stupid-backoff")
TOTALS = {"add-k": "Σ_v c(h v) + k V", "witten-bell": "Σ_v c(h v) + number of different v after h"}
"""Denominators of the kinds that divide by more than the counts."""
MAX_VOCABULARY = 20_000
"""Words whose probabilities are compared."""
MOST_PROBABLE = 10
"""Tokens of a run that are shown after a context."""
CONTINUATION_COUNTS = (
    "Below the highest order, Kneser-Ney counts the different tokens before an n-gram (continuation count), not its"
    " occurrences."
)
ABOUT = (
    "An n-gram model predicts a token from the N - 1 tokens before it, by counting. What was never counted gets its"
    " probability from shorter contexts."
)


@dataclass(frozen=True, kw_only=True)
class NGramOptions(TopicOptions):
    text: str = COWS
    """Corpus: a sentence on each line."""
    order: int = 3
    """N: a token is predicted from the N - 1 before it."""
    context: str = CONTEXT
    """Words after which the next one is predicted; of another text, those with the most different successors. Set for a
    run, it needs no text."""
    sentence: str = "cows eat corn"
    """Sentence to score; of another text, its first line."""
    k: float = 1.0
    """Pseudocount of add-k smoothing; 1 is Laplace's."""

    either: ClassVar[tuple[str, ...]] = ("context",)

    def __post_init__(self) -> None:
        if not 2 <= self.order <= 5:
            raise UserError(f"order must be 2 to 5, not {self.order}.")


class Models:
    """N-gram models of one text with several smoothings."""

    def __init__(self, options: NGramOptions):
        lines = documents(options.text)
        self.tokenizer: Tokenizer = train(TokenizerConfig(kind="words", size=MAX_VOCABULARY), lines)
        self.stream = make_stream(Corpus(documents=lines, kind="line"), self.tokenizer)
        self.k = options.k

    def fitted(self, order: int, smoothing: str) -> Any:
        table = {"kind": "ngram", "order": order, "smoothing": smoothing}
        table |= {"k": self.k} if smoothing == "add-k" else {}
        model = build.model(build.model_config(table), self.tokenizer.vocabulary)
        model.fit(self.stream)
        return model


def next_probabilities(model: Any, context: Sequence[int]) -> torch.Tensor:
    """Probabilities (V,) of the token after a context."""
    log_probs, _ = model.step(torch.tensor([list(context)]), model.start(Source.empty(1), capacity=len(context)))
    return log_probs[0].exp()


def ngram(options: NGramOptions, run: Run | None = None) -> Explanation:
    """Counts to smoothed probabilities; with a run, the n-gram behind the probability of each token of a text."""
    if run is not None:
        return _of_run(options, run)
    models = Models(options)
    tokenizer = models.tokenizer
    own_text = options.text != COWS
    first = documents(options.text)[0].split()
    words = options.context.split()
    if own_text and options.context == CONTEXT:
        words = busiest_context(options.text, options.order - 1)
    sentence = " ".join(first) if own_text and options.sentence == "cows eat corn" else options.sentence
    context = tokenizer.encode(" ".join(words))[-(options.order - 1) :]
    if len(context) < 1:
        raise UserError("context must have a word or more, such as context='cows eat'.")
    shown = joined(tokenizer.tokens(context))
    mle, smoothed = models.fitted(len(context) + 1, "mle"), models.fitted(len(context) + 1, "kneser-ney")
    counts = _counts(mle, context, tokenizer)
    p_mle = next_probabilities(mle, context)
    unseen = _unseen(models, set(counts))
    examples = [*list(counts)[:5], *unseen[:2]]
    by_model = {kind: models.fitted(len(context) + 1, kind) for kind in KINDS}
    by_kind = {kind: next_probabilities(model, context) for kind, model in by_model.items()}
    steps = [
        Step(
            "Corpus",
            "Each line is a sentence between <sos> and <eos>.",
            "",
            [table("corpus", ["sentence", "text"], list(enumerate(documents(options.text), 1)))],
        ),
        Step(
            "Counts",
            f"What follows “{shown}”, and how often: {sum(counts.values())} times in all.",
            "c(h w)",
            [table("counts", ["next", "count"], [(_name(tokenizer, id), count) for id, count in counts.items()])],
        ),
        Step(
            "Maximum likelihood",
            "Relative frequencies give the training text the highest probability that any table could.",
            "p(w | h) = c(h w) / Σ_v c(h v)",
            [
                table(
                    "p(w | h)",
                    ["next", "count", "p"],
                    [(_name(tokenizer, id), count, float(p_mle[id])) for id, count in counts.items()],
                )
            ],
        ),
        _sentence_step(models, sentence),
        _zero_step(tokenizer, shown, unseen, p_mle),
        Step(
            "Smoothing",
            "Every kind but mle takes some probability from what was seen and gives it to what was not; they differ in"
            " how much, and to whom. Weights make the sums 1; add-k takes the uniform 1/V for p(w | h'). The scores S"
            " of stupid back-off (Brants et al. 2007) do not sum to 1: shown is p = S / Z, Z(h) being their sum.",
            "p(w | h) = (c(h w) - D) / total(h) + weight(h) · p(w | h')    all but stupid-backoff\n"
            "p(w | h) = S(w | h) / Z(h)    S = c(h w) / total(h) if seen, else 0.4 S(w | h')    stupid-backoff",
            [
                table(
                    "discounts and totals",
                    ["kind", "D of count 1", "of 2", "of 3 or more", "total(h)"],
                    [
                        (kind, *model.discounts[-1, 1:].tolist(), TOTALS.get(kind, "Σ_v c(h v)"))
                        for kind, model in by_model.items()
                    ],
                ),
                table(
                    "smoothing",
                    ["next", *KINDS],
                    [(_name(tokenizer, id), *(float(by_kind[kind][id]) for kind in KINDS)) for id in examples],
                ),
                matrix("sums", [float(by_kind[kind].sum()) for kind in KINDS], columns=KINDS),
            ],
        ),
        Step(
            "Back-off, order by order",
            "Where the tables have no n-gram, the weight of the context multiplies the probability after the shorter"
            f" context. {CONTINUATION_COUNTS}",
            "p(w | h) = weight(h) · p(w | h')  if h w was never seen",
            [
                table(
                    "back-off",
                    ["next", "context", "count", "discount", "weight", "p(w | context)"],
                    [row for id in examples for row in _trace_rows(smoothed, context, id, tokenizer)],
                )
            ],
        ),
    ]
    return Explanation("ngram", "N-grams", ABOUT, steps)


def busiest_context(text: str, length: int) -> list[str]:
    """The words of a text, `length` at most, that the most different words follow; the first ones among equals."""
    followers: dict[tuple[str, ...], set[str]] = {}
    lines = [line.split() for line in documents(text)]
    for words in lines:
        for n in range(len(words) - length):
            followers.setdefault(tuple(words[n : n + length]), set()).add(words[n + length])
    if not followers:
        return lines[0][:length]
    context, _ = max(followers.items(), key=lambda entry: len(entry[1]))
    return list(context)


def _name(tokenizer: Tokenizer, id: int) -> str:
    return tokenizer.tokens([id])[0]


def _counts(model: Any, context: Sequence[int], tokenizer: Tokenizer) -> dict[int, int]:
    """Counts of the ids seen after a context, most frequent first."""
    counts = {}
    for id in range(tokenizer.size):
        step = model.trace(context, id)[0]
        if step.log_prob is not None and step.count:
            counts[id] = step.count
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], _name(tokenizer, entry[0]))))


def _unseen(models: Models, seen: set[int]) -> list[int]:
    """Words of the text that never follow the context, most frequent first."""
    words = [id for id in range(models.tokenizer.size) if models.tokenizer.is_text[id] and id not in seen]
    return words[:3]  # ids of words are sorted by count


def _sentence_step(models: Models, sentence: str) -> Step:
    tokenizer = models.tokenizer
    bigram = models.fitted(2, "mle")
    ids = [tokenizer.special_tokens["<sos>"], *tokenizer.encode(sentence), tokenizer.special_tokens["<eos>"]]
    text = torch.tensor([ids])
    log_probs, _ = bigram.score(Batch.of_text(text[:, :-1], text[:, 1:]))
    names = tokenizer.tokens(ids)
    rows: list[Sequence[Cell]] = [
        (f"p({after} | {before})", float(log_prob.exp()))
        for before, after, log_prob in zip(names, names[1:], log_probs[0], strict=False)
    ]
    return Step(
        "A sentence by bigrams",
        "The chain rule with one word of context; the sentence includes its end.",
        f"p({sentence}) = Π p(w_t | w_(t-1))",
        [table("factors", ["factor", "p"], rows), matrix("p of the sentence", float(log_probs.sum().exp()))],
    )


def _zero_step(tokenizer: Tokenizer, shown: str, unseen: Sequence[int], p: torch.Tensor) -> Step:
    rows = [(f"p({_name(tokenizer, id)} | {shown})", float(p[id]), float(p[id].log())) for id in unseen]
    return Step(
        "What was never seen",
        "Maximum likelihood gives it probability 0: one such word makes a text impossible, with infinite perplexity.",
        "c(h w) = 0  ⇒  p(w | h) = 0",
        [table("unseen", ["probability", "p", "log p"], rows)],
    )


def _trace_rows(model: Any, context: Sequence[int], id: int, tokenizer: Tokenizer) -> list[Sequence[Cell]]:
    rows: list[Sequence[Cell]] = []
    for step in model.trace(context, id):
        words = joined(tokenizer.tokens(step.context)) or "(none)"
        if step.log_prob is None:
            rows.append((_name(tokenizer, id), words, 0, None, math.exp(step.back_off), None))
        else:
            rows.append((_name(tokenizer, id), words, step.count, step.discount, None, math.exp(step.log_prob)))
    return rows


def _of_run(options: NGramOptions, run: Run) -> Explanation:
    if not isinstance(run.model, ExplainsBackOff):
        raise UserError(
            f"{run.path} holds a model of kind '{run.settings.kind}', which does not back off; train one with --model"
            " ngram."
        )
    steps = []
    if options.text:
        ids, _ = run_ids(run, options.text)
        rows = [_back_off_row(run, ids[:place], ids[place]) for place in range(1, len(ids))]
        steps.append(_back_off_step("Back-off of each token", "back-off", rows))
    if not options.text or options.context != CONTEXT:
        ids, _ = run_ids(run, options.context, limit=None)
        best = next_probabilities(run.model, ids).topk(min(MOST_PROBABLE, run.tokenizer.size)).indices.tolist()
        rows = [_back_off_row(run, ids, id) for id in best]
        steps.append(_back_off_step(f"The most probable tokens after “{options.context}”", "next", rows))
    return Explanation("ngram", f"N-grams of {run.path}", ABOUT, steps)


def _back_off_row(run: Any, context: Sequence[int], id: int) -> Sequence[Cell]:
    one = back_off(run.model, run.tokenizer, context, id)
    counts = (one.count, one.discount, one.total, one.interpolated)
    weights = " × ".join(f"{weight:.4g}" for weight in one.weights)
    surprisal = -math.log(one.probability) if one.probability else math.inf
    return one.token, one.probability, surprisal, one.order, joined(one.context) or "(none)", *counts, weights


def _back_off_step(heading: str, name: str, rows: Sequence[Sequence[Cell]]) -> Step:
    counted = ("count", "discount", "total", "interpolated")
    columns = ["token", "p", "surprisal (nats)", "order", "context", *counted, "back-off weights"]
    return Step(
        heading,
        "The longest n-gram that the tables have decides: its share of all counts after its context, plus the"
        " interpolated share of shorter contexts; weights of longer contexts multiply the sum. Total and interpolated"
        " are left out where a smoothing divides otherwise (add-k, Witten-Bell, stupid back-off)."
        f" {CONTINUATION_COUNTS}",
        "p(w | h) = weight(h) · weight(h') · … · ((count - discount) / total + interpolated)",
        [table(name, columns, rows)],
    )
