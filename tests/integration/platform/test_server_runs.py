"""What a run's page and the list of runs need: pins, notes, numbers, settings, logs, the machine, a table."""

from __future__ import annotations

import csv
import io
import json
import time
from datetime import datetime

import pytest

from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.store.runs import metrics, rollouts, runs
from benchmax.platform.store.tables import Delivery, Run
from platform_world import make_run
from runner_world import drive, start_stub

EMAIL = "runs@example.org"


@pytest.fixture(scope="module")
def key(live):
    return live.user(EMAIL)[1]


@pytest.fixture
def stranger(live):
    with live.client(live.user("stranger@example.org")[1]) as client:
        yield client


@pytest.fixture
def run_id(live, key):
    with live.database.write() as session:
        run = make_run(
            session, EMAIL, args={"model": "tiny", "max_minutes": 12}, asked={"model": "tiny"}, total_steps=10
        )
    live.data.run(run.id).mkdir()
    return run.id


def line(step, mode="train", at=0.0, **values):
    return metrics.MetricLine(step, mode, at, values)


def test_pins_and_notes_are_the_owners(client, stranger, live, run_id):
    changed = client.patch(f"/v1/train/runs/{run_id}", json={"pinned": True, "notes": "the <b>baseline</b>"}).json()
    assert (changed["pinned"], changed["notes"]) == (True, "the <b>baseline</b>")
    assert client.patch(f"/v1/train/runs/{run_id}", json={"notes": "x" * 20_001}).status_code == 400
    assert client.patch(f"/v1/train/runs/{run_id}", json={"notes": "a\0b"}).status_code == 400
    assert client.patch(f"/v1/train/runs/{run_id}", json={"pinned": False}).json()["notes"] == "the <b>baseline</b>"
    assert stranger.patch(f"/v1/train/runs/{run_id}", json={"pinned": True}).status_code == 404
    client.patch(f"/v1/train/runs/{run_id}", json={"isPublic": True})
    with live.client() as nobody:
        assert nobody.get(f"/v1/train/runs/{run_id}").json()["notes"] == ""
    assert stranger.patch(f"/v1/train/runs/{run_id}", json={"pinned": True}).status_code == 403


def test_a_list_has_the_numbers_of_every_run(client, live, run_id):
    with live.database.write() as session:
        runs.set_status(session, run_id, "active", "training")
        session.get_one(Run, run_id).started -= 50.0
        steps = [line(n, at=1000.0 + 10 * n, **{"reward/mean": n / 10, "failed": 0.1 * (n == 4)}) for n in range(5)]
        held_out = [line(n, "eval", **{"reward/mean": 0.2 + n / 10}) for n in (0, 4)]
        metrics.record(session, run_id, [*steps, *held_out])
        runs.set_progress(session, run_id, step=4)
    (live.data.run(run_id) / "status.json").write_text("{}")
    (found,) = (run for run in client.get("/v1/train/runs").json() if run["id"] == run_id)
    assert (found["rewardFirst"], found["rewardLatest"], found["errorRate"]) == (0.0, 0.4, 0.1)
    assert (found["evalRewardFirst"], found["evalRewardLatest"], found["model"]) == (0.2, pytest.approx(0.6), "tiny")
    assert found["etaSeconds"] == 50.0
    assert 50 <= found["elapsedSeconds"] < 110
    assert found["heartbeatAt"].endswith("Z")
    with live.database.write() as session:
        runs.set_status(session, run_id, "complete")
    ended = client.get(f"/v1/train/runs/{run_id}").json()
    assert ended["etaSeconds"] is None
    assert ended["heartbeatAt"] == ended["endedAt"]


def test_a_run_without_points_has_no_numbers(client, run_id):
    found = client.get(f"/v1/train/runs/{run_id}/details").json()
    names = ("rewardFirst", "rewardLatest", "etaSeconds", "errorRate", "elapsedSeconds", "heartbeatAt")
    assert [found[name] for name in names] == [None] * 6


def test_a_long_list_takes_few_queries(live, client, run_id):
    import sqlalchemy as sa

    with live.database.write() as session:
        others = [make_run(session, EMAIL).id for _ in range(50)]
        for each in others:
            metrics.record(session, each, [line(n, **{"reward/mean": 1.0}) for n in range(3)])
    asked = []
    listen = lambda *args: asked.append(args[2])  # noqa: E731
    sa.event.listen(live.database.engine, "before_cursor_execute", listen)
    try:
        assert len(client.get("/v1/train/runs").json()) > 50
    finally:
        sa.event.remove(live.database.engine, "before_cursor_execute", listen)
    senders = Delivery.__tablename__  # looked at by the sender of webhooks, now and then
    assert len([each for each in asked if "SELECT" in each and senders not in each]) < 6


def test_runs_as_a_table(client, live, run_id):
    client.patch(f"/v1/train/runs/{run_id}", json={"name": "=HYPERLINK(1)", "tags": ["a", "b"], "archived": True})
    answer = client.get("/v1/train/runs.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(answer.text))}
    assert rows[run_id]["name"] == "'=HYPERLINK(1)"
    assert rows[run_id]["tags"] == "a, b"
    some = client.get("/v1/train/runs.csv", params={"ids": f"{run_id},run_of_others,{run_id}"})
    assert [row["id"] for row in csv.DictReader(io.StringIO(some.text))] == [run_id]
    assert len(client.get("/v1/train/runs.csv?ids=").text.splitlines()) == 1


def test_settings_and_which_were_given(client, stranger, live, run_id):
    found = client.get(f"/v1/train/runs/{run_id}/config").json()
    given = {each["name"]: (each["value"], each["given"]) for each in found["args"]}
    assert given == {"model": ("tiny", True), "max_minutes": (12, False)}
    assert found["settings"] is None
    tree = {"optim": {"lr": 0.1}, "output": {"dir": str(live.data.runs)}}
    (live.data.run(run_id) / "config.json").write_text(json.dumps(tree))
    settings = client.get(f"/v1/train/runs/{run_id}/config").json()["settings"]
    assert settings == {"optim": {"lr": 0.1}, "output": {"dir": "runs"}}, "no path of the server"
    assert stranger.get(f"/v1/train/runs/{run_id}/config").status_code == 404


# Logs


def logs(client, run_id, **params):
    answer = client.get(f"/v1/train/runs/{run_id}/logs", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_file_is_read_in_pages_and_followed(client, live, run_id):
    log = live.data.run(run_id) / "child.log"
    assert logs(client, run_id) == {"lines": [], "nextCursor": "0", "more": False}
    log.write_bytes(b"".join(b"line %d\r\n" % n for n in range(2500)) + b"torn")
    seen, cursor, pages = [], 0, 0
    while True:
        page = logs(client, run_id, after=cursor, limit=1000)
        seen += [each["message"] for each in page["lines"]]
        cursor, pages = page["nextCursor"], pages + 1
        if not page["more"]:
            break
    assert seen == [f"line {n}" for n in range(2500)]
    assert pages == 3
    with open(log, "ab") as file:
        file.write(b" no more\n")
    page = logs(client, run_id, after=cursor)
    assert [each["message"] for each in page["lines"]] == ["torn no more"]
    tail = logs(client, run_id, tail=True, limit=2)
    assert [each["message"] for each in tail["lines"]] == ["line 2499", "torn no more"]
    assert tail["nextCursor"] == page["nextCursor"]
    log.write_bytes(b"anew\n")
    assert logs(client, run_id, after=cursor)["lines"][0]["message"] == "anew"


def test_levels_and_processes_are_told_apart(client, live, run_id):
    folder = live.data.run(run_id)
    (folder / "child.log").write_text(
        "starting\nenv stdout: hello\nenv stderr: Traceback (most recent call last):\n  File x\nValueError: no\nlater\n"
    )
    (folder / "logs").mkdir()
    (folder / "logs" / "train.log").write_text(
        "2026-01-02 03:04:05,678 INFO benchmax.trainer: step\n2026-01-02 03:04:06,000 WARNING benchmax: odd\n  more\n"
    )
    rows = [(each["process"], each["level"]) for each in logs(client, run_id, process="child")["lines"]]
    assert rows == [("child", "INFO"), ("environment", "INFO"), ("environment", "ERROR"), ("child", "ERROR"),
                    ("child", "ERROR"), ("child", "INFO")]  # fmt: skip
    assert len(logs(client, run_id, process="child", level="ERROR")["lines"]) == 3
    warned = logs(client, run_id, process="trainer", level="WARNING")["lines"]
    assert [each["message"] for each in warned] == ["benchmax: odd", "  more"]
    assert warned[0]["createdAt"]
    assert client.get(f"/v1/train/runs/{run_id}/logs", params={"process": "../x"}).status_code == 400
    assert client.get(f"/v1/train/runs/{run_id}/logs", params={"level": "x"}).status_code == 400


def test_the_curves_of_many_runs_are_small_and_the_callers_own(client, stranger, live):
    with live.database.write() as session:
        long, short, waits = (make_run(session, EMAIL, name=name).id for name in ("long", "short", "waits"))
        many = [
            metrics.MetricLine(step, "train", 0.0, {"reward/mean": step / 1000, "loss": 1.0}) for step in range(1000)
        ]
        metrics.record(session, long, many)
        few = [metrics.MetricLine(step, "train", 0.0, {"reward/mean": 0.25 * step}) for step in range(3)]
        metrics.record(session, short, few)
    asked = {"ids": f"{long},{short},{waits},run_none"}
    found = client.get("/v1/train/curves", params=asked).json()["curves"]
    assert found.keys() == {long, short}
    assert found[short] == [0.0, 0.25, 0.5]
    assert len(found[long]) == 32
    assert found[long] == sorted(found[long])
    assert found[long][0] == pytest.approx(0.0155), "a mean of its steps, not one of them"
    assert stranger.get("/v1/train/curves", params=asked).json() == {"curves": {}}


def test_every_line_has_a_time_if_only_that_of_the_line_before(client, live, run_id):
    stamp = "2026-01-02 03:04:0{},500"
    (live.data.run(run_id) / "child.log").write_text(
        f"printed first\n{stamp.format(1)} WARNING lib: slow\nTraceback …\n{stamp.format(5)} env stdout: hello\n"
        f"env stderr: of an older version\n{stamp.format(6)} env stdout: {stamp.format(4)} INFO of its own\nlast\n"
    )
    lines = logs(client, run_id)["lines"]
    began = client.get(f"/v1/train/runs/{run_id}").json()["createdAt"]
    assert (lines[0]["createdAt"], lines[0]["approximate"]) == (began, True)
    told = [datetime.fromisoformat(each["createdAt"]).astimezone().strftime("%S.%f")[:4] for each in lines[1:]]
    assert told == ["01.5", "01.5", "05.5", "05.5", "06.5", "06.5"]
    assert [each["approximate"] for each in lines[1:]] == [False, True, False, True, False, True]
    assert [each["message"] for each in lines[3:6]] == ["hello", "of an older version", "of its own"]
    later = logs(client, run_id, after=lines[-1]["id"])["lines"]
    assert (later[0]["message"], later[0]["createdAt"]) == ("last", lines[-1]["createdAt"]), "wherever a page begins"


def test_what_the_environment_logged_is_paged_from_the_database(client, stranger, live, run_id):
    with live.database.write() as session:
        rows = [
            {"rollout_id": "r", "step": 0, "time": 1.0, "level": "WARNING" if n % 10 == 0 else "INFO",
             "message": f"m{n}", "traceback": None}
            for n in range(30)
        ]  # fmt: skip
        rollouts.add_logs(session, run_id, rows)
    first = logs(client, run_id, process="environment", limit=20)
    rest = logs(client, run_id, process="environment", limit=20, after=first["nextCursor"])
    assert [each["message"] for each in first["lines"] + rest["lines"]] == [f"m{n}" for n in range(30)]
    assert (first["more"], rest["more"]) == (True, False)
    warned = logs(client, run_id, process="environment", level="WARNING")["lines"]
    assert [each["message"] for each in warned] == ["m0", "m10", "m20"]
    assert logs(client, run_id, process="environment", tail=True, limit=1)["lines"][0]["message"] == "m29"
    assert stranger.get(f"/v1/train/runs/{run_id}/logs").status_code == 404
    client.patch(f"/v1/train/runs/{run_id}", json={"isPublic": True})
    assert stranger.get(f"/v1/train/runs/{run_id}/logs").status_code == 404


# The machine


def test_a_run_is_measured_while_it_works(client, live, key, monkeypatch):
    from benchmax.platform.runner import supervisor as module
    from benchmax.platform.runner.processes import machine_usage as system
    from benchmax.platform.store.queue import jobs

    monkeypatch.setattr(system, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.05)
    with live.database.write() as session:
        run = make_run(session, EMAIL, args={"steps": 10_000, "pause": 0.01})
        jobs.enqueue(session, run.id)
    boss = Supervisor(live.database, live.data, slots=["cpu:0"], start=start_stub)
    address = f"/v1/train/runs/{run.id}/system"
    assert client.get(address).json() == {"points": [], "now": None}
    drive(boss, lambda: len(client.get(address).json()["points"]) >= 3)
    # A child that was only just begun uses less.
    drive(boss, lambda: client.get(address).json()["now"]["memoryBytes"] > 1_000_000)
    found = client.get(address, params={"limit": 2}).json()
    assert len(found["points"]) <= 2
    assert found["now"]["processes"] >= 1
    assert found["now"]["cpuPercent"] >= 0
    client.post(f"/v1/train/runs/{run.id}/cancel")
    drive(boss, lambda: not boss.watched)


def test_a_torn_sample_is_left_out(client, live, run_id):
    good = {"time": time.time(), "cpuPercent": 5, "memoryBytes": 1, "processes": 1, "gpu": [], "cores": 2,
            "memoryTotal": 9, "load": 0.5}  # fmt: skip
    (live.data.run(run_id) / "system.jsonl").write_text(json.dumps(good) + '\n{"time": 1')
    found = client.get(f"/v1/train/runs/{run_id}/system").json()
    assert [each["cpuPercent"] for each in found["points"]] == [5]


@pytest.mark.parametrize(("at", "shown"), [(1e300, "9999"), (-1e300, "0001"), (float("nan"), None), (0.0, "1970")])
def test_a_time_that_is_none_does_not_take_the_page_away(client, live, run_id, at, shown):
    """A process of the run may write anything into the run's directory."""
    sample = {"time": at, "cpuPercent": 5, "memoryBytes": 1, "processes": 1, "gpu": [], "cores": 2,
              "memoryTotal": 9, "load": 0.5}  # fmt: skip
    (live.data.run(run_id) / "system.jsonl").write_text(json.dumps(sample) + "\n")
    found = client.get(f"/v1/train/runs/{run_id}/system")
    assert found.status_code == 200
    assert [each["time"][:4] for each in found.json()["points"]] == ([] if shown is None else [shown])
