"""Who makes room for a longer sequence; and how many rows there are, and how long they may become.

When memory for longer sequences runs out, the youngest requests go back to the queue and are computed again later;
their samples do not change, since a draw depends on seed and position alone.
"""

from __future__ import annotations

import logging

import numpy as np

from benchmax.errors import UsageError
from benchmax.inference.engine.delivery import TokenDelivery
from benchmax.inference.engine.kv_cache import bucket, round_up
from benchmax.inference.engine.scheduler_state import BatchState

logger = logging.getLogger(__name__)


class Capacity:
    """Resizes the cache within its budget."""

    def __init__(self, state: BatchState, delivery: TokenDelivery) -> None:
        self.state, self.delivery = state, delivery
        self.kv = state.runner.kv

    def ensure_length(self, needed: int, admitting: bool = False) -> bool:
        """Let rows hold `needed` positions; False when running requests had to, or have to, make room first."""
        kv, state = self.kv, self.state
        if kv.rows and needed <= kv.length:
            return True
        while True:
            rows, length = self._best_shape(needed)
            if admitting and state.active and len(state.active) >= rows:
                return False
            try:
                return self._resize(rows, length)
            except UsageError:  # others (a trainer) took what was free when the engine opened: fewer rows, then
                kv.lower_budget(rows, length)
                if kv.affordable_rows(round_up(needed)) < 1:
                    raise
                logger.warning("no memory for %d rows of %d tokens: going on with fewer", rows, length)

    def restore_rows(self) -> None:
        """Long sequences left few long rows; once none of them runs, go back to more and shorter ones."""
        kv, state = self.kv, self.state
        if kv.rows in (0, state.slots) or state.flights or state.active:
            return
        kv.raise_budget()
        rows, length = self._best_shape(max(state.positions_needed(request.context) for request in state.queue))
        if rows > kv.rows:
            try:
                self._resize(rows, length)
            except UsageError:  # the present rows are enough
                kv.lower_budget(rows, length)

    def _best_shape(self, needed: int) -> tuple[int, int]:
        """Rows and length of a cache for sequences of `needed` tokens: as many rows as memory allows."""
        kv, state = self.kv, self.state
        length = min(bucket(max(needed, state.runner.length)), round_up(state.max_len + 1))
        while length // 2 >= needed and kv.affordable_rows(length) < state.slots:
            length //= 2
        if kv.affordable_rows(length) < 1:
            length = round_up(needed)  # the engine's max_len leaves room for one sequence at least
        return max(1, min(state.slots, kv.affordable_rows(length))), length

    def _resize(self, rows: int, length: int) -> bool:
        """Change the cache's shape; False when requests had to leave for that."""
        state, table = self.state, self.state.table
        fits = len(state.active) <= rows
        if not fits:
            while state.flights:
                self.delivery.deliver()
            youngest = sorted(state.active, key=lambda request: len(request.ids))
            leaving = youngest[: max(0, len(youngest) - rows)]
            state.runner.stop([request.row for request in leaving])
            state.requeue(leaving[::-1])
        self.compact(tight=True)
        used = np.flatnonzero(table.busy | (table.held > 0))
        keep = min(rows, int(used[-1]) + 1 if len(used) else 0)
        lengths = [request.length for request in state.active]
        filled = int(max([*table.held[:keep].tolist(), *lengths], default=0))
        state.runner.resize(rows, length, keep, min(filled, self.kv.length, length))
        table.resize(rows, length, keep)
        return fits

    def compact(self, tight: bool = False) -> None:
        """Move running rows to the front, so that a step computes no more rows than it must."""
        runner, table = self.state.runner, self.state.table
        busy = np.flatnonzero(table.busy)
        count, high = len(busy), int(busy[-1]) + 1 if len(busy) else 0
        if high == count or (not tight and not runner.worth_compacting(high, count)):
            return
        holes = np.flatnonzero(~table.busy[:count]).tolist()
        movers = busy[busy >= count].tolist()
        source, target = movers + holes, holes + movers
        moving = [request for row in movers if (request := table.requests[row]) is not None]
        length = max(int(table.held[source].max()), *(request.length for request in moving))
        runner.move(source, target, min(length, self.kv.length))
        table.move(source, target)

    @property
    def half_is_enough(self) -> bool:
        """Whether every request could be computed with half of the memory."""
        state = self.state
        needed = max((state.positions_needed(request.context) for request in state.everyone()), default=1)
        return self.kv.budget // 2 >= round_up(needed) * self.kv.position_bytes
