"""Who runs in which row: joining, reusing computed prompts, leaving.

Between decode steps the scheduler lets waiting requests into free rows and takes finished ones out.
A row that finished keeps its keys and values until the row is needed: a later request that begins
with the same tokens (the next turn of a conversation, a sibling of a group) continues from them.
Identical prompts that wait together are computed once and their first tokens drawn from the same
logits. A long prompt is computed in pieces, one a turn, so that those who run are not held up: after
each its request waits again, and finds what was computed like any other beginning. When memory for
longer sequences runs out, the youngest go back to the queue and are computed again later; their
samples do not change, since a draw depends on seed and position alone.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmax.errors import UsageError
from benchmax.inference.engine.kv_cache import bucket, round_up
from benchmax.inference.engine.request import Counters, Request
from benchmax.inference.engine.runner import Feed, Outcome, RowStart, Runner
from benchmax.inference.engine.sampling import MAX_STOPS, Generation
from benchmax.inference.engine.table import Ints, Table

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Job:
    """One prompt to compute, for all the requests that share it."""

    requests: list[Request]
    start: int
    """Where computing begins: what comes before is already in the row."""
    end: int
    """Where it ends. In a partial job that is before the prompt's end: its request waits for another turn."""
    partial: bool

    @property
    def row(self) -> int:
        return self.requests[0].row


@dataclass(slots=True)
class Flight:
    """Steps under way: whose tokens they will bring, and in which column of the outcome."""

    requests: list[Request]
    columns: Ints
    outcome: Outcome


class Scheduler:
    """Rows, queue and the outcomes on their way. Used by one thread."""

    def __init__(self, runner: Runner, slots: int, max_len: int) -> None:
        self.runner, self.slots, self.max_len = runner, slots, max_len
        self.queue: deque[Request] = deque()
        self.table = Table()
        self.given_up: list[int] = []
        """Rows the device still runs for requests the host has ended."""
        self.flight: deque[Flight] = deque()
        self.tainted = False
        """Whether a log-prob was no number since the cache was last cleaned."""
        self.counters = Counters()

    # State

    @property
    def active(self) -> list[Request]:
        return self.table.active

    @property
    def idle(self) -> bool:
        return not self.queue and not self.flight and not self.table.busy.any()

    def everyone(self) -> Iterable[Request]:
        yield from self.queue
        yield from self.active

    def forget_prefixes(self) -> None:
        """The weights changed: nothing computed before may serve a new request."""
        self.table.held[:] = 0
        self._wash()

    def start_afresh(self) -> None:
        """Batch what comes next as a new scheduler would: which rows it gets, and how long, no longer tell of the past.

        While requests run, only what finished is forgotten.
        """
        self._drop_cancelled()
        if self.idle:
            self._wash()
            self.table.clear()
            self.runner.kv.clear()
        else:
            self.forget_prefixes()

    def _wash(self) -> None:
        """Broken weights leave keys and values that are no numbers, and those spoil even a row that looks past them."""
        if self.tainted and self.idle:
            self.runner.kv.data.zero_()
            self.tainted = False

    # One turn of the engine's loop

    def turn(self) -> None:
        """Admit what fits, run some steps, deliver what is ready."""
        self._drop_cancelled()
        while self.queue and self._admit():
            pass
        self._launch()
        while len(self.flight) > (self.runner.lag if any(r.remaining > 0 for r in self.active) else 0):
            self._deliver()

    def _launch(self) -> None:
        running = [request for request in self.active if request.remaining > 0]
        if not running:
            return
        steps = min(self.runner.burst, max(request.remaining for request in running))
        if not self._make_length(max(min(len(r.prompt) + r.launched + steps, r.limit) for r in running) + 1):
            return
        self._compact()
        active = self.active
        columns = np.flatnonzero(self.table.busy)
        batch = int(columns[-1]) + 1
        lengths = [1] * batch
        for request in active:
            lengths[request.row] = min(len(request.prompt) + request.launched + steps, self.runner.kv.length)
            request.launched += steps
        truncated = any(request.params.truncated for request in active)
        self.flight.append(Flight(active, columns, self.runner.decode(batch, steps, lengths, truncated)))
        self.counters.steps += steps
        self.counters.rows_stepped += steps * len(active)

    # Joining

    def _admit(self) -> bool:
        """Compute one wave of waiting prompts; False when none can start now."""
        self._relax()
        jobs = self._wave()
        if not jobs:
            return False
        feeds, readers, starts, copies = [], [], [], []
        whole, pieces = [job for job in jobs if not job.partial], [job for job in jobs if job.partial]
        for job in whole:
            context = job.requests[0].context
            self.table.held[[request.row for request in job.requests]] = len(context)
            feeds.append(Feed(job.row, context[job.start :], job.start))
            for request in job.requests:
                readers.append((len(feeds) - 1, request.row))
                starts.append(RowStart(request.row, len(context) - 1, request.limit, request.seed, request.params))
                request.launched = len(request.ids) + 1
            copies.append((job.row, [request.row for request in job.requests[1:]], len(context)))
        feeds += [Feed(job.row, job.requests[0].context[job.start : job.end], job.start) for job in pieces]
        if starts:
            self.runner.start(starts)
        requests = [request for job in whole for request in job.requests]
        truncated = any(request.params.truncated for request in requests)
        outcome = self.runner.prefill(feeds, readers, truncated)
        self._fan_out(copies)
        self.flight.append(Flight(requests, np.arange(len(requests)), outcome))
        self.counters.prefilled += sum(len(feed.ids) for feed in feeds)
        self._set_aside(pieces)
        return not pieces

    def _set_aside(self, pieces: list[Job]) -> None:
        """Their requests come next, when the others have had a step."""
        for job in reversed(pieces):
            request = job.requests[0]
            self.table.set_aside(request, job.end)
            request.begun = True
            self.queue.appendleft(request)

    def _fan_out(self, copies: list[tuple[int, list[int], int]]) -> None:
        """A group's prompt, computed once, copied to the siblings' rows."""
        source = [row for row, others, _ in copies for _ in others]
        target = [other for _, others, _ in copies for other in others]
        if target:
            self.runner.kv.move(source, target, max(length for _, others, length in copies if others))

    def _wave(self) -> list[Job]:
        """Waiting requests that can start together: same prompts as one job, none that had better wait for another."""
        jobs: dict[tuple[int, ...], Job] = {}
        openings: set[tuple[int, ...]] = set()
        waiting: deque[Request] = deque()
        self.table.begin_wave()
        try:
            self._fill(jobs, openings, waiting)
        finally:  # also when there is no memory for a row: nobody is forgotten
            self.queue.extendleft(reversed(waiting))
        return list(jobs.values())

    def _fill(self, jobs: dict[tuple[int, ...], Job], openings: set[tuple[int, ...]], waiting: deque[Request]) -> None:
        budget, share = self.runner.prefill_tokens, self.runner.share
        pieces: list[tuple[int, ...]] = []
        while self.queue and budget > 0:
            request = self.queue.popleft()
            waiting.append(request)
            context = request.context
            key = tuple(context)
            known = jobs.get(key)
            if any(key[: len(piece)] == piece for piece in pieces):
                continue  # what is computed for another is its own beginning
            if known is None and openings and key[:share] in openings and self.table.best_prefix(context)[1] < share:
                continue
            job = self._place(request, context, known)
            if job is None:
                return
            waiting.pop()
            if known is None:
                jobs[key] = job
                budget -= job.end - job.start
                if job.partial:
                    pieces.append(key[: job.end])
                if len(context) > share:
                    openings.add(key[:share])

    def _place(self, request: Request, context: list[int], job: Job | None) -> Job | None:
        """Give the request a row, with what is already computed of its prompt; None when there is no room."""
        if not self._make_length(self._room_for(context), admitting=True):
            return None
        source, shared = (-1, 0) if job else self.table.best_prefix(context)
        row = self.table.free_row(source, shared)
        if row < 0:
            return None
        if shared and source != row:
            self.runner.kv.move([source], [row], shared)
        self.table.take(row, request, context, shared)
        if job is None:
            if not request.begun:
                self.counters.prefix_tokens += shared
                self.counters.prefix_hits += shared > 0
            end = min(len(context), shared + self.runner.piece)
            return Job([request], shared, end, partial=end < len(context))
        request.reused = len(context)
        self.counters.prefix_hits += 1
        self.counters.prefix_tokens += len(context)
        job.requests.append(request)
        return job

    # Room

    def _make_length(self, needed: int, admitting: bool = False) -> bool:
        """Let rows hold `needed` positions; False when running requests had to, or have to, make room first."""
        kv = self.runner.kv
        if kv.rows and needed <= kv.length:
            return True
        while True:
            rows, length = self._shape(needed)
            if admitting and self.active and len(self.active) >= rows:
                return False
            try:
                return self._resize(rows, length)
            except UsageError:  # others (a trainer) took what was free when the engine opened: fewer rows, then
                kv.retreat(rows, length)
                if kv.affordable_rows(round_up(needed)) < 1:
                    raise
                logger.warning("no memory for %d rows of %d tokens: going on with fewer", rows, length)

    def _shape(self, needed: int) -> tuple[int, int]:
        """Rows and length of a cache for sequences of `needed` tokens: as many rows as memory allows."""
        kv = self.runner.kv
        length = min(bucket(max(needed, self.runner.length)), round_up(self.max_len + 1))
        while length // 2 >= needed and kv.affordable_rows(length) < self.slots:
            length //= 2
        if kv.affordable_rows(length) < 1:
            length = round_up(needed)  # the engine's max_len leaves room for one sequence at least
        return max(1, min(self.slots, kv.affordable_rows(length))), length

    def _relax(self) -> None:
        """Long sequences left few long rows; with none of them running, go back to more and shorter ones."""
        if self.runner.kv.rows in (0, self.slots) or self.flight or self.active:
            return
        self.runner.kv.recover()
        rows, length = self._shape(max(self._room_for(request.context) for request in self.queue))
        if rows > self.runner.kv.rows:
            try:
                self._resize(rows, length)
            except UsageError:  # what there is will do
                self.runner.kv.retreat(rows, length)

    def _room_for(self, context: list[int]) -> int:
        """Positions a request needs to start."""
        return min(len(context) + self.runner.burst * (1 + self.runner.lag), self.max_len) + 1

    def _resize(self, rows: int, length: int) -> bool:
        kept = True
        if len(self.active) > rows:
            while self.flight:
                self._deliver()
            for request in sorted(self.active, key=lambda r: len(r.ids))[: max(0, len(self.active) - rows)]:
                self._preempt(request)
            kept = False
        self._compact(tight=True)
        table = self.table
        worth = np.flatnonzero(table.busy | (table.held > 0))
        keep = min(rows, int(worth[-1]) + 1 if len(worth) else 0)
        lengths = [len(r.prompt) + r.launched for r in self.active]
        filled = int(max([*table.held[:keep].tolist(), *lengths], default=0))
        self.runner.resize(rows, length, keep, min(filled, self.runner.kv.length, length))
        table.resize(rows, length, keep)
        return kept

    def _preempt(self, request: Request) -> None:
        self.runner.stop([request.row])
        self.table.hand_over(request)
        self.table.vacate(request)
        request.launched = len(request.ids)
        self.queue.appendleft(request)
        self.counters.preempted += 1

    def _compact(self, tight: bool = False) -> None:
        """Move running rows to the front, so that a step computes no more rows than it must."""
        table = self.table
        busy = np.flatnonzero(table.busy)
        count, high = len(busy), int(busy[-1]) + 1 if len(busy) else 0
        if high == count or (not tight and not self.runner.worth_compacting(high, count)):
            return
        holes = np.flatnonzero(~table.busy[:count]).tolist()
        movers = busy[busy >= count].tolist()
        source, target = movers + holes, holes + movers
        length = max(len(r.prompt) + r.launched for r in (table.requests[row] for row in movers) if r is not None)
        length = max(length, int(table.held[source].max()))
        self.runner.move(source, target, min(length, self.runner.kv.length))
        table.move(source, target)

    # Leaving

    def _deliver(self) -> None:
        """Read the oldest outcome and hand its tokens to their requests."""
        flight = self.flight.popleft()
        tokens, logprobs = flight.outcome.read()
        rows = np.fromiter((request.row for request in flight.requests), np.int64, len(flight.requests))
        here = np.flatnonzero(rows >= 0)  # the others left while this was on its way
        rows, columns = rows[here], flight.columns[here]
        tokens, logprobs = tokens[columns], logprobs[columns]
        self.tainted |= bool(np.isnan(logprobs[tokens >= 0]).any())
        counts, stopped, full = self.table.extend(rows, tokens, logprobs)
        listens = self.table.listens[rows]
        self.counters.generated += int(counts[~listens].sum())
        for at in np.flatnonzero(stopped | full | listens).tolist():
            request = flight.requests[here[at]]
            if listens[at]:
                self._tell(request)
            else:
                self._finish(request, "stop" if stopped[at] else "length")
        self._stop_given_up()

    def _tell(self, request: Request) -> None:
        """Hand new tokens to a request whose caller wants to hear of each."""
        if request.future.done():
            return
        before = len(request.ids)
        absorb = self._absorb_at_once if request.should_stop is None else self._absorb_one_by_one
        finish = absorb(request, *self.table.fetch(request))
        self.counters.generated += max(0, len(request.ids) - before)
        if request.future.done():  # its caller's function failed, or cancelled it
            return
        if request.on_tokens and len(request.ids) > before:
            self._call(request, request.on_tokens, request.ids[before:], request.logprobs[before:])
        if finish:
            self._finish(request, finish)

    def _absorb_at_once(self, request: Request, tokens: list[int], logprobs: list[float]) -> str:
        """Take new tokens; why the request ends with them, or an empty string."""
        stops = request.params.stop_token_ids
        at = next((i for i, token in enumerate(tokens) if token in stops), -1) if stops else -1
        if at >= 0:
            request.ids += tokens[: at + 1]
            request.logprobs += logprobs[: at + 1]
            return "stop" if tokens[at] in stops[:MAX_STOPS] else "text"
        request.ids += tokens
        request.logprobs += logprobs
        return "length" if len(request.prompt) + len(request.ids) >= request.limit else ""

    def _absorb_one_by_one(self, request: Request, tokens: list[int], logprobs: list[float]) -> str:
        """The same, asking the caller after each token. "text": the caller ended it, which the device cannot know."""
        for token, logprob in zip(tokens, logprobs, strict=True):
            finish = self._absorb_at_once(request, [token], [logprob])
            if finish == "stop":
                return finish
            kept = self._call(request, _asked, request)
            if request.future.done():
                return ""
            if kept is not None:
                del request.ids[kept:], request.logprobs[kept:]
                return "text"
            if finish:
                return finish
        return ""

    def _call(self, request: Request, callback: Callable[..., object] | None, *arguments: object) -> Any:
        """Run a caller's function; its error is its own request's, nobody else's."""
        try:
            return callback(*arguments) if callback else None
        except BaseException as error:  # whatever it is, it is not the engine's
            self._leave(request)
            if request.future.set_running_or_notify_cancel():
                request.future.set_exception(error)
            return None

    def _finish(self, request: Request, finish: str) -> None:
        if request.future.done():
            return
        self._leave(request, ended_there=finish != "text")
        if request.future.set_running_or_notify_cancel():
            why: Literal["stop", "length"] = "length" if finish == "length" else "stop"
            request.future.set_result(Generation(request.ids, request.logprobs, why, request.reused))

    def _leave(self, request: Request, ended_there: bool = False) -> None:
        """Free the row; unless it ended there, the device still has to be told."""
        if request.row < 0:
            return
        if not ended_there:
            self.given_up.append(request.row)
        self.table.leave(request)

    def _stop_given_up(self) -> None:
        if self.given_up:
            self.runner.stop(self.given_up)
            self.given_up = []

    def _drop_cancelled(self) -> None:
        for request in self.active:
            if request.future.dropped:
                self._leave(request)
        self._stop_given_up()
        if any(request.future.dropped for request in self.queue):
            self.queue = deque(request for request in self.queue if not request.future.dropped)

    def abandon(self, error: BaseException) -> None:
        """Fail what runs and waits, and be ready for more."""
        self.flight.clear()
        self.given_up += [request.row for request in self.active]
        self.table.held[self.table.busy] = 0
        self.fail_all(error)
        self._stop_given_up()

    def start_over(self) -> None:
        """Memory ran out in the midst of work: give all of it back, and compute what runs again in half as much.

        What was drawn stays, and what is drawn again comes out the same: a draw depends on seed and position alone.
        """
        kv, running = self.runner.kv, self.active
        self.flight.clear()
        self.given_up.clear()
        for request in running:
            self.table.hand_over(request)
            self.table.vacate(request)
            request.launched = len(request.ids)
        self.queue.extendleft(reversed(running))
        if kv.rows:
            kv.retreat(kv.rows, kv.length)
        self.runner.give_back()
        self.table.clear()
        self.counters.preempted += len(running)

    @property
    def has_room(self) -> bool:
        """Whether what runs or waits could be computed with half of the memory."""
        kv = self.runner.kv
        needed = max((self._room_for(request.context) for request in self.everyone()), default=1)
        return kv.budget // 2 >= round_up(needed) * kv.position_bytes

    def fail_all(self, error: BaseException) -> None:
        for request in list(self.everyone()):
            if not request.future.done() and request.future.set_running_or_notify_cancel():
                request.future.set_exception(error)
        self.queue.clear()
        self.flight.clear()
        self.table.vacate_all()


def _asked(request: Request) -> int | None:
    """How many ids the caller keeps; None: it goes on."""
    kept = request.should_stop(list(request.ids)) if request.should_stop else None
    if kept is None or isinstance(kept, (bool, np.bool_)):
        return len(request.ids) if kept else None
    return max(0, int(kept))
