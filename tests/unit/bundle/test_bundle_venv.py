"""An environment's packages, in a virtual environment of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from benchmax.bundle import BundleMetadata, DependencyError, IncompatiblePythonError, dump_bundle, envs_venv
from benchmax.bundle import venv as venv_module
from benchmax.bundle.interpreters import find_interpreter, interpreters
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


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"PIP_NO_INDEX": "1"}, "No package index was asked, because PIP_NO_INDEX is set. Unset it, or: give the plat"),
        ({"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}, "The package index cannot be reached from this machine. Give"),
        ({"PIP_INDEX_URL": "{folder}/empty"}, "No package index that was asked has such a package for this Python: c"),
    ],
    ids=["none", "unreachable", "empty"],
)
def test_packages_that_cannot_be_installed_are_reported_with_the_cause(tmp_path, monkeypatch, settings, cause):
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "empty").mkdir()
    for name, value in ({"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "1"} | settings).items():
        monkeypatch.setenv(name, value.format(folder=tmp_path.as_uri()))
    with pytest.raises(DependencyError, match=r"(?s)exit code 1.*No matching distribution.*no-such-thing") as caught:
        envs_venv(BundleMetadata(["no-such-thing==9"], HERE), tmp_path / "cache")
    assert cause in str(caught.value)
    assert str(caught.value).endswith(".log.")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


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


def test_a_python_that_no_path_names_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "py*env"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    for folder, says in (("py*env/versions/3.98.1/bin", "3.97"), ("uv/cpython-3.98.0-linux/bin", "3.98")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "python3.98").write_text(f"#!/bin/sh\necho {says}\n")
        (tmp_path / folder / "python3.98").chmod(0o755)
    assert len(interpreters("3.98")) == 2
    assert find_interpreter("3.98") == tmp_path / "uv/cpython-3.98.0-linux/bin/python3.98", "one that is what it says"
    (tmp_path / "uv/cpython-3.98.0-linux/bin/python3.98").chmod(0o644)
    with pytest.raises(IncompatiblePythonError, match=r"Install Python 3\.98"):
        find_interpreter("3.98")


def test_packages_are_built_from_source_unless_only_wheels_are_wanted(tmp_path, monkeypatch):
    """To build one runs its code."""
    canary = tmp_path / "canary"
    source = tmp_path / "evil-1.0"
    source.mkdir()
    (source / "setup.py").write_text(
        f"open({str(canary)!r}, 'a').close()\nfrom setuptools import setup\nsetup(name='evil', version='1.0')\n"
    )
    with tarfile.open(tmp_path / "evil-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "evil-1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")
    named = BundleMetadata(pip_dependencies=["evil"])
    with pytest.raises(DependencyError, match="No package index was asked"):
        envs_venv(named, tmp_path / "venvs", wheels_only=True)
    with pytest.raises(DependencyError, match="only as wheels"):
        envs_venv(BundleMetadata(pip_dependencies=[f"evil @ {source.as_uri()}"]), tmp_path, wheels_only=True)
    assert not canary.exists()
    with suppress(DependencyError):  # whether it can be built here or not, its code runs
        envs_venv(named, tmp_path / "venvs")
    assert canary.exists()
