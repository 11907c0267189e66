"""The examples behind the scores of an evaluation: what paired tests and lists of examples are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from seqwright.metrics.counts import Counts


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Counts of every metric, input, reference and output of each example, in the order of the data."""

    unit: str
    """What an example is, in the singular: text, sentence, block of text, …"""
    counts: Sequence[Counts]
    """With a row for each example; metrics of some examples only are left out."""
    fingerprint: str
    """sha256 of what is predicted: equal for models whose examples can be paired."""
    inputs: Sequence[str] = ()
    """Texts for display; empty where examples have none, as images."""
    references: Sequence[str] = ()
    outputs: Sequence[str] = ()
    lossy: str | None = None
    """Why scores depend on the tokenizer of a model; None where they are of the text itself."""

    def metric(self, name: str) -> Counts | None:
        """The counts of a metric; None where it is not one of these examples."""
        return next((counts for counts in self.counts if counts.name == name), None)


def text_examples(
    unit: str, counts: Sequence[Counts], *, inputs: Sequence[str], references: Sequence[str], outputs: Sequence[str]
) -> Examples:
    """Examples of texts with references, which identify the data whatever the tokenizer of a model is."""
    return Examples(
        unit=unit,
        counts=[one for one in counts if len(one.rows) == len(inputs)],
        fingerprint=digest(*inputs, "", *references),
        inputs=inputs,
        references=references,
        outputs=outputs,
    )


def digest(*parts: str) -> str:
    """sha256 of texts, each with its length."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        sha.update(len(data).to_bytes(8, "little") + data)
    return sha.hexdigest()
