"""BLEU, chrF and TER by sacrebleu on detokenized text, with its signatures; exact match."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seqwright.core.config import UserError
from seqwright.metrics.counts import Counts, percentage
from seqwright.metrics.score import Floats

References = Sequence[Sequence[str]]
"""One or more references for each output."""


def bleu(outputs: Sequence[str], references: References, *, tokenize: str = "13a", lowercase: bool = False) -> Counts:
    """BLEU (Papineni et al. 2002; Post 2018), 0 to 100. Use `tokenize="none"` for text that is already tokenized."""
    # force=True silences sacrebleu's warning about tokenized text: the signature names the tokenizer.
    return _sacrebleu_counts("bleu", BLEU(tokenize=tokenize, lowercase=lowercase, force=True), outputs, references)


def chrf(outputs: Sequence[str], references: References, *, word_order: int = 0, lowercase: bool = False) -> Counts:
    """chrF2 (Popović 2015), 0 to 100; chrF++ with `word_order=2`."""
    return _sacrebleu_counts("chrf", CHRF(word_order=word_order, lowercase=lowercase), outputs, references)


def ter(outputs: Sequence[str], references: References) -> Counts:
    """Translation edit rate (Snover et al. 2006), 0 upwards; lower is better."""
    return _sacrebleu_counts("ter", TER(), outputs, references, better=-1)


def exact_match(outputs: Sequence[str], references: References) -> Counts:
    """Percentage of outputs equal to one of their references."""
    check_pairs(outputs, references)
    rows = np.array(
        [[output in output_references, 1] for output, output_references in zip(outputs, references, strict=True)],
        np.float64,
    )
    return Counts(name="exact_match", rows=rows.reshape(-1, 2), formula=percentage, signature="exact_match|case:mixed")


def check_pairs(outputs: Sequence[Any], references: Sequence[Any]) -> None:
    """Raises unless every output has at least one reference."""
    if len(outputs) != len(references):
        raise UserError(
            f"{len(outputs):,} outputs cannot be scored against {len(references):,} lines of references; give a line of"
            " references for each output."
        )
    if not all(len(output_references) for output_references in references):
        raise UserError("an output has no reference; remove it or give one.")


def _sacrebleu_counts(
    name: str, metric: Any, outputs: Sequence[str], references: References, *, better: int = 1
) -> Counts:
    """Counts of a sacrebleu metric."""
    check_pairs(outputs, references)
    if not outputs:
        raise UserError("there are no outputs to score; give at least one.")
    streams = [list(stream) for stream in zip_longest(*references)]  # sacrebleu's layout: one list per reference number
    # Private API that sacrebleu's own significance tests use: additive line statistics, score of a sum (decision 0056).
    rows = np.array(metric._extract_corpus_statistics(list(outputs), streams), np.float64)

    def formula(sums: Floats) -> Floats:
        return np.array([metric._compute_score_from_stats(row.tolist()).score for row in sums])

    return Counts(name=name, rows=rows, formula=formula, signature=f"{name}|{metric.get_signature()}", better=better)
