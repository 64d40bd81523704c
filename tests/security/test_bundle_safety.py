"""A bundle is hostile: it runs nowhere but in the process made for it, and only if it is the one that was packed."""

from __future__ import annotations

import ast
import json
import os
import pickle
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

import benchmax
from benchmax.bundle import (
    Bundle,
    BundleMetadata,
    BundlingError,
    ValidationError,
    bundle_digest,
    dump_bundle,
    envs_venv,
    inspect_bundle,
    load_bundle,
    load_env_from_bundle,
    read_bundle_files,
    unregistered_local_refs,
    write_bundle_files,
)
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.remote import open_remote_env
from benchmax.errors import EnvDefinitionError

SOURCE = Path(benchmax.__file__).parent


class Honest(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kw):
        return {"x": 1.0}


class Booby:
    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.mkdir, (str(self.canary),)


def hostile(canary):
    pickled = pickle.dumps((Booby(canary), {}))
    return Bundle(pickled, BundleMetadata(sha256=bundle_digest(pickled)))


async def test_a_canary_appears_only_in_the_child(tmp_path):
    """S30."""
    canary = tmp_path / "canary"
    bundle = hostile(canary)
    write_bundle_files(bundle, tmp_path / "p", tmp_path / "m")
    report = inspect_bundle(**_parts(read_bundle_files(tmp_path / "p", tmp_path / "m")))
    assert report.suspicious == ["posix.mkdir"]
    unregistered_local_refs(bundle.pickled)
    for load in (load_bundle, load_env_from_bundle):
        with pytest.raises(BundlingError, match="did not allow it"):
            load(bundle)
    assert not canary.exists()
    with pytest.raises(EnvDefinitionError, match="is not a class"):
        await open_remote_env(bundle)
    assert canary.exists()


def _parts(bundle):
    return {"pickled": bundle.pickled, "metadata": bundle.metadata}


@pytest.mark.parametrize("protocol", range(6))
def test_every_pickle_protocol_is_seen_through(protocol, tmp_path):
    pickled = pickle.dumps([Booby(tmp_path / "x"), {"a": (1, [2, {3}], b"4", "os"), "os": "os"}], protocol)
    report = inspect_bundle(pickled, BundleMetadata())
    assert any("mkdir" in each for each in report.suspicious)
    assert not (tmp_path / "x").exists()


def test_names_hidden_in_the_memo_or_computed_are_reported():
    memo = b"\x80\x04\x8c\x02os\x94\x8c\x06system\x940h\x00h\x01\x93\x8c\x04true\x85R."
    assert inspect_bundle(memo, BundleMetadata()).suspicious == ["os.system"]
    computed = b"\x80\x04]N\x93)R."
    assert inspect_bundle(computed, BundleMetadata()).suspicious == ["1 computed names"]


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"hello", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f", b"0" * 99, b"("]
)
def test_rubbish_is_a_problem_and_not_a_crash(data):
    assert any("not a readable pickle" in each for each in inspect_bundle(data, BundleMetadata()).problems)


def test_reading_a_large_hostile_pickle_is_quick():
    began = time.process_time()
    inspect_bundle(b"\x80\x04" + b"(" * 300_000 + b"." * 10, BundleMetadata())
    inspect_bundle(b"\x80\x04" + b"((" * 1000 + b"N" * 100_000 + b"t" * 1000 + b"t" * 1000 + b".", BundleMetadata())
    assert time.process_time() - began < 5


async def test_a_tampered_bundle_is_refused(tmp_path):
    """S31."""
    honest = dump_bundle(Honest)
    canary = tmp_path / "canary"
    tampered = Bundle(hostile(canary).pickled, honest.metadata)
    assert inspect_bundle(**_parts(tampered)).digest_ok is False
    with pytest.raises(ValidationError, match="changed after it was made"):
        load_bundle(tampered, trust=True)
    with pytest.raises(EnvDefinitionError, match="changed after it was made"):
        await open_remote_env(tampered)
    fields = {**json.loads(honest.metadata.to_json_bytes()), "python_version": "3.7"}
    with pytest.raises(EnvDefinitionError, match=r"IncompatiblePythonError.*made with Python 3\.7"):
        await open_remote_env(Bundle(honest.pickled, BundleMetadata(**fields)))
    assert not canary.exists()


@pytest.mark.parametrize("version", ["3.11/../../../tmp/evil", "3.*", "", "2.7", "3.11;x", "3." + "9" * 50])
def test_a_forged_python_version_is_no_path(version, tmp_path):
    metadata = BundleMetadata(python_version=version)
    with pytest.raises(ValidationError, match="is not a Python version"):
        envs_venv(metadata, tmp_path)
    assert not inspect_bundle(dump_bundle(Honest).pickled, metadata).ok
    with pytest.raises(ValidationError, match="is not a Python version"):
        load_bundle(Bundle(b"", metadata), trust=True)


def test_only_the_worker_opts_in():
    calls = _calls_in_package("allow_loading")
    # The process an environment lives in, and the one that examines it.
    assert [path for path, _ in calls] == ["bundle/environment_process.py", "platform/runner/children/doctor_worker.py"]
    # and importing everything around it does not
    script = "import benchmax.bundle, benchmax.envs.remote, benchmax.bundle.load as load; print(load._opted_in)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"


def test_one_line_of_the_package_unpickles():
    """S30: also no other door to running data."""
    assert [
        path for path, _ in _calls_in_package("loads", "load", of=("pickle", "cloudpickle", "dill", "marshal"))
    ] == ["bundle/load.py"]
    assert _calls_in_package("Unpickler") == []
    # Scripts that the user named, each run in a process of its own: a forked MCP server, and a workdir's rewards.
    scripts = {"envs/mcp/fork/preload.py", "envs/mcp/agent/reward_worker.py"}
    # Code that nobody read, each time in a process that the sandbox holds.
    sandboxed = {"sandbox/inside/zygote.py", "sandbox/inside/script.py"}
    sandboxed |= {"envs/code/inside/solution.py", "envs/code/inside/asserts.py"}
    # Solutions that benchmax itself wrote, changed in one place.
    ours = {"envs/code/levels/mutants.py"}
    assert {path for path, _ in _calls_in_package("eval", "exec")} == scripts | sandboxed | ours
    for path, call in _calls_in_package("load", of=("torch",)):
        unsafe = {each.arg: getattr(each.value, "value", None) for each in call.keywords}
        assert unsafe.get("weights_only") is True, path
    assert _calls_in_package("load", "full_load", "unsafe_load", of=("yaml",)) == []


def _calls_in_package(*names, of=None):
    """Calls of plain names, or of `module.name` when modules are given."""
    found = []
    for path, call in _all_calls():
        if _is_named(call.func, names, of):
            found.append((path, call))
    return found


@cache
def _all_calls():
    trees = {str(path.relative_to(SOURCE)): ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    return [(path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _is_named(function, names, of):
    if isinstance(function, ast.Attribute):
        owner = getattr(function.value, "id", None)
        return function.attr in names and owner in (of or ("pickle", "builtins"))
    return of is None and isinstance(function, ast.Name) and function.id in names
