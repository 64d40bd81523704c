"""Where a machine has no namespaces, as in most containers: MCP servers run, Landlock holds, and nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmax.sandbox.inside.landlock import version as landlock_version
from mcp_world import make_workdir

TESTS = Path(__file__).parents[1] / "support"

pytestmark = pytest.mark.skipif(
    not shutil.which("unshare") or os.geteuid() != 0 or landlock_version() < 1,
    reason="takes a user namespace to make a poor one",
)

PROGRAM = """
import asyncio, json, logging, sys
from pathlib import Path
Path("/proc/sys/user/max_user_namespaces").write_text("0")
from mcp_world import alive, left_behind, opened, pid_of, wait_until_gone
logging.basicConfig(stream=sys.stderr)

async def main():
    async with opened(Path(sys.argv[1]), servers=2, spares=0) as env:
        for rollout in "ab":
            await env.init_rollout(rollout)
            await env.run_tool(rollout, "remember", word=rollout)
        left, kept = await left_behind(env, "a"), await left_behind(env, "b")
        theirs = env._pool.leases["b"].workspace + "/nonce"
        said = {
            "read": await env.run_tool("a", "read", path=theirs),
            "signal": await env.run_tool("a", "signal", pid=await pid_of(env, "b")),
            "secret": await env.run_tool("a", "read", path=sys.argv[2]),
            "reward": (await env.compute_reward("b", [], {"ground_truth": "b"}))["file"],
            "forked": (await env.state())[0]["not_forked"] == {},
        }
        await env.init_rollout("c")
        kept = await left_behind(env, "c")
        await env.release_rollout("a")
        said["left"], said["kept"] = len(wait_until_gone(left)), len(alive(kept))
        print(json.dumps(said))

asyncio.run(main())
"""


def test_servers_run_apart_and_leave_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the user")
    workdir = make_workdir(tmp_path / "w")
    command = ["unshare", "-Ur", sys.executable, "-c", PROGRAM, str(workdir), str(secret)]
    variables = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said == {
        "read": "PermissionError", "signal": "PermissionError", "secret": "PermissionError", "reward": 1.0,
        "forked": True, "left": 0, "kept": 2,
    }  # fmt: skip
    assert "without a boundary" in done.stderr
