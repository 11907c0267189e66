"""Translations scored as the field does: BLEU, chrF and TER by sacrebleu, on plain text, with its signatures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seqwright.core.config import UserError
from seqwright.metrics.counts import Counts, ratio
from seqwright.metrics.score import Floats

References = Sequence[Sequence[str]]
"""One or more for each output."""


def bleu(outputs: Sequence[str], references: References, *, tokenize: str = "13a", lowercase: bool = False) -> Counts:
    """BLEU (Papineni et al. 2002; Post 2018), 0 to 100. `tokenize="none"` where the text is cut into words already."""
    # Sacrebleu's warning is about text that looks tokenized; a reader of the signature knows.
    return _counted("bleu", BLEU(tokenize=tokenize, lowercase=lowercase, force=True), outputs, references)


def chrf(outputs: Sequence[str], references: References, *, words: int = 0) -> Counts:
    """chrF2 (Popović 2015), 0 to 100; chrF++ with `words=2`."""
    return _counted("chrf", CHRF(word_order=words), outputs, references)


def ter(outputs: Sequence[str], references: References) -> Counts:
    """Translation edit rate (Snover et al. 2006), 0 upwards; less is better."""
    return _counted("ter", TER(), outputs, references, better=-1)


def exact_match(outputs: Sequence[str], references: References) -> Counts:
    """Outputs, in per cent, that equal one of their references."""
    check_pairs(outputs, references)
    rows = np.array([[output in several, 1] for output, several in zip(outputs, references, strict=True)], np.float64)
    return Counts(name="exact_match", rows=rows.reshape(-1, 2), formula=ratio, signature="exact_match|case:mixed")


def check_pairs(outputs: Sequence[Any], references: Sequence[Any]) -> None:
    """Raises where outputs and references cannot be paired."""
    if len(outputs) != len(references):
        raise UserError(f"{len(outputs):,} outputs cannot be scored against {len(references):,} lines of references.")
    if not all(len(several) for several in references):
        raise UserError("some output has no reference; leave it out or give one.")


def _counted(name: str, metric: Any, outputs: Sequence[str], references: References, *, better: int = 1) -> Counts:
    check_pairs(outputs, references)
    if not outputs:
        raise UserError("there are no outputs to score.")
    streams = [list(stream) for stream in zip_longest(*references)]  # line by line to reference by reference
    # What sacrebleu itself resamples: additive statistics of each line, and the score of a sum.
    rows = np.array(metric._extract_corpus_statistics(list(outputs), streams), np.float64)

    def formula(sums: Floats) -> Floats:
        return np.array([metric._compute_score_from_stats(row.tolist()).score for row in sums])

    return Counts(name=name, rows=rows, formula=formula, signature=f"{name}|{metric.get_signature()}", better=better)
