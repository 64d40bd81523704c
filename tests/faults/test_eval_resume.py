"""`kill -9` an evaluation at random moments, resume it: nothing finished is lost, nothing is doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from benchmax.files.jsonl import read_jsonl

ENV = """
import asyncio, random
from benchmax.envs.base_env import BaseEnv

class Slowish(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kw):
        await asyncio.sleep(random.uniform(0.0, 0.08))
        return {"x": 1.0}
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from benchmax.cli import main; main()", *arguments]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_again_and_again_and_resumed(tmp_path: Path, rounds: int):
    (tmp_path / "env.py").write_text(ENV)
    rows = [{"prompt": f"question {i}", "ground_truth": str(i)} for i in range(500)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "run"
    start = (
        "eval",
        "env.py",
        "--data",
        "rows.jsonl",
        "--model",
        "scripted:hm",
        "--concurrency",
        "8",
        "--out",
        str(out),
    )
    resume = ("eval", "--resume", str(out))
    chance = random.Random(7)
    seen: dict[tuple[str, int], str] = {}
    for round_ in range(rounds):
        _kill_at_a_random_moment(command(*(start if not out.exists() else resume)), tmp_path, out, chance)
        if (out / "rollouts.jsonl").exists():
            for record in read_jsonl(out / "rollouts.jsonl"):
                key = (record["example_id"], record["sample"])
                assert seen.setdefault(key, record["id"]) == record["id"], f"doubled in round {round_}"
    done = subprocess.run(command(*resume, "--json"), cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)["report"]
    assert report["rollouts"] == report["scored"] == 500
    records = list(read_jsonl(out / "rollouts.jsonl"))
    counts = Counter((record["example_id"], record["sample"]) for record in records)
    assert len(counts) == len(records) == 500
    assert all(
        seen[key] == record["id"] for record in records if (key := (record["example_id"], record["sample"])) in seen
    )
    assert len(seen) > 10 * rounds, "the kills came before anything was finished: the test proves nothing"


def _kill_at_a_random_moment(arguments: list[str], cwd: Path, out: Path, chance: random.Random) -> None:
    """Wait until this round has written some records, then a moment, then kill."""
    process = subprocess.Popen(arguments, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    path = out / "rollouts.jsonl"
    enough = _lines(path) + chance.randint(1, 40)
    deadline = time.monotonic() + 60
    while process.poll() is None and _lines(path) < enough:
        assert time.monotonic() < deadline, "nothing is written"
        time.sleep(0.01)
    time.sleep(chance.uniform(0.0, 0.05))
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.wait(60)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_failed_rollouts_are_redone_and_good_ones_kept(tmp_path: Path):
    (tmp_path / "env.py").write_text(
        "import os\n"
        "from benchmax.envs.base_env import BaseEnv\n"
        "class Flaky(BaseEnv):\n"
        "    async def compute_reward(self, rollout_id, messages, task, **kw):\n"
        "        if task['ground_truth'] == '3' and not os.path.exists('fixed'):\n"
        "            raise RuntimeError('not yet')\n"
        "        return {'x': 1.0}\n"
    )
    rows = [{"prompt": f"q{i}", "ground_truth": str(i)} for i in range(6)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    run = lambda *a: subprocess.run(command(*a), cwd=tmp_path, capture_output=True, text=True, timeout=110)  # noqa: E731
    first = run("eval", "env.py", "--data", "rows.json", "--model", "scripted:x", "--out", "run", "-r", "2", "--json")
    assert json.loads(first.stdout)["report"]["scored"] == 10
    ids = {r["id"] for r in read_jsonl(tmp_path / "run/rollouts.jsonl") if r["ok"]}
    (tmp_path / "fixed").touch()
    second = run("eval", "--resume", "run", "--json")
    assert json.loads(second.stdout)["report"]["scored"] == 12
    records = list(read_jsonl(tmp_path / "run/rollouts.jsonl"))
    assert len(records) == 14
    assert ids < {r["id"] for r in records}


def test_a_torn_line_is_cut_and_damage_in_the_middle_is_named(tmp_path: Path):
    """B22."""
    from benchmax.errors import RecordError
    from benchmax.rollouts import Rollout, RolloutLog, read_rollouts

    path = tmp_path / "rollouts.jsonl"
    with RolloutLog(path) as log:
        log.append(Rollout(id="a", example_id="x"))
    with open(path, "ab") as file:
        file.write(b'{"id": "torn')
    assert [r.id for r in read_rollouts(path)] == ["a"]
    with RolloutLog(path) as log:
        log.append(Rollout(id="b", example_id="x", sample=1))
    assert [r.id for r in read_rollouts(path)] == ["a", "b"]
    path.write_bytes(path.read_bytes().replace(b'"id":"a"', b'"id":\x00\x00\x00', 1))
    with pytest.raises(RecordError, match=r"rollouts\.jsonl:1 is damaged"):
        list(read_rollouts(path))
    path.write_text('{"v": 99, "id": "c", "example_id": "x"}\n')
    with pytest.raises(RecordError, match="Upgrade benchmax"):
        list(read_rollouts(path))


def test_two_writers_are_refused(tmp_path: Path):
    from benchmax.errors import UsageError
    from benchmax.rollouts import RolloutLog

    with RolloutLog(tmp_path / "r.jsonl"), pytest.raises(UsageError, match="another process"):
        RolloutLog(tmp_path / "r.jsonl")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_leaves_whole_lines(tmp_path: Path):
    """F9, for records."""
    from benchmax.rollouts import Rollout, RolloutLog, read_rollouts

    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        with RolloutLog(disk / "r.jsonl") as log:
            rollouts = (Rollout(id=str(i), example_id="x" * 300) for i in range(1000))
            with pytest.raises(OSError, match="No space left"):
                list(map(log.append, rollouts))
        kept = list(read_rollouts(disk / "r.jsonl"))
        assert kept
        assert [r.id for r in kept] == [str(i) for i in range(len(kept))]
        assert (disk / "r.jsonl").read_bytes().endswith(b"\n")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_once_it_saves_and_says_how_to_go_on(tmp_path: Path, number):
    """F17."""
    (tmp_path / "env.py").write_text(ENV)
    rows = [{"prompt": f"q{i}"} for i in range(3000)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    process = subprocess.Popen(
        command("eval", "env.py", "--data", "rows.json", "--model", "scripted:x", "--concurrency", "4", "--out", "run"),
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    path = tmp_path / "run/rollouts.jsonl"
    while not (path.exists() and path.stat().st_size):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "benchmax eval --resume run" in err
    assert "Traceback" not in err
