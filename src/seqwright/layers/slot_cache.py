"""KV cache with a buffer for each row: the token at position p is in slot p.

So a row is freed by forgetting it, taken over by writing another's slots, and rewound by lowering its length; the other
rows are not copied. Rows that share a prefix (beams) need a tree, to which `select` converts where it expands rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqwright.core.huge_pages import zeros
from seqwright.core.state import shared
from seqwright.layers.kv_cache import KVCache, attention_mask
from seqwright.layers.tree_cache import SLOT_ALIGNMENT, TreeCache

FIRST_SLOTS = 4096
"""Slots of each row at first: `capacity` may be that of a request for any number of tokens. Buffers double beyond."""
STATIC_SLOTS = 256
"""Slots by which the reads of a static cache grow: with fewer, steps are captured more often; with more, attention
reads more slots that are still empty."""


@dataclass
class SlotCache(KVCache):
    """Cached keys and values of R rows in S slots each. Slot S, the last of a buffer, is never read: padding, and rows
    that have outgrown their capacity because nobody reads them any more, are written there."""

    key: Tensor  # (R, L, S + 1, G, E), G key-value heads
    value: Tensor  # (R, L, S + 1, G, E)
    used: Tensor = shared()
    """() long: no row is longer; slots beyond are not read."""
    capacity: Tensor = shared()
    """() long: tokens that a row may have; buffers grow up to it."""
    extent: Tensor = shared()
    """() long: slots that attention reads of a static cache, those beyond a row's length masked; 0: as many as are
    used."""

    def __post_init__(self) -> None:
        self.added: tuple[Tensor, Tensor | None] = (self.length[:, None], None)
        """Positions (R, T) of the tokens added last, and how many of each row are real."""
        self._slots: tuple[Tensor, Tensor] | slice | None = None

    @classmethod
    def empty(cls, rows: int, layers: int, heads: int, size: int, capacity: int, like: Tensor) -> SlotCache:
        """An empty cache for up to `capacity` tokens in each row; `like` gives device and dtype."""
        slots = min(capacity, FIRST_SLOTS)
        key, value = (zeros(like, rows, layers, slots + 1, heads, size) for _ in range(2))
        length = torch.zeros(rows, dtype=torch.long, device=like.device)
        return cls(length, key, value, torch.tensor(0), torch.tensor(capacity), torch.tensor(0))

    @property
    def size(self) -> int:
        """Slots of each row."""
        return self.key.size(2) - 1

    @property
    def stop(self) -> int:
        """End of the slots that attention reads (exclusive)."""
        return int(self.extent) or int(self.used)

    @property
    def has_static_shapes(self) -> bool:
        return int(self.extent) > 0

    @property
    def prefilled(self) -> bool:
        return isinstance(self._slots, slice)

    def extended(self, steps: int, count: Tensor | None = None) -> SlotCache:
        before, capacity = int(self.used), int(self.capacity)
        length = self.length + (steps if count is None else count)
        if int(self.extent):
            cache = replace(self, length=length)
        else:
            used = min(before + steps, capacity)
            grown = self if used <= self.size else self._resized(min(2 * used, capacity))
            cache = replace(grown, length=length, used=torch.tensor(used))
            if before == 0 and steps <= capacity:
                cache._slots = slice(steps)  # a prefill: padding is overwritten before it can be seen
                return cache
        cache.added = self.positions(steps), count
        return cache

    @property
    def slots(self) -> tuple[Tensor, Tensor] | slice:
        """Slots of the tokens added last: rows (R, 1) and slots (R, T), or a slice where all rows have the same.
        Computed when they are first written: fused kernels do not ask."""
        if self._slots is None:
            positions, count = self.added
            # Padding, and rows that nobody reads any more, go to the slot that is never read.
            free = positions.clamp(max=self.size)
            if count is not None:
                free = free.masked_fill(positions >= self.length.unsqueeze(1), self.size)
            self._slots = torch.arange(len(positions), device=positions.device).unsqueeze(1), free
        return self._slots

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        for buffer, new in ((self.key[:, layer], key), (self.value[:, layer], value)):
            if isinstance(self.slots, slice):
                _copy(buffer[:, self.slots], new)
            else:
                buffer.index_put_(self.slots, new)
        stop = self.stop
        return self.key[:, layer, :stop].transpose(1, 2), self.value[:, layer, :stop].transpose(1, 2)

    @property
    def key_positions(self) -> Tensor:
        return torch.arange(self.stop, device=self.key.device).expand(len(self.key), -1)

    def mask(self, positions: Tensor, window: int | None = None) -> Tensor:
        return attention_mask(positions, torch.arange(self.stop, device=self.key.device), window)

    def truncate(self, lengths: Tensor) -> SlotCache:
        """Each row as it was after `lengths` (R,) tokens, at most as many as it has."""
        used = torch.minimum(self.used, lengths.max().cpu())
        return replace(self, length=torch.minimum(self.length, lengths), used=used)

    def select(self, rows: Tensor, sources: Tensor | None = None) -> SlotCache | TreeCache:  # type: ignore[override]
        """As `State.select`; a tree where rows come to share a source."""
        if len(rows) != len(self.length if sources is None else sources):
            return self.tree().select(rows, sources)
        key, value = (zeros(old, len(rows), *old.shape[1:]) for old in (self.key, self.value))
        used = int(self.used)
        for buffer, old in ((key, self.key), (value, self.value)):
            buffer[:, :, :used] = old[:, :, :used].index_select(0, rows)
        return replace(self, length=self.length.index_select(0, rows), key=key, value=value)

    def reorder(self, rows: Tensor) -> SlotCache:
        """Nothing moves within groups of one row."""
        return self

    def tree(self) -> TreeCache:
        """The same rows, each the first of a source's beams; views of the used slots."""
        used = int(self.used)
        slots = torch.arange(used, device=self.key.device)
        return TreeCache(
            length=self.length,
            seen=slots < self.length.unsqueeze(1),
            key=self.key[:, :, :used],
            value=self.value[:, :, :used],
            place=slots.repeat(len(self.key), 1),
            cursor=torch.full_like(self.length, used),
            used=torch.tensor(used),
        )

    @classmethod
    def aligned(cls, states: Sequence[SlotCache]) -> list[SlotCache]:
        """As many slots in every cache."""
        size = max(cache.size for cache in states)
        return [cache._resized(size) for cache in states]

    def static(self, steps: int) -> SlotCache:
        """With room for `steps` more tokens in slots that are read already, the free ones masked."""
        capacity = int(self.capacity)
        needed = min(int(self.used) + steps, capacity)
        if needed <= int(self.extent):
            return self
        extent = needed + -needed % STATIC_SLOTS
        if capacity - extent < STATIC_SLOTS:  # the last captures would be of a few steps each
            extent = capacity + -capacity % SLOT_ALIGNMENT
        return replace(self._resized(max(self.size, extent)), used=self.used.clone(), extent=torch.tensor(extent))

    def count_steps(self, steps: int) -> None:
        self.used.add_(steps).clamp_(max=self.capacity)

    def captured_as(self) -> tuple[int, ...]:
        return (int(self.extent),)

    def _resized(self, size: int) -> SlotCache:
        if size == self.size:
            return self
        rows, layers, _, *head = self.key.shape
        key, value = (zeros(old, rows, layers, size + 1, *head) for old in (self.key, self.value))
        for buffer, old in ((key, self.key), (value, self.value)):
            buffer[:, :, : self.size] = old[:, :, : self.size]
        return replace(self, key=key, value=value)


def _copy(target: Tensor, values: Tensor) -> None:
    """Copies values (R, T, G, E) to a buffer; on a GPU 16 bytes at a time, since neither is contiguous, and PyTorch
    copies such tensors one element at a time."""
    aligned = target.dtype == values.dtype and target.size(-1) * target.element_size() % 16 == 0
    if target.is_cuda and aligned and not values.requires_grad:
        target, values = target.view(torch.complex128), values.view(torch.complex128)
    target.copy_(values)
