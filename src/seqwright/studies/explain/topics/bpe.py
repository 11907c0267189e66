"""Byte pair encoding (worked example 3), merge by merge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from seqwright.core.config import UserError
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import table
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.explain.text import documents
from seqwright.text.bpe import BPETrainer, Merge, merge_pair

TEXT, WORD = "low lower newest widest", "lowest"
"""The lecture's example, and a word that it does not have."""
END = "</w>"
MAX_WORDS = 12
"""Distinct words whose segmentation is shown."""


@dataclass(frozen=True, kw_only=True)
class BPEOptions(TopicOptions):
    text: str = TEXT
    """Text to learn merges from."""
    merges: int = 20
    """Maximum number of merges: the vocabulary grows by one with each."""
    min_frequency: int = 2
    """Pairs that are rarer are not merged."""
    bytes_per_token: float | None = None
    """Stop at this compression."""
    word: str | None = None
    """A new word to segment with the learned merges; by default one of the first and the last word of the text."""

    def __post_init__(self) -> None:
        if not 1 <= self.merges <= 200:
            raise UserError(f"merges must be 1 to 200, not {self.merges}.")
        if self.min_frequency < 1:
            raise UserError(f"min_frequency must be 1 or more, not {self.min_frequency}.")
        if self.word is not None and not self.word.strip():
            raise UserError("word must not be empty: give a word to segment.")


def bpe(options: BPEOptions) -> Explanation:
    """Merges learned from a text, and applied to a new word."""
    words = Counter(" ".join(documents(options.text)).split())
    trainer = BPETrainer({(*word, END): count for word, count in words.items()})
    before = _segmentation(trainer)
    pair_counts = sorted(trainer.pair_counts.items(), key=lambda entry: (-entry[1], entry[0]))
    compression = trainer.bytes_per_token
    learned: list[tuple[Merge, str]] = []
    for merge in trainer.run(options.min_frequency):
        learned.append((merge, _segmentation(trainer)))
        if len(learned) == options.merges or merge.bytes_per_token >= (options.bytes_per_token or float("inf")):
            break
    word = (options.word or (WORD if options.text == TEXT else _unseen(words))).strip()
    segments: list[str] = [*word, END]
    applied = [("", " ".join(segments))]
    for merge, _ in learned:
        merged = merge_pair(segments, merge.pair)
        if len(merged) < len(segments):
            applied.append((" + ".join(merge.pair), " ".join(merged)))
        segments = merged
    steps = [
        Step(
            "Characters",
            f"Each word is its characters and a mark for its end; {trainer.text_bytes:,} bytes, with a space after"
            " every word, the last one, too.",
            "",
            [
                table("words", ["word", "count"], words.most_common()),
                table("characters", ["segmentation"], [(before,)]),
            ],
        ),
        Step(
            "Count pairs",
            "Neighboring symbols inside words, weighted by the counts of the words. Ties go to the smallest pair, so"
            " that training gives the same merges on every machine.",
            "best = max over pairs of (count, then smallest)",
            [table("pair counts", ["pair", "count"], [(" ".join(pair), count) for pair, count in pair_counts])],
        ),
        Step(
            "Merge, and count again",
            "The most frequent pair becomes one symbol everywhere. It stops when no pair is frequent enough, at a"
            " number of merges (the vocabulary size) or at a compression.",
            "compression = bytes / tokens",
            [
                table(
                    "merges",
                    ["merge", "pair", "count", "new symbol", "bytes per token"],
                    [
                        (n, " + ".join(merge.pair), merge.count, "".join(merge.pair), merge.bytes_per_token)
                        for n, (merge, _) in enumerate(learned, 1)
                    ],
                ),
                table(
                    "segmentations",
                    ["after merge", "segmentation"],
                    [(0, before), *((n, segmented) for n, (_, segmented) in enumerate(learned, 1))],
                ),
            ],
        ),
        Step(
            "Compression",
            f"From {compression:.3f} to {trainer.bytes_per_token:.3f} bytes per token with {len(learned)} merges: the"
            " same text is a shorter sequence.",
            "",
        ),
        Step(
            "A new word" if word not in words else f"The word “{word}”",
            f"“{word}” is not in the text (--set word=… takes another). The merges are applied in the order in"
            " which they were learned: a word that was never seen falls into known pieces instead of <unk>."
            if word not in words
            else "The merges are applied in the order in which they were learned.",
            "",
            [table("word", ["merge", "segmentation"], applied)],
        ),
    ]
    about = (
        "Byte pair encoding starts from characters and merges the most frequent pair again and again (Sennrich et al."
        " 2016): frequent words become one token, rare ones several."
    )
    return Explanation("bpe", "Byte pair encoding", about, steps)


def _unseen(words: Counter[str]) -> str:
    """The first and the last word of a text as one, which it does not have."""
    first, *_, last = [*words, *words]
    word = first + last
    while word in words:
        word += last
    return word


def _segmentation(trainer: BPETrainer) -> str:
    words = " | ".join(" ".join(word) for word in trainer.words[:MAX_WORDS])
    return words + (" | …" if len(trainer.words) > MAX_WORDS else "")
