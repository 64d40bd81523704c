"""The commands of the page that need no server of SkyRL's: what it installs, and a first run."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from tinker_server import TinkerServer

from benchmax.trainer.rundir import read_metrics, read_status
from benchmax.trainer.tiny_model import make_tiny
from trainer_pages import BENCHMAX, ROOT, check_page, commands, page

SMALL = (
    "--rollouts.prompts_per_step 2 --rollouts.group_size 2 --rollouts.max_new_tokens 3 --eval.rows 1 --output.name run"
)


def test_the_page_installs_what_is_tested_here():
    check_page("tinker", "tinker")
    (server,) = re.findall(r"`pip install ([^`]*skyrl\[[^`]*)`", page("tinker"))
    recipe = (ROOT / "tests" / "trainers" / "tinker-server" / "requirements.txt").read_text("utf-8")
    assert set(shlex.split(server)) <= set(recipe.splitlines())


def test_the_first_run_of_the_page_trains_and_resumes(tmp_path, monkeypatch):
    """Against a server in this process, with the model that it has in the place of Qwen's."""
    server = TinkerServer(make_tiny(tmp_path / "tiny", hidden=32, layers=1), context=4096)
    for line in commands("tinker"):
        if line.startswith("export TINKER_API_KEY"):
            monkeypatch.setenv(*line.removeprefix("export ").split("="))
    monkeypatch.setenv("TINKER_BASE_URL", server.url)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    (first,) = (line for line in commands("tinker") if line.startswith("benchmax train arithmetic"))
    (again,) = set(re.findall(r"`(benchmax train --resume [^`]*)`", page("tinker")))
    try:
        _run(f"{first.replace('Qwen/Qwen3-8B', str(server.directory))} --steps 1 {SMALL}", tmp_path)
        _run(f"{again.replace('NAME', 'run')} --steps 2", tmp_path)
    finally:
        server.close()
    run = tmp_path / "runs" / "run"
    assert read_status(run)["state"] == "complete"
    assert [line["step"] for line in read_metrics(run) if line["split"] == "train"] == [0, 1]


def _run(command: str, folder: Path) -> None:
    words = [*BENCHMAX, *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
