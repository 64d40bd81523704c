"""`python sandbox_world.py FOLDER [held]`: tries every attack in sandboxes of its user, and prints what came of it.

There is something to steal: files, keys, a platform's port, sockets, another process. Each attack is tried with all
guards and, unless told `held`, with all but its own, and with each of its own alone; one JSON line each.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from benchmax.sandbox import Call, Limits, Result, Sandbox, sandbox
from benchmax.sandbox.inside import kernel, seccomp
from sandbox_attacks import ATTACKS, PRELUDE, Attack

SECRET = "GOT a secret"
AT_ONCE = 3
WAITS = {"held": 10.0, "bare": 0.5}
"""For how many seconds an attack waits for the limit that ends it. That it is not ended can be seen sooner."""
THEIRS = f"open('theirs', 'w').write('{SECRET}'); print('there', flush=True); import time; time.sleep(30)"


class World:
    """What there is to steal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data, self.rows, self.home = folder / "data", folder / "rows", folder / "home"
        for path, mode in ((self.data, 0o700), (self.home / ".ssh", 0o700), (self.rows, 0o755)):
            path.mkdir(parents=True, mode=mode)
        self.home.chmod(0o700)
        (folder / "dropbox").mkdir()
        (folder / "dropbox").chmod(0o777)
        files = {"data/secret": 0o600, "home/.ssh/id_rsa": 0o600, "public": 0o644, "rows/private": 0o600}
        for name, mode in files.items():
            (folder / name).write_text(SECRET)
            (folder / name).chmod(mode)
        self.victim = subprocess.Popen(["/bin/sleep", "600"], env={"SECRET": SECRET})
        self.kept = _kept_port()
        self.facts = self._facts()

    def _facts(self) -> dict[str, Any]:
        folder, abstract = str(self.folder), f"benchmax-attack-{os.getpid()}"
        return {
            "data": f"{folder}/data", "secret": f"{folder}/data/secret", "home": f"{folder}/home",
            "public": f"{folder}/public", "rows": f"{folder}/rows", "private": f"{folder}/rows/private",
            "dropbox": f"{folder}/dropbox", "victim": self.victim.pid, "address": _address(),
            "tcp": _answer(socket.create_server(("127.0.0.1", 0))),
            "tcp_any": _answer(socket.create_server(("0.0.0.0", 0))),
            "udp": _answer_datagrams(), "listen": self.kept.getsockname()[1], "abstract": abstract,
            "socket": _answer_unix(f"{folder}/data/socket"), "unused": _answer_unix("\0" + abstract),
            "shm": _shared_memory(), "numbers": _numbers(),
        }  # fmt: skip

    def close(self) -> None:
        self.kept.close()
        self.victim.kill()
        self.victim.wait()
        libc = ctypes.CDLL(None)
        libc.shmctl(libc.shmget(self.facts["shm"], 0, 0), 0, None)


def _address() -> str:
    """The machine's own, as others reach it; no packet is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(sock.getsockname()[0])


def _kept_port() -> socket.socket:
    """A port on which an attack can listen, and which the system gives to nobody else meanwhile."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    return sock


def _answer(sock: socket.socket) -> int:
    def serve() -> None:
        while True:
            with contextlib.suppress(OSError), sock.accept()[0] as caller:
                caller.settimeout(10)
                caller.recv(10)
                caller.send(SECRET.encode())

    threading.Thread(target=serve, daemon=True).start()
    name = sock.getsockname()
    return int(name[1]) if isinstance(name, tuple) else 0


def _answer_unix(path: str) -> str:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    sock.listen()
    _answer(sock)
    return path


def _answer_datagrams() -> int:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            _, caller = sock.recvfrom(10)
            sock.sendto(SECRET.encode(), caller)

    threading.Thread(target=serve, daemon=True).start()
    return int(sock.getsockname()[1])


def _shared_memory() -> int:
    libc, key = ctypes.CDLL(None), 0x62000000 + os.getpid()
    libc.shmat.restype = ctypes.c_void_p
    number = libc.shmget(key, 4096, 0o1666)
    ctypes.memmove(libc.shmat(number, None, 0), SECRET.encode(), len(SECRET))
    return key


def _numbers() -> dict[str, int]:
    column = 0 if kernel.MACHINE == "x86_64" else 1
    known = {**seccomp._NUMBERS, "clone": seccomp._CLONE, **{n: (v, v) for n, v in seccomp._ABSENT.items()}}
    return {name: pair[column] for name, pair in known.items()}


# Trying


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._task = asyncio.current_task()

    def emit(self, record: logging.LogRecord) -> None:
        if asyncio.current_task() is self._task:
            self.lines.append(record.getMessage())


def names(guards: str, root: bool) -> set[str]:
    return {name.removesuffix("@root") for name in guards.split() if root or not name.endswith("@root")}


def variants(attack: Attack, root: bool) -> Iterator[tuple[str, frozenset[str], bool]]:
    """A name, what is taken out, and whether the limits are raised."""
    yield "held", frozenset(), False
    layers = [layer for layer in attack.guards if names(layer, root)]
    out = frozenset().union(*(names(layer, root) for layer in layers), names(attack.also, root))
    yield "bare", out, True
    if len(layers) > 1:
        for layer in layers:
            yield f"only {layer}", out - names(layer, root), True


@contextlib.contextmanager
def links_followed(followed: bool) -> Iterator[None]:
    """Takes out the guard that is not the sandbox's but its reader's."""
    if not followed:
        yield
        return
    careful = sandbox.read_plain
    sandbox.read_plain = lambda root, name, most: Path(f"/proc/self/fd/{root}/{name}").read_bytes()
    try:
        yield
    finally:
        sandbox.read_plain = careful


@contextlib.asynccontextmanager
async def beside(box: Sandbox, wanted: bool) -> AsyncIterator[None]:
    """Another call, with something of its own."""
    if not wanted:
        yield
        return
    reader, writer = os.pipe()
    folder = None
    if "mount" not in (await box.start()).guards:
        folder = Path(tempfile.mkdtemp(prefix="benchmax-call-"))
        os.chown(folder, box.user, -1)
    process = await box.spawn(Call(THEIRS, workspace=folder), [0, writer, writer])
    os.close(writer)
    await asyncio.to_thread(os.read, reader, 100)
    try:
        yield
    finally:
        process.kill()
        await process.ended
        os.close(reader)
        if folder is not None:
            shutil.rmtree(folder)


async def caller(port: int) -> None:
    """Calls whoever listens."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(SECRET.encode())
            writer.close()
        await asyncio.sleep(0.05)


def _call(attack: Attack, facts: dict[str, Any], raised: bool, out: frozenset[str]) -> Call:
    facts = {**facts, "wait": WAITS["bare" if raised else "held"]}
    given = {"wall_seconds": 15.0, **attack.limits, **(attack.raised if raised else {})}
    limits = Limits(**given, network=attack.network)
    code, told = PRELUDE + attack.code, json.dumps(facts)
    env = dict(os.environ) if "variables" in out else {}
    if attack.program:
        argv = [sys.executable, "-I", "-c", code, told]
        return Call(argv=argv, limits=limits, env=env)
    return Call(code, argv=[told], limits=limits, env=env, outputs=attack.outputs)


async def attempt(box: Sandbox, attack: Attack, world: World, raised: bool, out: frozenset[str]) -> dict[str, Any]:
    lines, token = Lines(), secrets.token_hex(6)
    log = logging.getLogger("benchmax.sandbox")
    async with beside(box, attack.beside):
        log.addHandler(lines)
        with links_followed("links" in out):
            result = await box.run(_call(attack, {**world.facts, "token": token}, raised, out))
        log.removeHandler(lines)
    (world.rows / "new").unlink(missing_ok=True)
    (world.folder / "dropbox" / "new").unlink(missing_ok=True)
    got = _got(result) or f"{token}\n" in _process_names()
    return {
        "got": got,
        "tried": "TRYING" in result.stdout,
        "seconds": result.seconds,
        "exit": result.exit,
        "ended_by": result.ended_by,
        "refused": result.refused,
        "lines": lines.lines,
        "said": (result.stdout + result.stderr)[-600:],
    }


def _got(result: Result) -> bool:
    return "GOT" in result.stdout or b"GOT" in b"".join(result.files.values())


def _process_names() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            yield path.read_text()


async def try_all(world: World, wanted: str) -> None:
    root = os.geteuid() == 0
    groups: dict[tuple[frozenset[str], str], list[tuple[Attack, str, bool]]] = {}
    for attack in ATTACKS:
        if root or not attack.root_only:
            for variant, out, raised in variants(attack, root):
                if wanted in ("", variant):
                    groups.setdefault((out, attack.network), []).append((attack, variant, raised))
    places = asyncio.Semaphore(AT_ONCE)
    calling = asyncio.create_task(caller(world.facts["listen"]))
    await asyncio.gather(*(try_group(world, *key, group, places) for key, group in groups.items()))
    calling.cancel()


async def try_group(
    world: World, out: frozenset[str], network: Any, group: list[tuple[Attack, str, bool]], places: asyncio.Semaphore
) -> None:
    closed = (world.facts["tcp"],) if network == "host" else ()
    options = {"network": network, "closed_ports": closed, "insist": True}
    async with places, Sandbox(read=[world.rows], _without=out, **options) as box:
        for attack, variant, raised in group:
            told = await attempt(box, attack, world, raised, out)
            print(json.dumps({"attack": attack.name, "variant": variant, **told}), flush=True)


def main() -> None:
    logging.getLogger("benchmax.sandbox").setLevel(logging.INFO)
    os.environ["SECRET"] = SECRET
    world = World(Path(sys.argv[1]))
    try:
        asyncio.run(try_all(world, sys.argv[2] if len(sys.argv) > 2 else ""))
    finally:
        world.close()


if __name__ == "__main__":
    main()
