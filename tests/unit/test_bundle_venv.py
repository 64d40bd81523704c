"""An environment's packages, in a virtual environment of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmax.bundle import BundleMetadata, DependencyError, IncompatiblePythonError, dump_bundle, envs_venv
from benchmax.bundle import venv as venv_module
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.remote import open_remote_env

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
NO_INDEX = ("No matching distribution", "Could not find a version", "Connection", "Temporary failure")


def venv_for(tmp_path, *dependencies, python_version=HERE):
    try:
        return envs_venv(BundleMetadata(list(dependencies), python_version), tmp_path / "cache")
    except DependencyError as error:
        if any(sign in str(error) for sign in NO_INDEX):
            pytest.skip("pip cannot reach a package index here")
        raise


def test_no_packages_need_no_environment(tmp_path):
    assert envs_venv(BundleMetadata(), tmp_path / "cache") == Path(sys.executable)
    assert not (tmp_path / "cache").exists()


async def test_the_environments_own_packages_win(tmp_path):
    class Versions(BaseEnv):
        async def run_tool(self, rollout_id, tool_name, **kw):
            import iniconfig

            return iniconfig.__file__

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {}

    python = venv_for(tmp_path, "iniconfig<2.1")
    bundle = dump_bundle(Versions, pip_dependencies=["iniconfig<2.1"])
    assert envs_venv(bundle.metadata, tmp_path / "cache") == python  # kept
    asked = [
        str(python),
        "-c",
        "import iniconfig, benchmax.rollouts, importlib.metadata as m; print(m.version('iniconfig'))",
    ]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.startswith("2.0")
    env = await open_remote_env(bundle, python=python)
    try:
        assert (await env.run_tool("r", "where")).startswith(str(tmp_path))
    finally:
        env.close()


def test_packages_that_cannot_be_installed_are_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(DependencyError, match=r"(?s)exit code 1.*No matching distribution.*no-such-thing.*\.log"):
        envs_venv(BundleMetadata(["no-such-thing==9"], HERE), tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_half_made_environment_is_made_again(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(venv_module, "_create", lambda home, *rest: (built.append(home), home.mkdir()))
    metadata = BundleMetadata(["x"], HERE)
    home = envs_venv(metadata, tmp_path).parent.parent
    (home / "rest").touch()
    assert envs_venv(metadata, tmp_path).parent.parent == home
    assert built == [home, home]
    assert not (home / "rest").exists()
    (home / "complete").touch()
    envs_venv(metadata, tmp_path)
    assert len(built) == 2


def test_a_python_that_is_not_there_is_named(tmp_path):
    with pytest.raises(IncompatiblePythonError, match=r"made with Python 3\.99.*no python3\.99 on the PATH"):
        envs_venv(BundleMetadata([], "3.99"), tmp_path)
