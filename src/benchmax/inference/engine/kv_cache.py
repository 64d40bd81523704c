"""Keys and values of every sequence, one row each, in one block of memory.

Row `r` of the cache is row `r` of the decode batch, so attention reads plain slices. The cache grows in length when a
sequence needs it. The last position of a row is scratch: rows that do not run write there, so that what they keep for
reuse stays intact. Facts about a GPU's memory come from torch, which is loaded anyway.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from benchmax.errors import UsageError
from benchmax.files.display import readable_bytes
from benchmax.inference.weights.llama import ModelSpec

LENGTH_STEP = 256


class KVCache:
    """[key or value, layer, row, kv head, position, head_dim]."""

    def __init__(self, spec: ModelSpec, device: torch.device, dtype: torch.dtype, budget: int) -> None:
        self.spec, self.device, self.dtype, self.budget = spec, device, dtype, budget
        self.full_budget = budget
        """The budget before memory ran short."""
        self.rows = 0
        self.length = 0
        self.data = torch.empty(0)

    @property
    def position_bytes(self) -> int:
        """Bytes of one token, all layers."""
        return 2 * self.spec.layers * self.spec.kv_width * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        return self.rows * self.length * self.position_bytes

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        return self.data[0, index], self.data[1, index]

    def affordable_rows(self, length: int) -> int:
        """Rows of `length` positions that fit the memory budget."""
        return self.budget // (length * self.position_bytes)

    def lower_budget(self, rows: int, length: int) -> None:
        """That many rows could not be allocated: from now on count on half their memory."""
        self.budget = min(self.budget, rows * length * self.position_bytes // 2)

    def raise_budget(self) -> None:
        """Count on more again where others have released memory. On a CPU the same run must see the same budget."""
        if self.device.type == "cuda" and self.budget < self.full_budget:
            self.budget = max(self.budget, min(self.full_budget, self.bytes + memory_budget(self.device)))

    def clear(self) -> None:
        """Remove all rows; the memory is kept for a cache of the same shape."""
        self.rows = self.length = 0

    def resize(self, rows: int, length: int, keep_rows: int = 0, keep_length: int = 0) -> None:
        """Change the shape, keeping the given corner of the contents."""
        if not self.rows:
            if self.data.shape == self._shape(rows, length):
                self.rows, self.length = rows, length
                return
            self.data = torch.empty(0)  # released before more is allocated
        old = self.data
        try:
            data = self._allocate(rows, length)
        except (RuntimeError, MemoryError) as error:  # torch's out-of-memory is a RuntimeError
            raise UsageError(
                f"No memory for {rows} sequences of {length} tokens "
                f"({readable_bytes(rows * length * self.position_bytes)} of keys and values). "
                "Use fewer slots or a shorter max_len; in training, a smaller rollouts.group_size or a shorter "
                "rollouts.max_new_tokens."
            ) from error
        if keep_rows and keep_length:
            data[:, :, :keep_rows, :, :keep_length] = old[:, :, :keep_rows, :, :keep_length]
        self.data, self.rows, self.length = data, rows, length

    def _shape(self, rows: int, length: int) -> tuple[int, ...]:
        return 2, self.spec.layers, rows, self.spec.kv_heads, length, self.spec.head_dim

    def _allocate(self, rows: int, length: int) -> Tensor:
        shape = self._shape(rows, length)
        if self.device.type == "cpu" and self.dtype == torch.float32:
            return _zero_pages(shape)
        return torch.zeros(shape, device=self.device, dtype=self.dtype)

    def move(self, source: Sequence[int], target: Sequence[int], length: int) -> None:
        """Copy the first `length` positions of rows `source` to rows `target`, all read before any is written."""
        if not source or not length:
            return
        if self.device.type == "cpu" and not set(source) & set(target):
            for a, b in zip(source, target, strict=True):
                self.data[:, :, b, :, :length] = self.data[:, :, a, :, :length]
            return
        index = torch.tensor([source, target]).to(self.device, non_blocking=True)
        self.data[:, :, index[1], :, :length] = self.data[:, :, index[0], :, :length]


def _zero_pages(shape: tuple[int, ...]) -> Tensor:
    """Zeros from numpy, whose pages cost nothing until written; torch.zeros writes them all.

    They begin at a multiple of 64 bytes, as torch's own tensors do: the order of sums may depend on alignment.
    """
    size = math.prod(shape)
    block = np.zeros(size + 16, dtype=np.float32)
    skip = -block.ctypes.data % 64 // 4
    return torch.from_numpy(block[skip : skip + size].reshape(shape))


def bucket(length: int) -> int:
    """The cache length for a need: a power of two of at least 256 positions."""
    return max(LENGTH_STEP, 1 << (length - 1).bit_length())


def round_up(length: int) -> int:
    return -(-length // 64) * 64


def memory_budget(device: torch.device) -> int:
    """Bytes the cache may take by default: two fifths of what is free now."""
    share = int(free_memory(device) * 0.4)
    # Pages of the file cache are given up on demand but not counted as free.
    return share if device.type == "cuda" else max(share, 2 << 30)


def free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 8 << 30
