"""The history of a beam search: the tree of all that was considered, with scores, for those who want to look."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from seqwright.decoding.bans import NOTHING
from seqwright.decoding.beam import Step


@dataclass(frozen=True)
class Node:
    """A hypothesis as it was considered; its words are found by following `parent` to the root."""

    parent: int | None
    """The number of the node it continues; None for the first word."""
    id: int
    log_prob: float
    fate: str
    """"kept" in the beam, "ended" and put aside, or "dropped"."""


class History:
    """Listens to `search(..., listen=history)`; costs nothing where nobody listens."""

    def __init__(self, groups: int = 1) -> None:
        self.groups = groups
        self.trees: dict[int, list[Node]] = {}
        """Nodes of each source in the order in which they were considered."""
        self.places: dict[tuple[int, int], dict[int, int]] = {}
        """For each queue, which node sits in which beam."""

    def __call__(self, step: Step) -> None:
        found = step.candidates
        columns = zip(
            found.log_probs.tolist(),
            found.parents.tolist(),
            found.ids.tolist(),
            step.ended.tolist(),
            step.places.tolist(),
            strict=True,
        )
        queues = [divmod(queue, self.groups) for queue in step.queues.tolist()]
        for queue, column in zip(queues, columns, strict=True):
            self._grow(queue, list(zip(*column, strict=True)))

    def _grow(self, queue: tuple[int, int], candidates: list[tuple[Any, ...]]) -> None:
        tree = self.trees.setdefault(queue[0], [])
        before, after = self.places.get(queue), {}
        for log_prob, parent, id, ended, place in candidates:
            if log_prob == float("-inf"):
                continue
            if place != NOTHING:
                after[place] = len(tree)
            fate = "ended" if ended else "kept" if place != NOTHING else "dropped"
            tree.append(Node(None if before is None else before[parent], id, log_prob, fate))
        self.places[queue] = after

    def words(self, source: int, node: int) -> list[int]:
        """The ids of a node's hypothesis from the first on."""
        ids: list[int] = []
        at: int | None = node
        while at is not None:
            ids.append(self.trees[source][at].id)
            at = self.trees[source][at].parent
        return ids[::-1]

    def as_json(self, source: int) -> list[dict[str, Any]]:
        return [asdict(node) for node in self.trees.get(source, [])]
