"""MCP servers for tests: real processes, small and quick."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.agent.node import Node
from benchmax.envs.mcp.provisioners import LocalProvisioner
from benchmax.envs.mcp.setup.install import Installed
from benchmax.envs.mcp.workdir import read_workdir
from benchmax.files.temp_dirs import make_owned_dir, remove_tree

DEMO = Path(__file__).parents[2] / "examples" / "mcp_demo"

SMALL_SERVER = '''
import json, os, sys, threading

class SmallServer:
    """The SDK's MCPServer as far as tests need it, without the second that importing the SDK takes."""

    def __init__(self, name):
        self.name, self.tools, self.hints, self.speaking = name, {}, {}, threading.Lock()

    def tool(self, name=None, read_only=False):
        def add(function):
            self.tools[name or function.__name__] = function
            self.hints[name or function.__name__] = {"readOnlyHint": read_only}
            return function
        return add

    def run(self, kind, **options):
        if kind != "stdio":
            return self._with_sdk().run(kind, **options)
        for line in sys.stdin:
            message = json.loads(line)
            if "id" in message and "method" in message:
                threading.Thread(target=self._answer, args=(message,), daemon=True).start()

    def _with_sdk(self):
        from mcp.server import MCPServer
        server = MCPServer(self.name)
        for name, function in self.tools.items():
            server.tool(name=name)(function)
        return server

    def _answer(self, message):
        method, given = message["method"], message.get("params") or {}
        if method == "initialize":
            about = {"name": self.name, "version": "1"}
            answer = {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
        elif method == "tools/list":
            answer = {"tools": [self._listed(name) for name in self.tools]}
        elif method == "tools/call":
            answer = self._called(given["name"], given.get("arguments") or {})
        else:
            return self._say(message, error={"code": -32601, "message": f"no method {method}"})
        self._say(message, result=answer)

    def _say(self, message, **answer):
        data = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode()
        with self.speaking:
            sys.stdout.buffer.write(data + b"\\n")
            sys.stdout.buffer.flush()

    def _kinds(self, name):
        known = {str: "string", int: "integer", float: "number", bool: "boolean"}
        return {key: known[kind] for key, kind in self.tools[name].__annotations__.items() if key != "return"}

    def _listed(self, name):
        kinds = self._kinds(name)
        wanted = list(kinds)[: len(kinds) - len(self.tools[name].__defaults__ or ())]
        schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in kinds.items()}}
        return {"name": name, "inputSchema": {**schema, "required": wanted}, "annotations": self.hints[name]}

    def _called(self, name, given):
        try:
            for key, kind in self._kinds(name).items():
                if kind == "string" and not isinstance(given.get(key, ""), str):
                    raise TypeError(f"{key} is no string")
            said = self.tools[name](**given)
            if hasattr(said, "__await__"):
                import asyncio
                said = asyncio.run(said)
        except Exception as error:
            text = f"Error executing tool {name}: {error!r}"
            return {"content": [{"type": "text", "text": text}], "isError": True}
        if isinstance(said, list):
            return {"content": said}
        return {"content": [{"type": "text", "text": said if isinstance(said, str) else json.dumps(said)}]}
'''
"""What a server's file begins with that is made with `SmallServer`."""

PROBE = (
    SMALL_SERVER
    + """
import base64, subprocess, time
from pathlib import Path

server = SmallServer("probe")
memory: list[str] = []

@server.tool()
def remember(word: str) -> str:
    memory.append(word)
    Path("nonce").write_text(word)
    return word

@server.tool()
def recall() -> str:
    return ",".join(memory) + "|" + (Path("nonce").read_text() if Path("nonce").exists() else "")

@server.tool()
def about() -> dict[str, str]:
    return {"pid": str(os.getpid()), "cwd": os.getcwd(), "home": os.environ.get("HOME", "")}

@server.tool()
def variables() -> dict[str, str]:
    return dict(os.environ)

@server.tool()
def read(path: str) -> str:
    try:
        return Path(path).read_bytes()[:200].decode("utf-8", "replace")
    except OSError as error:
        return type(error).__name__

@server.tool()
def write(path: str, text: str) -> str:
    try:
        Path(path).write_text(text)
        return "written"
    except OSError as error:
        return type(error).__name__

@server.tool()
def listing(path: str) -> str:
    try:
        return ",".join(sorted(os.listdir(path)))
    except OSError as error:
        return type(error).__name__

@server.tool()
def signal(pid: int) -> str:
    try:
        os.kill(pid, 0)
        return "sent"
    except OSError as error:
        return type(error).__name__

@server.tool()
def leave_behind(detached: bool) -> str:
    if not detached:
        return str(subprocess.Popen(["sleep", "300"], stdout=subprocess.DEVNULL).pid)
    alone = ["setsid", "--fork", "env", "-i", "setsid", "--fork"]  # of another session, without a parent or variables
    command = [*alone, "sh", "-c", "echo $$; exec sleep 300 > /dev/null"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip()

@server.tool()
def hoard(megabytes: int, in_child: bool, seconds: float) -> str:
    program = f"import time; block = b'x' * ({megabytes} << 20); time.sleep({seconds})"
    subprocess.run([sys.executable, "-c", program]) if in_child else exec(program, {})
    return "held"

@server.tool()
def crash(code: int) -> str:
    print("something is badly wrong", file=sys.stderr, flush=True)
    os._exit(code)

@server.tool(read_only=True)
async def look(while_there: str) -> str:
    import asyncio
    Path(".begun").touch()
    while os.path.exists(while_there):
        await asyncio.sleep(0.02)
    return str(os.getpid())

@server.tool()
async def wait(seconds: float) -> str:
    import asyncio
    Path(".begun").touch()
    await asyncio.sleep(seconds)
    return "waited"

@server.tool()
def hold(seconds: float) -> str:
    time.sleep(seconds)
    return "held"

@server.tool()
def picture() -> list:
    data = base64.b64encode(b"not really a picture").decode()
    return [
        {"type": "text", "text": "look"},
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
    ]

@server.tool()
def long_text(size: int) -> str:
    return "x" * size

if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
"""
)

REWARDS = """
import os, time, sys
async def answer(completion, ground_truth, mcp_client, workspace, rollout_id, **kwargs):
    result = await mcp_client.call_tool("recall")
    return float(result.text.endswith("|" + str(ground_truth)))

def file(workspace, ground_truth, **kwargs):
    return float((workspace / "nonce").read_text() == ground_truth)

def broken(**kwargs):
    raise ValueError("no such thing")

def nothing(**kwargs):
    return float("nan")

def extra(difficulty=0, **kwargs):
    print("scored", difficulty)
    return difficulty

reward_functions = {"answer": answer, "file": file, "broken": broken, "nothing": nothing, "extra": extra}
"""


def make_workdir(folder: Path, server: str = PROBE, config: str | None = None, rewards: str = REWARDS) -> Path:
    """A workdir with the probe server."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "server.py").write_text(server)
    (folder / "mcp_config.yaml").write_text(
        config or "mcpServers:\n  probe:\n    command: python\n    args: ['${{ sync_workdir }}/server.py']\n"
    )
    (folder / "reward_fn.py").write_text(rewards)
    (folder / "setup.sh").write_text("# nothing\n")
    return folder


@asynccontextmanager
async def opened(workdir: Path, servers: int = 2, **options: Any) -> AsyncIterator[ParallelMcpEnv]:
    """An environment over local servers, shut down at the end."""
    spares = options.pop("spares", 1)
    env = ParallelMcpEnv(workdir, LocalProvisioner(workdir, servers, spares=spares), **options)
    try:
        yield env
    finally:
        await env.shutdown()


@asynccontextmanager
async def node_of(server: str, config: str) -> AsyncIterator[Node]:
    """An agent's servers without the agent: of this process, whose limits a test can change."""
    root = make_owned_dir("benchmax-mcp-")
    workdir = read_workdir(make_workdir(root / "workdir", server, config))
    programs = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    node = Node(workdir, root, Installed(programs, sys.executable), 1, 0)
    try:
        yield node
    finally:
        await node.close()
        remove_tree(root)


REFUSED = ("PermissionError", "FileNotFoundError", "ProcessLookupError", "OSError")
"""What a server hears that may not: the file is closed, not there, or on a disk that is read-only."""


async def pid_of(env: ParallelMcpEnv, rollout: str) -> int:
    """The first server of a rollout; in its own namespace it has another number."""
    return int((await env.state())[0]["rollouts"][rollout][0])


def host_pid(near: int, inner: int | str) -> int:
    """The number here of a process that has the number `inner` where the process `near` is."""
    place = os.readlink(f"/proc/{near}/ns/pid")
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            numbers = re.search(r"^NSpid:(.*)$", Path(f"/proc/{entry}/status").read_text(), re.M)
            if os.readlink(f"/proc/{entry}/ns/pid") == place and numbers and numbers[1].split()[-1] == str(inner):
                return int(entry)
        except OSError:
            continue
    raise AssertionError(f"there is no process {inner} near {near}")


async def left_behind(env: ParallelMcpEnv, rollout: str) -> list[int]:
    """Processes that the rollout's server started, one of them detached."""
    server = await pid_of(env, rollout)
    return [host_pid(server, await env.run_tool(rollout, "leave_behind", detached=each)) for each in (True, False)]


def alive(pids: Iterable[int]) -> list[int]:
    """Those that run; a zombie does not."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(pid)
    return found


def wait_until_gone(pids: Iterable[int], seconds: float = 60.0) -> list[int]:
    """Those that still run after this long."""
    wanted, until = list(pids), time.monotonic() + seconds
    while (left := alive(wanted)) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def descendants(pid: int) -> list[int]:
    """Every process that this one started, and those started."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, ValueError):
                continue
            parents.setdefault(parent, []).append(int(entry))
    found, queue = [], [pid]
    while queue:
        for child in parents.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found
