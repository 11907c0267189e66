"""From text to ids and from ids to next-token pairs (worked example 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.data.order import permutation
from seqwright.data.text.corpus import Corpus
from seqwright.data.text.prefixes import Documents, Prefixes
from seqwright.data.text.stream import Stream, make_stream
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import MAX_ROWS, Figure, Matrix, joined, table, visible
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.explain.text import PROVERBS, documents, run_tokenizer
from seqwright.text.backend import UnicodeForm
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.trainers import TokenizerConfig, train

UNITS = Literal["words", "characters"]


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions(TopicOptions):
    text: str = PROVERBS
    """Corpus: a document on each line."""
    kind: UNITS = "words"
    """Tokens: words or characters."""
    size: int | None = None
    """Maximum vocabulary size, special tokens included."""
    min_frequency: int = 1
    """Rarer tokens become <unk>."""
    lowercase: bool = True
    """Lower-case the text."""


def tokenizer_of(options: VocabularyOptions, form: UnicodeForm = "nfc", *, eos: bool = False) -> Tokenizer:
    """The tokenizer of the text, with the lectures' special tokens."""
    config = TokenizerConfig(
        kind=options.kind,
        size=options.size,
        min_frequency=options.min_frequency,
        lowercase=options.lowercase,
        unicode_normalization=form,
        special_tokens=("<unk>", "<pad>", "<sos>", *(("<eos>",) if eos else ())),
    )
    return train(config, documents(options.text))


def vocabulary(options: VocabularyOptions, run: Run | None = None) -> Explanation:
    """The vocabulary of a text, and the text as ids; with a run, its tokenizer instead of a new one."""
    lines = documents(options.text)
    tokenizer = tokenizer_of(options) if run is None else run_tokenizer(run)
    encoded = tokenizer.encode_batch(lines)
    counts = np.bincount(encoded.ids, minlength=tokenizer.size)
    corpus = Step(
        "Corpus",
        "A document on each line.",
        figures=[table("corpus", ["document", "text"], list(enumerate(lines, 1)))],
    )
    normalized = Step(
        "Normalization",
        "Lower-casing and Unicode normalization decide what counts as the same token; both are part of the tokenizer.",
        "",
        [
            table(
                "normalized", ["document", "text"], [(n, tokenizer.normalize(line)) for n, line in enumerate(lines, 1)]
            )
        ],
    )
    ids = Step(
        "Ids of the text",
        "Each document is now a row of numbers; tokens outside the vocabulary are <unk>.",
        "",
        _id_rows(tokenizer, lines),
    )
    if run is not None:
        used = np.flatnonzero(counts)
        entries = [(int(id), tokenizer.tokens([int(id)])[0], int(counts[id])) for id in used]
        of_run = Step(
            "Vocabulary",
            f"{run.path} has a {tokenizer.kind} tokenizer of {tokenizer.size:,} ids; those that occur in this text:",
            "",
            [table("vocabulary", ["id", "token", "count"], entries)],
        )
        about = "A model sees ids, never text. Its tokenizer was learned from the training text, and never changes."
        return Explanation("vocabulary", f"The vocabulary of {run.path}", about, [corpus, normalized, of_run, ids])
    entries = [(id, token, int(counts[id])) for id, token in enumerate(tokenizer.tokens(range(tokenizer.size)))]
    decomposed = tokenizer_of(options, "nfd")
    moved = [
        (token, tokenizer.encode(token)[0], decomposed.encode(token)[0])
        for id, token, _ in entries
        if tokenizer.is_text[id] and token.strip() and len(decomposed.encode(token)) == 1
    ]
    steps = [
        corpus,
        normalized,
        Step(
            "Vocabulary",
            "Special tokens come first, then tokens by falling count; equal counts are sorted by code point, so that"
            " the ids are the same on every machine.",
            "id = rank of (special tokens, -count, code points)",
            [table("vocabulary", ["id", "token", "count"], entries)],
            ["a slide has vocab_size 4 with ids up to 4: ids of V tokens go from 0 to V - 1."],
        ),
        ids,
        Step(
            "Normalization is part of the vocabulary",
            "The same letters, composed (NFC) or decomposed (NFD) into base letter and marks, sort differently: the ids"
            " change, and a model of one form does not know the words of the other.",
            "",
            [table("ids by form", ["token", "id with NFC", "id with NFD"], moved)],
        ),
    ]
    about = "A vocabulary gives every token a number. Special tokens stand for unknown tokens, padding and boundaries."
    return Explanation("vocabulary", "From text to ids", about, steps)


@dataclass(frozen=True, kw_only=True)
class PairsOptions(VocabularyOptions):
    context: int = 6
    """Maximum length of an input; shorter ones are padded on the right."""

    either: ClassVar[tuple[str, ...]] = ("context",)

    def __post_init__(self) -> None:
        if not 1 <= self.context <= 32:
            raise UserError(f"context must be 1 to 32, not {self.context}.")


def pairs(options: PairsOptions, run: Run | None = None) -> Explanation:
    """Inputs and targets of next-token prediction: a prefix for each target, or all targets of a document at once."""
    lines = documents(options.text)
    tokenizer = tokenizer_of(options) if run is None else run_tokenizer(run)
    with_eos = tokenizer_of(options, eos=True) if run is None else tokenizer
    corpus = Corpus(documents=lines, kind="line")
    stream, ended = make_stream(corpus, tokenizer), make_stream(corpus, with_eos)
    examples = _examples(Prefixes, stream, options.context)
    rows = [(input, int(target[target != IGNORE][-1])) for input, target in examples]
    steps = [
        Step(
            "The stream",
            "Documents one after the other, each after <sos>.",
            "",
            [
                table(
                    "stream",
                    ["position", "id", "token"],
                    [(n, int(id), tokenizer.tokens([int(id)])[0]) for n, id in enumerate(stream.ids)],
                )
            ],
        ),
        Step(
            "A pair for each token",
            f"Input: all tokens so far, padded to {options.context}; target: the token after them. A document of n"
            " tokens gives n pairs.",
            "x₁ … x_t  →  x_(t+1)",
            [
                table(
                    "pairs",
                    ["input", "input ids", "target", "target id"],
                    [
                        (
                            joined(tokenizer.tokens(input.tolist())),
                            " ".join(map(str, input.tolist())),
                            tokenizer.tokens([target])[0],
                            target,
                        )
                        for input, target in rows
                    ],
                )
            ],
        ),
        Step(
            "Ways 1 and 2",
            "Way 1 predicts from the hidden state of the last real token; way 2 flattens all hidden states, zeros at"
            " padding, into one vector of fixed length. Both read one target from each row.",
            "way 1: W h_t    way 2: W [h₁ … h_t 0 … 0]",
        ),
        Step(
            "Way 3: every position predicts its successor",
            "One row for each document has all its targets. It trains on the same predictions, and on that of <eos>,"
            " a special token which ends a document, in one pass, and is how language models are trained.",
            "<sos> x₁ … x_n  →  x₁ … x_n <eos>",
            [
                table(
                    "documents",
                    ["input", "target"],
                    [
                        (
                            joined(with_eos.tokens(input[target != IGNORE].tolist())),
                            joined(with_eos.tokens(target[target != IGNORE].tolist())),
                        )
                        for input, target in _examples(Documents, ended, len(ended.ids))
                    ],
                )
            ],
        ),
    ]
    about = "A language model learns to predict the next token: every prefix of a text is an example."
    return Explanation("pairs", "Next-token pairs", about, steps)


def _examples(
    feed: type[Prefixes] | type[Documents], stream: Stream, context: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs and targets of a feed, in the order of the text."""
    one = feed(stream, context=context, batch=1, seed=0)
    batch = feed(stream, context=context, batch=one.steps_per_epoch, seed=0).batch(0)
    order = np.argsort(permutation(0, 0, batch.rows))  # back from the shuffled order to that of the text
    return [(batch.input[n].numpy(), batch.target[n].numpy()) for n in order]


def _id_rows(tokenizer: Tokenizer, lines: list[str]) -> list[Figure]:
    figures: list[Figure] = []
    for n, line in enumerate(lines[:10], 1):
        ids = tokenizer.encode(line)[:MAX_ROWS]
        figures.append(Matrix(f"ids of document {n}", ids, (len(ids),), (), tuple(map(visible, tokenizer.tokens(ids)))))
    return figures
