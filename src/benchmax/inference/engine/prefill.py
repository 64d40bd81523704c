"""Joining: waiting requests get rows, reuse what is computed of their prompts, and have the rest computed.

A row that finished keeps its keys and values until it is needed: a later request that begins with the same tokens (the
next turn of a conversation, a sibling of a group) continues from them. Identical prompts that wait together are
computed once, and their first tokens drawn from the same logits. A long prompt is computed in chunks, one a turn, so
that running requests are not held up: after each chunk its request waits again, and finds what was computed like any
other prefix.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from benchmax.inference.engine.preemption import Capacity
from benchmax.inference.engine.request import Request
from benchmax.inference.engine.runner import Prefill
from benchmax.inference.engine.scheduler_state import BatchState, Flight

Key = tuple[int, ...]


@dataclass(slots=True)
class PrefillJob:
    """One prompt to compute, for all requests that share it."""

    requests: list[Request]
    start: int
    """Where computing begins: what comes before is already in the row."""
    end: int
    """Where it ends. In a partial job that is before the prompt's end: its request waits for another turn."""
    partial: bool

    @property
    def row(self) -> int:
        return self.requests[0].row

    @property
    def prefill(self) -> Prefill:
        return Prefill(self.row, self.requests[0].context[self.start : self.end], self.start)


class Admission:
    """Lets waiting requests into free rows."""

    def __init__(self, state: BatchState, capacity: Capacity) -> None:
        self.state, self.capacity = state, capacity

    def admit(self) -> bool:
        """Compute one wave of waiting prompts; False when no further one can start now."""
        state = self.state
        self.capacity.restore_rows()
        jobs = self._wave()
        if not jobs:
            return False
        whole, partial = [job for job in jobs if not job.partial], [job for job in jobs if job.partial]
        requests = [request for job in whole for request in job.requests]
        if requests:
            self._start(requests)
        prefills = [job.prefill for job in (*whole, *partial)]
        readers = [(index, request.row) for index, job in enumerate(whole) for request in job.requests]
        result = state.runner.prefill(prefills, readers, any(request.params.truncated for request in requests))
        self._copy_to_siblings(whole)
        state.flights.append(Flight(requests, np.arange(len(requests)), result))
        state.counters.prefilled += sum(len(prefill.ids) for prefill in prefills)
        self._requeue(partial)
        return not partial

    def _start(self, requests: list[Request]) -> None:
        for request in requests:
            request.launched = len(request.ids) + 1
            self.state.table.held[request.row] = request.length - 1
        self.state.runner.start(requests)

    def _copy_to_siblings(self, jobs: list[PrefillJob]) -> None:
        """Copy a prompt that was computed once to the rows of the other requests that share it."""
        shared = [job for job in jobs if len(job.requests) > 1]
        if shared:
            source = [job.row for job in shared for _ in job.requests[1:]]
            target = [request.row for job in shared for request in job.requests[1:]]
            self.state.runner.kv.move(source, target, max(job.end for job in shared))

    def _requeue(self, partial: list[PrefillJob]) -> None:
        """Requests with a computed chunk come next, when the others have had a step."""
        for job in reversed(partial):
            request = job.requests[0]
            self.state.table.set_aside(request, job.end)
            request.begun = True
            self.state.queue.appendleft(request)

    def _wave(self) -> list[PrefillJob]:
        """Waiting requests that can start together: equal prompts as one job, none that had better wait for another."""
        jobs: dict[Key, PrefillJob] = {}
        waiting: deque[Request] = deque()
        self.state.table.begin_wave()
        try:
            self._fill(jobs, waiting)
        finally:  # also when there is no memory for a row: no request is lost
            self.state.queue.extendleft(reversed(waiting))
        return list(jobs.values())

    def _fill(self, jobs: dict[Key, PrefillJob], waiting: deque[Request]) -> None:
        state, share = self.state, self.state.runner.share
        budget = state.runner.prefill_tokens
        prefixes: set[Key] = set()
        chunks: list[Key] = []
        while state.queue and budget > 0:
            request = state.queue.popleft()
            waiting.append(request)
            context = request.context
            key = tuple(context)
            known = jobs.get(key)
            if any(key[: len(chunk)] == chunk for chunk in chunks):
                continue  # what is computed for another is its own prefix
            if known is None and key[:share] in prefixes and state.table.best_prefix(context)[1] < share:
                continue
            job = self._place(request, context, known)
            if job is None:
                return
            waiting.pop()
            if known is None:
                jobs[key] = job
                budget -= job.end - job.start
                if job.partial:
                    chunks.append(key[: job.end])
                if len(context) > share:
                    prefixes.add(key[:share])

    def _place(self, request: Request, context: list[int], job: PrefillJob | None) -> PrefillJob | None:
        """Give the request a row, with what is already computed of its prompt; None when there is no room."""
        state, table, counters = self.state, self.state.table, self.state.counters
        if not self.capacity.ensure_length(state.positions_needed(context), admitting=True):
            return None
        source, shared = (-1, 0) if job else table.best_prefix(context)
        row = table.free_row(source, shared)
        if row < 0:
            return None
        if shared and source != row:
            state.runner.kv.move([source], [row], shared)
        table.take(row, request, context, shared)
        if job is not None:
            request.reused = shared = len(context)
            job.requests.append(request)
        if not request.begun or job is not None:
            counters.prefix_tokens += shared
            counters.prefix_hits += shared > 0
        if job is None:
            end = min(len(context), shared + state.runner.prefill_chunk)
            job = PrefillJob([request], shared, end, partial=end < len(context))
        return job
