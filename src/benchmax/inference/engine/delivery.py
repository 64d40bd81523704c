"""Leaving: sampled tokens are handed to their requests, and requests that end free their rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from benchmax.inference.engine.request import Request
from benchmax.inference.engine.sampling import MAX_STOPS, Generation
from benchmax.inference.engine.scheduler_state import BatchState


class TokenDelivery:
    """Reads the results of steps."""

    def __init__(self, state: BatchState) -> None:
        self.state = state
        self.saw_nan = False
        """Whether a log-prob was NaN since the cache was last cleared."""
        self.abandoned_rows: list[int] = []
        """Rows that the device still runs for requests the host has ended."""

    def deliver(self) -> None:
        """Read the oldest result and hand its tokens to their requests."""
        flight, table = self.state.flights.popleft(), self.state.table
        tokens, logprobs = flight.result.read()
        rows = np.fromiter((request.row for request in flight.requests), np.int64, len(flight.requests))
        here = np.flatnonzero(rows >= 0)  # the others left while this was under way
        rows, columns = rows[here], flight.columns[here]
        tokens, logprobs = tokens[columns], logprobs[columns]
        self.saw_nan |= bool(np.isnan(logprobs[tokens >= 0]).any())
        counts, stopped, full = table.extend(rows, tokens, logprobs)
        listens = table.listens[rows]
        self.state.counters.generated += int(counts[~listens].sum())
        for at in np.flatnonzero(stopped | full | listens).tolist():
            request = flight.requests[here[at]]
            if listens[at]:
                self._deliver_each(request)
            else:
                self._finish(request, "stop" if stopped[at] else "length")
        self._stop_abandoned()

    def drop_cancelled(self) -> None:
        """Free the rows of requests whose callers cancelled them."""
        for request in self.state.active:
            if request.future.dropped:
                self._leave(request)
        self._stop_abandoned()
        if any(request.future.dropped for request in self.state.queue):
            self.state.queue = deque(request for request in self.state.queue if not request.future.dropped)

    def abandon(self, error: BaseException) -> None:
        """Fail every request, running or waiting, and stop their rows; the scheduler can go on."""
        table = self.state.table
        self.abandoned_rows += [request.row for request in self.state.active]
        table.held[table.busy] = 0
        self.fail_all(error)
        self._stop_abandoned()

    def fail_all(self, error: BaseException) -> None:
        """Fail every request, running or waiting."""
        for request in list(self.state.everyone()):
            if not request.future.done() and request.future.set_running_or_notify_cancel():
                request.future.set_exception(error)
        self.state.queue.clear()
        self.state.flights.clear()
        self.state.table.vacate_all()

    def _deliver_each(self, request: Request) -> None:
        """Hand new tokens to a request whose caller gets each of them."""
        if request.future.done():
            return
        before = len(request.ids)
        absorb = self._absorb if request.should_stop is None else self._absorb_one_by_one
        finish = absorb(request, *self.state.table.fetch(request))
        self.state.counters.generated += max(0, len(request.ids) - before)
        if request.future.done():  # its caller's function failed, or cancelled it
            return
        if request.on_tokens and len(request.ids) > before:
            self._call(request, request.on_tokens, request.ids[before:], request.logprobs[before:])
        if finish:
            self._finish(request, finish)

    def _absorb(self, request: Request, tokens: list[int], logprobs: list[float]) -> str:
        """Take new tokens; returns why the request ends with them, or an empty string."""
        stops = request.params.stop_token_ids
        at = next((i for i, token in enumerate(tokens) if token in stops), -1) if stops else -1
        end = at + 1 if at >= 0 else len(tokens)
        request.ids += tokens[:end]
        request.logprobs += logprobs[:end]
        if at >= 0:
            return "stop" if tokens[at] in stops[:MAX_STOPS] else "text"
        return "length" if len(request.prompt) + len(request.ids) >= request.limit else ""

    def _absorb_one_by_one(self, request: Request, tokens: list[int], logprobs: list[float]) -> str:
        """The same, asking the caller after each token. "text": the caller ended it, which the device cannot know."""
        for token, logprob in zip(tokens, logprobs, strict=True):
            finish = self._absorb(request, [token], [logprob])
            if finish == "stop":
                return finish
            kept = self._call(request, _kept_ids, request)
            if request.future.done():
                return ""
            if kept is not None:
                del request.ids[kept:], request.logprobs[kept:]
                return "text"
            if finish:
                return finish
        return ""

    def _call(self, request: Request, callback: Callable[..., object], *arguments: object) -> Any:
        """Call a caller's function; its error fails its own request and no other."""
        try:
            return callback(*arguments)
        except BaseException as error:
            self._leave(request)
            if request.future.set_running_or_notify_cancel():
                request.future.set_exception(error)
            return None

    def _finish(self, request: Request, finish: str) -> None:
        if request.future.done():
            return
        self._leave(request, ended_on_device=finish != "text")
        if request.future.set_running_or_notify_cancel():
            why: Literal["stop", "length"] = "length" if finish == "length" else "stop"
            request.future.set_result(Generation(request.ids, request.logprobs, why, request.reused))

    def _leave(self, request: Request, ended_on_device: bool = False) -> None:
        """Free the row; unless it ended on the device, that has to be stopped."""
        if request.row < 0:
            return
        if not ended_on_device:
            self.abandoned_rows.append(request.row)
        self.state.table.leave(request)

    def _stop_abandoned(self) -> None:
        if self.abandoned_rows:
            self.state.runner.stop(self.abandoned_rows)
            self.abandoned_rows = []


def _kept_ids(request: Request) -> int | None:
    """How many ids the caller keeps; None: it goes on."""
    kept = request.should_stop(list(request.ids)) if request.should_stop else None
    if kept is None or isinstance(kept, (bool, np.bool_)):
        return len(request.ids) if kept else None
    return max(0, int(kept))
