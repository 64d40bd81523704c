"""`python mcp_attack_world.py FOLDER [held]`: tries every attack from inside MCP servers of an agent of its user.

As in `sandbox_world`, whose things there are to steal: with all guards, and, unless told `held`, with all but the
attack's own. Attacks that need the same guards, and have no limits of their own, come from one server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.mcp.agent.node import Node
from benchmax.envs.mcp.fork import server_sandbox
from benchmax.envs.mcp.setup.install import Installed
from benchmax.envs.mcp.workdir import read_workdir
from benchmax.errors import McpError, ToolError
from benchmax.files.temp_dirs import make_owned_dir, remove_tree
from benchmax.sandbox.inside.guards import GUARDS
from mcp_attacks import SERVER_ATTACKS
from sandbox_attacks import PRELUDE, Attack
from sandbox_world import SECRET, WAITS, World, _answer_unix, _process_names, caller, variants

CALL_SECONDS = 20.0
FROM_ONE = 10
"""Attacks that come from one server: the log tells only of the first 16 times that it was refused something."""
SERVER = """
import json, os, sys
def run(code, facts):
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.dup2(writing, 1); os.dup2(writing, 2)
        sys.argv[1:] = [facts]
        try:
            exec(compile(code, "attack", "exec"), {"__name__": "attack"})
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
    os.write(writing, b" ")
    return os.read(reading, 65536).decode("utf-8", "replace")[-2000:]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "a"}}
    result = {"initialize": about, "tools/list": {"tools": [{"name": "run"}]}}.get(message["method"])
    if message["method"] == "tools/call":
        given = message["params"]["arguments"]
        result = {"content": [{"type": "text", "text": run(given["code"], given["facts"])}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result or {}}), flush=True)
"""


class Lines(logging.Handler):
    """All that is logged; servers run one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@dataclass(frozen=True)
class Server:
    """What attacks of one server have in common."""

    out: frozenset[str]
    network: str
    limits: str
    beside: bool
    alone: str = ""
    """The name of an attack that has limits of its own to come to."""


def make_workdir(folder: Path, world: World, server: Server) -> Path:
    folder.mkdir(parents=True, mode=0o755)
    given = json.loads(server.limits)
    entry = {
        "command": sys.executable, "args": ["-I", "server.py"], "fork": False, "read": [str(world.rows)],
        "network": server.network, **({"memory": given["memory"]} if "memory" in given else {}),
    }  # fmt: skip
    (folder / "server.py").write_text(SERVER)
    (folder / "mcp_config.yaml").write_text(json.dumps({"mcpServers": {"it": entry}, "x": SECRET}))
    (folder / "reward_fn.py").write_text(f"# {SECRET}\n")
    return folder


@contextmanager
def changed(server: Server) -> Iterator[None]:
    """Limits as the attacks have them, and without some guards."""
    given = {name: value for name, value in json.loads(server.limits).items() if name.startswith("MCP_")}
    before = {name: getattr(limits, name) for name in given}
    server_sandbox.GUARDS = {name: what for name, what in GUARDS.items() if name not in server.out}
    for name, value in given.items():
        setattr(limits, name, value)
    try:
        yield
    finally:
        server_sandbox.GUARDS = GUARDS
        for name, value in before.items():
            setattr(limits, name, value)


async def attempt(world: World, server: Server, attacks: Sequence[Attack], wait: float) -> list[dict[str, Any]]:
    root = make_owned_dir("benchmax-mcp-")
    lines = Lines()
    logging.getLogger("benchmax.sandbox").addHandler(lines)
    with changed(server):
        workdir = read_workdir(make_workdir(root / "workdir", world, server))
        closed = (world.facts["tcp"],) if server.network == "host" else ()
        node = Node(workdir, root, Installed(os.environ["PATH"], sys.executable), 2, 0, closed_ports=closed)
        try:
            told = await _attacked(node, world, server, attacks, {"wait": wait, **_own_facts(root)})
        finally:
            await node.close()
            remove_tree(root)
            logging.getLogger("benchmax.sandbox").removeHandler(lines)
    return [{**each, "lines": lines.lines} for each in told]


def _own_facts(root: Path) -> dict[str, Any]:
    return {"rewards": f"{root}/workdir/reward_fn.py", "config": f"{root}/workdir/mcp_config.yaml"}


async def _attacked(
    node: Node, world: World, server: Server, attacks: Sequence[Attack], facts: dict[str, Any]
) -> list[dict[str, Any]]:
    lease = await node.open("a", 60)
    if server.beside:
        other = await node.open("b", 60)
        theirs = other.servers.dirs.workspace / "theirs"
        theirs.write_text(SECRET)
        theirs.chmod(0o666)
        facts.update(theirs=str(theirs), other=other.servers.pids[0])
    told, tokens = [], [secrets.token_hex(6) for _ in attacks]
    for attack, token in zip(attacks, tokens, strict=True):
        arguments = {"code": PRELUDE + attack.code, "facts": json.dumps({**world.facts, **facts, "token": token})}
        told.append(await _said(node, lease.token, arguments))
        (world.rows / "new").unlink(missing_ok=True)
        (world.folder / "dropbox" / "new").unlink(missing_ok=True)
    servers = lease.servers
    await node.leases.release(lease.token)
    await servers.stop()
    left = set(_process_names())
    return [
        {"attack": attack.name, "got": "GOT" in said or f"{token}\n" in left, "said": said[-600:]}
        for attack, token, said in zip(attacks, tokens, told, strict=True)
    ]


async def _said(node: Node, lease: str, arguments: dict[str, Any]) -> str:
    try:
        answer = await node.leases.call(lease, "run", arguments, CALL_SECONDS)
    except (McpError, ToolError) as error:
        return f"{error}"
    return str(answer["content"][0]["text"])


def groups(root: bool, wanted: str) -> dict[tuple[str, Server], list[Attack]]:
    """Which attacks come from one server, by the variant and what they need."""
    found: dict[tuple[str, Server], list[Attack]] = {}
    for attack in SERVER_ATTACKS:
        if root or not attack.root_only:
            for variant, out, raised in list(variants(attack, root))[:2]:
                given = json.dumps({**attack.limits, **(attack.raised if raised else {})}, sort_keys=True)
                alone = attack.name if attack.limits else ""
                if wanted in ("", variant):
                    server = Server(out, attack.network, given, attack.beside, alone)
                    found.setdefault((variant, server), []).append(attack)
    return {key: sorted(attacks, key=lambda attack: attack.refused is None) for key, attacks in found.items()}


async def try_all(world: World, wanted: str) -> None:
    calling = asyncio.create_task(caller(world.facts["listen"]))
    for (variant, server), attacks in groups(os.geteuid() == 0, wanted).items():
        for first in range(0, len(attacks), FROM_ONE):
            for told in await attempt(world, server, attacks[first : first + FROM_ONE], WAITS[variant]):
                print(json.dumps({"variant": variant, **told}), flush=True)
    calling.cancel()


def main() -> None:
    logging.getLogger("benchmax.sandbox").setLevel(logging.INFO)
    os.environ["SECRET"] = SECRET
    world = World(Path(sys.argv[1]))
    world.facts["public_socket"] = _answer_unix(f"{world.folder}/socket")
    os.chmod(world.facts["public_socket"], 0o777)
    try:
        asyncio.run(try_all(world, sys.argv[2] if len(sys.argv) > 2 else ""))
    finally:
        world.close()


if __name__ == "__main__":
    main()
