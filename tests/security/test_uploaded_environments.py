"""S32: on the platform an uploaded environment cannot reach the platform that runs it, also while it is examined."""

from __future__ import annotations

import json
import os
import sys

import pytest

from benchmax.bundle import dump_bundle
from benchmax.envs.base_env import BaseEnv
from benchmax.errors import SandboxUnavailable
from benchmax.platform.runner.children import doctor_child, sandboxing
from benchmax.platform.runner.jobs.preparation import machine_message
from benchmax.platform.store.accounts import users
from benchmax.platform.store.database import open_database
from benchmax.platform.store.datadir import DataDir
from benchmax.sandbox import Capabilities

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setattr(sandboxing, "_from_runner", {})
    monkeypatch.delenv("BENCHMAX_SANDBOX_INSIST", raising=False)
    found = DataDir(tmp_path / "data").create()
    found.secret_key.write_text("the key of all secrets")
    found.server_info.write_text(json.dumps({"url": "http://127.0.0.1:7331", "pid": os.getpid()}))
    return found


class Thief(BaseEnv):
    """Tells what it can read of the platform."""

    def __init__(self, path):
        self.path = path

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"x": float(str(task["answer"]) in messages[-1]["content"])}

    async def validate_probe(self, eval_dataset):
        try:
            with open(self.path) as file:
                return {"ok": False, "reason": f"read {file.read()}"}
        except OSError as error:
            return {"ok": False, "reason": f"refused by {type(error).__name__}"}


async def test_an_examined_environment_reads_nothing_of_the_platform(data):
    folder = data.root / "errands" / "one"
    folder.mkdir(parents=True)
    bundle = dump_bundle(Thief, constructor_args={"path": str(data.secret_key)})
    (folder / "cls.pkl").write_bytes(bundle.pickled)
    (folder / "metadata.json").write_bytes(bundle.metadata.to_json_bytes())
    rows = [{"prompt": f"{n}?", "answer": str(n)} for n in range(8)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    launch = {
        "cls": str(folder / "cls.pkl"), "metadata": str(folder / "metadata.json"), "rows": str(folder / "rows.jsonl"),
    }  # fmt: skip
    await doctor_child._work(sys.executable, folder, launch, {})
    report = (folder / "report.json").read_text()
    assert "refused by FileNotFoundError" in report
    assert "the key of all secrets" not in report


def test_the_platforms_address_and_who_else_there_is_are_told(data):
    database = open_database(data, None)
    try:
        with database.write() as session:
            users.ensure_user(session, "one@example.com", "admin")
        told = {"several_users": False, "closed_ports": [7331], "platform": "http://127.0.0.1:7331"}
        assert machine_message(database, data)["sandbox"] == told
        with database.write() as session:
            users.ensure_user(session, "two@example.com")
        assert machine_message(database, data)["sandbox"]["several_users"] is True
    finally:
        database.close()


def poor_machine(monkeypatch, guards=frozenset({"landlock_files"})):
    async def found():
        return Capabilities(guards, {"user": "not allowed"}, root=False)

    monkeypatch.setattr(sandboxing, "capabilities", found)


async def test_several_users_are_refused_without_a_boundary_unless_insisted(data, monkeypatch, capfd):
    poor_machine(monkeypatch)
    sandboxing.receive({"sandbox": {"several_users": True, "closed_ports": [7331]}})
    with pytest.raises(SandboxUnavailable, match="several users"):
        await sandboxing.confinement()
    monkeypatch.setenv("BENCHMAX_SANDBOX_INSIST", "1")
    confined = await sandboxing.confinement()
    assert confined is not None
    assert confined.insist


async def test_one_user_is_told_once(data, monkeypatch, capfd):
    poor_machine(monkeypatch, frozenset())
    sandboxing.receive({"sandbox": {"several_users": False}})
    assert await sandboxing.confinement() is None
    assert await sandboxing.confinement() is None
    assert capfd.readouterr().err.count("runs without a boundary") == 1


async def test_where_the_machine_can_the_platforms_address_is_closed(data, monkeypatch):
    monkeypatch.setenv("BENCHMAX_SANDBOX_READ", f"/opt/models{os.pathsep}/opt/node")
    sandboxing.receive({"sandbox": {"several_users": True, "closed_ports": [7331]}})
    confined = await sandboxing.confinement()
    assert confined is not None
    assert (confined.closed_ports, confined.read) == ((7331,), ("/opt/models", "/opt/node"))
