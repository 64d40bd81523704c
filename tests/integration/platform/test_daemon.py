"""`benchmax up` and what goes with it: real server, real runner, on a free port."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import threading
import time

import pytest
import typer
from typer.testing import CliRunner

from benchmax.cli import output
from benchmax.cli.platform import up as commands
from benchmax.errors import NotFoundError, UsageError
from benchmax.net import ports
from benchmax.platform.daemon import control, daemon, liveness
from benchmax.platform.daemon.backup import back_up
from benchmax.platform.daemon.options import Options
from benchmax.platform.runner.processes import process_ids
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.store.accounts import api_keys
from benchmax.platform.store.database import open_database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import events, runs
from platform_world import make_run
from runner_world import is_running, launch, open_world, start_stub, wait_until

pytestmark = pytest.mark.timeout(300)  # several processes for each test, on machines that do other things too

app = typer.Typer()
for command in (commands.up, commands.down, commands.status, commands.logs, commands.reindex, commands.backup):
    app.command()(command)


def call(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setattr(ports, "DEFAULT_PORT", ports.free_port())  # another test's platform may be about to take it
    made = DataDir(tmp_path / "data")
    yield made
    control.stop(made)


def pids(data):
    note = liveness.read_daemon(data)
    return [note["pid"], note["server"].get("pid"), note["runner"].get("pid")]


def test_before_the_first_start_messages_say_what_to_do_in_one_line(data, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert f"Start it with: {output.command()} up\n" in call("status", "--data-dir", data.root, code=1).stderr
    with pytest.raises(NotFoundError, match=r"nothing was started in .* yet\. Start it with: benchmax up"):
        call("logs", "--data-dir", data.root)
    with pytest.raises(NotFoundError, match="no log of run_1"):
        call("logs", "run_1", "--data-dir", data.root)


def test_up_keeps_both_alive_and_down_ends_all(data):
    port = ports.free_port()
    first = call("up", "--port", port, "--data-dir", data.root)
    assert f"http://127.0.0.1:{port}" in first.stderr
    assert "Sign in, once, with http" in first.stderr
    assert f"down --data-dir {data.root}" in first.stderr, "the command ends this platform, and no other"
    assert "token=" not in (data.logs / "server.log").read_text(), "a link is for one person, not for a log"
    link = next(word for word in first.stderr.split() if "/login" in word)
    other = ports.free_port()
    second = call("up", "--port", other, "--data-dir", data.root)
    assert (
        f"already running, as process {pids(data)[0]}, at http://127.0.0.1:{port}. To use port {other}" in second.stderr
    )
    assert link not in second.stderr, "a link is for once"
    found = json.loads(call("status", "--data-dir", data.root, "--json").stdout)
    assert found["running"]
    assert found["url"] == f"http://127.0.0.1:{port}"
    assert found["runs"] == {}

    old = pids(data)
    for pid in old[1:]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, old[1:])))
    wait_until(lambda: control.status(data)["server"]["running"] and control.status(data)["runner"]["running"])
    wait_until(lambda: liveness.server_url(data))
    new = pids(data)
    assert new[0] == old[0]
    assert not {*old[1:]} & {*new[1:]}
    with pytest.raises(UsageError, match="in use"):
        control.start(Options(DataDir(data.root.parent / "other"), port))

    assert "Stopped" in call("down", "--data-dir", data.root).stderr
    assert not any(map(is_running, new))
    assert "not running" in call("down", "--data-dir", data.root).stderr
    assert "not running" in call("status", "--data-dir", data.root, code=1).stderr
    assert not data.server_info.exists()


def test_a_full_disk_does_not_end_the_daemon(tmp_path, monkeypatch, capsys):
    data = DataDir(tmp_path).create()
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    kept = [
        daemon.KeptProcess(name, sleep, dict(os.environ), data.logs / f"{name}.log", lambda: True)
        for name in ("server", "runner")
    ]
    keeper = daemon.Daemon(Options(data), kept=kept)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(daemon, "open_log", fail)
        full.setattr(daemon, "write_text", fail)
        keeper._look_after_both()
    assert "server cannot be started now" in capsys.readouterr().err
    assert [each.popen for each in kept] == [None, None]
    with monkeypatch.context() as full:
        full.setattr(daemon, "write_text", fail)
        wait_until(lambda: all(each.popen for each in kept), tick=lambda: (time.sleep(0.05), keeper._look_after_both()))
    keeper._look_after_both()
    try:
        assert json.loads(liveness.daemon_file(data).read_text())["runner"]["pid"] == kept[1].popen.pid
    finally:
        keeper._end()


def test_two_that_start_it_at_once_share_one_and_all_end_with_a_killed_daemon(data, capfd):
    urls: list[str] = []
    threads = [threading.Thread(target=lambda: urls.append(control.ensure_running(data))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    url = liveness.server_url(data)
    assert len(urls) == 2
    assert url in urls
    assert "in the background" in capfd.readouterr().err
    assert control.ensure_running(data) == url
    assert capfd.readouterr().err == "", "it is only said when it is done"
    running = pids(data)
    os.kill(running[0], signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, running)))
    assert liveness.read_daemon(data) is None
    revoke_local_key(data)
    assert control.ensure_running(data)
    assert set(pids(data)).isdisjoint(running)
    assert local_key_works(data), "who starts the platform can use it"


def test_the_next_start_finds_the_database_of_the_last(data, monkeypatch):
    """With another one all runs would seem lost. Its address, which may hold a password, is no secret in `ps`."""
    monkeypatch.setenv("BENCHMAX_DATABASE_URL", f"sqlite:///{data.root.parent}/elsewhere.db")
    start_where_the_port_is_taken_meanwhile(data, monkeypatch)
    wait_until(data.database_note.exists)
    assert data.database_note.stat().st_mode & 0o777 == 0o600
    assert not [word for pid in pids(data) for word in process_ids.command_line(pid) if "elsewhere" in word]
    control.stop(data)
    monkeypatch.delenv("BENCHMAX_DATABASE_URL")
    call("up", "--port", ports.free_port(), "--data-dir", data.root)
    assert liveness.read_daemon(data)["database_url"].endswith("elsewhere.db")
    assert not data.database.exists()
    assert local_key_works(data)


def start_where_the_port_is_taken_meanwhile(data, monkeypatch):
    """It is not insisted on."""
    looks, is_free = iter([True, True]), ports.is_free
    with monkeypatch.context() as patch, socket.create_server(("127.0.0.1", ports.DEFAULT_PORT)):
        patch.setattr(ports, "is_free", lambda port: next(looks, False) or is_free(port))
        url = control.ensure_running(data)
        assert url == liveness.server_url(data) != f"http://127.0.0.1:{ports.DEFAULT_PORT}"


def test_the_count_of_runs_calls_a_stopped_one_stopped(data):
    database = open_database(data.create())
    with database.write() as session:
        runs.set_status(session, make_run(session).id, "cancelled", "The run was stopped.")
    database.close()
    assert "  runs: 1 stopped\n" in call("status", "--data-dir", data.root, code=1).stderr


@pytest.mark.parametrize("port", ["0", "-1", "65536"])
def test_a_port_that_cannot_be_is_refused_in_words(data, port):
    assert "Invalid value for '--port'" in call("up", "--port", port, "--data-dir", data.root, code=2).stderr


def test_a_platform_that_does_not_answer_yet_is_not_at_none(data, monkeypatch):
    found = {"running": True, "url": None, "data": str(data.root)}
    process = {"running": True, "pid": 1}
    monkeypatch.setattr(control, "status", lambda _: {**found, "server": process, "runner": process})
    assert "The platform starts, and does not answer yet" in call("status", "--data-dir", data.root).stderr


def local_key(data):
    return json.loads(data.credentials.read_text())["api_key"]


def revoke_local_key(data):
    database = open_database(data)
    with database.write() as session:
        key, user = api_keys.find_key(session, local_key(data))
        api_keys.revoke_key(session, user.id, key.id)
    database.close()


def local_key_works(data):
    database = open_database(data, data.database_url())
    with database.read() as session:
        found = api_keys.find_key(session, local_key(data))
    database.close()
    return found is not None


def test_a_damaged_note_does_not_hide_a_running_platform(data):
    control.start(Options(data, ports.free_port()))
    wait_until(lambda: data.holder("runner"))
    whole, text = liveness.read_daemon(data), liveness.daemon_file(data).read_text()
    for damage in ('{"pid": ', "{}", '{"pid": 1, "started": 0.0}'):
        os.kill(whole["pid"], signal.SIGSTOP)
        try:
            liveness.daemon_file(data).write_text(damage)
            assert liveness.read_daemon(data) == whole, "the locks tell"
            assert "The platform runs at" in call("status", "--data-dir", data.root).stderr
            assert f", as process {whole['pid']}" in call("up", "--data-dir", data.root).stderr
        finally:
            os.kill(whole["pid"], signal.SIGCONT)
        wait_until(lambda: liveness.daemon_file(data).read_text() == text)
    liveness.daemon_file(data).write_text("{}")
    assert "Stopped" in call("down", "--data-dir", data.root).stderr
    assert not any(map(is_running, (whole["pid"], whole["server"]["pid"], whole["runner"]["pid"])))
    assert "not running" in call("down", "--data-dir", data.root).stderr


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(tmp_path):
    data = DataDir(tmp_path / "data").create()
    data.database.write_text("this is no database")
    data.database.chmod(0o600)
    options = Options(data, ports.free_port())
    (data.logs / "server.log").write_text("said by an earlier start\n")
    with pytest.raises(UsageError, match=r"not a database|cannot be used") as caught:
        control.start(options)
    assert "earlier start" not in str(caught.value)
    assert liveness.read_daemon(data) is None


def test_ctrl_c_ends_the_foreground(data):
    port = ports.free_port()
    code = "import sys; sys.argv[0] = 'benchmax'; import typer; from benchmax.cli.platform.up import up; typer.run(up)"
    words = [sys.executable, "-c", code, "--foreground", "--port", str(port), "--data-dir", str(data.root)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    said = ""
    while "Ctrl-C" not in said and (line := process.stderr.readline()):
        said += line
    assert "Sign in, once" in said
    running = pids(data)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not any(map(is_running, running))


# Logs, reindex, backup: with a finished run


@pytest.fixture
def finished(tmp_path):
    database, data = open_world(tmp_path)
    boss = Supervisor(database, data, slots=["cpu:0"], start=start_stub)
    run_id = launch(database, steps=5, crash_at=3, every=2)
    while not control.status(data)["runs"].get("complete"):
        boss.tick()
    yield database, data, run_id
    database.close()


def test_logs(finished):
    _, data, run_id = finished
    assert "about to die" in call("logs", run_id, "--data-dir", data.root).stdout
    (data.logs / "runner.log").write_text("".join(f"line {number}\x1b[31m\n" for number in range(100)))
    shown = call("logs", "runner", "-n", 2, "--data-dir", data.root).stdout
    assert shown == "line 98\\x1b[31m\nline 99\\x1b[31m\n"
    for absent in ("server", "run_x"):
        with pytest.raises(NotFoundError, match="no log"):
            call("logs", absent, "--data-dir", data.root)
    with pytest.raises(UsageError):
        call("logs", "../../etc", "--data-dir", data.root)


def points(path):
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT step, value FROM points ORDER BY series_id, step").fetchall()
    connection.close()
    return found


def test_reindex_rebuilds_what_was_lost(finished):
    database, data, run_id = finished
    before = points(data.database)
    assert len(before) == 10
    with sqlite3.connect(data.database) as connection:
        connection.execute("DELETE FROM points WHERE step > 1")
        connection.execute("DELETE FROM rollouts")
    connection.close()
    assert f"Rebuilt {run_id}" in call("reindex", "--data-dir", data.root).stderr
    assert points(data.database) == before
    with database.read() as session:
        kinds = [event.kind for event in events.of_run(session, run_id)]
    assert (kinds[0], kinds[-1]) == ("training.pending", "training.complete"), "oldest first, whenever it was read"
    with pytest.raises(NotFoundError, match="no run"):
        call("reindex", "run_absent", "--data-dir", data.root)


def test_a_backup_is_whole_and_can_be_used(finished, tmp_path):
    _, data, run_id = finished
    (data.blobs / "ab").mkdir()
    (data.blobs / "ab" / "abc").write_bytes(b"content")
    os.mkfifo(data.run(run_id) / "fifo")
    for cache in ("exports", "evals/evl_1/model", "parent/model"):
        (data.run(run_id) / cache).mkdir(parents=True)
        (data.run(run_id) / cache / "weights").write_bytes(b"many")
    target = tmp_path / "copy.tar.gz"
    call("backup", target, "--data-dir", data.root)
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as archive:
        names = archive.getnames()
        modes = {(each.isdir(), each.mode) for each in archive}
        archive.extractall(tmp_path / "restored", filter="data")
    assert modes == {(True, 0o700), (False, 0o600)}, "secrets are in it"
    assert not [name for name in names if "fifo" in name or ".tmp" in name]
    assert [name for name in names if name.endswith("weights")] == [f"runs/{run_id}/parent/model/weights"], (
        "a fork needs its start; the rest can be made again"
    )
    restored = DataDir(tmp_path / "restored")
    assert points(restored.database) == points(data.database)
    assert control.status(restored)["runs"] == {"complete": 1}
    assert (restored.blobs / "ab" / "abc").read_bytes() == b"content"
    copied = (restored.run(run_id) / "metrics.jsonl").read_bytes()
    assert copied == (data.run(run_id) / "metrics.jsonl").read_bytes()
    with pytest.raises(UsageError, match="exists"):
        back_up(data, target)
    with pytest.raises(NotFoundError, match="no database"):
        back_up(DataDir(tmp_path / "nothing"), tmp_path / "x.tar")
