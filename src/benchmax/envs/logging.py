"""Which rollout a log line belongs to.

Inside an environment's hooks, plain `logging.getLogger(__name__)` is enough: lines are assigned to the rollout
that is running. Within `compute_group_reward` they go to every sibling, unless `rollout_context` selects one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

_current: ContextVar[tuple[str, ...]] = ContextVar("benchmax_rollouts", default=())

ENV_LOGGER = "benchmax.env"
"""Of lines that no module of an environment logs: those of `log_env`, of MCP servers and of their rewards."""

Sink = Callable[[str, logging.LogRecord], None]
"""Receives a rollout id and a line that belongs to it."""


def rollout_context(rollout_id: str) -> AbstractContextManager[None]:
    """Assign log lines to one rollout."""
    return group_context([rollout_id])


@contextmanager
def group_context(rollout_ids: Sequence[str]) -> Iterator[None]:
    """Assign log lines to several rollouts."""
    token = _current.set(tuple(rollout_ids))
    try:
        yield
    finally:
        _current.reset(token)


def current_rollouts() -> tuple[str, ...]:
    """The rollouts that a line logged now belongs to."""
    return _current.get()


def log_env(rollout_id: str, message: str) -> None:
    """Log a line for one rollout, in the older style."""
    with rollout_context(rollout_id):
        logging.getLogger(ENV_LOGGER).info("%s", message)


class _Capture(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.sinks: dict[str, Sink] = {}

    def emit(self, record: logging.LogRecord) -> None:
        rollouts = _current.get()
        for rollout_id in rollouts:
            sink = self.sinks.get(rollout_id)
            if sink is not None:
                self._pass_on(sink, rollout_id, record)
        # Python prints warnings by itself only while no handler exists; this one must not silence them.
        last_resort = logging.lastResort
        if not rollouts and last_resort and record.levelno >= last_resort.level and logging.root.handlers == [self]:
            last_resort.handle(record)

    def _pass_on(self, sink: Sink, rollout_id: str, record: logging.LogRecord) -> None:
        try:
            sink(rollout_id, record)
        except Exception:  # a message that does not fit its arguments: logging reports it and goes on
            self.handleError(record)


_capture = _Capture()


def listen_to(module: str) -> None:
    """Let an environment's module log at INFO, unless it chose a level itself."""
    logger = logging.getLogger(module)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


@contextmanager
def captured(rollout_id: str, sink: Sink) -> Iterator[None]:
    """Send the rollout's log lines to `sink` while the block runs."""
    root = logging.getLogger()
    if _capture not in root.handlers:
        root.addHandler(_capture)
        listen_to(ENV_LOGGER)
    _capture.sinks[rollout_id] = sink
    try:
        yield
    finally:
        _capture.sinks.pop(rollout_id, None)
