"""Starting the servers of one rollout, and telling how they died."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import site
import socket
import sys
import tempfile
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from benchmax.envs.mcp.client.http_session import HttpSession
from benchmax.envs.mcp.client.mcp_session import NoAnswer, RpcError, Session, StdioSession, Tail
from benchmax.envs.mcp.fork.fork_server_client import Child, Nursery, Program, Rules, python_command
from benchmax.envs.mcp.fork.preload import ARGUMENTS
from benchmax.envs.mcp.fork.read_rules import certificates, opened_for, unread
from benchmax.envs.mcp.workdir import ServerSpec, Workdir, memory_bytes
from benchmax.envs.remote.process import signal_name
from benchmax.envs.remote.process_limits import scrubbed_environment
from benchmax.errors import EnvDefinitionError, McpError

T = TypeVar("T")
logger = logging.getLogger(__name__)

_INTERPRETERS = frozenset({"python", "node", "bun", "deno", "ruby", "bash", "sh"})
_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh")
PLACE_VARIABLES = ("HOME", "TMPDIR", "PWD")
LAST_WORDS_SECONDS = 0.5
"""How long a dead server's output is waited for."""


@dataclass(eq=False, slots=True)
class Server:
    """A running server: its process, unless it was only reached by its URL, and the conversation with it."""

    spec: ServerSpec
    session: Session
    child: Child | None = None
    tails: tuple[Tail, ...] = ()
    """What it prints: its errors, and over HTTP all else; their lines are one list."""
    forked: bool = False

    @property
    def last_lines(self) -> str:
        return "\n".join(self.tails[0].lines) if self.tails else ""

    async def explained(self, asked: Awaitable[T]) -> T:
        """What the server answers; when it does not, the error says how it ended, or what it printed last."""
        try:
            return await asked
        except (McpError, asyncio.CancelledError) as error:
            given_up = isinstance(error, asyncio.CancelledError)
            if self.child is None or (given_up and not self.child.ended.done()):
                raise
            if self.session.lost is not None and not self.session.ending:  # it was ended for what it did
                raise McpError(self._with_lines(self.session.lost)) from None
            done, _ = await asyncio.wait([self.child.ended], timeout=LAST_WORDS_SECONDS)
            if done:
                raise McpError(await self.death()) from None
            raise type(error)(self._with_lines(str(error))) from None

    def _with_lines(self, words: str) -> str:
        stray = getattr(self.session, "stray", ())
        if stray:
            words += f" It printed what is no message: {', '.join(map(repr, stray))}."
        return f"{words} Its last lines were:\n{self.last_lines}" if self.last_lines else words

    async def death(self) -> str:
        """How it ended, in words, with the last lines it printed."""
        if self.child is None:
            return f"MCP server {self.spec.name!r} at {self.spec.url} is gone."
        status = await asyncio.shield(self.child.ended)
        if self.tails:
            await asyncio.wait([tail.closed for tail in self.tails], timeout=LAST_WORDS_SECONDS)
        how = f"was killed by {signal_name(-status)}" if status < 0 else f"ended with exit code {status}"
        lines = self.last_lines
        said = f" Its last lines were:\n{lines}" if lines else " It printed no error."
        if self.child.over:
            how = f"took more than {self.spec.memory} of memory and was ended; raise `memory` if it needs more"
        return f"MCP server {self.spec.name!r} {how}.{said}"

    async def stop(self) -> None:
        if self.child is not None:
            self.child.kill()
        await self.session.close()
        if self.child is not None:
            await asyncio.wait([self.child.ended], timeout=5.0)
        for tail in self.tails:
            tail.close()


@dataclass(frozen=True, slots=True)
class Places:
    """The directories of one rollout: all of `own` is its, and nobody else's."""

    own: Path

    @property
    def workspace(self) -> Path:
        return self.own / "workspace"

    @classmethod
    def make(cls, root: Path) -> Places:
        own = Path(tempfile.mkdtemp(prefix="r-", dir=root))  # 0700
        places = cls(own)
        for each in (places.workspace, own / "home", own / "tmp"):
            each.mkdir(mode=0o700)
        return places

    def variables(self) -> dict[str, str]:
        """What names these directories to a process."""
        return dict(zip(PLACE_VARIABLES, (f"{self.own}/home", f"{self.own}/tmp", str(self.workspace)), strict=True))


class Launcher:
    """Starts servers: Python ones by fork from a parent that knows their packages, all others by running them."""

    def __init__(self, workdir: Workdir, rules: Rules, path: str, root: Path, memory: str | None = None) -> None:
        places = {"sync_workdir": str(workdir.path)}
        self._path = path
        self._root = root
        self.specs = [
            _beside(spec.filled(places).with_variables(os.environ), workdir.path, path) for spec in workdir.servers
        ]
        if memory is not None:
            self.specs = [replace(spec, memory=spec.memory or memory) for spec in self.specs]
        self._rules = rules
        self._read = {spec.name: opened_for(spec, workdir, root.parent, path) for spec in self.specs}
        self.unread = {
            spec.name: found
            for spec in self.specs
            if rules.confined
            and (found := unread(spec, (*rules.read, *self._read[spec.name], str(workdir.path)), workdir.path))
        }
        """Paths that servers are told of and may not read."""
        self._plain: Nursery | None = None
        self._forking: dict[str, Nursery] = {}
        self._not_forked: dict[str, str] = {}
        """Servers that are run afresh each time, and why."""

    @property
    def not_forked(self) -> dict[str, str]:
        return dict(self._not_forked)

    @property
    def not_preloaded(self) -> dict[str, dict[str, str]]:
        """For each forked server, the packages that it imports itself, and why."""
        return {name: parent.left for name, parent in self._forking.items() if parent.left}

    def preload(self) -> None:
        """Begin importing what Python servers need, before the first is asked for."""
        for spec in self.specs:
            if (forking := self._python(spec)) is not None:
                self._begin_parent(spec, forking)

    async def start(self, spec: ServerSpec, places: Places) -> Server:
        """Start one server and shake hands. McpError with its last lines when it cannot be."""
        try:
            return await self._begin(spec, places)
        except McpError as error:
            if spec.name not in self.unread or isinstance(error, RpcError):
                raise
            named = ", ".join(self.unread[spec.name][:3])
            raise type(error)(f"{error}\nIt may not read {named}. Name it in `read` if it should.") from None

    async def _begin(self, spec: ServerSpec, places: Places) -> Server:
        if spec.command is None:
            return await self._reach(spec, places)
        forking = self._python(spec)
        if forking is not None:
            try:
                return await self._start(spec, places, await self._parent(spec, forking), forking[1])
            except _CannotFork as error:
                self._not_forked[spec.name] = str(error)
            except _NotYet:
                pass  # the next one may be
            except NoAnswer:
                raise  # it was given all its time
            except McpError as failure:
                server = await self._try_plain(spec, places, failure)
                self._not_forked[spec.name] = "it starts only in a process of its own"
                logger.warning("MCP server %r is not forked: %s", spec.name, failure)
                return server
        return await self._start(spec, places, self._plain_parent(), None)

    def _python(self, spec: ServerSpec) -> tuple[str, Program] | None:
        """How to fork this server, if it can be."""
        if not spec.fork or spec.name in self._not_forked or spec.command is None:
            return None
        found = python_command(spec.command, spec.args, self._path)
        return None if found is None or "${{" in found[1].target else found

    async def _try_plain(self, spec: ServerSpec, places: Places, failure: McpError) -> Server:
        """A server that fails when forked may do better alone; one that does not fails as it did at first."""
        nursery = self._forking.get(spec.name)
        if nursery is not None and nursery.proven:
            raise failure
        try:
            return await self._start(spec, places, self._plain_parent(), None)
        except McpError:
            raise failure from None

    async def _parent(self, spec: ServerSpec, forking: tuple[str, Program]) -> Nursery:
        nursery = self._forking.get(spec.name)
        if nursery is None or (nursery.dead and nursery.proven):
            nursery = self._begin_parent(spec, forking)
        done, _ = await asyncio.wait([nursery.ready], timeout=spec.start_seconds)
        if not done:
            raise _NotYet
        if (reason := nursery.ready.result()) is not None:
            raise _CannotFork(reason)
        return nursery

    def _begin_parent(self, spec: ServerSpec, forking: tuple[str, Program]) -> Nursery:
        """A parent that imports in an empty directory, with the arguments and variables that a server will have."""
        places = Places.make(self._root)
        filled = spec.filled({"workspace": str(places.workspace), "port": "0"})
        varying = [key for key, value in spec.env.items() if "${{" in value]
        varying += [ARGUMENTS] if any("${{" in each for each in forking[1].arguments) else []
        program = replace(
            forking[1],
            arguments=_last(filled.args, forking[1].arguments),
            own=str(places.own),
            varying=(*PLACE_VARIABLES, *varying),
        )
        rules = replace(
            self._rules, read=(*self._rules.read, *self._read[spec.name]), write=(str(places.own), str(self._root))
        )
        nursery = Nursery(forking[0], rules, {**self._variables(), **places.variables(), **filled.env}, program)
        nursery.start()
        self._forking[spec.name] = nursery
        return nursery

    def _plain_parent(self) -> Nursery:
        if self._plain is None or self._plain.dead:
            self._plain = Nursery(sys.executable, self._rules, self._variables(), None)
            self._plain.start()
        return self._plain

    def _variables(self) -> dict[str, str]:
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        return {**threads, **scrubbed_environment(certificates(os.environ)), **user_packages(), "PATH": self._path}

    async def _reach(self, spec: ServerSpec, places: Places) -> Server:
        filled = spec.filled({"workspace": str(places.workspace)})
        session = HttpSession(spec.name, filled.url or "", filled.headers, shared=True)
        try:
            await session.open(spec.start_seconds)
        except BaseException:
            await session.close()
            raise
        return Server(filled, session)

    async def _start(self, spec: ServerSpec, places: Places, parent: Nursery, program: Program | None) -> Server:
        filled = spec.filled({"workspace": str(places.workspace), "port": str(_free_port()) if spec.url else ""})
        argv = [filled.command or "", *filled.args]
        if program is not None:
            argv = list(_last(filled.args, program.arguments))
        variables = {**self._variables(), **places.variables(), **filled.env}
        server = await self._spawn(filled, parent, argv, places, variables)
        server.forked = program is not None
        try:
            await self._shake_hands(server)
        except BaseException:
            await server.stop()
            raise
        if server.forked:
            parent.proven = True
        return server

    async def _spawn(
        self, spec: ServerSpec, parent: Nursery, argv: list[str], places: Places, variables: Mapping[str, str]
    ) -> Server:
        stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
        ours, theirs = (stdin[1], stdout[0], stderr[0]), (stdin[0], stdout[1], stderr[1])
        try:
            memory = memory_bytes(spec.memory) if spec.memory is not None else None
            cwd, own, read = str(places.workspace), [str(places.own)], self._read[spec.name]
            child = await parent.spawn(argv, cwd, variables, own, theirs, memory, read)
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        try:
            return await self._connect(spec, child, ours)
        except BaseException:
            child.kill()
            raise

    async def _connect(self, spec: ServerSpec, child: Child, pipes: tuple[int, int, int]) -> Server:
        """Take up the pipes of a server that runs."""
        loop = asyncio.get_running_loop()
        files = [os.fdopen(fd, mode, 0) for fd, mode in zip(pipes, ("wb", "rb", "rb"), strict=True)]
        stdin, stdout, stderr = files
        try:
            _, tail = await loop.connect_read_pipe(Tail, stderr)
            if spec.url is not None:
                stdin.close()
                _, printed = await loop.connect_read_pipe(lambda: Tail(lines=tail.lines), stdout)
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
        parents = [*self._forking.values(), *([self._plain] if self._plain else [])]
        await asyncio.gather(*(parent.close() for parent in parents))


class _CannotFork(Exception):
    pass


class _NotYet(Exception):
    """The packages are still being imported."""


def user_packages() -> dict[str, str]:
    """Where packages lie that were installed for the user alone, as HOME is another in servers."""
    return {"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {}


def _last(filled: Sequence[str], arguments: Sequence[str]) -> tuple[str, ...]:
    """As many of the filled-in words as there are arguments of the server's own, which come last."""
    return tuple(filled[len(filled) - len(arguments) :])


def _beside(spec: ServerSpec, workdir: Path, path: str) -> ServerSpec:
    """A script named without its folder is looked for in the workdir, as the working directory is the rollout's."""
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
        raise EnvDefinitionError(f"MCP server {spec.name!r}: there is no command {command!r}. Install it in setup.sh.")
    _check_script(spec.name, command, args, workdir)
    return replace(spec, command=command, args=args)


def _check_script(name: str, command: str, args: Sequence[str], workdir: Path) -> None:
    """A script that is not there is told before an interpreter does, in many more lines."""
    script = next((arg for arg in args if not arg.startswith("-")), "")
    runs = os.path.basename(command).rstrip("0123456789.") in _INTERPRETERS and script.endswith(_SCRIPTS)
    if runs and "${{" not in script and not os.path.exists(workdir / script):
        shown = os.path.relpath(script, workdir) if script.startswith(str(workdir)) else script
        raise EnvDefinitionError(f"MCP server {name!r}: there is no file {shown}. Correct its args.")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
