"""Continuous batching: between decode steps, waiting requests join free rows and finished ones leave.

turn ─▶ admission (who joins) ─▶ launch (decode steps) ─▶ delivery (who leaves)
                 │                      │
                 └────── capacity ──────┘   (rows and their length)
"""

from __future__ import annotations

import numpy as np

from benchmax.inference.engine.delivery import TokenDelivery
from benchmax.inference.engine.preemption import Capacity
from benchmax.inference.engine.prefill import Admission
from benchmax.inference.engine.runner import Runner
from benchmax.inference.engine.scheduler_state import BatchState, Flight


class Scheduler:
    """Decides what the runner computes next. Used by one thread."""

    def __init__(self, runner: Runner, slots: int, max_len: int) -> None:
        self.runner = runner
        self.state = BatchState(runner, slots, max_len)
        self.delivery = TokenDelivery(self.state)
        self.capacity = Capacity(self.state, self.delivery)
        self._admission = Admission(self.state, self.capacity)

    # One turn of the engine's loop

    def turn(self) -> None:
        """Admit what fits, run some steps, deliver what is ready."""
        state = self.state
        self.delivery.drop_cancelled()
        while state.queue and self._admission.admit():
            pass
        self._launch()
        while len(state.flights) > (self.runner.lag if any(r.remaining > 0 for r in state.active) else 0):
            self.delivery.deliver()

    def _launch(self) -> None:
        """Start decode steps for the running requests."""
        state, runner = self.state, self.runner
        running = [request for request in state.active if request.remaining > 0]
        if not running:
            return
        steps = min(runner.burst, max(request.remaining for request in running))
        if not self.capacity.ensure_length(max(min(r.length + steps, r.limit) for r in running) + 1):
            return
        self.capacity.compact()
        active = state.active
        columns = np.flatnonzero(state.table.busy)
        batch = int(columns[-1]) + 1
        lengths = [1] * batch
        for request in active:
            lengths[request.row] = min(request.length + steps, runner.kv.length)
            request.launched += steps
        truncated = any(request.params.truncated for request in active)
        state.flights.append(Flight(active, columns, runner.decode(batch, steps, lengths, truncated)))
        state.counters.steps += steps
        state.counters.rows_stepped += steps * len(active)

    # Between turns

    def forget_prefixes(self) -> None:
        """The weights changed: nothing computed before may serve a new request."""
        self.state.table.held[:] = 0
        self._clear_nan()

    def start_afresh(self) -> None:
        """Batch what comes next as a new scheduler would, whatever ran before.

        While requests run, only what finished is forgotten.
        """
        self.delivery.drop_cancelled()
        if self.state.idle:
            self._clear_nan()
            self.state.table.clear()
            self.runner.kv.clear()
        else:
            self.forget_prefixes()

    def _clear_nan(self) -> None:
        """Remove the NaN keys and values that broken weights leave: they spoil even a row that does not attend to
        them."""
        if self.delivery.saw_nan and self.state.idle:
            self.runner.kv.data.zero_()
            self.delivery.saw_nan = False

    # Trouble

    def start_over(self) -> None:
        """Memory ran out in the middle of work: release all of it, and compute what runs again in half as much.

        What was sampled stays, and what is sampled again is the same: a draw depends on seed and position alone.
        """
        kv, state = self.runner.kv, self.state
        state.flights.clear()
        self.delivery.abandoned_rows.clear()
        state.requeue(state.active)
        if kv.rows:
            kv.lower_budget(kv.rows, kv.length)
        self.runner.release_cache()
        state.table.clear()
