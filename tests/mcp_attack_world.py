"""`python mcp_attack_world.py FOLDER`: tries every attack from inside MCP servers of an agent of the user it runs as.

As in `sandbox_world`, whose things there are to steal: with all guards, and with all but the attack's own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.mcp.agent.node import Node
from benchmax.envs.mcp.fork import server_box
from benchmax.envs.mcp.setup.install import Installed
from benchmax.envs.mcp.workdir import read_workdir
from benchmax.errors import McpError, ToolError
from benchmax.files.temp_dirs import make_owned_dir, remove_tree
from benchmax.sandbox.inside.guards import GUARDS
from mcp_attacks import SERVER_ATTACKS
from sandbox_attacks import PRELUDE, Attack
from sandbox_world import SECRET, World, _answer_unix, _process_names, caller, variants

CALL_SECONDS = 20.0
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
    """All that is logged; attacks are tried one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def make_workdir(folder: Path, world: World, attack: Attack, raised: bool) -> Path:
    folder.mkdir(parents=True, mode=0o755)
    given = {**attack.limits, **(attack.raised if raised else {})}
    server = {
        "command": sys.executable, "args": ["-I", "server.py"], "fork": False, "read": [str(world.rows)],
        "network": attack.network, **({"memory": given["memory"]} if "memory" in given else {}),
    }  # fmt: skip
    (folder / "server.py").write_text(SERVER)
    (folder / "mcp_config.yaml").write_text(json.dumps({"mcpServers": {"it": server}, "x": SECRET}))
    (folder / "reward_fn.py").write_text(f"# {SECRET}\n")
    return folder


@contextmanager
def changed(attack: Attack, raised: bool, out: frozenset[str]) -> Iterator[None]:
    """Limits as the attack has them, and without some guards."""
    given = {**attack.limits, **(attack.raised if raised else {})}
    before = {name: getattr(limits, name) for name in given if name.startswith("MCP_")}
    server_box.GUARDS = {name: what for name, what in GUARDS.items() if name not in out}
    for name in before:
        setattr(limits, name, given[name])
    try:
        yield
    finally:
        server_box.GUARDS = GUARDS
        for name, value in before.items():
            setattr(limits, name, value)


async def attempt(world: World, attack: Attack, raised: bool, out: frozenset[str]) -> dict[str, Any]:
    root = make_owned_dir("benchmax-mcp-")
    lines = Lines()
    logging.getLogger("benchmax.sandbox").addHandler(lines)
    with changed(attack, raised, out):
        workdir = read_workdir(make_workdir(root / "workdir", world, attack, raised))
        closed = (world.facts["tcp"],) if attack.name == "connect to a closed port" else ()
        node = Node(workdir, root, Installed(os.environ["PATH"], sys.executable), 2, 0, closed_ports=closed)
        try:
            return await _attacked(node, world, attack, lines, root)
        finally:
            await node.close()
            remove_tree(root)
            logging.getLogger("benchmax.sandbox").removeHandler(lines)


async def _attacked(node: Node, world: World, attack: Attack, lines: Lines, root: Path) -> dict[str, Any]:
    lease, token = await node.open("a", 60), secrets.token_hex(6)
    facts = {**world.facts, "token": token, "rewards": f"{root}/workdir/reward_fn.py"}
    facts["config"] = f"{root}/workdir/mcp_config.yaml"
    if attack.beside:
        other = await node.open("b", 60)
        theirs = other.servers.dirs.workspace / "theirs"
        theirs.write_text(SECRET)
        theirs.chmod(0o666)
        facts.update(theirs=str(theirs), other=other.servers.pids[0])
    said, arguments = "", {"code": PRELUDE + attack.code, "facts": json.dumps(facts)}
    try:
        answer = await node.leases.call(lease.token, "run", arguments, CALL_SECONDS)
        said = answer["content"][0]["text"]
    except (McpError, ToolError) as error:
        said = f"{error}"
    servers = lease.servers
    await node.leases.release(lease.token)
    await servers.stop()
    (world.rows / "new").unlink(missing_ok=True)
    (world.folder / "dropbox" / "new").unlink(missing_ok=True)
    got = "GOT" in said or f"{token}\n" in _process_names()
    return {"got": got, "said": said[-600:], "lines": lines.lines}


async def try_all(world: World, only: str) -> None:
    root = os.geteuid() == 0
    calling = asyncio.create_task(caller(world.facts["listen"]))
    for attack in SERVER_ATTACKS:
        if only in attack.name and (root or not attack.root_only):
            for variant, out, raised in list(variants(attack, root))[:2]:
                told = await attempt(world, attack, raised, out)
                print(json.dumps({"attack": attack.name, "variant": variant, **told}), flush=True)
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
