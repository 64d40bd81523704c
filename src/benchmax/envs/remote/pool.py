"""The processes of one environment: kept alive, and each rollout kept with the one that knows it.

Callers may stand on any event loop, or on none. One thread with a loop of its own speaks to all processes.
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
from weakref import WeakKeyDictionary

from benchmax import limits, retries
from benchmax.envs.remote.process import EnvProcess, Plan, Request
from benchmax.envs.remote.wire import pack, transcript_starts
from benchmax.errors import EnvDefinitionError, EnvError
from benchmax.mailbox import Mailbox
from benchmax.sandbox import Sandbox

logger = logging.getLogger(__name__)

START_TRIES = 5
"""Deaths in a row before a start succeeds, after which no more is tried."""
LONGEST_PAUSE = 2.0
"""Seconds between a death and the next start, at most."""
LONG_LIFE = 10.0
"""A process that lived this many seconds is replaced at once."""
REMEMBERED = 100_000
"""Rollouts whose process is remembered; an environment without release_rollout never says when one is over."""


class Slot:
    """A place for one process, filled again when it dies."""

    def __init__(self) -> None:
        self.process: EnvProcess | None = None
        self.waiting: dict[int, Request] = {}
        self.failure: EnvDefinitionError | None = None
        self.ready: Future[dict[str, Any]] = Future()
        """What the first process said of the environment."""

    @property
    def load(self) -> tuple[bool, int]:
        if self.process is None:
            return True, len(self.waiting)
        return False, len(self.process.pending)

    def open(self, process: EnvProcess, hello: dict[str, Any]) -> list[Request]:
        """The process is ready; gives the calls that waited for it."""
        self.process = process
        if not self.ready.done():
            self.ready.set_result(hello)
        waiting = list(self.waiting.values())
        self.waiting.clear()
        return waiting

    def fail(self, error: EnvDefinitionError) -> None:
        self.failure = error
        if not self.ready.done():
            self.ready.set_exception(error)
        for request in self.waiting.values():
            request.answer(None, error)
        self.waiting.clear()


class EnvPool:
    """Runs hooks in child processes."""

    def __init__(self, plan: Plan, processes: int) -> None:
        self._plan = plan
        self._sandbox: Sandbox | None = None
        self._slots = [Slot() for _ in range(processes)]
        self._homes: dict[str, EnvProcess] = {}
        self._numbers = itertools.count(1)
        self._closing = False
        self._returns: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()
        self._loop = asyncio.new_event_loop()
        self._inbox = Mailbox(self._loop)
        self._thread = threading.Thread(target=self._run, name="benchmax-env-io", daemon=True)
        self._thread.start()

    def open(self) -> dict[str, Any]:
        """Wait for the first process; gives what it says of its environment."""
        try:
            return self._slots[0].ready.result()
        except BaseException:
            self.close()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        keepers = [self._loop.create_task(self._keep(slot)) for slot in self._slots]
        try:
            self._loop.run_forever()
            for keeper in keepers:
                keeper.cancel()
            self._loop.run_until_complete(asyncio.gather(*keepers, return_exceptions=True))
            if self._sandbox is not None:
                self._loop.run_until_complete(self._sandbox.close())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    # Keeping processes alive

    async def _keep(self, slot: Slot) -> None:
        try:
            await self._keep_alive(slot)
        except Exception as error:  # a slot that nobody fills must not leave its callers waiting
            logger.exception("The environment's process can no longer be started.")
            slot.fail(EnvDefinitionError(f"The environment's process cannot be started: {error!r}. Open it again."))

    async def _keep_alive(self, slot: Slot) -> None:
        failures = deaths = 0
        while not self._closing:
            process = EnvProcess(self._plan, self._the_sandbox())
            try:
                hello = await process.start()
            except EnvDefinitionError as error:
                failures += 1
                told = process.death is None and not slot.ready.done()  # the environment itself says that it cannot
                await process.put_down("could not start")
                if told or failures >= START_TRIES:
                    slot.fail(error)
                    return
                await asyncio.sleep(retries.pause(failures, 0.1, LONGEST_PAUSE))
                continue
            except asyncio.CancelledError:
                await process.put_down("could not start")
                raise
            failures, began = 0, monotonic()
            for request in slot.open(process, hello):
                self._send(request, process)
            await process.ended
            slot.process = None
            if not self._closing:
                logger.warning("%s It is replaced.", process.death)
                deaths = 0 if monotonic() - began > LONG_LIFE else deaths + 1
                await asyncio.sleep(retries.pause(deaths + 1, 0.05, LONGEST_PAUSE))

    def _the_sandbox(self) -> Sandbox | None:
        """The one of all processes, made when the first is started."""
        plan, given = self._plan, self._plan.confinement
        if given is not None and self._sandbox is None:
            self._sandbox = Sandbox(
                read=(*plan.read, *given.read), own=plan.workdir, network=given.network,
                insist=given.insist, scrap=plan.workdir.parent,
            )  # fmt: skip
        return self._sandbox

    # Calls, from any thread

    async def ask(
        self, hook: str, rollouts: tuple[str, ...], key: str | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run a hook in its process and wait for the outcome; cancelling gives it up there too."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        returns = self._returns.get(loop)
        if returns is None:
            returns = self._returns[loop] = Mailbox(loop)

        def answer(value: Any, error: Exception | None) -> None:
            returns.post_from(self._loop, _settle, future, value, error)

        request = self._request(hook, rollouts, key, args, kwargs, answer)
        self._inbox.post_from(loop, self._submit, request)
        try:
            return await future
        except asyncio.CancelledError:
            self._inbox.post_from(loop, self._cancel, request)
            raise

    def ask_now(self, hook: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float) -> Any:
        """Run a hook from plain code, which waits for it."""
        future: Future[Any] = Future()
        request = self._request(hook, (), None, args, kwargs, lambda value, error: _settle(future, value, error))
        self._inbox.post(self._submit, request)
        try:
            return future.result(seconds)
        except TimeoutError:
            self._inbox.post(self._cancel, request)
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
            self._place(request)
        except Exception as error:
            request.answer(None, error)

    def _place(self, request: Request) -> None:
        known = [self._homes[each] for each in request.rollouts if each in self._homes]
        gone = next((process for process in known if process.death is not None), None)
        if gone is not None and request.hook == "release_rollout":
            self._homes.pop(request.rollouts[0], None)
            request.answer(None, None)
        elif gone is not None:
            raise EnvError(f"The process that held this rollout is gone. {gone.death}")
        elif known:
            self._send(request, known[0])
        else:
            slot = self._slot_for(request.key)
            if slot.process is not None and slot.process.death is None:
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
            self._homes.pop(request.rollouts[0], None)
        else:
            for rollout in request.rollouts:
                self._homes[rollout] = process
            while len(self._homes) > REMEMBERED:
                del self._homes[next(iter(self._homes))]
        process.call(request)

    def _cancel(self, request: Request) -> None:
        for slot in self._slots:
            slot.waiting.pop(request.id, None)
        if request.process is not None:
            request.process.cancel(request)

    # The end

    def close(self) -> None:
        """Shut the environment down in every process, end them, and wait until they have ended."""
        if self._closing:
            return
        self._closing = True
        stopping = asyncio.run_coroutine_threadsafe(self._stop(), self._loop)
        stopping.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)

    def kill(self) -> None:
        """End everything without waiting; from any thread, and again and again."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._put_down()))

    async def _put_down(self) -> None:
        processes = [slot.process for slot in self._slots if slot.process is not None]
        for process in processes:
            await process.put_down("was no longer needed")
        self._loop.stop()

    async def _stop(self) -> None:
        processes = [slot.process for slot in self._slots if slot.process is not None]
        for slot in self._slots:
            slot.fail(EnvDefinitionError("The environment was shut down. Open it again to use it."))
        for process in processes:
            process.stop()
        if processes:
            await asyncio.wait([process.ended for process in processes], timeout=limits.RELEASE_SECONDS - 5.0)
            for process in processes:
                process.kill("did not shut down")
            await asyncio.wait([process.ended for process in processes], timeout=5.0)


def _settle(future: asyncio.Future[Any] | Future[Any], value: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
