"""The script of the documents, unchanged, against a platform that was started with `benchmax up`."""

import glob
import json
import os
import re
import runpy
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from benchmax.net import ports
from benchmax.platform.client import TrainerClient
from benchmax.platform.daemon import control, liveness
from benchmax.platform.sdk.run import ENDED
from benchmax.platform.store.datadir import DataDir
from runner_world import is_running, wait_until
from training_world import store_tiny

ROWS = '[{"prompt": f"what is {n}+{n % 7}?", "ground_truth": str(n + n % 7)} for n in range(COUNT)]'

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
with_rows = runpy.run_path(str(BENCHMARKS / "_documents_script.py"))["with_rows"]
CLI = (sys.executable, "-c", "from benchmax.cli.platform.up import up; import typer; typer.run(up)")
"""`benchmax up`, however the command line is put together."""


def family(pid):
    """A process and all that came from it, by /proc."""
    found = [pid]
    for each in found:
        for path in glob.glob(f"/proc/{each}/task/*/children"):
            with suppress(OSError), open(path) as file:  # a thread may end meanwhile
                found += map(int, file.read().split())
    return found


@pytest.fixture
def platform(tmp_path):
    """A platform, as a user starts one: its data directory and its address."""
    store_tiny(tmp_path / "home", "smollm2-135m")  # under the name launches take by default
    data = DataDir(tmp_path / "data")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("BENCHMAX_", "CASTFORM_"))}
    variables |= {"BENCHMAX_HOME": str(tmp_path / "home"), "BENCHMAX_GPUS": "0", "CUDA_VISIBLE_DEVICES": ""}
    command = [*CLI, "--port", str(ports.free_port()), "--data-dir", str(data.root)]
    started = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=180)
    assert started.returncode == 0, started.stderr
    try:
        yield data, liveness.server_url(data)
    finally:
        control.stop(data)


def run_script(data, url, folder, rows):
    """Run the script with nothing set but the two variables it needs; gives the key and the run's id."""
    key = json.loads(data.credentials.read_text())["api_key"]
    (folder / "empty").mkdir()
    (folder / "script.py").write_text(with_rows(ROWS.replace("COUNT", str(rows))))
    variables = {"CASTFORM_API_KEY": key, "CASTFORM_PLATFORM_URL": url}
    variables |= {"HOME": str(folder / "empty"), "PATH": os.environ["PATH"]}
    command = [sys.executable, str(folder / "script.py")]
    ran = subprocess.run(command, env=variables, cwd=folder / "empty", capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    printed = re.fullmatch(r"https://app\.castform\.com/experiments/(\S+)\n", ran.stdout)
    assert printed, ran.stdout
    assert ran.stderr.splitlines()[-1] == f"The run is at {url}/experiments/{printed[1]}"
    assert not list((folder / "empty").iterdir()), "it leaves nothing behind"
    return key, printed[1]


@pytest.mark.timeout(500)
def test_the_script_of_the_documents(platform, tmp_path):
    data, url = platform
    key, run_id = run_script(data, url, tmp_path, rows=1000)  # it trains until it is stopped
    with TrainerClient(api_key=key, base_url=url) as trainer:
        follow(trainer, run_id, data)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("rows", "least"), [(200, 0.8), (50, 0.6)])
def test_the_script_of_the_documents_learns(rows, least):
    """With the default model and nothing set, on any set of rows of its kind."""
    command = [sys.executable, str(BENCHMARKS / "first_script.py"), "--rows", str(rows), "--sets", "3"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = [json.loads(line) for line in printed.splitlines()]
    assert len(found) == 3
    for result in found:
        assert result["before"] <= 0.1 < least < result["after"], result
        assert result["warm_start"] <= result["after"], result
        assert result["ended_by_themselves"] > 0.9, result
        assert result["minutes"] <= 15, result


def follow(trainer, run_id, data):
    """Watch the run work, read what it did, and stop it."""

    def has_trained():
        run = trainer.get_run(run_id)
        assert run["status"] not in ENDED, run["statusReason"]
        return run["status"] == "active" and (run["latestStep"] or 0) >= 1

    wait_until(has_trained, 150)
    assert trainer.get_run(run_id)["name"]
    rewards = trainer.get_run_scalars(run_id, "train")["reward/mean"]
    assert [point["step"] for point in rewards] == list(range(len(rewards)))
    assert len(rewards) >= 2
    row = trainer.list_rollouts(run_id, mode="train")[0]
    whole = trainer.get_rollout_details(run_id, row["id"])
    assert whole["messages"][-1]["role"] == "assistant"
    assert [reward["name"] for reward in whole["rewards"]] == ["correct"]
    assert whole["task"]["ground_truth"].isdigit()
    assert trainer.list_rollouts(run_id, mode="eval"), "it evaluates before it trains"

    everyone = family(liveness.read_daemon(data)["pid"])
    assert len(everyone) >= 5, "daemon, server, runner, trainer, environment"
    trainer.cancel_run(run_id)
    assert trainer.run(run_id).wait(120, poll=0.2) == "cancelled"
    assert control.stop(data)
    wait_until(lambda: not any(map(is_running, everyone)))
