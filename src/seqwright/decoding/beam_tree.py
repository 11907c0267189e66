"""The search tree of a beam: every candidate with its score, its parent and what became of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from seqwright.decoding.beam import Step
from seqwright.decoding.processors import NOTHING


@dataclass(frozen=True)
class Node:
    """A hypothesis as it was considered; its words are found by following `parent` to the root."""

    parent: int | None
    """The number of the node it continues; None for the first id."""
    id: int
    log_prob: float
    fate: str
    """"kept" in the beam, "finished" by <eos>, or "dropped"."""


class BeamTree:
    """The search tree, as the callback `search(..., on_step=tree)`."""

    def __init__(self, groups: int = 1) -> None:
        self.groups = groups
        self.trees: dict[int, list[Node]] = {}
        """The nodes of each source in the order in which they were considered."""
        self.beams: dict[tuple[int, int], dict[int, int]] = {}
        """For each group, the node of each beam."""

    def __call__(self, step: Step) -> None:
        found = step.candidates
        columns = zip(
            found.log_probs.tolist(),
            found.parents.tolist(),
            found.ids.tolist(),
            step.finished.tolist(),
            step.beams.tolist(),
            strict=True,
        )
        groups = [divmod(group, self.groups) for group in step.groups.tolist()]
        for group, column in zip(groups, columns, strict=True):
            self._grow(group, list(zip(*column, strict=True)))

    def _grow(self, group: tuple[int, int], candidates: list[tuple[Any, ...]]) -> None:
        tree = self.trees.setdefault(group[0], [])
        before, after = self.beams.get(group), {}
        for log_prob, parent, id, finished, beam in candidates:
            if log_prob == float("-inf"):
                continue
            if beam != NOTHING:
                after[beam] = len(tree)
            fate = "finished" if finished else "kept" if beam != NOTHING else "dropped"
            tree.append(Node(None if before is None else before[parent], id, log_prob, fate))
        self.beams[group] = after

    def path(self, source: int, node: int) -> list[int]:
        """The ids of a node's hypothesis from the first on."""
        ids: list[int] = []
        at: int | None = node
        while at is not None:
            ids.append(self.trees[source][at].id)
            at = self.trees[source][at].parent
        return ids[::-1]

    def as_json(self, source: int) -> list[dict[str, Any]]:
        return [asdict(node) for node in self.trees.get(source, [])]
