"""The beam tree: every candidate of a beam search with its score, and the step at which each hypothesis was lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from seqwright.core.batch import Source
from seqwright.decoding.beam_tree import BeamTree, Node
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.search import search
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import Figure, table
from seqwright.studies.explain.topics.search import search_tree
from seqwright.tasks.captioning.task import CaptioningRun
from seqwright.tasks.language.task import LanguageRun
from seqwright.tasks.translation.task import TranslationRun

SEARCHED = (LanguageRun, TranslationRun, CaptioningRun)
"""Runs whose outputs a beam search can find."""
BEAM_SIZE = 4
NEW_TOKENS = 12
"""Tokens that a language model adds to the text."""
TREE_STEPS = 16
"""Steps of the tree that are drawn; Python has all nodes."""
EMPTY = "(empty)"


@dataclass(frozen=True)
class LostHypothesis:
    """A hypothesis of the beam none of whose continuations was kept."""

    text: str
    log_prob: float
    step: int
    """From 1: that of its dropped continuations."""
    behind: float | None
    """log p of the last candidate that was kept at this step minus that of its best continuation; None where none of
    its continuations was among the candidates."""


@dataclass(frozen=True)
class BeamSearch:
    """A recorded beam search."""

    nodes: list[Node]
    """All candidates, in the order of the search."""
    outputs: list[tuple[str, float, float]]
    """Text, log p and score (with length penalty) of the outputs, best first."""
    lost: list[LostHypothesis]


def beam_view(subject: Subject) -> ViewResult:
    """Of a translator or captioner the search of its source; of a language model the continuation of the text."""
    run, example, tokenizer = subject.run, subject.example, subject.target_tokenizer
    if isinstance(run, TranslationRun | CaptioningRun):
        options: SearchOptions = run.settings.decoding
        if options.kind != "beam":
            options = replace(options, kind="beam", beam_size=BEAM_SIZE, n_best=1)
        options = replace(options, n_best=options.beam_size)
        source, prompt = example.batch.source, []
    else:
        options = SearchOptions(
            beam_size=BEAM_SIZE, n_best=BEAM_SIZE, max_tokens=NEW_TOKENS, length_penalty="none", rank_unfinished="among"
        )
        source, prompt = Source.empty(1, run.device), example.batch.input[0, 1:].tolist()
    tree = BeamTree(options.beam_groups)
    (hypotheses,) = search(
        run.model,
        source,
        options,
        sos=tokenizer.sos,
        eos=tokenizer.eos,
        banned=tokenizer.never_generated(tokenizer.eos),
        prompts=[prompt],
        on_step=tree,
    )
    nodes = tree.trees.get(0, [])
    steps = node_steps(nodes)
    lost = [
        LostHypothesis(tokenizer.decode(tree.path(0, index)), nodes[index].log_prob, step, behind)
        for index, step, behind in lost_hypotheses(nodes, steps)
    ]
    outputs = [(tokenizer.decode(one.ids), one.log_prob, one.score) for one in hypotheses]
    shown = [index for index, step in enumerate(steps) if step <= TREE_STEPS]  # parents come first, so links stay
    names = tokenizer.tokens([nodes[index].id for index in shown])
    figures: list[Figure] = [
        search_tree("beam tree", [nodes[index] for index in shown], names),
        table("outputs", ("output", "log p", "score"), [(text or EMPTY, *scores) for text, *scores in outputs]),
    ]
    if lost:
        rows = [(one.step, one.text, one.log_prob, one.behind) for one in lost]
        figures.append(table("lost hypotheses", ("lost at step", "hypothesis", "log p", "behind"), rows))
    limit = "" if example.source else f" The search ends after {NEW_TOKENS} tokens."
    if any(one.behind is not None and one.behind < 0 for one in lost):
        assert tokenizer.eos is not None
        eos = tokenizer.tokens([tokenizer.eos])[0]
        limit = (
            f" Below zero: an {eos} counts only among the best {options.beam_size}; the beam is then filled up with"
            f" candidates that go on, even less probable ones.{limit}"
        )
    left_out = f" The tree has the first {TREE_STEPS} of {max(steps)} steps." if len(shown) < len(nodes) else ""
    step = Step(
        f"Beam search with beam size {options.beam_size}",
        "Each level is a step; numbers are log-probabilities of the output so far, and ✗ marks candidates that were"
        " dropped. A hypothesis is lost where none of its continuations was kept: behind is how much log p its best one"
        f" lacked, if it was a candidate at all.{limit}{left_out}",
        "log p(y) = Σ log p(y_t | y_<t)\n" + score_formula(options),
        figures,
    )
    return ViewResult(step, BeamSearch(nodes, outputs, lost))


def score_formula(options: SearchOptions) -> str:
    """By what outputs are ranked (decoding/length_penalty.py); |y| counts <eos>."""
    alpha = f"{options.length_alpha:g}"
    score = {
        "none": "log p(y)",
        "power": f"log p(y) / |y|^{alpha}",
        "gnmt": f"log p(y) / ((5 + |y|) / 6)^{alpha}",
        "average": "log p(y) / |y|",
        "reward": f"log p(y) + {alpha} |y|",
    }[options.length_penalty]
    coverage = f" + {options.coverage_penalty:g} coverage(y)" if options.coverage_penalty else ""
    return f"score(y) = {score}{coverage}"


def node_steps(nodes: Sequence[Node]) -> list[int]:
    """The step of each node, from 1."""
    steps: list[int] = []
    for node in nodes:
        steps.append(1 if node.parent is None else steps[node.parent] + 1)
    return steps


def lost_hypotheses(nodes: Sequence[Node], steps: Sequence[int]) -> list[tuple[int, int, float | None]]:
    """(node, step at which it was lost, log p that its best continuation lacked) of those that were kept until then."""
    survivors: set[int | None] = set()
    weakest: dict[int, float] = {}
    best: dict[int | None, float] = {}
    for node, step in zip(nodes, steps, strict=True):
        if node.fate == "dropped":
            best[node.parent] = max(node.log_prob, best.get(node.parent, -math.inf))
        else:
            survivors.add(node.parent)
            weakest[step] = min(node.log_prob, weakest.get(step, math.inf))
    return [
        (index, step + 1, weakest[step + 1] - best[index] if index in best else None)
        for index, (node, step) in enumerate(zip(nodes, steps, strict=True))
        if node.fate == "kept" and index not in survivors and step + 1 in weakest
    ]
