"""Transitions of a CRF: the scores between tags, and the words whose tag they decided."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import nn

from seqwright.inspection.figures import TokenTable
from seqwright.inspection.labeled import LabeledTensor
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.layers.crf import CRFHead
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import Figure, matrix
from seqwright.tasks.tagging.task import TaggingRun

START, END = "(start)", "(end)"
MAX_TAGS = 40
"""Tags of the matrix in a text or page; a set of more has those of the sentence."""


@dataclass(frozen=True, eq=False)
class Transitions:
    """Transition scores, and the best path of a sentence: its score is the sum of emissions, transitions and `last`."""

    scores: LabeledTensor
    """From a tag, or the start (rows), to the next, or the end (columns); -∞ from the start to the end."""
    tags: tuple[str, ...]
    """The best path."""
    emission_tags: tuple[str, ...]
    """The tags of the greatest emission scores, word by word."""
    emissions: tuple[float, ...]
    transitions: tuple[float, ...]
    """Into the tag of each word, from the one before it."""
    last: float
    """From the last tag to the end."""
    path_score: float
    log_prob: float
    """log p(tags | words): path score - log Z."""


def has_transitions(subject: Subject) -> bool:
    """Whether a run is a tagger with a CRF."""
    model = subject.run.model
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return isinstance(subject.run, TaggingRun) and any(isinstance(module, CRFHead) for module in modules)


@torch.inference_mode()
def transitions(subject: Subject) -> Transitions:
    """The scores of the best path, by the head that found it."""
    run = subject.run
    assert isinstance(run, TaggingRun)
    model, head, names = run.model, run.model.head, run.codec.tags
    count = len(subject.example.words)
    hidden = model.body(model.pooled(subject.example.batch.source))[:, :count]
    real = torch.ones(1, count, dtype=torch.bool, device=hidden.device)
    path, emissions = head.predict(hidden, real), head(hidden).float()
    ids, best = path[0].tolist(), emissions[0].argmax(-1).tolist()
    into = [head.first[ids[0]], *(head.transitions[a, b] for a, b in itertools.pairwise(ids))]
    score = head.path_score(emissions, path, real)[0]
    rows = torch.cat([head.transitions, head.first.unsqueeze(0)])  # (C + 1, C)
    ends = torch.cat([head.last, head.last.new_tensor([-torch.inf])]).unsqueeze(1)  # (C + 1, 1)
    table = torch.cat([rows, ends], 1).float().cpu()
    return Transitions(
        LabeledTensor("transition scores", table, (*names, START), (*names, END)),
        tuple(names[id] for id in ids),
        tuple(names[id] for id in best),
        tuple(emissions[0, range(count), ids].tolist()),
        tuple(float(one) for one in into),
        float(head.last[ids[-1]]),
        float(score),
        float(score - head.log_partition(emissions, real)[0]),
    )


def transitions_view(subject: Subject) -> ViewResult:
    """Of taggers with a CRF."""
    found, words = transitions(subject), subject.example.words
    decided = [tag != best for tag, best in zip(found.tags, found.emission_tags, strict=True)]
    rows = tuple(
        (n, words[n - 1], tag, emission, found.tags[n - 2] if n > 1 else START, into, best if changed else "")
        for n, (tag, emission, into, best, changed) in enumerate(
            zip(found.tags, found.emissions, found.transitions, found.emission_tags, decided, strict=True), 1
        )
    )
    span = subject.options.shown(len(rows), 1)
    columns = ("", "word", "tag", "emission", "from", "transition", "tag without transitions")
    prose = (
        f"The best path has the score {found.path_score:.4f}: the sum of the emissions and transitions below and of"
        f" {found.last:.4f} from {found.tags[-1]} to the end. Its probability is {math.exp(found.log_prob):.4f}."
        f" Words whose emissions alone have another tag, so that transitions decided: {sum(decided)} of {len(words)}."
    )
    step = Step(
        "Transitions: scores between tags, and what they decided",
        prose,
        "score(tags) = first(tag 1) + Σ emission(word t, tag t) + Σ transition(tag t-1, tag t) + last(tag n)\n"
        "p(tags) = exp(score(tags)) / Z",
        [TokenTable("best path", columns, rows[span]), _matrix(found)],
    )
    return ViewResult(step, found)


def _matrix(found: Transitions) -> Figure:
    """All scores, or those between the tags of the sentence."""
    table = found.scores
    places = list(range(len(table.rows) - 1))
    name = table.name
    if len(places) > MAX_TAGS:
        places = [n for n in places if table.rows[n] in found.tags or table.rows[n] in found.emission_tags]
        name += f" between {len(places)} of {len(table.rows) - 1} tags"
    places.append(len(table.rows) - 1)
    labels = [[names[n] for n in places] for names in (table.rows, table.columns)]
    values: list[list[float | None]] = [[table.values[a, b].item() for b in places] for a in places]
    values[-1][-1] = None  # nothing leads from the start to the end
    return matrix(f"{name} (row: from, column: to)", values, rows=labels[0], columns=labels[1], signed=True)
