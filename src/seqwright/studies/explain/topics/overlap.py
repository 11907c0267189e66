"""BLEU and F1 (worked example 8): n-grams that a translation shares with its references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from seqwright.core.config import UserError
from seqwright.metrics.ngram_overlap import (
    MAX_ORDER,
    brevity_penalty,
    clipped_precision,
    closest_length,
    ngrams,
    overlap,
    sentence_bleu,
)
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Cell, Table, matrix, table
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.explain.text import documents

ZERO = "One order without a match makes the geometric mean 0; corpus BLEU sums the counts of all sentences."
CANDIDATE = "Tôi học NLP của AI VIET NAM"
REFERENCES = ("Tôi đang học lớp AI của AI VIET NAM", "Tôi đang học lớp CV và NLP của AI")


@dataclass(frozen=True, kw_only=True)
class OverlapOptions(TopicOptions):
    text: str = CANDIDATE
    """Candidate, the output of a system, on the first line; its references on the others."""
    references: tuple[str, ...] = REFERENCES
    """Reference translations, of another text in place of its lines: references=["a cat sat", "the cat sits"]."""

    resizable: ClassVar[tuple[str, ...]] = ("references",)

    @property
    def of_lecture(self) -> bool:
        return self.text == CANDIDATE and self.references == REFERENCES

    def words(self) -> tuple[list[str], list[list[str]]]:
        """Words of the candidate, and of each reference."""
        candidate, *lines = documents(self.text)
        chosen = self.text == CANDIDATE or self.references != REFERENCES
        if lines and chosen:
            raise UserError("references are the lines after the first, or those of --set references=[…]; not both.")
        references = self.references if chosen else lines
        if not references:
            raise UserError(
                "give references, too: the lines after the first of a text or file, or --set 'references=[\"the cat"
                " sat\"]'."
            )
        if not all(reference.split() for reference in references):
            raise UserError("a reference is empty; give words: --set 'references=[\"the cat sat\"]'.")
        return candidate.split(), [reference.split() for reference in references]


def bleu(options: OverlapOptions) -> Explanation:
    """BLEU against the first reference, then against all."""
    candidate, references = options.words()
    steps = [
        Step(
            "Candidate and references",
            "Words, split at white space.",
            "",
            [
                table(
                    "texts",
                    ["text", "words", "length"],
                    [
                        ("candidate", " ".join(candidate), len(candidate)),
                        *((f"reference {n}", " ".join(words), len(words)) for n, words in enumerate(references, 1)),
                    ],
                )
            ],
        ),
        Step(
            "Clipped counts of words",
            "An n-gram counts as often as the candidate has it, but no more often than one reference does: repeating a"
            " word does not help.",
            "Σ min(count in candidate, max count in a reference)",
            [_unigrams(candidate, references)],
        ),
        _bleu_step("Against reference 1", "reference 1", candidate, references[:1]),
    ]
    if len(references) > 1:
        steps.append(_bleu_step("Against all references", "all references", candidate, references))
    if options.of_lecture:
        alone = [clipped_precision(candidate, references[1:2], n) for n in range(1, MAX_ORDER + 1)]
        rows: list[Sequence[Cell]] = [(n, f"{hits}/{total}") for n, (hits, total) in enumerate(alone, 1)]
        steps.append(
            Step(
                "Reference 2 alone",
                ZERO,
                "",
                [
                    table("precisions of reference 2", ["n", "precision"], rows),
                    matrix("BLEU of reference 2", sentence_bleu(candidate, references[1:2])),
                ],
                ["the slide's precisions belong to reference 1; its printed reference 2 gives 5/7, 2/6, 1/5, 0/4."],
            )
        )
    about = (
        "BLEU is the geometric mean of n-gram precisions, times a penalty for outputs shorter than the reference"
        " (Papineni et al. 2002)."
    )
    return Explanation("bleu", "BLEU", about, steps)


def _unigrams(candidate: Sequence[str], references: Sequence[Sequence[str]]) -> Table:
    """Counts of the candidate's words in each text, clipped by the first reference and, of several, by all."""
    columns = ["word", "candidate", *(f"reference {n}" for n in range(1, len(references) + 1)), "clipped by 1"]
    counted = [ngrams(reference, 1) for reference in references]
    rows: list[Sequence[Cell]] = []
    for word, count in ngrams(candidate, 1).items():
        found = [reference[word] for reference in counted]
        rows.append((word[0], count, *found, min(count, found[0]), *[min(count, max(found))] * (len(found) > 1)))
    return table("1-grams", [*columns, *["clipped by all"] * (len(references) > 1)], rows)


def _shared(candidate: Sequence[str], reference: Sequence[str]) -> list[Sequence[Cell]]:
    counts, references = ngrams(candidate, 1), ngrams(reference, 1)
    return [(word[0], count, references[word], (counts & references)[word]) for word, count in counts.items()]


def _bleu_step(heading: str, name: str, candidate: Sequence[str], references: Sequence[Sequence[str]]) -> Step:
    precisions = [clipped_precision(candidate, references, n) for n in range(1, MAX_ORDER + 1)]
    rows: list[Sequence[Cell]] = [
        (n, f"{hits}/{total}", hits / total if total else 0.0) for n, (hits, total) in enumerate(precisions, 1)
    ]
    c, r = len(candidate), closest_length(candidate, references)
    prose = (
        f"Candidate length c = {c}, reference length r = {r} (the closest). The lectures' brevity penalty is"
        " min(1, c/r); the standard one falls faster."
    )
    if c < MAX_ORDER:
        prose += f" A candidate of {c} words has no {c + 1}-grams: 0/0 counts as 0, and so does its BLEU."
    elif not all(hits for hits, _ in precisions):
        prose += f" {ZERO}"
    return Step(
        heading,
        prose,
        "BLEU = penalty · (p₁ p₂ p₃ p₄)^(1/4)    penalty = min(1, exp(1 - r/c))",
        [
            table(f"precisions of {name}", ["n", "precision", "p"], rows),
            matrix(f"simplified penalty of {name}", brevity_penalty(c, r, "simplified")),
            matrix(f"standard penalty of {name}", brevity_penalty(c, r)),
            matrix(f"simplified BLEU of {name}", sentence_bleu(candidate, references, brevity="simplified")),
            matrix(f"BLEU of {name}", sentence_bleu(candidate, references)),
        ],
    )


def f1(options: OverlapOptions) -> Explanation:
    """Precision, recall and F1 of words against the first reference."""
    candidate, (reference, *others) = options.words()
    words = overlap(candidate, reference)
    steps = [
        Step(
            "Shared words",
            "A repeated word matches as often as both have it."
            + (f" Of {len(others) + 1} references the first is used." if others else ""),
            "",
            [table("words", ["word", "candidate", "reference", "shared"], _shared(candidate, reference))],
        ),
        Step(
            "Precision",
            f"{words.shared} of the {words.candidate} words of the candidate are right.",
            "precision = shared / candidate",
            [matrix("precision", words.precision)],
        ),
        Step(
            "Recall",
            f"{words.shared} of the {words.reference} words of the reference are in the candidate.",
            "recall = shared / reference",
            [matrix("recall", words.recall)],
        ),
        Step(
            "F1",
            "The harmonic mean is near the smaller of the two: neither silence nor saying everything is rewarded.",
            "F1 = 2 P R / (P + R) = 2 shared / (candidate + reference)",
            [matrix("F1", words.f1)],
        ),
    ]
    about = "Precision is the share of the output that is right, recall the share of what is right that the output has."
    return Explanation("f1", "Precision, recall and F1", about, steps)
