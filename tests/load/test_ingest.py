"""A trainer that writes as fast as it can: every row arrives, soon, and the writer never waits for the reader."""

import subprocess
import sys
import time

import pytest
from sqlalchemy import func, select

from benchmax.platform.runner.ingest import Ingest
from benchmax.platform.store.tables import MetricValue, RolloutRow
from runner_world import launch, open_world

VALUES = 20

# With the trainer's own writer, in a process of its own as the trainer is; prints how long single writes took.
WRITER = """
import sys, time
from pathlib import Path
from benchmax.rollouts.record import Rollout
from benchmax.trainer.config import build_config
from benchmax.trainer.rundir import RunDir

path, steps, files, each = Path(sys.argv[1]), *map(int, sys.argv[2:])
run = RunDir.create(path, build_config({}))
text = [{"role": "user", "content": "x" * 7800}]
waits = []
for step in range(steps):
    if step < files:
        rows = [
            Rollout.from_dict({"id": f"{step}-{n}", "example_id": f"e{n}", "split": "train", "step": step, "sample": n,
                               "messages": text, "reward": 0.5, "rewards": {"a": 0.5}})
            for n in range(each)
        ]
        run.write_rollouts("train", step, rows)
    began = time.monotonic()
    run.log_metrics(step, "train", {f"metric/{n}": step * 0.5 for n in range(20)})
    waits.append(time.monotonic() - began)
run.close()
print(sorted(waits)[len(waits) * 99 // 100])
"""


@pytest.mark.parametrize(
    ("steps", "files", "each"), [(1_500, 40, 64), pytest.param(10_000, 500, 64, marks=pytest.mark.slow)]
)
def test_every_row_arrives_soon_after_it_was_written(tmp_path, steps, files, each):
    database, data = open_world(tmp_path)
    run_id = launch(database)
    words = [sys.executable, "-c", WRITER, str(data.run(run_id)), str(steps), str(files), str(each)]
    writer = subprocess.Popen(words, stdout=subprocess.PIPE)
    ingest = Ingest(database, run_id, data.run(run_id))
    while writer.poll() is None:
        ingest.step()
    ended = time.process_time()
    while not ingest.step():
        pass
    late = time.process_time() - ended
    slow = float(writer.communicate()[0])
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(MetricValue)) == steps * VALUES
        assert session.scalar(select(func.count()).select_from(RolloutRow)) == files * each
        assert session.scalar(select(func.count(RolloutRow.id.distinct()))) == files * each
        assert session.scalar(select(func.max(MetricValue.step))) == steps - 1
    assert late < 2.0, "what was left to do, in processor time"
    assert slow < 0.25, "what is slower than that is the machine, once in a hundred"
    database.close()
