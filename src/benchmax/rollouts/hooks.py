"""Where an environment's code runs: never on the caller's event loop.

Covered
- All async hooks of one environment run on one *environment loop*, in a thread of its own, so that sessions, locks
  and clients they share stay on the loop they were made for; the caller's loop never waits for them.
- A plain `def` hook runs in a thread. So does an async hook that was seen to block without ever awaiting
  (`time.sleep`, `requests`, `subprocess.run`): after one long offence, or a few short ones, calls no longer wait for
  one another.
- Every call has a deadline. A call that exceeds it is abandoned; a Python loop (`while True`) is interrupted.
- An environment loop that is blocked for `limits.STALL_SECONDS` is replaced; calls that have not begun move to the
  new one.

Not covered
- C code that keeps the interpreter lock (a runaway regular expression) blocks the whole process, and code that
  ends the process (`os._exit`, a crash) ends it. Only a process of its own guards against these.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import inspect
import logging
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic, thread_time
from typing import Any, Protocol

from benchmax import limits
from benchmax.cross_loop import LoopCalls
from benchmax.deadlines import QueueTime, current_queue_time
from benchmax.errors import DeadlineExceeded, EnvError
from benchmax.rollouts.processor_wait import ProcessorWait, this_thread

logger = logging.getLogger(__name__)

SHORT_BLOCK = 0.01
"""Blocking the loop this long once may be chance (other threads run in between); more often is not."""
TRIFLE = 0.0002
"""Blocking the loop for less is not counted: it is as long as it takes to look at a clock a few hundred times."""
CANCEL_SECONDS = 1.0
"""An abandoned coroutine in a thread that does not end within this time after it was cancelled blocks the thread."""
IDLE_SECONDS = 10.0
"""A thread without a call ends after this."""


@dataclass(slots=True)
class LoopUse:
    """How a hook used the loop it ran on."""

    longest: float = 0.0
    """The longest time it blocked the loop at once."""
    idle: float = 0.0
    """Time it blocked the loop without computing: asleep, or waiting for something without `await`."""
    awaited: bool = False


@types.coroutine
def _measured(coroutine: Coroutine[Any, Any, Any], report: Callable[[LoopUse], None]) -> Generator[Any, Any, Any]:
    """Drive a coroutine to its end, then report how it used the loop."""
    step: Callable[[Any], Any] = coroutine.send
    argument: Any = None
    use, schedule = LoopUse(), this_thread()
    try:
        while True:
            began, busy = monotonic(), thread_time()
            schedule.note(began, SHORT_BLOCK / 2)
            try:
                yielded = step(argument)
            except StopIteration as stop:
                return stop.value
            finally:
                blocked = monotonic() - began
                if blocked >= TRIFLE:
                    _count_block(use, blocked, thread_time() - busy, schedule)
            use.awaited = True
            try:
                argument = yield yielded
                step = coroutine.send
            except GeneratorExit:  # nobody runs this any more
                coroutine.close()
                raise
            except BaseException as error:
                step, argument = coroutine.throw, error
    finally:
        report(use)


def _count_block(use: LoopUse, blocked: float, computed: float, schedule: ProcessorWait) -> None:
    # That others had the processor for long is not the hook's doing; after any sleep they have it shortly.
    waited = schedule.waited() if blocked >= SHORT_BLOCK else 0.0
    use.longest = max(use.longest, blocked - max(0.0, waited - SHORT_BLOCK))
    use.idle += max(0.0, blocked - waited - computed)


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """One run of a hook, and the future its caller awaits."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str
    label: str
    replies: LoopCalls
    future: asyncio.Future[Any]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    runs_on: EnvLoop | HookThreads | None = None
    task: asyncio.Task[Any] | None = None
    started: float = 0.0
    seconds: float = inf
    """How long it may take, counted from its start."""
    extensions: int = 10
    """How often its deadline may be postponed, because it began late or waited in a queue."""
    queue_time: QueueTime | None = None
    """How long it waited for others, when that is measured."""
    begun: bool = False
    """Whether the hook was entered, or is about to be: a call cancelled while False never will."""
    cancelled: bool = False

    def exclude_queue_time(self) -> None:
        """Do not count the time the hook spends in queues; to be called before it starts."""
        self.queue_time = QueueTime()
        self.context.run(current_queue_time.set, self.queue_time)

    def expire(self) -> None:
        """End a call that runs too long. Time spent in a queue does not count, within reason."""
        if self.future.done():
            return
        left = self.started + self.seconds - monotonic() if self.started else self.seconds
        queue_time = self.queue_time
        if queue_time is not None:
            left += queue_time.seconds()
        if left > 0.001 and (self.extensions or (queue_time is not None and queue_time.is_queueing)):
            self.extensions = max(0, self.extensions - 1)
            self.future.get_loop().call_later(left, self.expire)
            return
        self.cancelled = True
        advice = "Make it faster, or raise its time limit."
        self.future.set_exception(DeadlineExceeded(f"{self.label} took longer than {self.seconds:g} s. {advice}"))

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Deliver the outcome; from any thread."""
        self.replies.schedule(self._resolve, value, error)

    def _resolve(self, value: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(value)
        elif type(error) is DeadlineExceeded and not error.args:  # raised in its thread, to interrupt it
            took = monotonic() - self.started
            advice = "Use `await`, or `await asyncio.to_thread(…)` around the slow part."
            words = f"{self.label} blocked its event loop for {took:.0f} s and was interrupted. {advice}"
            self.future.set_exception(DeadlineExceeded(words))
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            self.future.set_exception(error)
        else:
            # A hook that raises CancelledError, SystemExit or the like must not end its caller.
            words = f"{self.label} raised {type(error).__name__}: {error}. Raise an ordinary exception instead."
            self.future.set_exception(EnvError(words))


class HookObserver(Protocol):
    """An environment's host, as its event loop sees it."""

    def redirect(self, call: Call) -> bool:
        """Whether a call about to begin was moved elsewhere."""

    def observe(self, call: Call, use: LoopUse) -> None:
        """A call ended."""


class EnvLoop:
    """An event loop in a daemon thread, on which one environment's async hooks run."""

    def __init__(self, name: str, observer: HookObserver) -> None:
        self.loop = asyncio.new_event_loop()
        self._calls = LoopCalls(self.loop)
        self._observer = observer
        self._unstarted: dict[Call, None] = {}
        self._stopping = False
        self._pinged = self._answered = self._progress = monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self._stopping:
                try:
                    self.loop.run_forever()
                except DeadlineExceeded:  # an interrupt that came too late for the hook it was meant for
                    continue
                except (SystemExit, KeyboardInterrupt) as error:  # asyncio lets these out of the loop
                    logger.warning("A background task of the environment raised %s.", type(error).__name__)
            self._cancel_leftovers()
        finally:
            self.loop.close()

    def _cancel_leftovers(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            _, stubborn = self.loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
            for task in stubborn:  # a hook that will not end was reported when it was abandoned
                task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())

    def start(self, call: Call) -> None:
        call.runs_on = self
        self._unstarted[call] = None
        self._calls.schedule_from(asyncio.get_running_loop(), self._begin, call)

    def _begin(self, call: Call) -> None:
        if call.cancelled or self._stopping:
            self._unstarted.pop(call, None)
        else:
            call.task = self.loop.create_task(self._perform(call), name=call.label, context=call.context)

    async def _perform(self, call: Call) -> None:
        self._unstarted.pop(call, None)
        if call.runs_on is not self:
            return
        call.begun = True  # before `cancelled` is read: whoever cancels reads in the other order
        if self._observer.redirect(call):
            return
        call.started = monotonic()
        value: Any = None
        failure: BaseException | None = None
        try:
            coroutine = call.function(*call.args, **call.kwargs)
            value = await _measured(coroutine, lambda use: self._report(call, use))
        except BaseException as error:
            failure = error
        call.settle(value, failure)

    def _report(self, call: Call, use: LoopUse) -> None:
        self._progress = monotonic()
        self._observer.observe(call, use)

    def cancel(self, call: Call) -> None:
        call.cancelled = True
        self._calls.schedule(lambda: call.task.cancel() if call.task else None)

    def blocked_seconds(self) -> float:
        """How long one call has blocked the loop; pings the loop again. Many short calls in a row block nothing."""
        if self._answered >= self._pinged:
            self._pinged = monotonic()
            self._calls.schedule(self._answer)
            return 0.0
        return monotonic() - max(self._pinged, self._progress)

    def _answer(self) -> None:
        self._answered = monotonic()

    def take_unstarted(self) -> list[Call]:
        """The calls that have not begun, to be run elsewhere."""
        calls = list(self._unstarted)
        self._unstarted.clear()
        return calls

    def running_hook(self) -> str:
        """The hook that runs on the loop now."""
        task = asyncio.current_task(self.loop)
        return task.get_name() if task else "a callback"

    def interrupt(self) -> None:
        """Raise in the thread; ends a Python loop, not a call into C."""
        _raise_in(self._thread)

    def stop(self, wait: float) -> None:
        self._stopping = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(wait)


class HookThreads:
    """Daemon threads for hooks that block. A thread whose call is abandoned is lost and replaced."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._local = threading.local()
        self._running: dict[Call, threading.Thread] = {}
        self._lost: set[threading.Thread] = set()
        self._idle = 0
        self._alive = 0
        self._spawning = False

    def start(self, call: Call) -> None:
        call.runs_on, call.task = self, None
        self._calls.put(call)
        self._grow()

    def _grow(self, *, started: bool = False) -> None:
        """Start a thread if calls wait for one. That thread starts the next: starting many would block the caller."""
        with self._lock:
            if self._spawning and not started:
                return
            self._spawning = self._calls.qsize() > self._idle and self._alive < limits.HOOK_THREADS
            if not self._spawning:
                return
            self._alive += 1
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except RuntimeError as error:  # the system has no more threads
            self._continue_without(error)

    def _continue_without(self, error: RuntimeError) -> None:
        """A thread could not be started: those there are serve all calls; if there are none, the calls fail."""
        with self._lock:
            self._spawning = False
            self._alive -= 1
            if self._alive:
                return
        advice = "Lower the number of rollouts at once, or raise the limit of threads (ulimit -u)."
        while call := self._waiting():
            call.cancelled = True
            call.settle(None, EnvError(f"{call.label} got no thread to run in: {error}. {advice}"))

    def _waiting(self) -> Call | None:
        """A call that waits for a thread, if there is one."""
        try:
            return self._calls.get_nowait()
        except Empty:
            return None

    def cancel(self, call: Call) -> None:
        """Abandon the call; its thread, if it has one, is ended and not used again."""
        call.cancelled = True
        with self._lock:
            thread = self._running.pop(call, None)
            if thread is None:
                return
            self._lost.add(thread)
            self._alive -= 1
        if call.task is None:
            _raise_in(thread)
            return
        with suppress(RuntimeError):  # its loop was closed meanwhile
            call.task.get_loop().call_soon_threadsafe(call.task.cancel)
        asyncio.get_running_loop().call_later(CANCEL_SECONDS, self._interrupt, thread)

    def _interrupt(self, thread: threading.Thread) -> None:
        """Interrupt a thread whose call was cancelled and did not end: it blocks its loop."""
        with self._lock:
            lost = thread in self._lost
        if lost:
            _raise_in(thread)

    def _work(self) -> None:
        me = threading.current_thread()
        try:
            call = self._next()
            self._grow(started=True)
            while call is not None and self._serve(call, me):
                call = self._next()
        except BaseException:  # the interrupt of an abandoned call may arrive anywhere
            pass
        finally:
            self._retire(me)

    def _next(self) -> Call | None:
        with self._lock:
            self._idle += 1
        try:
            return self._calls.get(timeout=IDLE_SECONDS)
        except Empty:
            pass
        finally:
            with self._lock:
                self._idle -= 1
        return self._waiting()  # one that came while this thread still counted as idle

    def _serve(self, call: Call, me: threading.Thread) -> bool:
        """Run a call; whether this thread may take another."""
        with self._lock:
            call.begun = not call.cancelled
            if not call.begun:
                return True
            self._running[call] = me
        self._perform(call)
        with self._lock:
            self._running.pop(call, None)
            return me not in self._lost

    def _perform(self, call: Call) -> None:
        call.started = monotonic()
        value: Any = None
        failure: BaseException | None = None
        try:
            value = call.context.run(call.function, *call.args, **call.kwargs)
            if inspect.isawaitable(value):
                loop = self._loop()
                call.task = loop.create_task(_await(value), name=call.label, context=call.context)
                value = loop.run_until_complete(call.task)
        except BaseException as error:
            failure = error
        call.settle(value, failure)

    def _loop(self) -> asyncio.AbstractEventLoop:
        """This thread's event loop, made for the first hook that needs one: it takes three file descriptors."""
        if not hasattr(self._local, "loop"):
            self._local.loop = asyncio.new_event_loop()
        loop: asyncio.AbstractEventLoop = self._local.loop
        return loop

    def _retire(self, me: threading.Thread) -> None:
        try:
            if hasattr(self._local, "loop"):
                self._local.loop.run_until_complete(self._local.loop.shutdown_asyncgens())
                self._local.loop.close()
        finally:
            with self._lock:
                if me in self._lost:
                    self._lost.discard(me)
                else:
                    self._alive -= 1

    def stop(self) -> None:
        for _ in range(self._alive):
            self._calls.put(None)


async def _await(value: Awaitable[Any]) -> Any:
    return await value


def _raise_in(thread: threading.Thread) -> None:
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(DeadlineExceeded))
