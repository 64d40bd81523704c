"""`benchmax mcp`, as it is typed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmax.cli.app import app
from benchmax.envs.loading import load_env_class
from benchmax.envs.mcp.load_test import LoadReport
from benchmax.envs.mcp.workdir import reward_names
from benchmax.errors import NotFoundError, UsageError
from mcp_world import DEMO, PROBE, make_workdir

runner = CliRunner()


def test_inspect_lists_the_tools() -> None:
    shown = runner.invoke(app, ["mcp", "inspect", str(DEMO)], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "define_variable" in shown.stdout
    told = json.loads(runner.invoke(app, ["mcp", "inspect", str(DEMO), "--json"], catch_exceptions=False).stdout)
    assert {"hello_world", "evaluate"} <= {tool["name"] for tool in told["tools"]}
    assert told["not_forked"] == {}


def test_run_calls_one_tool() -> None:
    done = runner.invoke(app, ["mcp", "run", str(DEMO), "evaluate", "expression=6 * 7"], catch_exceptions=False)
    assert (done.exit_code, done.stdout.strip()) == (0, "42.0")
    failed = runner.invoke(
        app, ["mcp", "run", str(DEMO), "evaluate", "expression=6 *", "--json"], catch_exceptions=False
    )
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["is_error"]
    with pytest.raises(UsageError, match="NAME=VALUE"):
        runner.invoke(app, ["mcp", "run", str(DEMO), "evaluate", "6 * 7"], catch_exceptions=False)


@pytest.mark.slow
def test_bench_hammers_and_counts_failures(tmp_path: Path) -> None:
    arguments = ["--servers", "2", "--seconds", "1.5", "--calls", "3", "--json"]
    done = runner.invoke(app, ["mcp", "bench", str(DEMO), *arguments], catch_exceptions=False)
    told = json.loads(done.stdout)
    assert done.exit_code == 0
    assert told["rollouts"] >= 1
    assert told["call"]["count"] >= 3
    assert told["failures"] == {}
    workdir = str(make_workdir(tmp_path / "w"))
    crashed = runner.invoke(app, ["mcp", "bench", workdir, "crash", "code=3", *arguments], catch_exceptions=False)
    assert crashed.exit_code == 1
    assert "exit code 3" in next(iter(json.loads(crashed.stdout)["failures"]))
    with pytest.raises(UsageError, match="no tool 'nope'"):
        runner.invoke(app, ["mcp", "bench", workdir, "nope"], catch_exceptions=False)


@pytest.mark.slow
def test_what_cannot_be_shown_or_called_is_told(tmp_path: Path) -> None:
    tool = '@server.tool(name=7)\ndef count() -> str:\n    return ""\n\nif __name__'
    workdir = make_workdir(tmp_path / "w", PROBE.replace("if __name__", tool))
    shown = runner.invoke(app, ["mcp", "inspect", str(workdir)], catch_exceptions=False)
    assert "7 is left out" in shown.stderr
    picture = runner.invoke(app, ["mcp", "run", str(workdir), "picture"], catch_exceptions=False)
    assert "a picture, image/png, about 21 bytes" in picture.stderr


def test_a_folder_that_is_no_workdir_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"mcp_config\.yaml"):
        runner.invoke(app, ["mcp", "inspect", str(tmp_path)], catch_exceptions=False)


def test_inspect_tells_of_rewards_and_of_what_may_not_be_read(tmp_path: Path) -> None:
    server = PROBE.replace("len(sys.argv) > 1", "False")
    data = tmp_path / "data"
    data.mkdir()
    config = f"mcpServers:\n  probe: {{command: python, args: [server.py, '{data}']}}\n"
    workdir = make_workdir(tmp_path / "w", server, config)
    shown = runner.invoke(app, ["mcp", "inspect", str(workdir)], catch_exceptions=False)
    said = " ".join(shown.stderr.split())
    assert "probe may not read" in said
    assert "The rewards of reward_fn.py: answer, file, broken, nothing, extra." in said
    (workdir / "reward_fn.py").write_text("def broken(:\n")
    assert reward_names(workdir) == ([], "reward_fn.py, line 1, cannot be read: invalid syntax.")
    for name in ("reward_fn.py", "setup.sh"):
        (workdir / name).unlink()
    told = json.loads(runner.invoke(app, ["mcp", "inspect", str(workdir), "--json"], catch_exceptions=False).stdout)
    assert told["rewards"] == []
    assert told["unread"] == {"probe": [str(data)]}


def test_bench_that_is_stopped_shows_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stopped(
        env: object, name: str, given: object, *, on_progress: Callable[[LoadReport], None], **rest: object
    ) -> None:
        report = LoadReport()
        report.calls.add(0.001)
        on_progress(report)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(30)

    monkeypatch.setattr("benchmax.envs.mcp.load_test.run_load_test", stopped)
    done = runner.invoke(app, ["mcp", "bench", str(DEMO), "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["call"]["count"] == 1
    assert "Stopped" in done.stderr


@pytest.mark.slow
def test_the_demo_pleases_the_doctor() -> None:
    done = runner.invoke(app, ["validate", str(DEMO), "--json", "--examples", "3"], catch_exceptions=False)
    titles = {finding["title"] for finding in json.loads(done.stdout)["findings"]}
    assert titles <= {"Rewards are slow."}, "as they are where the machine is busy"
    assert done.exit_code == 0


def test_a_folder_names_its_environment(tmp_path: Path) -> None:
    assert load_env_class(str(DEMO)).__name__ == "McpDemoEnv"
    with pytest.raises(NotFoundError, match=r"no env\.py.*benchmax mcp inspect"):
        load_env_class(str(make_workdir(tmp_path / "w")))
    with pytest.raises(NotFoundError, match=r"no env\.py or main\.py"):
        load_env_class(str(tmp_path))
