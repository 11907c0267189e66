"""The search tree of a beam: every candidate with its parent, its log-probability and whether it was kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from seqwright.decoding.beam import Step
from seqwright.decoding.processors import NOTHING


@dataclass(frozen=True)
class Node:
    """A candidate of one step; its ids are those on the path of `parent` links to the root."""

    parent: int | None
    """Index of the node it continues; None for the first id."""
    id: int
    log_prob: float
    fate: str
    """"kept" in the beam, "finished" by <eos>, or "dropped"."""


class BeamTree:
    """Callback that records the search tree: `search(..., on_step=tree)`."""

    def __init__(self, groups: int = 1) -> None:
        self.groups = groups
        self.trees: dict[int, list[Node]] = {}
        """The nodes of each source, in the order of the search."""
        self.beams: dict[tuple[int, int], dict[int, int]] = {}
        """For each (source, group), the node of each live beam."""

    def __call__(self, step: Step) -> None:
        candidates = step.candidates
        columns = zip(
            candidates.log_probs.tolist(),
            candidates.parents.tolist(),
            candidates.ids.tolist(),
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
        """The ids from the root to a node."""
        ids: list[int] = []
        at: int | None = node
        while at is not None:
            ids.append(self.trees[source][at].id)
            at = self.trees[source][at].parent
        return ids[::-1]

    def as_json(self, source: int) -> list[dict[str, Any]]:
        return [asdict(node) for node in self.trees.get(source, [])]
