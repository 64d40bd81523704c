"""MCP servers for tests: real processes, small and quick."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import LocalProvisioner

DEMO = Path(__file__).parents[1] / "examples" / "mcp_demo"

PROBE = """
import asyncio, base64, os, subprocess, sys, time
from pathlib import Path
from mcp.server import MCPServer
from mcp.types import EmbeddedResource, ImageContent, TextContent, TextResourceContents, ToolAnnotations

server = MCPServer("probe")
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

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def look(while_there: str) -> str:
    Path(".begun").touch()
    while os.path.exists(while_there):
        await asyncio.sleep(0.02)
    return str(os.getpid())

@server.tool()
async def wait(seconds: float) -> str:
    Path(".begun").touch()
    await asyncio.sleep(seconds)
    return "waited"

@server.tool()
def hold(seconds: float) -> str:
    time.sleep(seconds)
    return "held"

@server.tool()
def picture() -> list[TextContent | ImageContent | EmbeddedResource]:
    data = base64.b64encode(b"not really a picture").decode()
    inner = TextResourceContents(uri="file:///a.txt", text="inside")
    return [
        TextContent(type="text", text="look"),
        ImageContent(type="image", data=data, mime_type="image/png"),
        EmbeddedResource(type="resource", resource=inner),
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
