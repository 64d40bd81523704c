"""A trainer that writes as fast as it can: every row arrives, soon, and the writer never waits for the reader."""

import json
import threading
import time

import pytest
from sqlalchemy import func, select

from benchmax.platform.runner.ingest import Ingest
from benchmax.platform.store.tables import Point, RolloutRow
from runner_world import launch, open_world

VALUES = 20


def write(path, steps, files, each, slowest):
    """Metrics of `steps` steps, and `each` rollouts of 8 KB in the first `files` of them."""
    body = {
        "split": "train",
        "messages": [{"role": "user", "content": "x" * 7800}],
        "reward": 0.5,
        "rewards": {"a": 0.5},
    }
    with open(path / "metrics.jsonl", "ab", buffering=0) as metrics:
        for step in range(steps):
            began = time.monotonic()
            if step < files:
                rows = (
                    body | {"id": f"{step}-{n}", "example_id": f"e{n}", "step": step, "sample": n} for n in range(each)
                )
                new = path / "rollouts" / ".tmp"
                new.write_text("".join(json.dumps(row) + "\n" for row in rows))
                new.replace(path / "rollouts" / f"train-{step}.jsonl")
            values = {f"metric/{n}": step * 0.5 for n in range(VALUES)}
            line = {"step": step, "split": "train", "time": time.time(), "values": values}
            waited = time.monotonic()
            metrics.write(json.dumps(line).encode() + b"\n")
            slowest.append((time.monotonic() - waited, time.monotonic() - began))


@pytest.mark.parametrize(
    ("steps", "files", "each"), [(1_500, 40, 64), pytest.param(10_000, 500, 64, marks=pytest.mark.slow)]
)
def test_every_row_arrives_soon_after_it_was_written(tmp_path, steps, files, each):
    database, data = open_world(tmp_path)
    run_id = launch(database)
    path = data.run(run_id)
    (path / "rollouts").mkdir(parents=True)
    slowest: list[tuple[float, float]] = []
    writer = threading.Thread(target=write, args=(path, steps, files, each, slowest))
    ingest = Ingest(database, run_id, path)
    writer.start()
    while writer.is_alive():
        ingest.step()
    ended = time.monotonic()
    while not ingest.step():
        pass
    lag = time.monotonic() - ended
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Point)) == steps * VALUES
        assert session.scalar(select(func.count()).select_from(RolloutRow)) == files * each
        assert session.scalar(select(func.count(RolloutRow.id.distinct()))) == files * each
        assert session.scalar(select(func.max(Point.step))) == steps - 1
    assert lag < 2.0
    # The writer shares this process's interpreter lock and two busy cores; a file lock would show as far more.
    assert sorted(wait for wait, _ in slowest)[len(slowest) * 99 // 100] < 0.05
    database.close()
