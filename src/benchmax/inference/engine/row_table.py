"""What the host knows of every row: which request runs in it, which tokens it holds, how far it has got.

It is kept in arrays, one line per row, so that a burst of tokens for hundreds of requests costs a few operations and no
loop: Python handles a request when it joins, when it leaves, and when its caller wants every token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmax.inference.engine.request import Request
from benchmax.inference.engine.sampling import MAX_STOPS

HELD_AGE = 1 << 60
"""Added to the age of a row that holds tokens for reuse: such rows are taken last."""
MIN_SHARED_TOKENS = 4
"""Fewer shared tokens than this are not worth a copy."""
PER_ROW = ("tokens", "logprobs", "opening", "held", "start", "end", "limit", "stops", "used", "busy", "listens")

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class RowTable:
    """The rows of a cache, as the host sees them."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all rows."""
        self.requests: list[Request | None] = []
        """The request that runs in each row."""
        self.tokens = np.zeros((0, 0), np.int32)
        """A prompt and the tokens drawn after it, also when its request has left."""
        self.logprobs = np.zeros((0, 0), np.float32)
        """Of the tokens drawn."""
        self.opening = np.zeros(0, np.int64)
        """The first two tokens as one number: most rows are ruled out by it."""
        self.held = np.zeros(0, np.int64)
        """How many of the tokens have keys and values that another request may begin with."""
        self.start = np.zeros(0, np.int64)
        """Where the tokens begin that are not yet handed to their request."""
        self.end = np.zeros(0, np.int64)
        self.limit = np.zeros(0, np.int64)
        self.stops = np.zeros((0, MAX_STOPS), np.int64)
        self.used = np.zeros(0, np.int64)
        """When the row was last taken or left."""
        self.busy = np.zeros(0, np.bool_)
        self.listens = np.zeros(0, np.bool_)
        """Whether the request's caller gets every token."""
        self.clock = 0
        self._free: list[int] | None = None

    @property
    def active(self) -> list[Request]:
        return [request for request in self.requests if request is not None]

    # Joining

    def best_prefix(self, context: Sequence[int]) -> tuple[int, int]:
        """The row with the longest common prefix, and its length. The last token is always computed again."""
        most = len(context) - 1
        if most < MIN_SHARED_TOKENS or not self.held.any():
            return -1, 0
        candidates = np.flatnonzero(self.opening == _opening(context))
        if not len(candidates):
            return -1, 0
        ids = np.asarray(context[:most], dtype=np.int32)
        width = 64
        while True:  # compare a little of many rows, then more of the few that still agree
            width = min(width, most, self.tokens.shape[1])
            same = self.tokens[candidates, :width] == ids[:width]
            common = np.where(same.all(1), width, same.argmin(1))
            common = np.minimum(common, self.held[candidates])
            best = int(common.argmax())
            if common[best] < width or width == min(most, self.tokens.shape[1]):
                return (int(candidates[best]), int(common[best])) if common[best] >= MIN_SHARED_TOKENS else (-1, 0)
            candidates = candidates[common == width]
            width *= 4

    def begin_wave(self) -> None:
        """Forget which rows were free; `free_row` looks again."""
        self._free = None

    def free_row(self, source: int, shared: int) -> int:
        """The row to take: the source when nothing else in it is worth keeping, else an empty one, or the oldest."""
        source_free = source >= 0 and self.requests[source] is None
        if source_free and self.held[source] <= shared + 1:
            return source
        free = self._free = self._by_age() if self._free is None else self._free
        put_back = False
        while free:
            row = free.pop()
            if row == source:
                put_back = True
            elif self.requests[row] is None:
                if put_back:
                    free.append(source)
                return row
        return source if source_free else -1

    def _by_age(self) -> list[int]:
        """Free rows, the next to take at the end: empty ones, then the oldest."""
        free = np.flatnonzero(~self.busy)
        age = self.used[free] + np.where(self.held[free] > 0, HELD_AGE, 0)
        by_age: list[int] = free[np.argsort(age, kind="stable")][::-1].tolist()
        return by_age

    def take(self, row: int, request: Request, context: Sequence[int], shared: int) -> None:
        """The request runs in this row, whose first `shared` tokens are computed."""
        self.requests[row] = request
        self.busy[row] = True
        request.row = row
        request.reused = request.reused if request.begun else shared
        self.tokens[row, : len(context)] = context
        self.opening[row] = _opening(context)
        self.held[row] = shared  # the rest once it is computed
        self.start[row] = self.end[row] = len(context)
        self.limit[row] = request.limit
        stops = request.params.stop_token_ids[:MAX_STOPS]
        self.stops[row] = -1
        self.stops[row, : len(stops)] = stops
        self.listens[row] = request.listens
        self._touch(row)

    def _touch(self, row: int) -> None:
        self.clock += 1
        self.used[row] = self.clock

    # Running

    def extend(
        self, rows: Ints, tokens: npt.NDArray[np.int64], logprobs: npt.NDArray[np.float32]
    ) -> tuple[Ints, Flags, Flags]:
        """Record what was drawn in each row, one column per step; -1 where it did not run any more.

        Returns how many tokens each row got, and whether it ended at a stop token or at its limit.
        """
        drawn = tokens >= 0
        counts = drawn.sum(1)
        places = self.end[rows][:, None] + np.arange(tokens.shape[1])
        at = np.repeat(rows, counts), places[drawn]
        self.tokens[at] = tokens[drawn]
        self.logprobs[at] = logprobs[drawn]
        self.end[rows] += counts
        ends = self.end[rows]
        stopped = (self.tokens[rows, ends - 1][:, None] == self.stops[rows]).any(1) & (counts > 0)
        return counts, stopped, ends >= self.limit[rows]

    def fetch(self, request: Request) -> tuple[list[int], list[float]]:
        """What was drawn for the request since the last call."""
        row = request.row
        new = slice(self.start[row], self.end[row])
        self.start[row] = self.end[row]
        return self.tokens[row, new].tolist(), self.logprobs[row, new].tolist()

    def hand_over(self, request: Request) -> None:
        """Append to the request what was drawn for it."""
        tokens, logprobs = self.fetch(request)
        request.ids += tokens
        request.logprobs += logprobs

    # Leaving

    def leave(self, request: Request) -> None:
        """Free the row; its keys and values stay for requests that continue from them."""
        row = request.row
        if not self.listens[row]:
            self.hand_over(request)
        self.vacate(request)
        if self.held[row]:
            self.held[row] = len(request.prompt) + max(0, len(request.ids) - 1)
        self._touch(row)

    def set_aside(self, request: Request, computed: int) -> None:
        """Free the row with so much of the prompt computed; it is the last to be taken by others."""
        row = request.row
        self.held[row] = computed
        self.vacate(request)
        self._touch(row)

    def vacate(self, request: Request) -> None:
        self.requests[request.row] = None
        self.busy[request.row] = False
        request.row = -1

    def vacate_all(self) -> None:
        self.requests = [None] * len(self.requests)
        self.busy[:] = False

    # Moving

    def move(self, source: list[int], target: list[int]) -> None:
        """Move rows with all that is known of them."""
        moved = [self.requests[row] for row in source]
        for name in PER_ROW:
            column = getattr(self, name)
            column[target] = column[source]
        for row, request in zip(target, moved, strict=True):
            self.requests[row] = request
            if request is not None:
                request.row = row

    def resize(self, rows: int, length: int, keep: int) -> None:
        """Change the shape; the first `keep` rows stay, as far as they fit."""
        shape: tuple[int, ...]
        for name in PER_ROW:
            old = getattr(self, name)
            shape = (rows, length) if name in ("tokens", "logprobs") else (rows, *old.shape[1:])
            new = np.zeros(shape, old.dtype)
            kept = (slice(keep), *(slice(min(a, b)) for a, b in zip(shape[1:], old.shape[1:], strict=True)))
            new[kept] = old[kept]
            setattr(self, name, new)
        self.held = np.minimum(self.held, length - 1)
        self.requests = self.requests[:keep] + [None] * (rows - keep)
        self._free = None


def _opening(context: Sequence[int]) -> int:
    return context[0] << 32 | context[1] if len(context) > 1 else -1
