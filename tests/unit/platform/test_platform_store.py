"""The database, on SQLite and PostgreSQL alike: migrations, leases, feeds, indexes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time

import pytest
import sqlalchemy as sa
from alembic import command

from benchmax.envs.types import Transcript
from benchmax.errors import UsageError
from benchmax.platform.store import database, schema_version
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import events, ingested, rollouts, runs
from benchmax.platform.store.runs import metrics as points
from benchmax.platform.store.runs import run_summaries as standings
from benchmax.platform.store.tables import Base, EnvLog, Job, MetricValue, RolloutRow
from benchmax.rollouts.record import Failure, LogLine, Rollout, ToolEvent
from platform_world import make_run, metric_values

HOLDER = jobs.Holder("first", 1, 1.0)
OTHER = jobs.Holder("second", 2, 2.0)


# Opening


def test_migrations_make_exactly_the_tables_and_again_change_nothing(store):
    with store.engine.begin() as connection:
        command.check(schema_version.alembic_config(connection))
    schema_version.upgrade(store.engine)
    names = set(sa.inspect(store.engine).get_table_names())
    assert set(Base.metadata.tables) <= names


def test_a_database_from_the_future_is_refused_and_left_alone(store, tmp_path):
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UsageError, match=r"newer benchmax \(tables 9999\)\. Upgrade"):
        schema_version.upgrade(store.engine)
    with store.engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == "9999"


def test_a_migration_that_fails_leaves_nothing(tmp_path, monkeypatch):
    engine = database.make_engine(f"sqlite:///{tmp_path}/a.db")

    def fail(*_):
        raise RuntimeError("power cut")

    monkeypatch.setattr("alembic.operations.Operations.execute", fail)
    with pytest.raises(RuntimeError, match="power cut"):
        schema_version.upgrade(engine)
    assert sa.inspect(engine).get_table_names() == []
    monkeypatch.undo()
    schema_version.upgrade(engine)
    engine.dispose()


def test_sqlite_is_private_and_in_wal_mode(tmp_path):
    data = DataDir(tmp_path / "data").create()
    store = database.open_database(data)
    with store.write() as session:
        make_run(session)
    with store.read() as session:
        pragmas = {
            name: session.scalar(sa.text(f"PRAGMA {name}")) for name in ("journal_mode", "foreign_keys", "busy_timeout")
        }
        assert pragmas == {"journal_mode": "wal", "foreign_keys": 1, "busy_timeout": 30_000}
        for path in data.root.glob("platform.db*"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(data.root.stat().st_mode) == 0o700
    store.close()


def test_a_damaged_file_is_refused_in_words(tmp_path):
    data = DataDir(tmp_path / "data").create()
    data.database.write_bytes(b"not a database" * 1000)
    with pytest.raises(UsageError, match="cannot be used: file is not a database"):
        database.open_database(data)


def test_an_unknown_database_url_is_refused_without_its_password():
    with pytest.raises(UsageError, match="cannot be opened") as caught:
        database.make_engine("nosuch://user:hunter2@host/name")
    assert "hunter2" not in str(caught.value)


def test_two_servers_on_one_directory_are_refused_with_the_pid_of_the_first(tmp_path):
    data = DataDir(tmp_path).create()
    script = (
        "import sys\nfrom benchmax.platform.store.datadir import DataDir\n"
        "with DataDir(sys.argv[1]).lock('server'):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with first:
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match=rf"already runs on .* \(pid {first.pid}\)"), data.lock("server"):
            pass
        first.kill()
        first.wait()
        with data.lock("server"):
            assert json.loads((data.locks / "server.lock").read_text()) == {"pid": os.getpid()}


# Runs and jobs


def test_a_run_that_ended_stays_ended(store):
    with store.write() as session:
        run = make_run(session)
    with store.write() as session:
        assert runs.set_status(session, run.id, "active", "training")
        assert runs.set_status(session, run.id, "failed", "no space left")
    with store.write() as session:
        assert not runs.set_status(session, run.id, "active", "late")
        assert not runs.request_cancel(session, run.id)
    with store.read() as session:
        found = runs.get(session, run.id)
        assert (found.status, found.reason) == ("failed", "no space left")
        assert found.started <= found.ended
        kinds = [event.kind for event in events.of_run(session, run.id)]
        assert kinds == ["training.pending", "training.active", "training.failed"]
    with store.write() as session:
        assert runs.reopen(session, run.id)
        assert runs.get(session, run.id).status == "pending"


def test_the_time_between_a_stop_and_its_resumption_does_not_count(store):
    with store.write() as session:
        run_id = make_run(session).id
        runs.set_status(session, run_id, "active", "training")
        runs.set_status(session, run_id, "cancelled", "stopped")
        run = runs.get(session, run_id)
        run.started, run.ended = time.time() - 86_400 - 1_000, time.time() - 86_400  # it worked for 1,000 s, a day ago
    for worked in (1_000, 1_300):
        with store.write() as session:
            assert runs.reopen(session, run_id)
            assert runs.get(session, run_id).started is None
            runs.set_status(session, run_id, "active", "training")
            run = runs.get(session, run_id)
            assert time.time() - run.started == pytest.approx(worked, abs=60)
            runs.set_status(session, run_id, "cancelled", "stopped")
            runs.get(session, run_id).ended += 300


def test_what_is_left_is_told_by_the_time_that_was_worked():
    day = 86_400.0
    standing = standings.RunSummary(train=(standings.End(0, 0.1, 0.0), standings.End(9, 0.2, 90 + day)))
    assert standing.seconds_left(20, worked=100.0) == pytest.approx(100.0)
    assert standing.seconds_left(20, worked=day * 2) == pytest.approx(10 * (90 + day) / 9)


def test_a_lease_is_held_by_one_and_lost_by_silence(store):
    with store.write() as session:
        run = make_run(session)
        jobs.enqueue(session, run.id)
    with store.write() as session:
        job = jobs.lease(session, HOLDER, slots=1, seconds=0.0)
        assert job.attempts == 1
    with store.write() as session:
        assert jobs.lease(session, OTHER, slots=1) is None
        assert jobs.take_over(session, job.id, HOLDER.id, OTHER)
        assert not jobs.take_over(session, job.id, HOLDER.id, jobs.Holder("third", 3, 3.0))
    with store.write() as session:
        assert not jobs.heartbeat(session, job.id, HOLDER)
        assert not jobs.finish(session, job.id, HOLDER)
        assert jobs.set_child(session, job.id, OTHER, 77, 5.0)
        assert jobs.finish(session, job.id, OTHER)
        assert not jobs.heartbeat(session, job.id, OTHER)


def test_each_job_is_leased_once_by_priority_then_age(store):
    with store.write() as session:
        run = make_run(session)
        for number in range(30):
            jobs.enqueue(session, run.id, slots=3 if number == 29 else 1).priority = number % 2
    taken: list[int] = []

    def work(name):
        while True:
            with store.write() as session:
                job = jobs.lease(session, jobs.Holder(name, 1, 1.0), slots=2)
            if job is None:
                return
            taken.append(job.id)

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 29  # the last one wants three slots
    with store.read() as session:
        priorities = {job.id: job.priority for job in session.scalars(sa.select(Job))}
    assert [priorities[each] for each in taken[:10]] == [1] * 10


def test_cancel_and_delete_are_seen_by_the_runner(store):
    with store.write() as session:
        kept, stopped, deleted = (make_run(session).id for _ in range(3))
        runs.request_cancel(session, stopped)
        runs.mark_deleted(session, deleted)
    with store.write() as session:
        asked = [kept, stopped, deleted, "run_gone"]
        assert [each for each in asked if runs.is_to_stop(session, each)] == [stopped, deleted, "run_gone"]
        assert runs.get(session, deleted) is None
        points.record(session, deleted, [points.MetricLine(0, "train", 1.0, {"a": 1.0})])
        runs.remove(session, deleted)
    with store.read() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(MetricValue)) == 0


# Ingest


def test_points_written_twice_are_there_once(store):
    lines = [points.MetricLine(step, "train", 1.0, {"reward/mean": step / 10, "x" * 400: 1.0}) for step in range(5)]
    with store.write() as session:
        run = make_run(session)
        assert points.record(session, run.id, lines) == 10
        points.record(session, run.id, [points.MetricLine(4, "train", 2.0, {"reward/mean": 9.0})])
    with store.write() as session:
        series = metric_values(session, run.id, "train")
        assert [point["value"] for point in series["reward/mean"]] == [0.0, 0.1, 0.2, 0.3, 9.0]
        assert metric_values(session, run.id, "nothing") == {}
        assert points.splits(session, run.id) == ["train"]
        points.drop_from(session, run.id, "train", 2)
        assert [point["step"] for point in metric_values(session, run.id, "train")["reward/mean"]] == [0, 1]


def test_rollouts_are_indexed_and_read_back_from_their_file(store, tmp_path):
    lines, rows, logs, offset = [], [], [], 0
    for record in sample_rollouts():
        line = json.dumps(record).encode() + b"\n"
        rows.append(rollouts.row_of(record, file="rollouts/eval-0.jsonl", offset=offset, length=len(line)))
        logs += rollouts.logs_of(record)
        lines.append(line)
        offset += len(line)
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts/eval-0.jsonl").write_bytes(b"".join(lines))
    with store.write() as session:
        run = make_run(session)
        for _ in range(2):  # a repeat replaces
            rollouts.index(session, run.id, rows)
        rollouts.add_logs(session, run.id, logs)
    with store.read() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(RolloutRow)) == len(rows)
        summary = rollouts.summary(session, run.id, split="eval")
        assert [each["promptMessageId"] for each in summary] == ["ex0", "ex1"]
        assert summary[0]["rewardHistory"] == [{"step": 0, "meanReward": 0.0}, {"step": 1, "meanReward": 0.5}]
        assert summary[1]["rewardHistory"] == [{"step": 0, "meanReward": 1.0}, {"step": 1, "meanReward": None}]
        assert rollouts.count_examples(session, run.id, split="eval") == 2
        heat = rollouts.heatmap(session, run.id, "ex0", split="eval")
        assert [(each["step"], each["totalReward"]) for each in heat] == [(0, 0.0), (1, 0.5)]
        average = rollouts.split_average(session, run.id, split="eval")
        assert average == {"avg": 0.5, "count": 4, "scored": 3, "latestStep": 1, "latestAvg": 0.5}
        assert rollouts.component_averages(session, run.id, split="eval") == {"correct": 0.5}
        assert rollouts.component_averages(session, run.id, split="train") is None
        assert [row.id for row in rollouts.page(session, run.id, split="eval", tool="search")] == ["s1e1"]
        assert [row.id for row in rollouts.page(session, run.id, split="eval", failed=True)] == ["s1e1"]
        row = rollouts.get(session, run.id, "s1e0")
        assert rollouts.read_body(tmp_path, row)["messages"][-1]["content"] == "a 0"
        assert [(log.level, log.message) for log in rollouts.logs(session, run.id, rollout_id="s1e1")] == [
            ("INFO", "look"),
            ("ERROR", "RewardError in compute_reward: broken"),
        ]
    with store.write() as session:
        rollouts.drop(session, run.id, RolloutRow.step >= 1)
        assert session.scalar(sa.select(sa.func.count()).select_from(EnvLog)) == 0
        assert len(rollouts.page(session, run.id, split="eval")) == 2


def test_hostile_text_of_a_rollout_is_indexed_and_read(store, tmp_path):
    """Half characters, zero bytes and endless names come from models; ingest must not stop at them."""
    bad = "a\ud800b\0c"
    record = _record(0, 0, False) | {
        "messages": [{"role": "user", "content": bad}],
        "completion_start": 1,
        "rewards": {bad: 1.0},
        "termination": "x" * 300,
        "error": {"type": bad * 100, "message": bad, "where": ""},
        "tool_events": [{"turn": 0, "name": bad * 200, "ok": True, "seconds": 0.0}],
        "logs": [{"level": bad * 10, "message": bad, "seconds": 0.0}],
        "discarded": bad,
    }
    line = json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass")
    (tmp_path / "a.jsonl").write_bytes(line)
    row = rollouts.row_of(json.loads(line), file="a.jsonl", offset=0, length=len(line))
    with store.write() as session:
        run = make_run(session)
        rollouts.index(session, run.id, [row])
        rollouts.add_logs(session, run.id, rollouts.logs_of(json.loads(line)))
        points.record(session, run.id, [points.MetricLine(0, bad, 1.0, {bad: 1.0})])
        runs.set_status(session, run.id, "failed", bad, detail=bad)
    with store.read() as session:
        found = rollouts.get(session, run.id, record["id"])
        assert found.prompt_text == "a?b\ufffdc"
        assert list(found.components) == ["a?b\ufffdc"]
        body = rollouts.read_body(tmp_path, found)
        assert body["messages"][0]["content"] == "a?b\ufffdc"
        json.dumps(body, ensure_ascii=False).encode()
        assert runs.get(session, run.id).reason == "a?b\ufffdc"


def test_a_body_outside_the_run_directory_is_not_read(store, tmp_path):
    inside = tmp_path / "run"
    inside.mkdir()
    (tmp_path / "other.jsonl").write_text('{"id": "a"}')
    (inside / "link.jsonl").symlink_to(tmp_path / "other.jsonl")
    for file in ("../other.jsonl", "link.jsonl", str(tmp_path / "other.jsonl")):
        assert rollouts.read_body(inside, RolloutRow(id="a", file=file, offset=0, length=11)) is None


def sample_rollouts():
    return [_record(step, example, (step, example) == (1, 1)) for step in (0, 1) for example in (0, 1)]


def _record(step, example, unscored):
    messages = [{"role": "user", "content": f"q {example}"}, {"role": "assistant", "content": f"a {example}"}]
    reward = None if unscored else (float(example) or step / 2)
    return Rollout(
        id=f"s{step}e{example}",
        example_id=f"ex{example}",
        split="eval",
        step=step,
        messages=Transcript(messages, 1),
        rewards={} if unscored else {"correct": reward},
        reward=reward,
        ok=not unscored,
        error=Failure("RewardError", "broken", "compute_reward") if unscored else None,
        tool_events=[ToolEvent(0, "search", True, 0.1)] if unscored else [],
        logs=[LogLine("INFO", "look", 0.1)] if unscored else [],
    ).to_dict()


def test_cursors_move_with_what_was_read(store):
    with store.write() as session:
        run = make_run(session)
    with pytest.raises(RuntimeError), store.write() as session:  # noqa: PT012 - the block is the transaction
        points.record(session, run.id, [points.MetricLine(0, "train", 1.0, {"a": 1.0})])
        ingested.move_cursors(session, run.id, {"metrics.jsonl": (100, 7)})
        raise RuntimeError("killed")
    with store.write() as session:
        assert ingested.offsets(session, run.id) == {}
        assert metric_values(session, run.id, "train") == {}
        ingested.move_cursors(session, run.id, {"metrics.jsonl": (50, 0)})
        ingested.move_cursors(session, run.id, {"metrics.jsonl": (90, 3)})
    with store.read() as session:
        assert ingested.offsets(session, run.id)["metrics.jsonl"] == (90, 3)


def test_ids_of_a_feed_become_visible_in_order(store):
    """Two writers at once: a reader that follows the last id it saw misses nothing."""
    with store.write() as session:
        run = make_run(session)
    stop = threading.Event()
    seen: list[int] = []

    def follow():
        last = 0
        while True:
            finished = stop.is_set()
            with store.read() as session:
                news = events.after(session, run.id, last)
            seen.extend(event.id for event in news)
            last = seen[-1] if seen else 0
            if finished and not news:
                return

    def write():
        for _ in range(20):
            with store.write() as session:
                events.append(session, run.id, "points", category="feed", data={"a": 1})
                events.append(session, run.id, "points", category="feed")

    reader = threading.Thread(target=follow)
    writers = [threading.Thread(target=write) for _ in range(2)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert len(seen) == len(set(seen)) == 81
    assert seen == sorted(seen)
    with store.read() as session:
        assert events.last_id(session, run.id) == seen[-1]
        assert [event.kind for event in events.of_run(session, run.id)] == ["training.pending"]


def ask(path="/scalars", **headers):
    from fastapi import Request

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    path, _, query = path.partition("?")
    scope = {"type": "http", "path": path, "query_string": query.encode(), "headers": raw, "server": ("x", 80)}
    return Request(scope)


def test_kept_charts_follow_the_points(store):
    from benchmax.platform.server.services.response_cache import ResponseCache

    response_cache = ResponseCache(most=2_000)
    made = []

    def scalars(request, session):
        def make():
            made.append(request.url.path)
            return points.encoded(session, run.id, "train")

        return response_cache.answer(request, session, run, make)

    with store.write() as session:
        run = make_run(session)
        points.record(session, run.id, [points.MetricLine(0, "train", 1.0, {"a": 1.0})])
    with store.read() as session:
        first = scalars(ask(), session)
        assert json.loads(first.body) == {"a": [{"step": 0, "value": 1.0}]}
        assert scalars(ask(), session).body is first.body
        assert len(made) == 1
        same = scalars(ask(if_none_match=first.headers["etag"]), session)
        assert (same.status_code, same.body) == (304, b"")
    with store.write() as session:
        points.record(session, run.id, [points.MetricLine(1, "train", 1.0, {"a": 2.0})])
        events.append(session, run.id, "points", category="feed")
    with store.read() as session:
        second = scalars(ask(if_none_match=first.headers["etag"]), session)
        assert len(json.loads(second.body)["a"]) == 2
        for number in range(50):
            scalars(ask(f"/scalars?mode={number}"), session)
        assert response_cache._size <= 2_000
        assert response_cache._kept


def test_many_who_ask_at_once_are_answered_by_one(store):
    from benchmax.platform.server.services.response_cache import ResponseCache

    response_cache, made, going = ResponseCache(), [], threading.Barrier(5)
    with store.write() as session:
        run = make_run(session)

    def make():
        made.append(1)
        time.sleep(0.05)
        return b"{}"

    def read():
        going.wait()
        with store.read() as session:
            assert response_cache.answer(ask(), session, run, make).body == b"{}"

    threads = [threading.Thread(target=read) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
    assert not response_cache._computing


def test_buckets_hold_the_mean_and_the_extremes(store):
    lines = [points.MetricLine(step, "train", 1.0, {"a": float(step), "b": 0.1}) for step in range(3, 103)]
    with store.write() as session:
        run = make_run(session)
        points.record(session, run.id, [*lines, points.MetricLine(7, "train", 1.0, {"short": 1 / 3})])
    with store.read() as session:
        whole = json.loads(points.encoded(session, run.id, "train"))
        assert whole == metric_values(session, run.id, "train")
        found = json.loads(points.encoded(session, run.id, "train", 10))
        assert found["a"][0] == {"step": 12, "value": 7.5, "min": 3.0, "max": 12.0}
        assert [each["step"] for each in found["a"]] == list(range(12, 103, 10))
        assert found["b"][4]["value"] == pytest.approx(0.1)
        assert found["short"] == [{"step": 7, "value": 0.333333333, "min": 0.333333333, "max": 0.333333333}]
        assert len(json.loads(points.encoded(session, run.id, "train", 7))["a"]) <= 7
        fine = json.loads(points.encoded(session, run.id, "train", 1000))
        assert [(each["step"], each["value"]) for each in fine["a"]] == [(step, step) for step in range(3, 103)]
        assert points.encoded(session, run.id, "nothing", 10) == b"{}"
