"""Starts MCP servers, and says why one ended."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import site
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from benchmax import limits
from benchmax.envs.mcp.agent.rollout_dirs import DIR_VARIABLES, RolloutDirs
from benchmax.envs.mcp.client.http_session import HttpSession
from benchmax.envs.mcp.client.mcp_session import McpSession, NoAnswer, RpcError
from benchmax.envs.mcp.client.output_tail import OutputTail
from benchmax.envs.mcp.client.stdio_session import StdioSession
from benchmax.envs.mcp.fork.preload import ARGUMENTS
from benchmax.envs.mcp.fork.python_program import PythonProgram, python_program
from benchmax.envs.mcp.fork.read_rules import certificate_variables, extra_paths, shown_paths, unreadable_paths
from benchmax.envs.mcp.fork.server_sandbox import SandboxRules, ServerBox, server_limits
from benchmax.envs.mcp.server_config import ServerSpec, memory_bytes
from benchmax.envs.mcp.workdir import Workdir
from benchmax.envs.remote.process import how_it_exited
from benchmax.envs.remote.process_limits import scrubbed_environment
from benchmax.errors import EnvDefinitionError, McpError
from benchmax.files.display import readable_bytes
from benchmax.net.ports import free_port
from benchmax.sandbox import Capabilities, Ended, Limits, Process

T = TypeVar("T")
logger = logging.getLogger(__name__)

_INTERPRETERS = frozenset({"python", "node", "bun", "deno", "ruby", "bash", "sh"})
_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh")
LAST_WORDS_SECONDS = 0.5
"""How long to wait for the rest of a dead server's output."""


@dataclass(eq=False, slots=True)
class Server:
    """A running server: the session with it, and its process unless it is only reached by its URL."""

    spec: ServerSpec
    session: McpSession
    child: Process | None = None
    tails: tuple[OutputTail, ...] = ()
    """Its stderr, and over HTTP its stdout; they share one list of lines."""

    @property
    def last_lines(self) -> str:
        return "\n".join(self.tails[0].lines) if self.tails else ""

    async def explained(self, answer: Awaitable[T]) -> T:
        """Await an answer; an error is completed with how the server ended, or what it printed last."""
        try:
            return await answer
        except (McpError, asyncio.CancelledError) as error:
            cancelled = isinstance(error, asyncio.CancelledError)
            if self.child is None or (cancelled and not self.child.ended.done()):
                raise
            if self.session.lost is not None and not self.session.ending:  # it was ended, and why is known
                raise McpError(self.with_lines(self.session.lost)) from None
            done, _ = await asyncio.wait([self.child.ended], timeout=LAST_WORDS_SECONDS)
            if done:
                raise McpError(await self.death()) from None
            raise type(error)(self.with_lines(str(error))) from None

    def with_lines(self, message: str) -> str:
        """A message with what the server printed last."""
        stray = getattr(self.session, "stray", ())
        if stray:
            message += f" It printed lines that are not messages: {', '.join(map(repr, stray))}."
        return f"{message} Its last lines were:\n{self.last_lines}" if self.last_lines else message

    async def death(self) -> str:
        """How it ended, with the last lines it printed."""
        assert self.child is not None
        await asyncio.wait([self.child.ended])
        if self.tails:
            await asyncio.wait([tail.closed for tail in self.tails], timeout=LAST_WORDS_SECONDS)
        ended = Ended.of(self.child.ended)
        if ended.failure is not None:
            how = f"could not be started: {ended.failure.rstrip('.')}"
        elif ended.by is not None and ended.by != "killed":
            how = _over(ended.by, self.spec)
        else:
            how = how_it_exited(ended.exit)
        lines = f"Its last lines were:\n{self.last_lines}" if self.last_lines else "It printed no error."
        return f"MCP server {self.spec.name!r} {how}. {lines}"

    async def stop(self) -> None:
        if self.child is not None:  # first, as it would begin to end when its input ends
            self.child.kill()
            await asyncio.wait([self.child.ended], timeout=5.0)
        await self.session.close()
        for tail in self.tails:
            tail.close()


class ServerLauncher:
    """Starts servers: Python ones as forks of a process that has imported their packages, others by their command."""

    def __init__(
        self,
        workdir: Workdir,
        rules: SandboxRules,
        path: str,
        root: Path,
        memory: str | None = None,
        closed_ports: Sequence[int] = (),
    ) -> None:
        here = {"sync_workdir": str(workdir.path)}
        self._path = path
        self._root = root
        self.specs = [
            _resolved(spec.filled(here).with_variables(os.environ), workdir.path, path) for spec in workdir.servers
        ]
        if memory is not None:
            self.specs = [replace(spec, memory=spec.memory or memory) for spec in self.specs]
        self._rules = replace(rules, closed_ports=tuple(closed_ports))
        self._read = {spec.name: extra_paths(spec, workdir, root.parent, path) for spec in self.specs}
        self.unread: dict[str, list[str]] = {}
        """Paths in a server's arguments or variables that it may not read."""
        self._boxes: dict[str, ServerBox] = {}
        self.not_forked: dict[str, str] = {}
        """Servers that are run by their command, and why they cannot be forked."""
        for spec in self.specs if rules.confined else ():
            allowed = (*rules.read, *self._read[spec.name], str(workdir.path))
            if found := unreadable_paths(spec, allowed, workdir.path):
                self.unread[spec.name] = found

    @property
    def not_preloaded(self) -> dict[str, dict[str, str]]:
        """For each forked server, the packages that it imports itself, and why."""
        return {name: box.not_preloaded for name, box in self._boxes.items() if box.not_preloaded}

    async def prepare(self) -> Capabilities | None:
        """Begin importing what Python servers need, before the first one is started. Says what holds them."""
        boxes = [self._box(spec) for spec in self.specs if spec.command is not None]
        found = await asyncio.gather(*(box.start() for box in boxes))
        return found[0] if found else None

    async def start(self, spec: ServerSpec, dirs: RolloutDirs) -> Server:
        """Start one server and initialise its session; McpError with its last lines when that fails."""
        try:
            return await self._begin(spec, dirs)
        except McpError as error:
            if spec.name not in self.unread or isinstance(error, RpcError):
                raise
            named = ", ".join(self.unread[spec.name][:3])
            raise type(error)(f"{error}\nIt may not read {named}. Name it in `read` if it should.") from None

    async def _begin(self, spec: ServerSpec, dirs: RolloutDirs) -> Server:
        if spec.command is None:
            return await self._reach(spec, dirs)
        program = self._python(spec)
        try:
            if program is not None and await self._can_fork(spec):
                return await self._start(spec, dirs, program)
        except NoAnswer:
            raise  # it has used up its time
        except McpError as failure:
            server = await self._try_plain(spec, dirs, failure)
            self.not_forked[spec.name] = "it starts only in a process of its own"
            logger.warning("MCP server %r is not forked: %s", spec.name, failure)
            return server
        return await self._start(spec, dirs, None)

    def _python(self, spec: ServerSpec) -> PythonProgram | None:
        """The program of a server that can be forked."""
        if not spec.fork or spec.name in self.not_forked or spec.command is None:
            return None
        found = python_program(spec.command, spec.args, self._path)
        return None if found is None or "${{" in found.target else found

    async def _try_plain(self, spec: ServerSpec, dirs: RolloutDirs, failure: McpError) -> Server:
        """Start by its command a server that failed when forked; raises the first failure if this fails too."""
        if self._box(spec).proven:
            raise failure
        try:
            return await self._start(spec, dirs, None)
        except McpError:
            raise failure from None

    async def _can_fork(self, spec: ServerSpec) -> bool:
        """Whether it can be forked, rather than run by its command."""
        try:
            reason = await asyncio.wait_for(self._box(spec).forking(), spec.start_seconds)
        except TimeoutError:
            return False  # its packages are still being imported; a later start may be forked
        if reason is not None:
            self.not_forked[spec.name] = reason
        return reason is None

    def _box(self, spec: ServerSpec) -> ServerBox:
        """The sandbox of a server's processes; a Python server's imports its packages, too."""
        if spec.name not in self._boxes:
            shown = (*self._rules.shown, *shown_paths(spec, self._path))
            rules = replace(self._rules, read=(*self._rules.read, *self._read[spec.name]), shown=shown)
            if (program := self._python(spec)) is not None:
                self._boxes[spec.name] = self._forking_box(spec, program, rules)
            else:
                self._boxes[spec.name] = ServerBox(rules, self._root, self._variables(), name=_log_name(spec))
        return self._boxes[spec.name]

    def _forking_box(self, spec: ServerSpec, program: PythonProgram, rules: SandboxRules) -> ServerBox:
        """It imports in an empty directory, with the server's own arguments and variables."""
        dirs = RolloutDirs.make(self._root)
        dirs.open_up()
        filled = spec.filled({"workspace": str(dirs.workspace), "port": "0"})
        varying = [key for key, value in spec.env.items() if "${{" in value]
        varying += [ARGUMENTS] if any("${{" in each for each in program.arguments) else []
        arguments = _last(filled.args, program.arguments)
        program = replace(program, arguments=arguments, own=str(dirs.own), varying=(*DIR_VARIABLES, *varying))
        variables = {**self._variables(), **dirs.variables(), **filled.env}
        return ServerBox(rules, self._root, variables, program, name=_log_name(spec))

    def _variables(self) -> dict[str, str]:
        inherited = scrubbed_environment(certificate_variables(os.environ))
        return {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **inherited, **user_packages(), "PATH": self._path}

    async def _reach(self, spec: ServerSpec, dirs: RolloutDirs) -> Server:
        filled = spec.filled({"workspace": str(dirs.workspace)})
        session = HttpSession(spec.name, filled.url or "", filled.headers, shared=True)
        try:
            await session.open(spec.start_seconds)
        except BaseException:
            await session.close()
            raise
        return Server(filled, session)

    async def _start(self, spec: ServerSpec, dirs: RolloutDirs, program: PythonProgram | None) -> Server:
        """With a program as a fork, else by its command."""
        server = await self._spawn(spec, dirs, program)
        try:
            await self._shake_hands(server)
        except BaseException:
            await server.stop()
            raise
        if program is not None:
            self._box(spec).proven = True
        return server

    async def _spawn(self, spec: ServerSpec, dirs: RolloutDirs, program: PythonProgram | None) -> Server:
        """Start its process, and connect to the pipes."""
        port, box, forked = free_port() if spec.url else None, self._box(spec), program is not None
        spec = spec.filled({"workspace": str(dirs.workspace), "port": str(port or "")})
        argv = [spec.command or "", *spec.args] if program is None else _last(spec.args, program.arguments)
        variables = {**self._variables(), **dirs.variables(), **spec.env}
        stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
        ours, theirs = (stdin[1], stdout[0], stderr[0]), (stdin[0], stdout[1], stderr[1])
        try:
            await box.start()
            dirs.give_to(box.user)
            child = await box.spawn(argv, dirs.own, variables, theirs, _limits(spec, port), forked=forked)
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        try:
            return await self._connect(spec, child, ours)
        except BaseException:
            child.kill()
            raise

    async def _connect(self, spec: ServerSpec, child: Process, pipes: tuple[int, int, int]) -> Server:
        """Connect to the pipes of a running server."""
        loop = asyncio.get_running_loop()
        files = [os.fdopen(fd, mode, 0) for fd, mode in zip(pipes, ("wb", "rb", "rb"), strict=True)]
        stdin, stdout, stderr = files
        try:
            _, tail = await loop.connect_read_pipe(OutputTail, stderr)
            if spec.url is not None:
                stdin.close()
                _, printed = await loop.connect_read_pipe(lambda: OutputTail(lines=tail.lines), stdout)
                return Server(spec, HttpSession(spec.name, spec.url, spec.headers), child, (tail, printed))
            session = StdioSession(spec.name)
            await session.connect(stdin, stdout)
            return Server(spec, session, child, (tail,))
        except BaseException:
            for file in files:
                file.close()
            raise

    async def _shake_hands(self, server: Server) -> None:
        assert server.child is not None
        opening = asyncio.ensure_future(server.session.open(server.spec.start_seconds))
        both: list[asyncio.Future[Any]] = [opening, server.child.ended]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if server.child.ended.done():
            opening.cancel()
            await asyncio.wait([opening])
        await server.explained(opening)

    async def close(self) -> None:
        await asyncio.gather(*(box.close() for box in self._boxes.values()))


def _log_name(spec: ServerSpec) -> str:
    return f"MCP server {spec.name!r}"


def _limits(spec: ServerSpec, port: int | None) -> Limits:
    memory = memory_bytes(spec.memory) if spec.memory is not None else limits.MCP_MEMORY_BYTES
    return server_limits(memory, spec.network, port if spec.network == "none" else None)


def _over(limit: str, spec: ServerSpec) -> str:
    """How a server that exceeded a limit was ended."""
    if limit == "memory":
        most = spec.memory or readable_bytes(limits.MCP_MEMORY_BYTES)
        return f"used more than {most} of memory and was killed; raise `memory` if it needs more"
    if limit == "disk":
        return f"wrote more than {readable_bytes(limits.MCP_DISK_BYTES)} (MCP_DISK_BYTES) and was killed"
    return f"started more than {limits.MCP_PROCESSES:,} processes (MCP_PROCESSES) and was killed"


def user_packages() -> dict[str, str]:
    """Where the user's own packages are installed, which Python would look for in HOME."""
    return {"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {}


def _last(filled: Sequence[str], arguments: Sequence[str]) -> tuple[str, ...]:
    """The server's own arguments, which come last, with placeholders replaced."""
    return tuple(filled[len(filled) - len(arguments) :])


def _resolved(spec: ServerSpec, workdir: Path, path: str) -> ServerSpec:
    """With relative scripts resolved against the workdir, as the working directory is the rollout's."""
    if spec.command is None:
        return spec
    args = tuple(
        str(workdir / arg) if not arg.startswith(("-", "/")) and os.path.isfile(workdir / arg) else arg
        for arg in spec.args
    )
    command = spec.command
    if "/" in command and not command.startswith("/"):
        command = str(workdir / command)
    if "${{" not in command and not os.path.isabs(command) and shutil.which(command, path=path) is None:
        advice = "Put its arguments into args." if " " in command else "Install it in setup.sh."
        raise EnvDefinitionError(f"MCP server {spec.name!r}: there is no command {command!r}. {advice}")
    _check_script(spec.name, command, args, workdir)
    return replace(spec, command=command, args=args)


def _check_script(name: str, command: str, args: Sequence[str], workdir: Path) -> None:
    """Raise EnvDefinitionError for a script that does not exist, which is clearer than the interpreter's error."""
    script = next((arg for arg in args if not arg.startswith("-")), "")
    runs = os.path.basename(command).rstrip("0123456789.") in _INTERPRETERS and script.endswith(_SCRIPTS)
    if runs and "${{" not in script and not os.path.exists(workdir / script):
        shown = os.path.relpath(script, workdir) if script.startswith(str(workdir)) else script
        raise EnvDefinitionError(f"MCP server {name!r}: there is no file {shown}. Correct its args.")
