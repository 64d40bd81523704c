"""Reading a growing run directory: no gap, no double, whatever the trainer does to its files meanwhile."""

import json
import random
import shutil

import pytest
from sqlalchemy import select

from benchmax.platform.runner.ingest import EvalIngest, Ingest, reindex
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import events, rollouts, runs
from benchmax.platform.store.tables import EnvLog, Event, MetricName, MetricValue, RolloutRow, Run
from benchmax.rollouts.record import Rollout
from benchmax.trainer.config import build_config
from benchmax.trainer.rundir import RunDir
from platform_world import make_run, metric_values


@pytest.fixture
def world(store, tmp_path):
    with store.write() as session:
        run_id = make_run(session).id
    data = DataDir(tmp_path / "data").create()
    run = RunDir.create(data.run(run_id), build_config({"limits": {"steps": 9}}))
    yield store, data, run_id, run
    run.close()


def rollout(split, step, sample, word="hi"):
    logs = [{"seconds": 0.5, "level": "INFO", "message": word}]
    record = {
        "id": f"{split}{step}-{sample}-{word}", "example_id": f"e{sample}", "split": split, "step": step,
        "sample": sample,
        "messages": [{"role": "user", "content": f"{sample}?"}, {"role": "assistant", "content": word}],
        "completion_start": 1, "rewards": {"a": 1.0}, "reward": 1.0, "logs": logs, "started_at": 1.0,
        "termination": "stop",
    }  # fmt: skip
    if sample == 1:
        record["error"] = {"type": "ToolError", "message": "no", "where": "run_tool"}
    return Rollout.from_dict(record)


def train(run, step, word="hi"):
    run.write_rollouts("train", step, [rollout("train", step, sample, word) for sample in range(3)])
    run.log_metrics(step, "train", {"reward/mean": step / 10, "loss": 1.0 if word == "hi" else 2.0})
    run.set_status("running", step + 1)


def drain(ingest):
    while not ingest.step():
        pass


def everything(store, run_id):
    """All that came from the directory, without ids and in a fixed order."""
    with store.read() as session:
        series = select(MetricName.split, MetricName.name, MetricValue.step, MetricValue.value, MetricValue.time).join(
            MetricValue, MetricValue.metric_id == MetricName.id
        )
        columns = [column for column in RolloutRow.__table__.columns if column.name not in ("n", "run_id")]
        logs = select(EnvLog.rollout_id, EnvLog.level, EnvLog.message, EnvLog.time).where(EnvLog.run_id == run_id)
        told = select(Event.kind, Event.message, Event.time, Event.category).where(
            Event.run_id == run_id, Event.kind.startswith("trainer.")
        )
        run = session.get(Run, run_id)
        return {
            "points": sorted(map(tuple, session.execute(series.where(MetricName.run_id == run_id)))),
            "rollouts": sorted(map(str, session.execute(select(*columns).where(RolloutRow.run_id == run_id)))),
            "logs": sorted(map(str, session.execute(logs))),
            "events": list(map(tuple, session.execute(told.order_by(Event.id)))),
            "run": (run.latest_step, run.total_steps, run.error_count, run.activity),
        }


def test_everything_arrives_once(world):
    store, _data, run_id, run = world
    ingest = Ingest(store, run_id, run.path)
    run.log_event("started", step=0)
    run.log_event("alert", alert="drift", message="Rewards drift.", step=0)
    run.log_metrics(0, "eval", {"reward/mean": 0.25})
    for step in range(3):
        train(run, step)
        drain(ingest)
        drain(ingest)
    with store.read() as session:
        assert metric_values(session, run_id, "train", ["loss"]) == {
            "loss": [{"step": step, "value": 1.0} for step in range(3)]
        }
        assert metric_values(session, run_id, "eval") == {"reward/mean": [{"step": 0, "value": 0.25}]}
        assert len(rollouts.page(session, run_id, split="train")) == 9
        alerts = [each for each in events.of_run(session, run_id) if each.category == "alert"]
        assert [(each.kind, each.message) for each in alerts] == [("trainer.alert", "Rewards drift.")]
        found = runs.get(session, run_id)
        assert (found.latest_step, found.total_steps, found.error_count) == (2, 9, 3)
        assert found.activity == "step 3 of 9: mean reward 0.200"
        assert len(rollouts.logs(session, run_id)) == 12, "nine lines and three errors"
        row = rollouts.page(session, run_id, split="train")[4]
        assert rollouts.read_body(run.path, row)["id"] == row.id


def test_solutions_that_were_shown_are_no_evaluation(world):
    """Older runs recorded them with the split of an evaluation."""
    store, _data, run_id, run = world
    run.write_rollouts("eval", 0, [rollout("eval", 0, sample) for sample in range(2)])
    run.write_rollouts("warm_start", 0, [rollout("eval", None, sample, "solved") for sample in range(8)])
    run.write_rollouts("warm_eval", 0, [rollout("warm_start", 0, sample, "warm") for sample in range(2)])
    drain(Ingest(store, run_id, run.path))
    with store.read() as session:
        counts = {
            mode: rollouts.split_average(session, run_id, split=mode)["count"]
            for mode in rollouts.splits(session, run_id)
        }
    assert counts == {"eval": 2, "demonstration": 8, "warm_start": 2}


def test_torn_lines_wait(world):
    store, _, run_id, run = world
    ingest = Ingest(store, run_id, run.path)
    line = json.dumps({"step": 0, "split": "train", "time": 1.0, "values": {"loss": 1.0}}) + "\n"
    with open(run.path / "metrics.jsonl", "a") as file:
        for letter in line:
            file.write(letter)
            file.flush()
            ingest.step()
        file.write("not json\n[1]\n" + line.replace('"step": 0', '"step": 1'))
    drain(ingest)
    with store.read() as session:
        assert [point["step"] for point in metric_values(session, run_id, "train")["loss"]] == [0, 1]


def test_hostile_records_stop_nothing(world):
    store, _, run_id, run = world
    ingest = Ingest(store, run_id, run.path)
    good = json.dumps(rollout("train", 0, 0).to_dict())
    hostile = rollout("train", 0, 2, word="nul \x00 half \ud800 end").to_dict() | {"id": "hostile"}
    lines = [
        json.dumps(hostile),
        json.dumps(hostile | {"id": "raw"}, ensure_ascii=False),
        '{"id": 5}',
        '{"id": "x", "example_id": "y", "usage": 7, "logs": [3]}',
        "[" * 100_000,
        good,
    ]
    text = "".join(line + "\n" for line in lines).encode("utf-8", "surrogatepass")
    (run.path / "rollouts" / "train-0.jsonl").write_bytes(text)
    drain(ingest)
    with store.read() as session:
        page = {row.id for row in rollouts.page(session, run_id, split="train")}
        assert page == {"hostile", "raw", "train0-0-hi"}
        assert "nul \ufffd half" in next(log.message for log in rollouts.logs(session, run_id, rollout_id="hostile"))


ROLLOUT = rollout("train", 0, 0).to_dict() | {"id": "odd"}
EVENT = {"time": 1.0, "kind": "odd"}
METRIC = {"step": 1, "split": "train", "time": 1.0, "values": {"loss": 1.0}}
ODD_LINES = [
    ("events.jsonl", EVENT | {"time": "yesterday"}),
    ("events.jsonl", EVENT | {"time": 10**400}),
    ("events.jsonl", EVENT | {"settings": {"lr": 1}}),
    ("events.jsonl", EVENT | {"kind": "plan", "step_seconds": "soon"}),
    ("events.jsonl", EVENT | {"data": json.loads("[" * 900 + "]" * 900)}),
    ("events.jsonl", EVENT | {"kind": "alert", "message": "m", "rollouts": 7, "time": 1e10}),
    ("metrics.jsonl", METRIC | {"time": "later"}),
    ("metrics.jsonl", METRIC | {"step": 10**30}),
    ("metrics.jsonl", METRIC | {"step": True}),
    ("metrics.jsonl", METRIC | {"values": {"loss": 10**400}}),
    ("rollouts/train-0.jsonl", ROLLOUT | {"step": "zero"}),
    ("rollouts/train-0.jsonl", ROLLOUT | {"sample": 10**30}),
    ("rollouts/train-0.jsonl", ROLLOUT | {"reward": [1]}),
    ("rollouts/train-0.jsonl", ROLLOUT | {"rewards": {"a": "much"}}),
    ("rollouts/train-0.jsonl", ROLLOUT | {"usage": {"completion_tokens": {}}}),
    ("rollouts/train-0.jsonl", ROLLOUT | {"started_at": float("nan")}),
    ("status.json", {"steps": 10**30}),
]
"""Lines that benchmax's own trainer never writes, but another one may."""


@pytest.mark.parametrize(("file", "line"), ODD_LINES)
def test_a_line_of_another_trainer_stops_no_other(world, file, line):
    store, _, run_id, run = world
    train(run, 0)
    with open(run.path / file, "w" if file == "status.json" else "a") as lines:
        lines.write(json.dumps(line) + "\n")
    run.log_event("checkpoint", step=5)
    train(run, 6)
    drain(Ingest(store, run_id, run.path))
    with store.read() as session:
        assert {0, 6} <= {point["step"] for point in metric_values(session, run_id, "train")["loss"]}
        assert {row.step for row in rollouts.page(session, run_id, split="train")} == {0, 6}
        assert any("step 5" in event.message for event in events.of_run(session, run_id))


@pytest.mark.parametrize("looks", ["often", "once"])
def test_a_rewind_replaces_what_was_lost(world, looks):
    store, data, run_id, run = world
    ingest = Ingest(store, run_id, run.path)
    run.log_metrics(0, "eval", {"reward/mean": 0.0})
    for step in range(6):
        train(run, step)
    run.log_metrics(6, "eval", {"reward/mean": 0.5})
    drain(ingest)
    run.rewind(3)
    if looks == "often":
        drain(ingest)
        with store.read() as session:
            assert [point["step"] for point in metric_values(session, run_id, "train")["loss"]] == [0, 1, 2]
            assert {row.step for row in rollouts.page(session, run_id, split="train")} == {0, 1, 2}
            assert len(rollouts.logs(session, run_id)) == 12
    for step in range(3, 5):
        train(run, step, word="again")
    drain(Ingest(store, run_id, run.path) if looks == "once" else ingest)
    with store.read() as session:
        losses = metric_values(session, run_id, "train", ["loss"])["loss"]
        assert [point["value"] for point in losses] == [1, 1, 1, 2, 2]
        assert metric_values(session, run_id, "eval") == {"reward/mean": [{"step": 0, "value": 0.0}]}
        page = rollouts.page(session, run_id, split="train", limit=100)
        assert len(page) == 15
        assert all(("again" in row.id) == (row.step >= 3) for row in page)
        assert runs.get(session, run_id).error_count == 5
    before = everything(store, run_id)
    reindex(store, data, run_id)
    assert everything(store, run_id) == before


def test_a_run_that_was_restored_from_a_backup_has_everything_once(world, tmp_path):
    store, _, run_id, run = world
    train(run, 0)
    run.log_event("checkpoint", step=1)
    evaluation = run.path / "evals" / "evl_1"
    evaluation.mkdir(parents=True)
    (evaluation / "rollouts.jsonl").write_text(json.dumps(rollout("eval", 0, 0).to_dict()) + "\n")

    def read_all():
        for ingest in (Ingest(store, run_id, run.path), EvalIngest(store, run_id, run.path, eval_id="evl_1")):
            drain(ingest)
        with store.read() as session:
            messages = [event.message for event in events.of_run(session, run_id)]
            return messages, [log.message for log in rollouts.logs(session, run_id)], everything(store, run_id)

    before = read_all()
    original = run.path.rename(tmp_path / "original")
    shutil.copytree(original, run.path)  # the same files, in other inodes
    assert read_all() == before


def test_a_rewind_to_nothing(world):
    store, _, run_id, run = world
    ingest = Ingest(store, run_id, run.path)
    train(run, 0)
    drain(ingest)
    run.rewind(-1)
    drain(ingest)
    with store.read() as session:
        assert metric_values(session, run_id, "train") == {}
        assert rollouts.page(session, run_id, split="train") == []


@pytest.mark.parametrize("seed", range(3))
def test_live_reading_equals_a_reindex(world, seed):
    """Random work, random looks by one or another reader, random crashes of the trainer."""
    store, data, run_id, run = world
    draw = random.Random(seed)
    readers = [Ingest(store, run_id, run.path), Ingest(store, run_id, run.path)]
    step = 0
    for _ in range(40):
        action = draw.random()
        if action < 0.45:
            train(run, step, word=str(draw.random()))
            step += 1
        elif action < 0.55:
            run.log_event("checkpoint", step=step, path="x")
        elif action < 0.65 and step:
            step = draw.randrange(step)
            run.rewind(step)
        else:
            draw.choice(readers).step(seconds=0.0)
    for reader in readers:
        drain(reader)
    live = everything(store, run_id)
    assert len(live["points"]) == 2 * step
    assert len(live["rollouts"]) == 3 * step
    assert len(live["events"]) == len((run.path / "events.jsonl").read_text().splitlines())
    reindex(store, data, run_id)
    assert everything(store, run_id) == live


def test_a_feed_tells_that_training_began_before_its_first_numbers(world):
    store, data, run_id, run = world
    run.log_event("started", step=0)
    run.log_metrics(0, "eval", {"reward/mean": 0.1})
    train(run, 0)
    run.log_event("ended", step=1, reason="steps")
    drain(Ingest(store, run_id, data.run(run_id)))
    with store.read() as session:
        kinds = [event.kind for event in events.after(session, run_id, 0, 100)]
    assert [kind for kind in kinds if kind != "rollouts"][-3:] == ["trainer.started", "points", "trainer.ended"]
