"""Notes about labeled rows that look wrong: copies, conflicting labels, and labels that are probably misread."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from unicodedata import normalize

from seqwright.data.labeled.row import Row, counts_of, is_empty

SHOWN_LABELS = 3
"""Conflicting labels that a note shows."""
COMMA_IN_NUMBER = re.compile(r"[+-]?\d+(,\d+)+(\.\d+)?")
"""A number with a decimal comma, or with commas between thousands."""
OTHER_SEPARATORS = (";", "|")
"""What other programs write between labels."""


def copies(rows: Sequence[Row]) -> list[str]:
    """Notes about rows that repeat an earlier one, text and label; empty texts have a note of their own."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    repeated: list[Row] = []
    for row in rows:
        if (row.label, row.texts) in seen and not is_empty(row):
            repeated.append(row)
        seen.add((row.label, row.texts))
    if not repeated:
        return []
    counted = "1 row repeats" if len(repeated) == 1 else f"{len(repeated):,} rows repeat"
    return [
        f"{counted} an earlier one with the same label ({repeated[0].place}{' …' if repeated[1:] else ''}) and"
        f" {'counts' if len(repeated) == 1 else 'count'} again; remove copies that are not meant."
    ]


def conflicts(rows: Sequence[Row]) -> list[str]:
    """Notes about texts with conflicting labels: no prediction can be right for all of their duplicates."""
    labels: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for row in rows:
        labels[row.texts].add(row.label)
    conflicting = {texts: names for texts, names in labels.items() if len(names) > 1}
    if not conflicting:
        return []
    counted = "1 text has" if len(conflicting) == 1 else f"{len(conflicting):,} texts have"
    texts, names = next(iter(conflicting.items()))
    first = " ".join(texts).strip()[:40]
    shown = f"{repr(first) if first else 'the empty text'}: {', '.join(map(repr, sorted(names)[:SHOWN_LABELS]))}"
    return [f"{counted} conflicting labels, the first of them {shown}. No prediction is right for all: correct them."]


def odd_labels(rows: Sequence[Row]) -> list[str]:
    """Notes about suspicious classes: empty labels, lists, and names that differ in case or Unicode form only."""
    counts = counts_of(rows)
    notes = []
    if counts[""] and len(counts) > 1:
        notes.append(
            f"{counts['']:,} of {len(rows):,} rows {'has' if counts[''] == 1 else 'have'} an empty label"
            f" ({_place(rows, '')} …), which is a class of its own; --skip-bad-rows leaves them out."
        )
    plain = {label for label in counts if label and "," not in label}
    lists = [label for label in counts if plain & {name.strip() for name in label.split(",")} and label not in plain]
    if lists:
        notes.append(
            f"{len(lists):,} labels are lists of others ({lists[0][:40]!r} …) and classes of their own; data.labels ="
            ' "multi" splits them.'
        )
    folded: defaultdict[str, list[str]] = defaultdict(list)
    for label in counts:
        folded[label.casefold()].append(label)
    if variants := next((labels for labels in folded.values() if len(labels) > 1), None):
        notes.append(f"{' and '.join(map(repr, variants))} differ in case only and are classes of their own.")
    composed: defaultdict[str, list[str]] = defaultdict(list)
    for label in counts:
        composed[normalize("NFC", label)].append(label)
    if variants := next((labels for labels in composed.values() if len(labels) > 1), None):
        notes.append(
            f"{variants[0]!r} has {len(variants)} Unicode forms (composed and decomposed characters), which are classes"
            " of their own; normalize all labels, to NFC for instance."
        )
    return notes


def unsplit_labels(rows: Sequence[Row]) -> list[str]:
    """A note about lists of labels with another separator than a comma, where none has a comma."""
    counts = counts_of(rows)
    if any("," in label for label in counts):
        return []
    for separator in OTHER_SEPARATORS:
        lists = [label for label in counts if separator in label]
        if lists:
            return [
                f"labels are separated by commas, and {sum(counts[label] for label in lists):,} of {len(rows):,} rows"
                f" have {separator!r} in theirs ({lists[0][:40]!r} …), which are classes of their own; if these are"
                f" lists, replace {separator!r} by a comma in the label column."
            ]
    return []


def comma_hint(rows: Iterable[Row]) -> str:
    """How to write the numbers that have commas, where labels do."""
    labels = [row.label for row in rows if COMMA_IN_NUMBER.fullmatch(row.label)]
    if not labels:
        return ""
    counted = f"{len(labels):,} {'label is a number' if len(labels) == 1 else 'labels are numbers'} with a comma"
    return f" {counted} ({labels[0][:40]!r}): write decimals with a point and thousands without commas, as in 1234.5."


def _place(rows: Sequence[Row], label: str) -> str:
    return next(row.place for row in rows if row.label == label)
