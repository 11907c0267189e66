"""Keys and values of what was read: a tree for each source, whose branches are the rows that share it.

Beams have most of their words in common. A row that goes on from another needs no copy of them: both see the same slots
(tree attention, Miao et al. 2024). So reordering beams takes rows of a table of booleans, and what beams have in common
is held and read once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.core.protocols import State, per_source, shared

ROOM = 8
"""Steps for which rows find room, at least, when slots that no row sees any more are given up."""
ALIGNED = 16
"""What the number of slots is a multiple of on a device that reads them to the end: kernels read so many at once."""


@dataclass
class KVCache(State):
    """What R rows over B sources have read, W = R / B each: in slots of their source, S of them, some yet empty."""

    seen: Tensor  # (R, S): the slots that a row has behind it
    length: Tensor  # (R,): how many those are
    key: Tensor = per_source()  # (B, L, S, G, E), G heads of keys
    value: Tensor = per_source()  # (B, L, S, G, E)
    place: Tensor = per_source()
    """(B, S): where the token of each slot stands."""
    cursor: Tensor = per_source()
    """(B,): the next empty slot, kept where the host does not know it."""
    used: Tensor = shared()
    """() long: slots that any row has written; beyond them nothing is read. -1 where only the device knows (steady)."""

    @classmethod
    def empty(cls, rows: int, layers: int, heads: int, size: int, capacity: int, like: Tensor) -> KVCache:
        key, value = (like.new_zeros(rows, layers, capacity, heads, size) for _ in range(2))
        place = torch.zeros(rows, capacity, dtype=torch.long, device=like.device)
        none = torch.zeros(rows, dtype=torch.long, device=like.device)
        return cls(place.bool(), none, key, value, place, none, torch.tensor(0))

    @property
    def branches(self) -> int:
        """Rows of a source."""
        return len(self.seen) // max(1, len(self.key))

    def positions(self, steps: int) -> Tensor:
        """(R, T): where the next ids of each row stand."""
        return self.length.unsqueeze(1) + torch.arange(steps, device=self.length.device)

    def extended(self, steps: int, count: Tensor | None = None) -> KVCache:
        """With a slot for each of so many ids of every row, seen by it where they are real, whose keys and values are
        yet to be written."""
        branches, many = self.branches, self.branches * steps
        if int(self.used) >= 0 and int(self.used) + many > self.place.size(1):
            return self._tidied(max(many, branches * ROOM)).extended(steps, count)
        places = self.positions(steps)
        after = steps if count is None else count
        real = places < (self.length + after).unsqueeze(1)  # (R, T)
        own = torch.eye(branches, dtype=torch.bool, device=real.device).unsqueeze(-1)  # (W, W, 1)
        seen = (own & real.view(-1, branches, 1, steps)).view(-1, many)  # (R, W · T)
        if int(self.used) < 0:
            slots = self._slots(many)
            self.place.index_copy_(1, slots, places.view(-1, many))
            self.seen.index_copy_(1, slots, seen)
            return replace(self, length=self.length + after, cursor=self.cursor + many)
        begin, end = int(self.used), int(self.used) + many
        self.place[:, begin:end], self.seen[:, begin:end] = places.view(-1, many), seen
        return replace(self, length=self.length + after, used=torch.tensor(end))

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Puts (R, T, G, E) in the slots that were last added; keys and values (B, G, K, E) of the layer so far."""
        many = self.branches * key.size(1)
        slots = None if int(self.used) >= 0 else self._slots(many) - many
        for buffer, new in ((self.key[:, layer], key), (self.value[:, layer], value)):
            given = new.reshape(len(buffer), many, *new.shape[2:])
            if slots is None:
                buffer[:, self.stop - many : self.stop] = given
            else:
                buffer.index_copy_(1, slots, given)
        return self.key[:, layer, : self.stop].transpose(1, 2), self.value[:, layer, : self.stop].transpose(1, 2)

    def _slots(self, many: int) -> Tensor:
        """(N,): the next ones, found on the device. Every source has written as many."""
        return self.cursor[:1] + torch.arange(many, device=self.cursor.device)

    @property
    def stop(self) -> int:
        """The first slot that is not read."""
        return int(self.used) if int(self.used) >= 0 else self.place.size(1)

    @property
    def places(self) -> Tensor:
        """(B, K): where the tokens stand whose keys are read."""
        return self.place[:, : self.stop]

    def mask(self, positions: Tensor, window: int | None = None) -> Tensor:
        """(B, 1, W · T, K): what rows see that stand at these positions (R, T): what is behind them and themselves, or
        what of that is inside their window."""
        before = visible(positions.reshape(len(self.place), -1), self.places, window)  # (B, 1, W · T, K)
        own = self.seen[:, : self.stop].repeat_interleave(positions.size(1), 0)  # (R · T, K)
        return before & own.view_as(before)

    def _tidied(self, room: int) -> KVCache:
        """With so many empty slots at least, without those that no row sees any more; this state is used up."""
        kept = self.packed()
        if self.place.size(1) < kept.stop + room:
            return kept._lengthened(2 * (kept.stop + room))
        for name in ("key", "value"):
            getattr(self, name)[:, :, : kept.stop] = getattr(kept, name)
        self.place[:, : kept.stop], self.seen[:, : kept.stop] = kept.place, kept.seen
        return replace(self, used=kept.used)

    def packed(self) -> KVCache:
        """Only the slots that any row sees, or so many that no source has more of them; in memory of their own."""
        live = self.seen.view(len(self.place), self.branches, -1).any(1)  # (B, S)
        count = int(live.sum(1).max())
        order = live.byte().argsort(dim=1, descending=True, stable=True)[:, :count]  # (B, K)
        layers, slots = self.key.shape[1:3]
        first = torch.arange(len(order) * layers, device=order.device).view(-1, layers, 1) * slots
        chosen = (first + order.unsqueeze(1)).flatten()  # (B · L · K)
        key, value = (
            held.flatten(0, 2).index_select(0, chosen).view(-1, layers, count, *held.shape[3:])
            for held in (self.key, self.value)
        )
        place, seen = self.place.gather(1, order), self.seen.gather(1, order.repeat_interleave(self.branches, 0))
        return replace(self, key=key, value=value, place=place, seen=seen, used=torch.tensor(count))

    def _lengthened(self, slots: int) -> KVCache:
        """So many slots, in memory of their own; whatever lies in new ones is not read."""
        key, value = (held.new_empty(*held.shape[:2], slots, *held.shape[3:]) for held in (self.key, self.value))
        for buffer, held in ((key, self.key), (value, self.value)):
            buffer[:, :, : held.size(2)] = held
        more = slots - self.place.size(1)
        return replace(self, key=key, value=value, place=F.pad(self.place, (0, more)), seen=F.pad(self.seen, (0, more)))

    def _wiped(self) -> KVCache:
        """Zeros in empty slots that will be read unseen: a weight of zero meets them, and 0 · NaN is NaN."""
        for buffer in (self.key, self.value):
            buffer[:, :, self.stop :] = 0
        return self

    def select(self, rows: Tensor, sources: Tensor | None = None) -> KVCache:
        """As every state; only what is used is copied."""
        taken = State.select(self._cut(), rows, sources)
        if len(rows) < len(self.seen):  # depth-first search would drag along all that the others said, word by word
            taken = taken.packed()
        return taken._lengthened(2 * (taken.stop + taken.branches * ROOM))

    def static(self, steps: int) -> KVCache:
        """Reads the buffers to their end, which so many steps reach; what is empty is not seen."""
        held = self._cut()
        slots = held.stop + self.branches * steps
        begun = torch.full_like(held.cursor, held.stop)
        return replace(held._lengthened(slots + -slots % ALIGNED)._wiped(), cursor=begun, used=torch.tensor(-1))

    def _cut(self) -> KVCache:
        """Without empty slots, sharing this state's memory."""
        held = self if int(self.used) >= 0 else self.packed()
        cut = {name: getattr(held, name)[:, :, : held.stop] for name in ("key", "value")}
        cut |= {name: getattr(held, name)[:, : held.stop] for name in ("place", "seen")}
        return replace(held, **cut)

    def cat(self, other: KVCache) -> KVCache:
        """As every state; the shorter buffers grow."""
        slots = max(self.place.size(1), other.place.size(1))
        return State.cat(self._lengthened(slots)._wiped(), other._lengthened(slots)._wiped())


def visible(query: Tensor, key: Tensor, window: int | None = None, *, ahead: bool = False) -> Tensor:
    """Which keys, at positions (B, K) or (K,), each query position (B or 1, T) sees, (B or 1, 1, T, K): itself and
    those before it (and `ahead` of it), but for what lies `window` or more away (Child et al. 2019; Beltagy et al.
    2020)."""
    distance = query.unsqueeze(-1) - key.unsqueeze(-2)  # (B or 1, T, K)
    distance, seen = (distance.abs(), torch.ones_like(distance).bool()) if ahead else (distance, distance >= 0)
    return (seen if window is None else seen & (distance < window)).unsqueeze(1)
