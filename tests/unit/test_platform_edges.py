"""The platform's small parts where they meet the unexpected: racing threads, hostile bytes, what was left behind."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from benchmax.bundle import BundleMetadata, inspect_bundle
from benchmax.cli.platform import up as platform_commands
from benchmax.errors import ConfigError, UsageError
from benchmax.files.atomic import write_text
from benchmax.platform.daemon import daemon as keeper
from benchmax.platform.runner.children import doctor_child
from benchmax.platform.runner.children.train_child import Phase, attempt
from benchmax.platform.runner.ingest import Ingest
from benchmax.platform.runner.jobs import preparation
from benchmax.platform.sdk.playground import AsyncPlaygroundSession
from benchmax.platform.sdk.transport import in_threads
from benchmax.platform.server.problems import Refused
from benchmax.platform.server.security.middleware import Limiter
from benchmax.platform.server.services.response_cache import Charts
from benchmax.platform.store.accounts import user_admin as people
from benchmax.platform.store.accounts import users
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.database import make_engine, open_database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import metrics as points
from benchmax.platform.store.runs import rollout_search as outline
from benchmax.platform.store.runs import rollouts, runs
from benchmax.platform.store.tables import Job
from benchmax.platform.store.uploads import blobs
from benchmax.platform.wire.runs import LaunchArg, check_launch_args
from platform_world import make_run

# The data directory


def at_once(work, count=8):
    """The same work in many threads, let go together."""
    gate = threading.Barrier(count)

    def each(number):
        gate.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(each, range(count)))


def test_many_writers_of_one_private_file_do_not_meet(tmp_path):
    for _ in range(20):
        at_once(lambda number: write_text(tmp_path / "note.json", str(number) * 1000, private=True))
        assert len(set((tmp_path / "note.json").read_text())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["note.json"]


def test_whoever_comes_first_makes_the_one_key(tmp_path):
    for number in range(20):
        data = DataDir(tmp_path / str(number)).create()
        vaults = at_once(lambda _, data=data: Vault(data), 4)
        sealed = vaults[0]._fernet.encrypt(b"secret")
        assert {vault._fernet.decrypt(sealed) for vault in vaults} == {b"secret"}


def test_a_database_url_that_cannot_be_read_is_refused_without_its_password():
    with pytest.raises(UsageError, match=r"postgresql://… cannot be opened.*Give") as refused:
        make_engine("postgresql://me:s3cret@host:po3t/db")
    assert not [word for word in ("s3cret", "po3t") if word in str(refused.value)]


# The store


def test_a_removed_user_comes_in_by_no_door(store):
    with store.write() as session:
        user = users.ensure_user(session, "a@example.org")
        token, row = users.create_device_code(session, "cli")
        row.user_id = user.id
        permit, _ = blobs.create_upload(session, user.id, "datasets/a.jsonl", "application/jsonl", 60.0)
    with store.write() as session:
        people.remove(session, people.find(session, user.id))
    with store.write() as session:
        assert users.poll_device_code(session, token, "cli") == "invalid_grant"
        assert blobs.claim_upload(session, permit) is None


def test_a_tag_is_looked_for_in_all_runs(store):
    with store.write() as session:
        first = make_run(session, name="first")
        first.tags, first.created = ["baseline", "50%"], 1.0
        second = make_run(session, name="second")
        second.tags, second.created = ["Baseline"], 2.0
        for number in range(5):
            make_run(session, name=f"later {number}")
    with store.read() as session:

        def found(tag, **more):
            return [run.name for run in runs.of_owner(session, first.owner_id, tag=tag, **more)]

        assert found("baseline", limit=1) == ["first"]
        assert found("Baseline", limit=1) == ["second"]
        assert found("50%", limit=1) == ["first"]
        assert found("baseline", limit=1, offset=1) == []


@pytest.mark.parametrize("prompt", ["1234", "[1, 2, 3]", '"23"', "12 {"])
def test_a_search_reads_the_prompt_where_the_record_is_gone(store, tmp_path, prompt):
    record = {"id": "a", "example_id": "e", "messages": [{"role": "user", "content": prompt}], "completion_start": 1}
    with store.write() as session:
        run = make_run(session)
        rollouts.index(session, run.id, [rollouts.row_of(record, file="rollouts/gone.jsonl", offset=0, length=9)])
    with store.read() as session:
        found = outline.search(session, tmp_path, run.id, "2", mode="eval")
    assert [words for _, words in found.rows] == [prompt]


def test_kept_charts_count_the_addresses_too(store):
    charts = Charts(most=20_000)
    with store.write() as session:
        run = make_run(session)
    with store.read() as session:
        for number in range(200):
            url = SimpleNamespace(path="/scalars", query=f"mode=train&x={number:0500d}")
            charts.answer(SimpleNamespace(url=url, headers={}), session, run, lambda: b"{}")
    assert len(charts._kept) < 40


def test_a_limit_holds_for_many_at_once():
    limiter = Limiter({"key": 1})

    def hit(_):
        try:
            limiter.hit("key", "me")
        except Refused:
            return 0
        return 1

    assert sum(at_once(lambda number: sum(hit(number) for _ in range(50)))) == 1


# Bundles


def test_a_pickle_with_many_values_is_looked_into_quickly():
    count = 60_000
    hostile = b"\x80\x04" + b"N" * count + b"(t" * count + b"."
    before = time.process_time()
    report = inspect_bundle(hostile, BundleMetadata())
    assert time.process_time() - before < 5.0
    assert not report.globals


def test_marks_are_followed_as_the_real_machine_does():
    # A tuple inside a list inside a tuple, then a name that only shows when each mark finds its own values.
    pickled = b"\x80\x04((]((X\x01\x00\x00\x00atet\x8c\x02os\x8c\x06system\x93t."
    assert inspect_bundle(pickled, BundleMetadata()).globals == ["os.system"]


# The runner


def test_no_secret_is_in_how_a_child_ended(tmp_path, capfd):
    async def work(folder, word, phase):
        raise RuntimeError(f"refused: {word['variables']['TOKEN']} and {word['endpoint_key']}")

    word = {"variables": {"TOKEN": "sk-0123456789"}, "endpoint_key": "ek-9876543210"}
    ended = attempt(work, tmp_path, word, Phase(tmp_path))
    assert ended.reason == "RuntimeError: refused: [secret] and [secret]"
    printed = capfd.readouterr().err
    assert "refused: [secret]" in printed
    assert not [value for value in ("sk-0123456789", "ek-9876543210") if value in printed]


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
        found = points.scalars(session, run.id, "train")
    assert found == {"loss": [{"step": 0, "value": 0.1234567}], "named [secret]": [{"step": 1, "value": 0.5}]}


async def test_an_examination_ends_although_something_was_left_running(tmp_path, monkeypatch):
    async def none():
        return None

    monkeypatch.setattr(doctor_child.sandboxing, "confinement", none)  # which would leave nothing
    monkeypatch.setattr(doctor_child, "SECONDS", 60.0)
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
        assert time.monotonic() - before < 30.0
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

    monkeypatch.setattr(preparation.os, "link", other_disk)
    with monkeypatch.context() as power_cut:
        power_cut.setattr(preparation.shutil, "copyfileobj", cut_off)
        with pytest.raises(KeyboardInterrupt):
            preparation.place(blob, target)
    preparation.place(blob, target)
    assert target.read_bytes() == b"0123456789"


def test_a_folder_that_is_no_run_does_not_end_a_reindex(tmp_path):
    data = DataDir(tmp_path).create()
    database = open_database(data)
    with database.write() as session:
        known = make_run(session).id
    database.close()
    for name in (".left", "run_0unknown", known, "zz-left over"):
        (data.runs / name).mkdir()
    app = typer.Typer()
    app.command()(platform_commands.reindex)
    done = CliRunner().invoke(app, ["--data-dir", str(tmp_path)], catch_exceptions=False)
    assert f"Rebuilt {known}" in done.stderr
    assert done.stderr.count("as it is: ") == 3
    with pytest.raises(UsageError, match="There is no run"):
        CliRunner().invoke(app, ["run_0unknown", "--data-dir", str(tmp_path)], catch_exceptions=False)


def test_a_fifo_of_an_earlier_process_with_the_same_number_is_no_hindrance(tmp_path):
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from benchmax.platform.runner.processes import parent_watch as lifeline\n"
        "folder, (theirs, ours) = Path(sys.argv[1]), os.pipe()\n"
        "os.mkfifo(lifeline.fifo_path(folder, os.getpid()))\n"
        "lifeline.hold(theirs, folder, 'adopt')\n"
        "lifeline.let_go(folder)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# Arguments, logs, clients


def test_a_number_beyond_all_numbers_is_a_mistake_like_any_other():
    spec = LaunchArg(name="seed", label="Seed", type="integer", description="", min=0, max=10)
    with pytest.raises(ConfigError, match="seed must be"):
        check_launch_args([spec], {"seed": 10**400})


def test_the_last_lines_are_as_many_as_asked_for(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("".join(f"{number} {'x' * 3000}\n" for number in range(100)))
    found = keeper.tail(log, 50).splitlines()
    assert [line.split()[0] for line in found] == [str(number) for number in range(50, 100)]
    assert keeper.tail(log, 500).count("\n") == 99


async def test_who_leaves_a_stream_in_the_middle_of_a_step_has_it_closed():
    going, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def events():
        try:
            yield 1
            going.set()
            go_on.wait(60)
            yield 2
        finally:
            closed.set()

    async def read():
        async for _ in AsyncPlaygroundSession(SimpleNamespace(id="ses_1", say=lambda _: events())).say():
            pass

    reader = asyncio.create_task(read())
    assert await asyncio.to_thread(going.wait, 60)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert not closed.is_set()
    go_on.set()
    assert await asyncio.to_thread(closed.wait, 60)


async def test_who_leaves_a_stream_between_two_steps_has_it_closed_at_once():
    closed = threading.Event()

    def events():
        try:
            yield 1
            yield 2
        finally:
            closed.set()

    found = in_threads(events())
    assert await anext(found) == 1
    await found.aclose()
    assert closed.is_set()


def test_a_job_dropped_by_its_kind_leaves_the_others(store):
    from benchmax.platform.store.queue import jobs

    with store.write() as session:
        run = make_run(session)
        jobs.enqueue(session, run.id)
        jobs.enqueue(session, run.id, kind="eval", eval_id="evl_1")
        assert jobs.drop_queued(session, run.id, kind="train") == 1
        assert {job.kind: job.state for job in session.query(Job)} == {"train": "done", "eval": "queued"}
