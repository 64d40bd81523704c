"""A child that trains nothing: it writes a run directory in the trainer's format, fast, and misbehaves as told.

Arguments in launch.json: steps, pause (seconds a step), every (steps between checkpoints), crash_at (kill -9 itself at
that step, once), always_crash, hang_at, code (exit at once with that code), deaf (ignores SIGTERM), family (starts a
program in a session of its own).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmax.platform.runner.children.child_files import EXIT_FILE, read_child_file, write_child_file
from benchmax.platform.runner.processes import parent_watch

stopped = False


def stop(*_):
    global stopped
    stopped = True


def append(path, value):
    with open(path, "ab", buffering=0) as file:
        file.write(json.dumps(value).encode() + b"\n")


def put(path, text):
    """Whole or not at all: whoever is killed here leaves what was there before."""
    new = path.with_name(f".tmp-{path.name}")
    new.write_text(text)
    new.replace(path)


def rewind(run, step):
    kept = [line for line in (run / "metrics.jsonl").read_text().splitlines() if json.loads(line)["step"] < step]
    put(run / "metrics.jsonl", "".join(f"{line}\n" for line in kept))
    for path in (run / "rollouts").glob("*.jsonl"):
        if int(path.stem.rpartition("-")[2]) >= step:
            (run / "aside").mkdir(exist_ok=True)
            path.replace(run / "aside" / f"{path.stem}-{time.time_ns()}.jsonl")


def rollout(step, sample):
    return {
        "id": f"r{os.getpid()}-{step}-{sample}", "example_id": f"e{sample}", "split": "train", "step": step,
        "sample": sample,
        "messages": [{"role": "user", "content": "2+2?"}], "completion_start": 1, "reward": step / 10, "ok": True,
        "rewards": {"right": step / 10}, "logs": [{"seconds": 0.1, "level": "INFO", "message": f"step {step}"}],
    }  # fmt: skip


def status(run, step, steps, state="running"):
    write_child_file(
        run / "status.json", {"state": state, "step": step, "steps": steps, "pid": os.getpid(), "time": time.time()}
    )


def do_step(run, step):
    lines = "".join(json.dumps(rollout(step, sample)) + "\n" for sample in range(2))
    put(run / "rollouts" / f"train-{step}.jsonl", lines)
    append(
        run / "metrics.jsonl",
        {"step": step, "split": "train", "time": time.time(), "values": {"reward/mean": step / 10, "loss": 1}},
    )


def train(run, args):
    steps, every = args.get("steps", 4), args.get("every", 2)
    for name in ("rollouts", "checkpoints"):
        (run / name).mkdir(exist_ok=True)
    latest = run / "checkpoints" / "latest"
    first = int(latest.read_text().removeprefix("step-")) if latest.exists() else 0
    if (run / "metrics.jsonl").exists():
        rewind(run, first)
    append(run / "events.jsonl", {"time": time.time(), "kind": "started", "step": first})
    status(run, first, steps)
    for step in range(first, steps):
        if args.get("hang_at") == step:
            time.sleep(600)
        do_step(run, step)
        status(run, step + 1, steps)
        if (args.get("crash_at") == step and not (run / "crashed").exists()) or args.get("always_crash"):
            (run / "crashed").touch()
            print("about to die", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if (step + 1) % every == 0 or step + 1 == steps or stopped:
            put(latest, f"step-{step + 1}")
            append(run / "events.jsonl", {"time": time.time(), "kind": "checkpoint", "step": step + 1})
        if stopped:
            return 130, "interrupted"
        time.sleep(args.get("pause", 0))
    append(run / "events.jsonl", {"time": time.time(), "kind": "ended", "step": steps, "reason": "steps"})
    return 0, "All steps are done."


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--parent-pipe", type=int)
    parser.add_argument("--policy")
    given = parser.parse_args()
    run = given.run
    word = parent_watch.wait_for_message(given.parent_pipe)
    parent_watch.watch_parent(given.parent_pipe, run, given.policy)
    append(run / "starts.jsonl", {"pid": os.getpid(), "word": word, "variables": dict(os.environ), "cwd": os.getcwd()})
    args = read_child_file(run / "launch.json")["args"]
    parent_watch.ADOPT_SECONDS = args.get("adopt_seconds", parent_watch.ADOPT_SECONDS)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if args.get("deaf") else stop)
    if args.get("family"):
        other = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
        (run / "family").write_text(str(other.pid))
    if "code" in args:
        code, reason = args["code"], args.get("reason", "")
    else:
        code, reason = train(run, args)
    parent_watch.refuse_adoption(run)
    write_child_file(run / EXIT_FILE, {"pid": os.getpid(), "code": code, "reason": reason})
    os._exit(code)


main()
