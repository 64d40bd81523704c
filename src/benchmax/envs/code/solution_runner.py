"""Runs solutions in a sandbox, each in a process of its own that sees one call's arguments at a time.

    runner = Runner()
    outcomes = await runner.calls("def f(x): return x + 1", "f", [(1,), (2,)])

Covered: what a solution prints, writes, patches or raises; how it ends, loops or floods; what it could look for in
memory, files and other processes. Its process is sent arguments and asked for plain data, nothing else.
Not covered: tests that can be guessed, and a machine without a sandbox, which `check_sandbox` reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from benchmax import limits
from benchmax.concurrency import run_sync
from benchmax.envs.code.inside import plain
from benchmax.envs.io_loop import IoLoop
from benchmax.errors import RewardError, SandboxError, SandboxUnavailable
from benchmax.sandbox import Call, Limits, Process, Result, Sandbox, insists

MODULES = (
    "bisect", "collections", "functools", "heapq", "itertools", "json", "math", "random", "re", "string", "typing",
)  # fmt: skip
"""Imported once; the first of them would be imported by most solutions."""
_INSIDE = Path(__file__).with_name("inside")
_PACKAGE = "code_inside"
_TRIES = 3
_GRACE_SECONDS = 0.2
"""From the end of a line to that of its process."""
T = TypeVar("T")


def _preparation() -> str:
    """Source that makes the modules of `inside` importable, without benchmax."""
    sources = {name: (_INSIDE / f"{name}.py").read_text("utf-8") for name in ("plain", "solution", "asserts")}
    return f"""
import sys, types
package = sys.modules[{_PACKAGE!r}] = types.ModuleType({_PACKAGE!r})
package.__path__ = []
for name, source in {sources!r}.items():
    module = sys.modules[f"{_PACKAGE}.{{name}}"] = types.ModuleType(f"{_PACKAGE}.{{name}}")
    module.__package__ = {_PACKAGE!r}
    setattr(package, name, module)
    exec(compile(source, f"{{name}}.py", "exec"), module.__dict__)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one call."""

    value: Any = None
    failed: str = ""
    """Why there is no value; empty when there is one."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of assert statements."""

    held: int
    failed: int
    error: str
    """What ended them early."""
    unfit: str
    """Why they cannot be used with any solution."""


def check_sandbox() -> None:
    """Raise SandboxUnavailable on a machine that cannot confine untrusted code; tried once, which takes a moment."""
    if (refused := _refused(insists())) is not None:
        raise refused


@cache
def _refused(insist: bool) -> SandboxUnavailable | None:
    async def tried() -> None:
        async with Sandbox(insist=insist):
            pass

    try:
        run_sync(tried())
    except SandboxUnavailable as error:
        return error
    return None


class Runner:
    """One sandbox, used from any event loop; it starts with the first call, also after `close`."""

    def __init__(self) -> None:
        self._preparation = _preparation()
        self._renew()

    def _renew(self) -> None:
        self._io = IoLoop("benchmax-code", SandboxError)
        self._sandbox = Sandbox(MODULES, warm_up=self._preparation)
        self._places = asyncio.Semaphore(limits.CODE_SOLUTIONS)

    async def start(self) -> None:
        """Start the sandbox, unless it runs."""
        await self._io.run(self._sandbox.start)

    async def close(self) -> None:
        """End the sandbox and every solution."""
        if self._io.runs:
            await self._io.run(self._sandbox.close)
            await asyncio.to_thread(self._io.stop)
            self._renew()

    # Requests

    async def calls(self, source: str, name: str, calls: Sequence[Sequence[Any]]) -> list[Outcome]:
        """Call a function of this source with each of these arguments, in one process."""
        return await self._io.run(lambda: self._again(lambda: self._calls(source, name, calls)))

    async def asserts(self, source: str, name: str, setup: str, tests: str) -> Tally:
        """Run assert statements about a function of this source, which runs elsewhere."""
        return await self._io.run(lambda: self._again(lambda: self._asserts(source, name, setup, tests)))

    async def script(self, source: str) -> Result:
        """Run source as a program."""

        async def run() -> Result:
            async with self._places:
                return await self._sandbox.run(Call(source, limits=_limits(limits.CODE_OUTPUT_BYTES)))

        return await self._io.run(run)

    async def _again(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat what a lost sandbox did not finish: that is no fault of the solution."""
        for _ in range(_TRIES):
            try:
                return await work()
            except SandboxError as error:
                lost = error
        raise RewardError(f"The sandbox was lost {_TRIES} times ({lost}). See whether memory is short, then try again.")

    async def _calls(self, source: str, name: str, calls: Sequence[Sequence[Any]]) -> list[Outcome]:
        async with self._process("solution") as solution:
            begun = await _outcome(solution, {"code": source, "name": name})
            if begun.failed:
                return [begun] * len(calls)
            found: list[Outcome] = []
            for args in calls:
                found.append(await _outcome(solution, {"args": [plain.encode(each) for each in args], "kwargs": {}}))
                if solution.ended:
                    break
            return found + found[-1:] * (len(calls) - len(found))

    async def _asserts(self, source: str, name: str, setup: str, tests: str) -> Tally:
        async with self._process("solution") as solution:
            begun = await _outcome(solution, {"code": source, "name": name})
            if begun.failed:
                return Tally(0, 1, begun.failed, "")
            async with self._process("asserts", placed=True) as asking:
                said = await asking.ask({"setup": setup, "tests": tests, "name": name})
                while said is not None and "call" in said:
                    said = await asking.ask(await solution.ask(said["call"]) or {})
                if said is None:
                    return Tally(0, 1, await asking.end(), "")
                return Tally(int(said["held"]), int(said["failed"]), str(said["error"]), str(said["unfit"]))

    @asynccontextmanager
    async def _process(self, main: str, placed: bool = False) -> AsyncIterator[_Line]:
        """A process of `inside`, ended at the end. The second one of a pair has its place by the first."""
        async with nullcontext() if placed else self._places:
            line = await _Line.open(self._sandbox, main, self._preparation)
            try:
                yield line
            finally:
                line.close()


class _Line:
    """A process, and lines to and from it."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self.ended = False

    @classmethod
    async def open(cls, sandbox: Sandbox, main: str, preparation: str) -> _Line:
        # Where a server forks no warm process, the modules come as a file.
        prepare = f"import sys\nif {_PACKAGE!r} not in sys.modules: exec(open('inside.py').read())\n"
        program = f"{prepare}from {_PACKAGE} import {main}\n{main}.main()"
        call = Call(program, files={"inside.py": preparation.encode()}, limits=_limits())
        return cls(*await sandbox.spawn_on_line(call, (plain.LINE,), plain.LINE + 1, limits.CODE_VALUE_BYTES))

    async def ask(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; None when the process has ended, or says what is no answer."""
        if self.ended:
            return None
        try:
            self._writer.write(plain.dump(message))
            await self._writer.drain()
            return plain.load(await self._reader.readline())
        except (OSError, ValueError):  # gone; a line that is too long; no message
            self._kill()
            return None

    async def end(self) -> str:
        """Why there are no more answers; SandboxError when the sandbox is gone."""
        ended = await asyncio.shield(self._process.ended)
        if ended.by in (None, "killed"):
            return "the process ended, or its answer is too long"
        return f"the process was ended by its {ended.by} limit"

    def close(self) -> None:
        """Close the line, which ends the process; one that does not end by itself is killed a moment later."""
        self.ended = True
        self._writer.close()
        asyncio.get_running_loop().call_later(_GRACE_SECONDS, self._kill)

    def _kill(self) -> None:
        self.ended = True
        self._process.kill()


def _limits(output_bytes: int = limits.SANDBOX_OUTPUT_BYTES) -> Limits:
    return Limits(
        wall_seconds=limits.CODE_WALL_SECONDS,
        cpu_seconds=limits.CODE_CPU_SECONDS,
        memory_bytes=limits.CODE_MEMORY_BYTES,
        output_bytes=output_bytes,
    )


async def _outcome(solution: _Line, message: dict[str, Any]) -> Outcome:
    said = await solution.ask(message)
    if said is None:
        return Outcome(failed=await solution.end())
    if "raised" in said:
        return Outcome(failed=f"{said['raised']}: {said.get('text')}"[:300])
    try:
        return Outcome(plain.decode(said["value"]))
    except (plain.NotPlain, KeyError):
        return Outcome(failed="no plain data")
