"""What the parts of the scheduler share: the queue, the rows, and the steps under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from benchmax.inference.engine.request import Counters, Request
from benchmax.inference.engine.row_table import Ints, RowTable
from benchmax.inference.engine.runner import Runner, StepResult


@dataclass(slots=True)
class Flight:
    """Steps under way: the requests they sample for, each with its column of the result."""

    requests: list[Request]
    columns: Ints
    result: StepResult


class BatchState:
    """Used by one thread."""

    def __init__(self, runner: Runner, slots: int, max_len: int) -> None:
        self.runner, self.slots, self.max_len = runner, slots, max_len
        self.queue: deque[Request] = deque()
        self.table = RowTable()
        self.flights: deque[Flight] = deque()
        self.counters = Counters()

    @property
    def active(self) -> list[Request]:
        return self.table.active

    @property
    def idle(self) -> bool:
        return not self.queue and not self.flights and not self.table.busy.any()

    def everyone(self) -> Iterator[Request]:
        yield from self.queue
        yield from self.active

    def positions_needed(self, context: list[int]) -> int:
        """Positions a request needs to start."""
        return min(len(context) + self.runner.burst * (1 + self.runner.lag), self.max_len) + 1

    def requeue(self, requests: list[Request]) -> None:
        """Take running requests out of their rows, to be computed again later; their samples stay."""
        for request in requests:
            self.table.hand_over(request)
            self.table.vacate(request)
            request.launched = len(request.ids)
        self.queue.extendleft(reversed(requests))
        self.counters.preempted += len(requests)
