"""The runner's children and their folders, where they meet the unexpected."""

import asyncio
import errno
import json
import os
import subprocess
import sys
import time

import pytest

from benchmax.files import atomic
from benchmax.files.redaction import Redactor
from benchmax.platform.runner.children import doctor_child
from benchmax.platform.runner.children.child_process import ChildProcess, attempt
from benchmax.platform.runner.ingest import Ingest
from benchmax.platform.runner.jobs.outcome import NO_SPACE
from benchmax.platform.runner.live.session_child import Listener
from benchmax.platform.store.queue.live_sessions import SessionFolder
from platform_world import make_run, metric_values


def test_no_secret_is_in_how_a_child_ended(tmp_path, capfd):
    async def work(child):
        raise RuntimeError(f"refused: {child.variables['TOKEN']} and {child.message['endpoint_key']}")

    word = {"variables": {"TOKEN": "sk-0123456789"}, "endpoint_key": "ek-9876543210"}
    ended = attempt(work, ChildProcess(tmp_path, word))
    assert ended.reason == "RuntimeError: refused: [secret] and [secret]"
    printed = capfd.readouterr().err
    assert "refused: [secret]" in printed
    assert not [value for value in ("sk-0123456789", "ek-9876543210") if value in printed]


FULL = """
import errno
from benchmax.platform.runner.children.child_process import main

async def work(child):
    raise OSError(errno.ENOSPC, "No space left on device")

main(work)
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_reported_although_its_log_is_on_it(tmp_path):
    with open("/dev/full", "w") as log:
        done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], stdout=log, stderr=log, timeout=60)
    assert done.returncode == NO_SPACE
    assert json.loads((tmp_path / "exit.json").read_text())["code"] == NO_SPACE


async def test_a_session_on_a_full_disk_answers_and_ends_when_it_is_idle(tmp_path, monkeypatch):
    class Echo:
        def about(self):
            return {}

        async def answer(self, request, send):
            send({"heard": request["say"]})

    folder = SessionFolder(tmp_path)
    write = folder.write

    def write_all_but_activity(name, note):
        if name == "activity":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(name, note)

    monkeypatch.setattr(folder, "write", write_all_but_activity)
    serving = asyncio.create_task(Listener(folder, Echo(), Redactor(())).serve(0.5))
    while not (tmp_path / "ready.json").exists():
        await asyncio.sleep(0.01)
    with folder.socket_path() as name:
        reader, writer = await asyncio.open_unix_connection(name)
    writer.write(b'{"say": "hello", "token": "%s"}\n' % folder.note("ready")["token"].encode())
    assert json.loads(await reader.readline()) == {"heard": "hello"}
    writer.close()
    assert "Nobody used it" in await asyncio.wait_for(serving, 30)


def test_a_secret_of_digits_costs_no_record(store, tmp_path):
    with store.write() as session:
        run = make_run(session)
    lines = [
        {"step": 0, "split": "train", "time": 1763123456.5, "values": {"loss": 0.1234567}},
        {"step": 1, "split": "train", "time": 1763123999.5, "values": {"named 123456": 0.5}},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Ingest(store, run.id, tmp_path, ["123456"]).step()
    with store.read() as session:
        found = metric_values(session, run.id, "train")
    assert found == {"loss": [{"step": 0, "value": 0.1234567}], "named [secret]": [{"step": 1, "value": 0.5}]}


async def test_an_examination_ends_although_something_was_left_running(tmp_path, monkeypatch):
    async def none():
        return None

    monkeypatch.setattr(doctor_child.sandboxing, "confinement", none)  # which would leave nothing
    monkeypatch.setattr(doctor_child, "EXAMINATION_SECONDS", 240.0)
    worker = tmp_path / "leaves_one_behind.py"
    worker.write_text(
        "import json, subprocess, sys\n"
        "orders = json.load(sys.stdin)\n"
        "left = subprocess.Popen(['sleep', '300'])\n"
        "open(orders['report'], 'w').write(json.dumps({'ok': True, 'left': left.pid}))\n"
        "print('done', flush=True)\n"
    )
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {worker}\n")
    program.chmod(0o700)
    before = time.monotonic()
    try:
        await doctor_child._work(program, tmp_path, {}, {})
        assert time.monotonic() - before < 120.0
    finally:
        os.kill(json.loads((tmp_path / "report.json").read_text())["left"], 9)


def test_a_copy_that_was_cut_off_is_made_again(tmp_path, monkeypatch):
    blob, target = tmp_path / "blob", tmp_path / "rows.jsonl"
    blob.write_bytes(b"0123456789")

    def other_disk(*_):
        raise OSError(errno.EXDEV, "another disk")

    def cut_off(source, to):
        to.write(b"0123")
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic.os, "link", other_disk)
    with monkeypatch.context() as power_cut:
        power_cut.setattr(atomic.shutil, "copyfileobj", cut_off)
        with pytest.raises(KeyboardInterrupt):
            atomic.link_or_copy(blob, target)
    atomic.link_or_copy(blob, target)
    assert target.read_bytes() == b"0123456789"


def test_a_fifo_of_an_earlier_process_with_the_same_number_is_no_hindrance(tmp_path):
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from benchmax.platform.runner.processes import parent_watch\n"
        "folder, (theirs, ours) = Path(sys.argv[1]), os.pipe()\n"
        "os.mkfifo(parent_watch.fifo_path(folder, os.getpid()))\n"
        "parent_watch.watch_parent(theirs, folder, 'adopt')\n"
        "parent_watch.refuse_adoption(folder)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
