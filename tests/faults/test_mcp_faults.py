"""MCP servers, agents and whole programs that die, hang or never start."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from time import monotonic

import pytest

from benchmax import ToolCall, limits, make_example
from benchmax.deadlines import current_hook_seconds
from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.errors import McpError, RewardError
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import run_rollout
from benchmax.rollouts.settings import RolloutSettings
from mcp_world import (
    SMALL_SERVER,
    alive,
    descendants,
    host_pid,
    left_behind,
    make_workdir,
    node_of,
    opened,
    pid_of,
    wait_until_gone,
)


async def state(env: ParallelMcpEnv) -> dict[str, object]:
    return (await env.state())[0]


async def until(condition, seconds: float = 60.0) -> None:
    end = monotonic() + seconds
    while not await condition():
        assert monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)


async def begun(env: ParallelMcpEnv, rollout: str) -> None:
    """Until the rollout's server is in the middle of `wait` or `look`."""
    mark = Path(env._pool.leases[rollout].workspace) / ".begun"

    async def seen() -> bool:
        return mark.exists()

    await until(seen)


# One server


async def test_a_server_killed_during_a_call_ends_that_rollout_alone(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=2) as env:
        await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
        pid = await pid_of(env, "a")
        running = asyncio.ensure_future(env.run_tool("a", "wait", seconds=30))
        other = asyncio.ensure_future(env.run_tool("b", "wait", seconds=0.3))
        await begun(env, "a")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(McpError, match="killed by SIGKILL"):
            await running
        assert await other == "waited"
        with pytest.raises(McpError, match="SIGKILL"):
            await env.run_tool("a", "recall")
        await env.release_rollout("a")
        await env.init_rollout("c")
        assert await env.run_tool("c", "recall") == "|"


async def test_a_server_killed_between_calls_and_one_that_crashes_with_words(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=1) as env:
        await env.init_rollout("a")
        os.kill(await pid_of(env, "a"), signal.SIGKILL)
        with pytest.raises(McpError):
            await env.run_tool("a", "recall")
        await env.release_rollout("a")
        await env.init_rollout("b")
        with pytest.raises(McpError, match=r"exit code 3(.|\n)*something is badly wrong"):
            await env.run_tool("b", "crash", code=3)
        with pytest.raises(McpError):
            await env.compute_reward("b", [], {"ground_truth": ""})


async def test_a_spare_that_dies_is_replaced(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=2, spares=0) as env:
        assert await env.warm() == 2
        before = (await state(env))["pids"]
        os.kill(before[0], signal.SIGKILL)

        async def restored() -> bool:
            now = await state(env)
            return now["ready"] == 2 and before[0] not in now["pids"]

        await until(restored)
        assert (await state(env))["crashes"] == 1


async def test_only_calls_that_are_safe_to_repeat_are_repeated(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=1) as env:
        await env.init_rollout("a")
        await until(lambda: _ready(env))
        leased = (await state(env))["pids"][-1]  # spares come first
        (Path(env._pool.leases["a"].workspace) / "held").touch()  # which the fresh workspace does not have
        running = asyncio.ensure_future(env.run_tool("a", "look", while_there="held"))
        await begun(env, "a")
        os.kill(leased, signal.SIGKILL)
        assert int(await running) > 0
        assert (await state(env))["retries"] == 1
        assert leased not in (await state(env))["rollouts"]["a"]
        await env.run_tool("a", "remember", word="now it has a past")
        running = asyncio.ensure_future(env.run_tool("a", "look", while_there="."))
        leased = (await state(env))["pids"][-1]
        os.kill(leased, signal.SIGKILL)
        with pytest.raises(McpError):
            await running
        assert (await state(env))["retries"] == 1


async def test_calls_that_lose_their_server_together_are_repeated_on_the_same_fresh_one(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=1) as env:
        await env.init_rollout("a")
        await until(lambda: _ready(env))
        workspace, running = Path(env._pool.leases["a"].workspace), []
        (workspace / "held").touch()
        for _ in range(3):
            (workspace / ".begun").unlink(missing_ok=True)
            running.append(asyncio.ensure_future(env.run_tool("a", "look", while_there="held")))
            await begun(env, "a")
        os.kill(await pid_of(env, "a"), signal.SIGKILL)
        assert len(set(await asyncio.gather(*running))) == 1
        assert (await state(env))["reset"]["count"] == 1


async def _ready(env: ParallelMcpEnv) -> bool:
    return (await state(env))["ready"] >= 1


async def test_a_slow_tool_is_cut_and_the_server_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=1) as env:
        await env.init_rollout("a")
        pid = await pid_of(env, "a")
        monkeypatch.setattr("benchmax.limits.TOOL_SECONDS", 2.3)
        cut = await env.run_tool("a", "wait", seconds=30)
        assert cut.is_error
        assert "did not answer" in cut.text
        monkeypatch.setattr("benchmax.limits.TOOL_SECONDS", 30.0)
        assert await pid_of(env, "a") == pid


async def test_a_tool_may_take_as_long_as_the_rollouts_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmax.limits.TOOL_SECONDS", 1.0)
    row = make_example([{"role": "user", "content": "Wait."}], {})
    model = ScriptedModel([(ToolCall("wait", '{"seconds": 2}'),), "Done."])
    async with opened(make_workdir(tmp_path / "w"), servers=1) as env, EnvHost(env) as host:
        long, short = [
            await run_rollout(host, row, model, RolloutSettings(tool_seconds=seconds, score=False))
            for seconds in (60.0, 1.0)
        ]
        await env.init_rollout("alone")  # without the host, whose own end comes first on a busy machine
        told = current_hook_seconds.set(1.0)
        cut = await env.run_tool("alone", "wait", seconds=30)
        current_hook_seconds.reset(told)
    assert [event.ok for event in long.tool_events] == [True]
    assert [event.ok for event in short.tool_events] == [False]
    assert "within 0.9 s" in cut.text, "nearly all of its time"


async def test_a_cancelled_call_does_not_disturb_the_next(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=1) as env:
        await env.init_rollout("a")
        running = asyncio.ensure_future(env.run_tool("a", "wait", seconds=30))
        await begun(env, "a")
        running.cancel()
        await asyncio.wait([running])
        assert await env.run_tool("a", "remember", word="x") == "x"


# Servers that never start


@pytest.mark.parametrize("fork", ["true", pytest.param("false", marks=pytest.mark.slow)])
async def test_servers_that_crash_at_start_fail_soon_with_their_last_words(tmp_path: Path, fork: str) -> None:
    server = "import sys\nprint('the licence has expired', file=sys.stderr)\nsys.exit(1)\n"
    config = f"mcpServers:\n  bad: {{command: python, args: [server.py], fork: {fork}}}\n"
    async with opened(make_workdir(tmp_path / "w", server, config), servers=4) as env:
        began = monotonic()
        with pytest.raises(McpError, match=r"exit code 1(.|\n)*the licence has expired"):
            await env.init_rollout("a")
        assert monotonic() - began < 60
        failures = (await state(env))["start_failures"]
        assert failures <= 5
        with pytest.raises(McpError, match="licence"):
            await env.init_rollout("b")
        assert (await state(env))["start_failures"] == failures, "nothing is tried for a while"


async def test_a_server_that_hangs_at_start_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "echo waiting for godot >&2; exec sleep 300"  # a shell, which speaks at once on any machine
    config = f"mcpServers:\n  bad: {{command: sh, args: [-c, '{script}'], start_seconds: 2}}\n"
    monkeypatch.setattr(limits, "MCP_START_TRIES", 1)
    async with node_of("", config) as node:
        with pytest.raises(McpError, match=r"within 2 s(.|\n)*godot"):
            await node.open("a", 60)


async def test_a_command_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    config = "mcpServers:\n  bad: {command: no-such-command-at-all}\n"
    async with opened(make_workdir(tmp_path / "w", config=config), servers=1) as env:
        with pytest.raises(ValueError, match="no-such-command-at-all"):
            await env.list_tools()


async def test_packages_that_start_threads_are_imported_by_each_server(tmp_path: Path) -> None:
    server = "import busy_package\n" + Path(make_workdir(tmp_path / "p") / "server.py").read_text()
    workdir = make_workdir(tmp_path / "w", server)
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "busy_package.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    (workdir / "mcp_config.yaml").write_text(
        f"mcpServers:\n  probe: {{command: python, args: [server.py], env: {{PYTHONPATH: '{installed}'}}, "
        f"read: ['{installed}']}}\n"
    )
    async with opened(workdir, servers=1) as env:
        await env.init_rollout("a")
        assert await env.run_tool("a", "recall") == "|"
        assert "thread" in (await state(env))["not_preloaded"]["probe"]["busy_package"]


async def test_a_server_that_chatters_on_its_output(tmp_path: Path) -> None:
    server = Path(make_workdir(tmp_path / "p") / "server.py").read_text()
    server = "print('Welcome to my server!')\nprint('{\"half\": ')\nprint('[1, 2]', flush=True)\n" + server
    async with opened(make_workdir(tmp_path / "w", server), servers=1) as env:
        await env.init_rollout("a")
        assert await env.run_tool("a", "recall") == "|"


# RewardRunner


async def test_rewards_that_hang_or_kill_cost_their_own_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewards = """
import os, time
def hang(how, **kwargs):
    if how == "sleep":
        time.sleep(300)
    if how == "exit":
        print("goodbye")
        os._exit(7)
    while how == "loop":
        pass
    return 1
reward_functions = {"hang": hang}
"""
    async with opened(make_workdir(tmp_path / "w", rewards=rewards), servers=4) as env:
        await asyncio.gather(*(env.init_rollout(how) for how in ("exit", "well", "sleep", "loop")))
        with pytest.raises(RewardError, match=r"status 7(.|\n)*goodbye"):
            await env.compute_reward("exit", [], {"how": "exit"})
        usual = limits.REWARD_SECONDS
        monkeypatch.setattr(limits, "REWARD_SECONDS", 2.0)
        slow = [env.compute_reward(how, [], {"how": how}) for how in ("sleep", "loop")]
        for error in await asyncio.gather(*slow, return_exceptions=True):
            assert isinstance(error, RewardError)
            assert "took longer" in str(error)
        monkeypatch.setattr(limits, "REWARD_SECONDS", usual)
        assert await env.compute_reward("well", [], {"how": "well"}) == {"hang": 1.0}


async def test_a_reward_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w", rewards="reward_functions = 3\n"), servers=1) as env:
        await env.init_rollout("a")
        with pytest.raises(RewardError, match="dict of names"):
            await env.compute_reward("a", [], {})


# Parents


async def test_a_fork_server_that_is_killed_is_replaced(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=2) as env:
        await env.init_rollout("a")
        pid = await pid_of(env, "a")
        left = await left_behind(env, "a")
        parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(parent, signal.SIGKILL)
        assert wait_until_gone([pid, *left]) == []
        with pytest.raises(McpError):
            await env.run_tool("a", "recall")
        await env.release_rollout("a")
        await env.init_rollout("b")
        assert await env.run_tool("b", "recall") == "|"


async def test_an_agent_that_is_killed_takes_its_rollouts_and_comes_back(tmp_path: Path) -> None:
    options = {"initial_health_check_interval": 0.05}
    async with opened(make_workdir(tmp_path / "w"), servers=2, **options) as env:
        await env.init_rollout("a")
        left = await left_behind(env, "a")
        agent = env._pool.machines[0].agent.hello["pid"]
        others = descendants(agent)
        running = asyncio.ensure_future(env.run_tool("a", "wait", seconds=30))
        waiting = [asyncio.ensure_future(env.init_rollout(name)) for name in ("b", "c")]
        await begun(env, "a")
        os.kill(agent, signal.SIGKILL)
        with pytest.raises(McpError, match="lost"):
            await running
        assert wait_until_gone([*others, *left]) == []
        await asyncio.gather(*waiting, return_exceptions=True)
        for name in ("b", "c"):
            await env.release_rollout(name)
        await env.init_rollout("d")
        assert await env.run_tool("d", "recall") == "|"
        await env.release_rollout("a")


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_nothing_outlives_a_killed_program(tmp_path: Path, how: signal.Signals) -> None:
    program = f"""
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[1] / "support")!r})
from mcp_world import left_behind, opened
async def main():
    async with opened(Path({str(make_workdir(tmp_path / "w"))!r}), servers=3) as env:
        await env.init_rollout("a")
        print(*await left_behind(env, "a"), env._pool.machines[0].agent.address, flush=True)
        await asyncio.sleep(300)
asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    *left, address = process.stdout.readline().split()
    end = monotonic() + 60
    while len(started := descendants(process.pid)) < 6:
        assert monotonic() < end, "agent, fork server, servers and what they started"
        time.sleep(0.02)
    process.send_signal(how)
    process.wait()
    process.stdout.close()
    assert wait_until_gone([*started, *map(int, left)]) == []
    root = Path(address.decode().removeprefix("unix:")).parent
    end = monotonic() + 60
    while root.exists() and monotonic() < end:
        time.sleep(0.02)
    assert not root.exists()


def test_a_setup_ends_with_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path / "home"))
    workdir = make_workdir(tmp_path / "w")
    daemon = tmp_path / "pid"
    (workdir / "setup.sh").write_text(f"setsid sh -c 'echo $$ $PWD > {daemon}; exec sleep 300' & exec sleep 300\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmax", "mcp", "inspect", str(workdir)], stderr=subprocess.PIPE
    )
    end = monotonic() + 60
    while not (daemon.exists() and daemon.read_text().strip()):
        assert monotonic() < end, "setup.sh did not begin"
        time.sleep(0.02)
    pid, copy = daemon.read_text().split()
    started = [*descendants(process.pid), int(pid)]
    process.kill()
    process.communicate()
    assert wait_until_gone(started) == []
    end = monotonic() + 60
    while Path(copy).exists() and monotonic() < end:
        time.sleep(0.02)
    assert not Path(copy).exists()


async def test_what_a_server_leaves_behind_ends_with_its_rollout(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=1) as env:
        await env.init_rollout("a")
        left = await left_behind(env, "a")
        assert alive(left) == left
        await env.release_rollout("a")
        assert wait_until_gone(left) == []


ESCAPES = (
    SMALL_SERVER
    + """
import os, resource, time
server = SmallServer("escapes")

def detached(limit: int, relative: bool, megabytes: int) -> None:
    kinds = (10, 15)
    for kind in kinds:
        hard = resource.getrlimit(kind)[1]
        value = hard + limit if relative else limit
        resource.setrlimit(kind, (value, value))
    block = b"x" * (megabytes << 20)
    time.sleep(300)

@server.tool()
def escape(limit: int, relative: bool, megabytes: int = 0) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, str(os.getpid()).encode())
            for fd in (0, 1, 2):
                os.close(fd)
            detached(limit, relative, megabytes)
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(read, 100).decode()

server.run("stdio")
"""
)


async def test_a_process_that_lowers_its_limits_does_not_outlive_its_rollout(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w", ESCAPES), servers=3, spares=0) as env:
        for rollout in "abc":  # one after the other, so that c can lower its limits to what b's are
            await env.init_rollout(rollout)
        tries = [(0, True), (-1, True), (-2, True), (0, False)]
        inner = [await env.run_tool("c", "escape", limit=limit, relative=relative) for limit, relative in tries]
        pids = [host_pid(await pid_of(env, "c"), each) for each in inner]
        assert alive(pids) == pids
        await env.release_rollout("c")
        assert wait_until_gone(pids) == []
        await env.run_tool("a", "escape", limit=0, relative=True)


async def test_a_process_that_lowers_its_limits_does_not_escape_the_limit_of_memory(tmp_path: Path) -> None:
    config = "mcpServers:\n  it: {command: python, args: [server.py], memory: 200MB}\n"
    everything = {"limit": 0, "relative": False, "megabytes": 400}
    async with opened(make_workdir(tmp_path / "w", ESCAPES, config), servers=1, spares=0) as env:
        await env.init_rollout("a")
        server = await pid_of(env, "a")
        with contextlib.suppress(McpError, AssertionError):  # it may be gone before it is looked for
            assert wait_until_gone([host_pid(server, await env.run_tool("a", "escape", **everything))]) == []
            return
        assert wait_until_gone([server]) == []
