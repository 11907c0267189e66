"""Search (worked example 9): greedy, beam and exhaustive search on one table; of a run, the tree of its beam."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.core.state import State
from seqwright.decoding.beam_tree import BeamTree, Node
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.search import search as run_search
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Branch, Cell, Tree, joined, matrix, table, visible
from seqwright.studies.explain.options import Rows, TopicOptions
from seqwright.studies.explain.text import run_example, run_ids
from seqwright.tasks.translation.task import TranslationRun

NAMES = ("a", "b", "c", "END", "START")
END, START = 3, 4
ROWS = ("START", "a", "b", "c")
"""Last tokens, as p has them."""
ABOUT = (
    "The most probable output cannot be found token by token: a search keeps several beginnings (hypotheses) and"
    " extends them. Greedy search keeps one, a beam a few, exhaustive search all."
)


@dataclass(frozen=True, kw_only=True)
class SearchExample(TopicOptions):
    p: Rows = ((0.5, 0.4, 0.1, 0.0), (0.2, 0.4, 0.1, 0.3), (0.2, 0.1, 0.4, 0.3), (0.1, 0.1, 0.2, 0.6))
    """p(next | last): rows START a b c, columns a b c END; rows are divided by their sums."""
    beam_size: int = 2
    """Hypotheses kept at each step."""
    max_tokens: int = 4
    """T, END counted."""
    length_alpha: float = 1.0
    """Exponent of the length normalization of the last step."""
    text: str = ""
    """With a run: the prompt."""

    either: ClassVar[tuple[str, ...]] = ("beam_size", "max_tokens")

    def __post_init__(self) -> None:
        if any(value < 0 for row in self.p for value in row) or any(sum(row) <= 0 for row in self.p):
            raise UserError("p holds probabilities: none below 0, and a row is not all 0.")
        if not 1 <= self.max_tokens <= 8:
            raise UserError(f"max_tokens must be 1 to 8, not {self.max_tokens}: exhaustive search is exponential.")
        if not 1 <= self.beam_size <= 20:
            raise UserError(f"beam_size must be 1 to 20, not {self.beam_size}.")


@dataclass
class NoState(State):
    """A bigram table needs only the last token."""

    rows: Tensor


class BigramTable:
    """A table of probabilities behind the autoregressive protocol."""

    context = None

    def __init__(self, table: Tensor):
        self.table = table  # (5, 5): last token a b c END START, next token the same

    def start(self, source: Source, *, capacity: int) -> NoState:
        return NoState(torch.zeros(source.rows))

    def step(self, ids: Tensor, state: NoState, count: Tensor | None = None) -> tuple[Tensor, NoState]:
        return self.table[ids[:, -1]].log(), state


def bigram_table(options: SearchExample) -> BigramTable:
    start, *others = (torch.tensor(row, dtype=torch.float64) / sum(row) for row in options.p)
    rows = torch.zeros(5, 5, dtype=torch.float64)
    for last, row in enumerate([*others, torch.zeros(4, dtype=torch.float64), start]):
        rows[last, :4] = row
    return BigramTable(rows)


def search(options: SearchExample, run: Run | None = None) -> Explanation:
    """Greedy, beam and exhaustive search of the lecture's toy; with a run, the beam after a prompt."""
    if run is not None:
        return _of_run(options, run)
    model: Any = bigram_table(options)
    base = SearchOptions(max_tokens=options.max_tokens, length_penalty="none")
    greedy, greedy_tree = _searched(model, replace(base, kind="greedy"))
    beam, beam_tree = _searched(model, replace(base, beam_size=options.beam_size))
    exact, _ = _searched(model, replace(base, kind="exact", n_best=10_000))
    finished = [one for one in exact if one.reason == "end"]
    power = replace(base, length_penalty="power", length_alpha=options.length_alpha)
    normalized = {
        f"beam {options.beam_size}": _searched(model, replace(power, beam_size=options.beam_size))[0][0],
        "exhaustive": _searched(model, replace(power, kind="exact"))[0][0],
    }
    everything = max(1, len(finished))
    smallest = _smallest_beam(model, base, exact[0], limit=everything)
    steps = [
        Step(
            "The model",
            f"The next token depends on the last one; END ends an output.{_divided(options)}",
            "p(y) = Π p(y_t | y_(t-1))",
            [matrix("p(next | last)", _table_of(model), rows=ROWS, columns=NAMES[:4], heat=True)],
        ),
        Step(
            "Greedy search",
            "The most probable token at every step: fast, and never sure to be the most probable output.",
            "y_t = argmax p(· | y_(t-1))",
            [search_tree("greedy tree", greedy_tree), _outputs("greedy", greedy)],
        ),
        Step(
            f"Beam search with beam {options.beam_size}",
            "Every hypothesis is extended, and the best few of all candidates are kept; END puts one aside as finished,"
            " ✗ marks those that were dropped. An END counts only among the best few; the beam is then filled up with"
            " the best candidates that go on, even if they are less probable than an END that was dropped. Leaves"
            " without a mark were in the beam when the search ended.",
            "score = log p(y_1 … y_t)",
            [search_tree("beam tree", beam_tree), _outputs("beam", beam)],
        ),
        Step(
            "Exhaustive search",
            f"There are {len(finished)} outputs of at most {options.max_tokens} tokens; the ten most probable:",
            "argmax over all y of log p(y)",
            [_outputs("exhaustive", finished[:10]), matrix("outputs in all", len(finished))],
        ),
        Step(
            "How wide a beam must be",
            f"A beam of {smallest} finds the best output of all here." if smallest else "No beam tried finds it here.",
            "",
            [
                table(
                    "beams",
                    ["beam", "output", "log p"],
                    [
                        (size, _words(one), one.log_prob)
                        for size, one in _by_beam(model, base, range(1, min(5, everything) + 1))
                    ],
                )
            ],
        ),
        Step(
            "Length normalization",
            "Longer outputs have more factors below 1. Dividing by a power of the length lets them compete.",
            f"score = log p(y) / |y|^{options.length_alpha:g}",
            [
                table(
                    "normalized",
                    ["search", "output", "log p", "score"],
                    [(name, _words(one), one.log_prob, one.score) for name, one in normalized.items()],
                )
            ],
        ),
    ]
    return Explanation("search", "Greedy, beam and exhaustive search", ABOUT, steps)


def _searched(model: Any, options: SearchOptions) -> tuple[list[Hypothesis], list[Node]]:
    recorded = BeamTree()
    (hypotheses,) = run_search(model, Source.empty(1), options, sos=START, eos=END, on_step=recorded)
    return hypotheses, recorded.trees.get(0, [])


def _by_beam(model: Any, base: SearchOptions, sizes: Sequence[int]) -> list[tuple[int, Hypothesis]]:
    return [(size, _searched(model, replace(base, beam_size=size))[0][0]) for size in sizes]


def _smallest_beam(model: Any, base: SearchOptions, best: Hypothesis, *, limit: int) -> int | None:
    """The smallest beam whose output is as probable as the best of all; None where none up to 20 is."""
    for size, one in _by_beam(model, base, range(1, min(limit, 20) + 1)):
        if abs(one.log_prob - best.log_prob) < 1e-9:
            return size
    return None


def _divided(options: SearchExample) -> str:
    """Which rows of p did not sum to 1, so that they were divided by their sums."""
    sums = {name: math.fsum(row) for name, row in zip(ROWS, options.p, strict=True)}
    rows = ", ".join(f"{name}: {total:g}" for name, total in sums.items() if abs(total - 1) > 1e-9)
    return f" Rows that do not sum to 1 ({rows}) were divided by their sums." if rows else ""


def _table_of(model: BigramTable) -> Tensor:
    return model.table[[START, 0, 1, 2], :4]


def _words(one: Hypothesis) -> str:
    return " ".join([*(NAMES[id] for id in one.ids), *(["END"] if one.reason == "end" else ["…"])])


def _outputs(name: str, hypotheses: Sequence[Hypothesis]) -> Any:
    rows: list[Sequence[Cell]] = [
        (_words(one), one.log_prob, len(one.ids) + (one.reason == "end")) for one in hypotheses
    ]
    return table(name, ["output", "log p", "length"], rows)


def search_tree(name: str, nodes: Sequence[Node], names: Sequence[str] | None = None) -> Tree:
    """The candidates of a search as a tree, best first."""
    children: dict[int | None, list[int]] = {}
    for index, node in enumerate(nodes):
        children.setdefault(node.parent, []).append(index)

    def branches(parent: int | None) -> tuple[Branch, ...]:
        below = sorted(children.get(parent, []), key=lambda index: -nodes[index].log_prob)
        return tuple(
            Branch(
                NAMES[nodes[index].id] if names is None else visible(names[index]),
                f"{nodes[index].log_prob:.4f}" + (" finished" if nodes[index].fate == "finished" else ""),
                nodes[index].fate != "dropped",
                branches(index),
            )
            for index in below
        )

    return Tree(name, branches(None))


def _of_run(options: SearchExample, run: Run) -> Explanation:
    """The beam after a prompt, or of a translator the beam of a source."""
    if isinstance(run, TranslationRun):
        read = run_example(run, options.text, target="")  # the search is what is shown
        source, tokenizer = read.batch.source, run.tokenizers.target
        condition, prompt, shown = "source", list[int](), joined(read.source)
    else:
        ids, _ = run_ids(run, options.text, limit=None)
        source, tokenizer = Source.empty(1, run.device), run.tokenizer
        prompt = ids[1:] if tokenizer.sos is not None else ids
        condition, shown = "prompt", visible(options.text)[-60:]
    choices = SearchOptions(
        beam_size=options.beam_size, max_tokens=options.max_tokens, length_penalty="none", rank_unfinished="among"
    )
    recorded = BeamTree()
    (hypotheses,) = run_search(
        run.model,
        source,
        replace(choices, n_best=options.beam_size),
        sos=tokenizer.sos,
        eos=tokenizer.eos,
        banned=tokenizer.never_generated(tokenizer.eos),
        prompts=[prompt],
        on_step=recorded,
    )
    nodes = recorded.trees.get(0, [])
    steps = [
        Step(
            f"Beam search with beam {options.beam_size}",
            f"{condition.capitalize()}: “{shown}”. Numbers are log-probabilities of the output so"
            " far; ✗ marks candidates that were dropped.",
            f"score = log p(y_1 … y_t | {condition})",
            [search_tree("beam tree", nodes, tokenizer.tokens([node.id for node in nodes]))],
        ),
        Step(
            "Outputs",
            f"The best {options.beam_size} after {options.max_tokens} tokens.",
            "",
            [table("beam", ["output", "log p"], [(tokenizer.decode(one.ids), one.log_prob) for one in hypotheses])],
        ),
    ]
    return Explanation("search", f"Beam search of {run.path}", ABOUT, steps)
