"""An environment of MCP servers, as a user meets it: real servers, one set for each rollout."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmax import EnvHost, RolloutSettings, ScriptedModel, Termination, ToolCall, make_example, run_batch
from benchmax.bundle import dump_bundle, load_bundle
from benchmax.envs.loading import load_env_class
from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import LocalProvisioner, ManualProvisioner
from benchmax.envs.types import ToolResult, Transcript, Unscored
from benchmax.errors import EnvDefinitionError, McpError, NotFoundError, UsageError
from benchmax.net.ports import free_port
from mcp_world import DEMO, alive, make_workdir, opened, pid_of, wait_until_gone


async def about(env: ParallelMcpEnv, rollout: str) -> dict[str, str]:
    return json.loads(await env.run_tool(rollout, "about"))


async def test_a_rollout_from_start_to_reward(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w")) as env:
        names = {tool.name for tool in await env.list_tools()}
        assert {"remember", "recall", "wait"} <= names
        await env.init_rollout("a")
        assert await env.run_tool("a", "remember", word="seven") == "seven"
        messages = Transcript([{"role": "user", "content": "?"}, {"role": "assistant", "content": "seven"}], 1)
        rewards = await env.compute_reward("a", messages, {"ground_truth": "seven", "difficulty": 3})
        assert rewards["answer"] == 1.0
        assert rewards["file"] == 1.0
        assert rewards["extra"] == 3.0
        assert rewards["broken"] == Unscored("ValueError: no such thing")
        assert isinstance(rewards["nothing"], Unscored)
        with pytest.raises(McpError, match="init_rollout"):
            await env.run_tool("a", "recall")


async def test_rollouts_share_nothing_and_the_next_one_starts_afresh(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=2) as env:
        await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
        await env.run_tool("a", "remember", word="mine")
        assert await env.run_tool("b", "recall") == "|"
        first, second = await about(env, "a"), await about(env, "b")
        pids = {await pid_of(env, "a"), await pid_of(env, "b")}
        assert len(pids) == 2
        assert first["cwd"] != second["cwd"]
        assert first["home"].startswith(str(Path(first["cwd"]).parent))
        await env.release_rollout("a")
        await env.init_rollout("c")
        assert await env.run_tool("c", "recall") == "|"
        assert await pid_of(env, "c") not in pids


async def test_a_rollout_can_be_reset(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=1) as env:
        await env.init_rollout("a")
        await env.run_tool("a", "remember", word="x")
        await env.reset_rollout("a")
        assert await env.run_tool("a", "recall") == "|"


async def test_rollouts_wait_in_order_for_the_one_server(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=1) as env:
        await env.init_rollout("first")
        order: list[str] = []

        async def play(name: str) -> None:
            await env.init_rollout(name)
            order.append(name)
            await env.release_rollout(name)

        waiting = []
        for name in ("b", "c", "d"):
            waiting.append(asyncio.ensure_future(play(name)))
            await asyncio.sleep(0)
        assert env._pool.machines[0].used == 1
        await env.release_rollout("first")
        await asyncio.gather(*waiting)
        assert order == ["b", "c", "d"]


async def test_waiting_has_an_end_and_giving_up_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(make_workdir(tmp_path / "w"), servers=1) as env:
        await env.init_rollout("first")
        monkeypatch.setattr("benchmax.limits.MCP_WAIT_SECONDS", 0.2)
        with pytest.raises(McpError, match="all 1 are in use"):
            await env.init_rollout("second")
        waiting = asyncio.ensure_future(env.init_rollout("third"))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait([waiting])
        await env.release_rollout("first")
        monkeypatch.setattr("benchmax.limits.MCP_WAIT_SECONDS", 60.0)
        await env.init_rollout("fourth")
        assert await env.run_tool("fourth", "recall") == "|"


async def test_init_twice_is_an_error_and_release_of_nobody_is_not(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w")) as env:
        await env.release_rollout("nobody")
        await env.init_rollout("a")
        with pytest.raises(RuntimeError, match="already"):
            await env.init_rollout("a")
        with pytest.raises(RuntimeError, match="init_rollout first"):
            await env.run_tool("b", "recall")


async def test_errors_and_pictures_are_marked_as_what_they_are(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w")) as env:
        await env.init_rollout("a")
        wrong = await env.run_tool("a", "remember", word=[1])
        assert isinstance(wrong, ToolResult)
        assert wrong.is_error
        unknown = await env.run_tool("a", "no_such_tool")
        assert unknown.is_error
        assert "no_such_tool" in unknown.text
        picture = await env.run_tool("a", "picture")
        assert picture.text == "look\ninside"
        assert picture.parts[0]["image_url"]["url"].startswith("data:image/png;base64,")
        assert len(await env.run_tool("a", "long_text", size=2_000_000)) == 2_000_000


async def test_allowed_tools_and_output_parsers(tmp_path: Path) -> None:
    options = {"allowed_tools": ["recall", "remember"], "output_parsers": {"recall": lambda text: text.split("|")}}
    async with opened(make_workdir(tmp_path / "w"), **options) as env:
        assert [tool.name for tool in await env.list_tools()] == ["recall", "remember"]
        await env.init_rollout("a")
        await env.run_tool("a", "remember", word="x")
        assert await env.run_tool("a", "recall") == ["x", "x"]
        with pytest.raises(RuntimeError, match="not allowed"):
            await env.run_tool("a", "about")
    async with opened(make_workdir(tmp_path / "w"), allowed_tools=["recal"]) as env:
        with pytest.raises(EnvDefinitionError, match="recal"):
            await env.list_tools()


async def test_files_into_and_out_of_the_workspace(tmp_path: Path) -> None:
    async with opened(make_workdir(tmp_path / "w")) as env:
        await env.init_rollout("a")
        big = bytes(range(256)) * 12_000  # three pieces
        source = tmp_path / "big.bin"
        source.write_bytes(big)
        await env.copy_to_workspace("a", source)
        await env.copy_content_to_workspace("a", "grüß", "deep/er/note.txt", encoding="latin-1")
        await env.copy_content_to_workspace("a", b"", "empty")
        for name, content in (("big.bin", big), ("deep/er/note.txt", "grüß".encode("latin-1")), ("empty", b"")):
            await env.copy_from_workspace("a", name, tmp_path / "out")
            assert (tmp_path / "out").read_bytes() == content
        assert await env.run_tool("a", "listing", path=".") == "big.bin,deep,empty"
        with pytest.raises(UsageError, match="leads out"):
            await env.copy_content_to_workspace("a", "x", "../x")
        with pytest.raises(NotFoundError, match="no file"):
            await env.copy_from_workspace("a", "missing", tmp_path / "out")


async def test_several_servers_are_one_toolset(tmp_path: Path) -> None:
    config = """
mcpServers:
  one: {command: python, args: ['${{ sync_workdir }}/server.py']}
  two: {command: python, args: [server.py], fork: false, env: {WHO: '${{ workspace }}'}}
"""
    async with opened(make_workdir(tmp_path / "w", config=config), servers=1, spares=0) as env:
        names = {tool.name for tool in await env.list_tools()}
        assert {"one_recall", "two_recall"} <= names
        await env.init_rollout("a")
        await env.run_tool("a", "one_remember", word="x")
        assert await env.run_tool("a", "two_recall") == "|x", "one directory, two memories"
        assert (
            json.loads(await env.run_tool("a", "two_variables"))["WHO"]
            == (json.loads(await env.run_tool("a", "one_about"))["cwd"])
        )


async def test_a_server_that_speaks_http(tmp_path: Path) -> None:
    config = """
mcpServers:
  probe:
    command: python
    args: ['${{ sync_workdir }}/server.py', '${{ port }}']
    url: http://127.0.0.1:${{ port }}/mcp
"""
    async with opened(make_workdir(tmp_path / "w", config=config), servers=2, spares=0) as env:
        await asyncio.gather(env.init_rollout("a"), env.init_rollout("b"))
        await env.run_tool("a", "remember", word="x")
        assert await env.run_tool("a", "recall") == "x|x"
        assert await env.run_tool("b", "recall") == "|"
        assert (await env.run_tool("a", "remember", word=[1])).is_error


async def test_from_servers_needs_no_folder(tmp_path: Path) -> None:
    make_workdir(tmp_path / "w")

    async def recalled(mcp_client, ground_truth, **kwargs):
        return float((await mcp_client.call_tool("recall")).text == f"{ground_truth}|{ground_truth}")

    def on_disk(workspace, **kwargs):
        return float((workspace / "nonce").exists())

    servers = {"probe": {"command": "python", "args": [str(tmp_path / "w" / "server.py")]}}
    env = ParallelMcpEnv.from_servers(servers, rewards={"recalled": recalled, "on_disk": on_disk}, num_servers=1)
    try:
        await env.init_rollout("a")
        await env.run_tool("a", "remember", word="x")
        assert await env.compute_reward("a", [], {"ground_truth": "x"}) == {"recalled": 1.0, "on_disk": 1.0}
    finally:
        await env.shutdown()


async def test_it_can_be_made_outside_a_loop_and_used_from_several(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path / "w")

    def play() -> str:
        env = ParallelMcpEnv(workdir, LocalProvisioner(workdir))
        asyncio.run(env.init_rollout("a"))
        text = asyncio.run(env.run_tool("a", "recall"))
        asyncio.run(env.shutdown())
        asyncio.run(env.shutdown())
        return text

    assert await asyncio.to_thread(play) == "|"


async def test_a_setup_that_starts_a_service_is_run_in_an_environment_that_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path / "home"))
    workdir = make_workdir(tmp_path / "w")
    prints = "python -c 'import sys; print(sys.prefix)' > made_by_setup"
    (workdir / "setup.sh").write_text(f"set -e\n{prints}\nsleep 300 &\necho $! > service\n")
    async with opened(workdir) as env:
        await env.init_rollout("a")
        prefix = (await env.run_tool("a", "read", path=str(await _sync_workdir(env) / "made_by_setup"))).strip()
        assert Path(prefix).is_relative_to(tmp_path / "home")
        service = int(await env.run_tool("a", "read", path=str(await _sync_workdir(env) / "service")))
        assert alive([service]), "it is of use to the servers"
    assert wait_until_gone([service]) == []
    assert not Path(prefix).exists()
    assert not (workdir / "made_by_setup").exists()
    (workdir / "setup.sh").write_text("echo no such package >&2\nexit 3\n")
    async with opened(workdir) as env:
        with pytest.raises(EnvDefinitionError, match="no such package"):
            await env.init_rollout("a")


async def test_a_workdir_travels_in_the_bundle_of_its_class(tmp_path: Path) -> None:
    program = make_workdir(tmp_path / "w") / "main.py"
    program.write_text(
        "from pathlib import Path\n"
        "from benchmax.envs.mcp import PackedWorkdir, ParallelMcpEnv\n"
        "from benchmax.envs.mcp.provisioners import LocalProvisioner\n"
        "WORKDIR = PackedWorkdir(Path(__file__).parent)\n"
        "class Env(ParallelMcpEnv):\n"
        "    def __init__(self):\n"
        "        super().__init__(WORKDIR, LocalProvisioner(WORKDIR, 1, spares=0))\n"
    )
    bundle = dump_bundle(load_env_class(f"{program}:Env"))
    shutil.rmtree(program.parent)
    env = load_bundle(bundle, trust=True)
    folder = Path(env._packed_workdir)
    try:
        await env.init_rollout("a")
        assert await env.run_tool("a", "recall") == "|"
        assert (folder / "reward_fn.py").is_file()
    finally:
        await env.shutdown()
    assert not folder.exists()


async def _sync_workdir(env: ParallelMcpEnv) -> Path:
    return Path(env._pool.machines[0].agent.address.removeprefix("unix:")).parent / "workdir"


async def test_an_agent_somebody_else_started(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path / "w")
    local = LocalProvisioner(workdir, 2, base_port=free_port())
    secret = "0123456789abcdef-secret"
    addresses = await local.provision_servers(secret)
    try:
        env = ParallelMcpEnv(workdir, ManualProvisioner(addresses), api_secret=f"{secret}\n")  # as read from a file
        await env.init_rollout("a")
        assert await env.run_tool("a", "recall") == "|"
        assert env.num_servers == 2
        await env.shutdown()
        other = ParallelMcpEnv(
            workdir, ManualProvisioner(addresses), api_secret="another-secret-it-is", provision_at_init=False
        )
        with pytest.raises(McpError, match="does not know this secret"):  # at once, for asking again would not help
            await asyncio.wait_for(other.init_rollout("a"), 60)
        await other.shutdown()
        with pytest.raises(RuntimeError, match="already"):
            await local.provision_servers(secret)
    finally:
        await local.teardown()
        await local.teardown()


async def test_the_demo_and_its_three_rewards(tmp_path: Path) -> None:
    shutil.copytree(DEMO, tmp_path / "demo")
    async with opened(tmp_path / "demo") as env:
        await env.init_rollout("a")
        await env.run_tool("a", "define_variable", name="x", value=6)
        assert await env.run_tool("a", "evaluate", expression="x * (3 + 4)") == "42.0"
        await env.run_tool("a", "define_variable", name="answer", value=42)
        await env.run_tool("a", "append_log", filename="answer.log", message="42")
        assert (await env.run_tool("a", "read_log", filename="other")).is_error
        rewards = await env.compute_reward("a", [{"role": "assistant", "content": "It is 42."}], {"ground_truth": 42})
        assert rewards == {"completion": 1.0, "variable": 1.0, "log": 1.0}


@pytest.mark.slow
async def test_rollouts_through_a_host_wait_as_long_as_they_must(tmp_path: Path) -> None:
    """Waiting for a server is not charged to init_rollout, and a server that dies ends its own rollout."""
    workdir = make_workdir(tmp_path / "w")
    env = ParallelMcpEnv(workdir, LocalProvisioner(workdir, 1, spares=1))
    examples = [
        make_example(prompt_messages=[{"role": "user", "content": str(n)}], task={"ground_truth": str(n)})
        for n in range(5)
    ]

    def play(messages: list[Any]) -> Any:
        number = messages[0]["content"]
        if len(messages) > 1:
            return "done"
        if number == "3":
            return ToolCall("crash", '{"code": 4}')
        return [ToolCall("remember", json.dumps({"word": number})), ToolCall("wait", '{"seconds": 1.2}')]

    async with EnvHost(env) as host:
        await host.toolbox()
        settings = RolloutSettings(init_seconds=3.0)  # less than the last one waits for three others
        played = await run_batch(host, examples, ScriptedModel(play), settings)
    by_number = {rollout.messages[0]["content"]: rollout for rollout in played}
    died = by_number.pop("3")
    assert died.termination is Termination.ENV_ERROR
    assert died.error is not None
    assert (died.error.type, died.error.where) == ("McpError", "run_tool")
    for rollout in by_number.values():
        assert rollout.error is None
        assert rollout.rewards["file"] == 1.0
