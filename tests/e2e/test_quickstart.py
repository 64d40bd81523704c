"""`benchmax quickstart`, as `make quickstart` calls it: the platform starts, a run trains, its model is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmax.cli.platform.quickstart import launch_arguments, sums
from benchmax.platform.daemon import control
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.wire.launch_args import launch_args, settings_tree
from benchmax.platform.wire.launches import check_launch_args
from benchmax.trainer.config import build_config, load_config
from training_world import store_tiny

ROOT = Path(__file__).parents[2]
OWN = {"data", "output", "rollouts.max_tokens", "rollouts.max_tool_calls", "eval.rows", "limits.seconds"}
"""Where the platform has bounds of its own; none of them is reached by one short turn over 19 rows."""


def test_the_recipe_is_that_of_the_example_file() -> None:
    train, held_out = sums()
    assert (len(train), len(held_out)) == (80, 19)
    arguments = launch_arguments(len(train), "smollm2-135m", 30, 0)
    values, warned = check_launch_args(launch_args(gpu=False), arguments)
    assert not warned
    launched = build_config(settings_tree(values, len(train), gpu=False)).model_dump()
    alone = load_config(ROOT / "examples" / "quickstart.toml").model_dump()
    for tree in (launched, alone):
        for name in OWN:
            section, dot, field = name.partition(".")
            tree[section].pop(field) if dot else tree.pop(section)
    assert launched == alone


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_command(tmp_path: Path) -> None:
    store_tiny(tmp_path / "home", "smollm2-135m")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("BENCHMAX_", "CASTFORM_"))}
    variables |= {
        "BENCHMAX_HOME": str(tmp_path / "home"),
        "BENCHMAX_DATA": str(tmp_path / "data"),
        "HOME": str(tmp_path),
    }
    variables |= {"BENCHMAX_GPUS": "0", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "benchmax", "quickstart", "--steps", "2", "--out", "made/reward.png", "--json"]
    try:
        done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=550)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert [point["step"] for point in found["curve"]["train"]] == [0, 1]
        assert found["examples"] == 19
        assert found["low"] <= found["delta"] <= found["high"]
        assert found["url"].endswith(f"/experiments/{found['runId']}")
        assert (tmp_path / "made" / "reward.png").read_bytes().startswith(b"\x89PNG")
        for words in ("Starting the benchmax platform", "step 2/2: reward", "held-out reward", "of the base model",
                      "token=", "benchmax down", found["url"]):  # fmt: skip
            assert words in done.stderr
        assert control.status(DataDir(tmp_path / "data"))["running"], "the platform goes on"
    finally:
        control.stop(DataDir(tmp_path / "data"))
