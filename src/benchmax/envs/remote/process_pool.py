"""The processes of one environment: restarted when they end, and each rollout stays in the one that knows it.

Callers may be on any event loop, or on none. One thread with its own loop talks to all processes.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from time import monotonic
from typing import Any

from benchmax import limits, retries
from benchmax.cross_loop import LoopCalls, settle
from benchmax.envs.remote.process import EnvProcess, ProcessSpec, Request
from benchmax.envs.remote.wire import pack, transcript_starts
from benchmax.errors import EnvDefinitionError, EnvError, EnvLost
from benchmax.sandbox import Limits, Sandbox

logger = logging.getLogger(__name__)

START_TRIES = 5
"""Failed starts in a row, after which no more are tried."""
LONGEST_PAUSE = 2.0
"""Seconds between the end of a process and the next start, at most."""
STABLE_SECONDS = 10.0
"""A process that ran this long is replaced at once."""
REMEMBERED = 100_000
"""Rollouts whose process is remembered; without release_rollout, nothing says when one is over."""


class Slot:
    """A place for one process, filled again when it ends."""

    def __init__(self) -> None:
        self.process: EnvProcess | None = None
        self.waiting: dict[int, Request] = {}
        self.failure: EnvDefinitionError | None = None
        self.ready: Future[dict[str, Any]] = Future()
        """The first process's description of the environment."""

    @property
    def load(self) -> tuple[bool, int]:
        if self.process is None:
            return True, len(self.waiting)
        return False, len(self.process.pending)

    def open(self, process: EnvProcess, hello: dict[str, Any]) -> list[Request]:
        """Put a started process into the slot; returns the calls that waited for it."""
        self.process = process
        settle(self.ready, hello)
        waiting = list(self.waiting.values())
        self.waiting.clear()
        return waiting

    def fail(self, error: EnvDefinitionError) -> None:
        self.failure = error
        settle(self.ready, None, error)
        for request in self.waiting.values():
            request.answer(None, error)
        self.waiting.clear()


class EnvPool:
    """Runs hooks in child processes."""

    def __init__(self, spec: ProcessSpec, processes: int) -> None:
        self._spec = spec
        self._sandbox: Sandbox | None = None
        self._slots = [Slot() for _ in range(processes)]
        self._process_of: dict[str, EnvProcess] = {}
        """The process of each rollout."""
        self._numbers = itertools.count(1)
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._calls = LoopCalls(self._loop)
        self._thread = threading.Thread(target=self._run, name="benchmax-env-io", daemon=True)
        self._thread.start()

    def open(self) -> dict[str, Any]:
        """Wait for the first process; returns its description of the environment."""
        try:
            return self._slots[0].ready.result()
        except BaseException:
            self.close()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        supervisors = [self._loop.create_task(self._supervise(slot)) for slot in self._slots]
        try:
            self._loop.run_forever()
            for supervisor in supervisors:
                supervisor.cancel()
            self._loop.run_until_complete(asyncio.gather(*supervisors, return_exceptions=True))
            if self._sandbox is not None:
                self._loop.run_until_complete(self._sandbox.close())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    # Starting processes, and starting them again

    async def _supervise(self, slot: Slot) -> None:
        try:
            await self._keep_running(slot)
        except Exception as error:  # a slot that stays empty must not leave its callers waiting
            logger.exception("The environment's process can no longer be started.")
            slot.fail(EnvDefinitionError(f"The environment's process cannot be started: {error!r}. Open it again."))

    async def _keep_running(self, slot: Slot) -> None:
        failures = short_runs = 0
        while not self._closing:
            process = EnvProcess(self._spec, self._shared_sandbox(), self._send_again)
            try:
                hello = await process.start()
            except EnvDefinitionError as error:
                failures += 1
                reported = process.end_reason is None and not slot.ready.done()  # by the environment itself
                await process.kill_and_wait("could not start")
                if reported or failures >= START_TRIES:
                    slot.fail(error)
                    return
                await asyncio.sleep(retries.pause(failures, 0.1, LONGEST_PAUSE))
                continue
            except asyncio.CancelledError:
                await process.kill_and_wait("could not start")
                raise
            failures, began = 0, monotonic()
            for request in slot.open(process, hello):
                self._send(request, process)
            await process.ended
            slot.process = None
            if not self._closing:
                logger.warning("%s It is replaced.", process.end_reason)
                short_runs = 0 if monotonic() - began > STABLE_SECONDS else short_runs + 1
                await asyncio.sleep(retries.pause(short_runs + 1, 0.05, LONGEST_PAUSE))

    def _shared_sandbox(self) -> Sandbox | None:
        """The sandbox of all processes, made when the first is started; None when there is to be none."""
        spec, given = self._spec, self._spec.confinement
        if given is not None and self._sandbox is None:
            # All together may take more than the limits of each, which say what was the matter.
            count, memory = len(self._slots), spec.limits.memory_bytes
            most = None if memory is None else 2 * memory * count
            self._sandbox = Sandbox(
                read=(*spec.read, *given.read), own=spec.workdir, network=given.network,
                insist=given.insist, scrap=spec.workdir.parent, closed_ports=given.closed_ports,
                group=Limits(memory_bytes=most, processes=limits.SANDBOX_ENV_PROCESSES * count),
            )  # fmt: skip
        return self._sandbox

    # Calls, from any thread

    async def call(
        self, hook: str, rollouts: tuple[str, ...], key: str | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run a hook in its process and wait for the outcome; cancelling abandons it there too."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        replies = LoopCalls.of(loop)

        def answer(value: Any, error: Exception | None) -> None:
            replies.schedule_from(self._loop, settle, future, value, error)

        request = self._request(hook, rollouts, key, args, kwargs, answer)
        self._calls.schedule_from(loop, self._submit, request)
        try:
            return await future
        except asyncio.CancelledError:
            self._calls.schedule_from(loop, self._cancel, request)
            raise

    def call_blocking(self, hook: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float) -> Any:
        """Run a hook from code that is not async."""
        future: Future[Any] = Future()
        request = self._request(hook, (), None, args, kwargs, lambda value, error: settle(future, value, error))
        self._calls.schedule(self._submit, request)
        try:
            return future.result(seconds)
        except TimeoutError:
            self._calls.schedule(self._cancel, request)
            raise EnvError(f"{hook} took longer than {seconds:g} s. Make it faster.") from None

    def _request(
        self,
        hook: str,
        rollouts: tuple[str, ...],
        key: str | None,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        answer: Callable[[Any, Exception | None], None],
    ) -> Request:
        if self._closing:
            raise EnvError("The environment's processes were shut down. Open it again to use it.")
        number = next(self._numbers)
        message = {"id": number, "call": hook, "rollouts": rollouts, "args": args, "kwargs": kwargs}
        if starts := transcript_starts(kwargs):
            message["starts"] = starts
        try:
            frame = pack(message)
        except (TypeError, ValueError) as error:
            raise EnvError(
                f"The arguments of {hook} cannot reach the environment's process: {error}. Use plain JSON values."
            ) from None
        return Request(number, hook, rollouts, key, frame, answer)

    # On the pool's loop

    def _submit(self, request: Request) -> None:
        try:
            self._route(request)
        except Exception as error:
            request.answer(None, error)

    def _route(self, request: Request) -> None:
        known = [self._process_of[each] for each in request.rollouts if each in self._process_of]
        gone = next((process for process in known if process.end_reason is not None), None)
        if gone is not None and request.hook == "release_rollout":
            self._process_of.pop(request.rollouts[0], None)
            request.answer(None, None)
        elif gone is not None:
            raise EnvLost(f"The process of this rollout has ended. {gone.end_reason}")
        elif known:
            self._send(request, known[0])
        else:
            slot = self._slot_for(request.key)
            if slot.process is not None and slot.process.end_reason is None:
                self._send(request, slot.process)
            else:
                slot.waiting[request.id] = request

    def _slot_for(self, key: str | None) -> Slot:
        slots = [slot for slot in self._slots if slot.failure is None]
        if not slots:
            failure = self._slots[0].failure
            assert failure is not None
            raise failure
        if key is None or len(slots) == 1:
            return min(slots, key=lambda slot: slot.load)
        return slots[zlib.crc32(key.encode("utf-8", "replace")) % len(slots)]

    def _send(self, request: Request, process: EnvProcess) -> None:
        if request.hook == "release_rollout":
            self._process_of.pop(request.rollouts[0], None)
        else:
            for rollout in request.rollouts:
                self._process_of[rollout] = process
            while len(self._process_of) > REMEMBERED:
                del self._process_of[next(iter(self._process_of))]
        process.call(request)

    def _send_again(self, request: Request) -> bool:
        """Give a call that belongs to no rollout, and so needs nothing of the process that died, to the next one."""
        again = not request.rollouts and not self._closing and request.sent < limits.ROLLOUT_TRIES
        if again:
            self._submit(request)
        return again

    def _cancel(self, request: Request) -> None:
        for slot in self._slots:
            slot.waiting.pop(request.id, None)
        if request.process is not None:
            request.process.cancel(request)

    # The end

    def close(self, grace: float = limits.RELEASE_SECONDS - 5.0) -> None:
        """Shut the environment down in every process, within `grace` seconds, and wait until they have ended."""
        if self._closing:
            return
        self._closing = True
        stopping = asyncio.run_coroutine_threadsafe(self._stop(grace), self._loop)
        stopping.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)

    def kill(self) -> None:
        """End everything without waiting; from any thread, any number of times."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._kill_all()))

    async def _kill_all(self) -> None:
        for process in self._processes():
            await process.kill_and_wait("was no longer needed")
        self._loop.stop()

    def _processes(self) -> list[EnvProcess]:
        return [slot.process for slot in self._slots if slot.process is not None]

    async def _stop(self, grace: float) -> None:
        processes = self._processes()
        for slot in self._slots:
            slot.fail(EnvDefinitionError("The environment was shut down. Open it again to use it."))
        for process in processes:
            process.stop()
        if processes:
            await asyncio.wait([process.ended for process in processes], timeout=grace)
            for process in processes:
                process.kill("did not shut down")
            await asyncio.wait([process.ended for process in processes], timeout=5.0)
