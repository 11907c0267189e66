"""Huge pages are small ones where the system has none, and an error as PyTorch's where there is no memory at all."""

from __future__ import annotations

import errno
import mmap
from typing import Any

import pytest
import torch

from seqwright.core.huge_pages import HUGE_PAGE, huge, zeros


class PagesWithoutAdvice(mmap.mmap):
    """Memory of a kernel that was built without huge pages."""

    def madvise(self, *arguments: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")


def refused(*arguments: Any, **options: Any) -> Any:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


@pytest.mark.parametrize("pages", [mmap.mmap, PagesWithoutAdvice, refused])
def test_memory_is_zeros_whatever_the_system_refuses(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "mmap", pages)
    memory = zeros(torch.empty(0, dtype=torch.bfloat16), 3, HUGE_PAGE)
    assert memory.shape == (3, HUGE_PAGE)
    assert memory.dtype == torch.bfloat16
    assert not memory.any()
    memory[2, -1] = 1
    assert memory.sum() == 1


@pytest.mark.parametrize("size", [1 << 62, 1 << 55])
def test_no_memory_is_the_error_of_pytorch(size: int) -> None:
    with pytest.raises(RuntimeError):
        huge(size)


def test_no_bytes() -> None:
    assert huge(0).shape == (0,)
