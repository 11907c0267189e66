"""KV cache of beams: a tree for each source, whose branches are the rows that share it.

Beams have most of their tokens in common. A row that continues another needs no copy of its prefix: both attend to the
same slots (tree attention, Miao et al. 2024). Reordering beams therefore permutes rows of a boolean mask, and shared
prefixes are stored and read once (decision 116).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.core.state import State, per_source, shared
from seqwright.layers.inference.availability import has_beam_kernels
from seqwright.layers.kv_cache import KVCache, attention_mask

MIN_FREE_STEPS = 8
"""Steps for which free slots must remain after compaction; otherwise the buffers grow."""
SLOT_ALIGNMENT = 16
"""The number of slots of a static cache is a multiple of this: attention kernels read as many keys at a time."""


@dataclass
class TreeCache(KVCache):
    """Cached keys and values of R rows over B sources, W = R / B rows each, in S slots per source, some still free."""

    seen: Tensor  # (R, S): True where a slot holds a token of the row's prefix
    key: Tensor = per_source()  # (B, L, S, G, E), G key-value heads
    value: Tensor = per_source()  # (B, L, S, G, E)
    place: Tensor = per_source()
    """(B, S): the position of the token in each slot."""
    cursor: Tensor = per_source()
    """(B,): the next free slot, for static caches (CUDA graphs), where the host does not know it."""
    used: Tensor = shared()
    """() long: slots written so far, beyond which nothing is read; -1 in static caches, where only the device knows."""

    @property
    def branches(self) -> int:
        """Rows (beams) per source."""
        return len(self.seen) // max(1, len(self.key))

    def extended(self, steps: int, count: Tensor | None = None) -> TreeCache:
        if steps == 1 and count is None and self._has_kernels:
            from seqwright.layers.inference.tree_kernels import extend_  # needs Triton

            return replace(self, length=extend_(self.length, self.place, self.seen, self.cursor, self.branches))
        branches, new = self.branches, self.branches * steps
        if int(self.used) >= 0 and int(self.used) + new > self.place.size(1):
            return self._with_free_slots(max(new, branches * MIN_FREE_STEPS)).extended(steps, count)
        positions = self.positions(steps)
        added = steps if count is None else count
        real = positions < (self.length + added).unsqueeze(1)  # (R, T)
        # A row sees its own new slots, not those of its siblings: a diagonal over the rows of a source.
        diagonal = torch.eye(branches, dtype=torch.bool, device=real.device).unsqueeze(-1)  # (W, W, 1)
        seen = (diagonal & real.view(-1, branches, 1, steps)).view(-1, new)  # (R, W · T)
        if int(self.used) < 0:  # by indices computed on the device, so that a CUDA graph replays with the next slots
            slots = self._next_slots(new)
            self.place.index_copy_(1, slots, positions.view(-1, new))
            self.seen.index_copy_(1, slots, seen)
            return replace(self, length=self.length + added, cursor=self.cursor + new)
        start, end = int(self.used), int(self.used) + new
        self.place[:, start:end], self.seen[:, start:end] = positions.view(-1, new), seen
        return replace(self, length=self.length + added, used=torch.tensor(end))

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        new = self.branches * key.size(1)
        slots = None if int(self.used) >= 0 else self._next_slots(new) - new
        for buffer, states in ((self.key[:, layer], key), (self.value[:, layer], value)):
            flat = states.reshape(len(buffer), new, *states.shape[2:])
            if slots is None:
                buffer[:, self.stop - new : self.stop] = flat
            else:
                buffer.index_copy_(1, slots, flat)
        return self.key[:, layer, : self.stop].transpose(1, 2), self.value[:, layer, : self.stop].transpose(1, 2)

    def _next_slots(self, count: int) -> Tensor:
        """(N,): indices of the next free slots, computed on the device; all sources have used the same number."""
        return self.cursor[:1] + torch.arange(count, device=self.cursor.device)

    def reorder(self, rows: Tensor) -> TreeCache:
        if not self._has_kernels:
            return super().reorder(rows)
        from seqwright.layers.inference.tree_kernels import reorder_  # needs Triton

        reorder_(rows, self.length, self.seen, self.branches)
        return self

    @property
    def _has_kernels(self) -> bool:
        """Whether a step takes two kernels in place of PyTorch's many."""
        return self.has_static_shapes and has_beam_kernels(self.seen.device)

    def captured_as(self) -> tuple[int, ...]:
        return (int(self._has_kernels),)

    @property
    def stop(self) -> int:
        """End of the slots that attention reads (exclusive)."""
        return int(self.used) if int(self.used) >= 0 else self.place.size(1)

    @property
    def has_static_shapes(self) -> bool:
        return int(self.used) < 0

    @property
    def key_positions(self) -> Tensor:
        return self.place[:, : self.stop]

    def mask(self, positions: Tensor, window: int | None = None) -> Tensor:
        causal = attention_mask(positions.reshape(len(self.place), -1), self.key_positions, window)  # (B, 1, W · T, K)
        prefix = self.seen[:, : self.stop].repeat_interleave(positions.size(1), 0)  # (R · T, K)
        return causal & prefix.view_as(causal)

    def truncate(self, lengths: Tensor) -> TreeCache:
        """Each row as it was after `lengths` (R,) tokens, at most as many as it has."""
        place = self.place.repeat_interleave(self.branches, 0)  # (R, S)
        seen = self.seen & (place < lengths.unsqueeze(1))
        return replace(self, seen=seen, length=torch.minimum(self.length, lengths))

    def _with_free_slots(self, free: int) -> TreeCache:
        """Compacted, with at least `free` free slots: in place where they suffice, else in larger buffers. Uses up this
        state."""
        live = self.compacted()
        if self.place.size(1) < live.stop + free:
            return live._resized(2 * (live.stop + free))  # doubling amortizes the copies
        for name in ("key", "value"):
            getattr(self, name)[:, :, : live.stop] = getattr(live, name)
        self.place[:, : live.stop], self.seen[:, : live.stop] = live.place, live.seen
        return replace(self, used=live.used)

    def compacted(self) -> TreeCache:
        """A copy without slots that no row sees any more; as many slots for every source as the largest needs."""
        live = self.seen.view(len(self.place), self.branches, -1).any(1)  # (B, S)
        count = int(live.sum(1).max())
        # Live slots first; sources with fewer fill up with dead ones, which `seen` masks.
        order = live.byte().argsort(dim=1, descending=True, stable=True)[:, :count]  # (B, K)
        layers, slots = self.key.shape[1:3]
        offset = torch.arange(len(order) * layers, device=order.device).view(-1, layers, 1) * slots
        index = (offset + order.unsqueeze(1)).flatten()  # (B · L · K)
        key, value = (
            buffer.flatten(0, 2).index_select(0, index).view(-1, layers, count, *buffer.shape[3:])
            for buffer in (self.key, self.value)
        )
        place, seen = self.place.gather(1, order), self.seen.gather(1, order.repeat_interleave(self.branches, 0))
        return replace(self, key=key, value=value, place=place, seen=seen, used=torch.tensor(count))

    def _resized(self, slots: int) -> TreeCache:
        """A copy with buffers of `slots` slots; new slots are uninitialized."""
        key, value = (old.new_empty(*old.shape[:2], slots, *old.shape[3:]) for old in (self.key, self.value))
        for buffer, old in ((key, self.key), (value, self.value)):
            buffer[:, :, : old.size(2)] = old
        more = slots - self.place.size(1)
        return replace(self, key=key, value=value, place=F.pad(self.place, (0, more)), seen=F.pad(self.seen, (0, more)))

    def _with_zeroed_free_slots(self) -> TreeCache:
        """This cache with zeros in free slots, which attention reads with weight 0: 0 · NaN would be NaN."""
        for buffer in (self.key, self.value):
            buffer[:, :, self.stop :] = 0
        return self

    def select(self, rows: Tensor, sources: Tensor | None = None) -> TreeCache:
        """As `State.select`, copying used slots only."""
        selected = State.select(self._trimmed(), rows, sources)
        if len(rows) < len(self.seen):  # else a depth-first search would keep the slots of all rows it has dropped
            selected = selected.compacted()
        return selected._resized(2 * (selected.stop + selected.branches * MIN_FREE_STEPS))

    def static(self, steps: int) -> TreeCache:
        """A cache of fixed shapes for `steps` more steps, as CUDA graphs need: attention reads whole buffers, with free
        slots masked (decision 70)."""
        trimmed = self._trimmed()
        slots = trimmed.stop + self.branches * steps
        cursor = torch.full_like(trimmed.cursor, trimmed.stop)
        grown = trimmed._resized(slots + -slots % SLOT_ALIGNMENT)
        return replace(grown._with_zeroed_free_slots(), cursor=cursor, used=torch.tensor(-1))

    def _trimmed(self) -> TreeCache:
        """Views of the used slots, sharing this cache's memory."""
        cache = self if int(self.used) >= 0 else self.compacted()
        views = {name: getattr(cache, name)[:, :, : cache.stop] for name in ("key", "value")}
        views |= {name: getattr(cache, name)[:, : cache.stop] for name in ("place", "seen")}
        return replace(cache, **views)

    @classmethod
    def aligned(cls, states: Sequence[TreeCache]) -> list[TreeCache]:
        """As many slots in every cache."""
        slots = max(cache.place.size(1) for cache in states)
        return [cache._resized(slots)._with_zeroed_free_slots() for cache in states]
