"""The trainer dies at the worst moments and goes on as if nothing had happened.

A small server process imports everything once and forks a child for each run, so that many crashes cost little.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmax.envs.calculator.calculator_env import CALCULATE, CalculatorEnv
from benchmax.files.jsonl import read_jsonl
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.trainer.checkpoint import find_checkpoint
from benchmax.trainer.config import SftConfig, build_config
from benchmax.trainer.learning.batch import TokenSequence
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.rundir import read_metrics
from benchmax.trainer.tiny_model import TEMPLATE, make_tiny
from benchmax.trainer.warm_start.supervised_steps import train_epochs
from runner_world import is_running

pytestmark = pytest.mark.timeout(400)  # the server imports torch, some tests train for many steps

SERVER = """
import asyncio, json, os, random, signal, sys, traceback
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.calculator.calculator_env import CalculatorEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.files import atomic
from benchmax.inference.engine import engine
from benchmax.trainer import checkpoint, loop, rundir, start
from benchmax.trainer.config import build_config
import torch, transformers.models.llama.modeling_llama, peft  # noqa: imported once, here

class DigitsEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        if os.environ.get("SLOW"):
            open(os.environ["SLOW"], "w").close()
            await asyncio.sleep(60)
        text = extract_completion_text(messages)
        return {"digits": sum(letter.isdigit() for letter in text) / max(1, len(text))}

class HastyCalculator(CalculatorEnv):
    # Its answers take now longer, now shorter: turns come back in another order each time.
    async def run_tool(self, rollout_id, tool_name, **tool_args):
        await asyncio.sleep(random.SystemRandom().uniform(0, 0.03))
        return await super().run_tool(rollout_id, tool_name, **tool_args)

def examples(count, task=None):
    return [make_example(prompt_messages=[{"role": "user", "content": f"{i}?"}], task=task) for i in range(count)]

def die_at(place, count):
    module, name = place.rsplit(":", 1)
    owner = {"run": rundir.RunDir, "checkpoint": checkpoint, "loop": loop, "atomic": atomic}[module]
    real, calls = getattr(owner, name.removeprefix("after-")), []
    def killed(*args, **kwargs):
        calls.append(1)
        if len(calls) < count:
            return real(*args, **kwargs)
        if name.startswith("after-"):
            real(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(owner, name.removeprefix("after-"), killed)

def full_disk(count):
    real, calls = checkpoint._save, []
    def save(tensors, path):
        calls.append(1)
        if len(calls) >= count:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device", str(path))
        real(tensors, path)
    checkpoint._save = save

def child(job):
    os.environ.update(job.get("environ", {}))
    torch.set_num_threads(job.get("threads", 1))
    if "die" in job:
        die_at(*job["die"])
    if "full" in job:
        full_disk(job["full"])
    if "memory" in job:
        engine.memory_budget = lambda device: job["memory"]
    task = start.Task(DigitsEnv, examples(16), examples(24)[16:])
    if "truth" in job:
        rows = examples(24, {"ground_truth": job["truth"]})
        task = start.Task(HastyCalculator, rows[:16], rows[16:])
    try:
        if (rundir.Path(job["run"]) / "run.json").exists():
            outcome = asyncio.run(start.resume(rundir.Path(job["run"]), task=task))
        else:
            outcome = asyncio.run(start.train(build_config(job["config"]), task=task))
    except OSError as error:
        return error.errno
    return 130 if outcome.reason == "interrupted" else 0

print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = child(job)
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Server:
    def __init__(self, *before: str) -> None:
        environ = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [*before, sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )
        assert self.process.stdout.readline() == "ready\n"

    def start(self, **job) -> int:
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self) -> int:
        return int(self.process.stdout.readline())

    def run(self, **job) -> int:
        self.start(**job)
        return self.end()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def server():
    opened = Server()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=1)


def config(model: Path, folder: Path, steps: int = 6) -> dict:
    return {
        "model": {"name": str(model), "device": "cpu"},
        "optim": {"lr": 1e-2},
        "rollouts": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 6, "max_turns": 1},
        "eval": {"every": 2},
        "checkpoint": {"every": 2},
        "limits": {"steps": steps},
        "output": {"dir": str(folder), "name": "run"},
    }


def series(path: Path) -> list:
    clock = {"seconds/sample", "seconds/update", "tokens_per_second"}
    return [
        (line["step"], line["split"], {name: value for name, value in line["values"].items() if name not in clock})
        for line in read_metrics(path)
    ]


@pytest.fixture(scope="module")
def unbroken(server, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    assert server.run(run=str(folder / "run"), config=config(model, folder)) == 0
    lines = series(folder / "run")
    assert len(lines) == 6 + 4
    assert all(values["grad_norm"] > 0 for _, split, values in lines if split == "train"), "every step learns"
    return lines


QUICK_PLACES = [("run:log_metrics", 6), ("atomic:_sync", 3), ("checkpoint:write_text", 4)]
PLACES = [
    ("run:after-log_metrics", 6),
    ("run:write_rollouts", 5),
    ("run:after-write_rollouts", 5),
    ("run:after-log_metrics", 1),
    ("atomic:after-_sync", 4),
    ("loop:after-save_checkpoint", 2),
]


def slow(*values):
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.mark.parametrize("place", [*QUICK_PLACES, *slow(*PLACES)], ids=lambda place: f"{place[0]}-{place[1]}")
def test_kill_at_each_point_then_resume(server, model, unbroken, tmp_path, place):
    job = {"run": str(tmp_path / "run"), "config": config(model, tmp_path)}
    assert server.run(**job, die=place) == -signal.SIGKILL
    assert server.run(**job) == 0
    assert series(tmp_path / "run") == unbroken
    assert not list((tmp_path / "run").rglob(".tmp-*"))


def test_kill_again_and_again_at_random(server, model, unbroken, tmp_path):
    rng = random.Random(5)
    job = {"run": str(tmp_path / "run"), "config": config(model, tmp_path)}
    assert kill_at_random(server, job, rng, longest=0.6)
    assert series(tmp_path / "run") == unbroken


def kill_at_random(server: Server, job: dict, rng: random.Random, longest: float) -> int:
    """Start and kill a run again and again, then let it end; how often it was killed."""
    kills = 0
    for _ in range(12):
        pid = server.start(**job)
        time.sleep(rng.uniform(0.1, longest))  # the moment is meant to be arbitrary
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        code = server.end()
        if code == 0:
            return kills
        assert code == -signal.SIGKILL
        kills += 1
    assert server.run(**job) == 0
    return kills


CALL = '<tool_call>{"name":"calculate","arguments":{"expression":"12*34"}}</tool_call>'


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    """A toy model that was shown how to call the calculator and to say what it told, and often does both."""
    directory = make_tiny(tmp_path_factory.mktemp("caller"), hidden=64, layers=2, context=1024)
    # Short prompts: half of them computed before, or a cache that has grown, then show in the last bits.
    template = TEMPLATE.replace("m['content']", "(m['content'] or '')")
    (directory / "chat_template.jinja").write_text("{% if tools %}[s]Say <tool_call>.[e]\n{% endif %}" + template)
    chat = ChatTokens(directory)
    ask = [{"role": "system", "content": CalculatorEnv.system_prompt}, {"role": "user", "content": "7?"}]
    told = [*ask, {"role": "assistant", "content": CALL}, {"role": "tool", "content": "408"}]
    shown = [turn_of(chat, ask, CALL), turn_of(chat, told, "408")]
    policy = Policy.from_directory(directory, tune="full")
    torch.set_num_threads(1)  # the model is tiny
    learner = Learner(policy, build_config({"optim": {"token_budget": 1024, "row_tokens": 1024}}))
    train_epochs(learner, shown, SftConfig(epochs=100, lr=1e-2))
    policy.model.save_pretrained(directory)
    return directory


def turn_of(chat: ChatTokens, messages: list[dict[str, str]], answer: str) -> TokenSequence:
    """What is asked, and the answer that is to be learned."""
    asked, said = chat.prompt(messages, [CALCULATE]), [*chat.encode(answer), chat.stop_ids[0]]
    targets = np.arange(len(asked), len(asked) + len(said))
    return TokenSequence(np.asarray(asked + said), targets, np.full(len(said), np.nan, np.float32), 1.0)


def many_turns(caller: Path, folder: Path) -> dict:
    tree = config(caller, folder, steps=4) | {"recipe": "plain"}
    tree["rollouts"] |= {"prompts_per_step": 3, "max_turns": 3, "max_new_tokens": 90}
    tree["optim"]["lr"] = 1e-3
    tree["eval"]["rows"] = 3
    tree["output"]["save_tokens"] = True
    # Two threads share a matrix product by its size: with them, other batches give other last bits.
    return {"run": str(folder / "run"), "config": tree, "truth": "408", "threads": 2}


def series_and_draws(path: Path) -> list:
    """The metrics, and every token with its log-prob."""
    draws = [
        (file.stem, record["example_id"], record["sample"], record["tokens"])
        for file in sorted((path / "rollouts").glob("*.jsonl"))
        for record in read_jsonl(file)
    ]
    return [*series(path), *draws]


@pytest.fixture(scope="module")
def unbroken_turns(server, caller, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken-turns")
    assert server.run(**many_turns(caller, folder)) == 0
    trained = [values for _, split, values in series(folder / "run") if split == "train"]
    assert max(values["turns/mean"] for values in trained) > 1.5, "there are later turns"
    assert any(values.get("grad_norm", 0) > 0 for values in trained), "and something to learn from them"
    return series_and_draws(folder / "run")


@pytest.mark.parametrize("line", [5, *slow(2, 6, 7)])
def test_runs_of_many_turns_are_resumed_exactly_too(server, caller, unbroken_turns, tmp_path, line):
    job = many_turns(caller, tmp_path)
    assert server.run(**job, die=("run:log_metrics", line)) == -signal.SIGKILL
    assert server.run(**job) == 0
    assert series_and_draws(tmp_path / "run") == unbroken_turns


@pytest.mark.slow
def test_runs_of_many_turns_killed_at_random(server, caller, unbroken_turns, tmp_path):
    assert kill_at_random(server, many_turns(caller, tmp_path), random.Random(7), longest=2.0)
    assert series_and_draws(tmp_path / "run") == unbroken_turns


@pytest.mark.slow
def test_a_resumed_run_takes_the_memory_it_had(server, caller, tmp_path):
    """With room for a few sequences at a time, who runs beside whom depends on the memory."""

    def job(name, rows):
        return many_turns(caller, tmp_path / name) | {"memory": rows * 512 * 2 * 2 * 32 * 4}

    assert server.run(**job("whole", rows=5)) == 0
    assert server.run(**job("broken", rows=5), die=("run:log_metrics", 6)) == -signal.SIGKILL
    assert server.run(**job("broken", rows=9)) == 0
    assert series_and_draws(tmp_path / "broken" / "run") == series_and_draws(tmp_path / "whole" / "run")


def test_torn_line_and_rubbish_are_cleaned_up(server, model, unbroken, tmp_path):
    job = {"run": str(tmp_path / "run"), "config": config(model, tmp_path)}
    server.run(**job, die=("run:log_metrics", 6))
    with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "split": "tra')
    (tmp_path / "run" / "checkpoints" / ".tmp-step-4-1").mkdir()
    assert server.run(**job) == 0
    assert series(tmp_path / "run") == unbroken
    assert not list((tmp_path / "run").rglob(".tmp-*"))


def wait_for_step(path: Path, step: int) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            if any(line["split"] == "train" and line["step"] >= step for line in read_metrics(path)):
                return
        except FileNotFoundError:
            pass
        time.sleep(0.02)  # polling another process
    raise AssertionError("the run did not get that far")


@pytest.mark.parametrize("number", [signal.SIGTERM, *slow(signal.SIGINT, signal.SIGHUP)])
def test_one_signal_saves_and_ends_with_130(server, model, tmp_path, number):
    run = tmp_path / "run"
    pid = server.start(run=str(run), config=config(model, tmp_path, steps=100_000))
    wait_for_step(run, 1)
    os.kill(pid, number)
    assert server.end() == 130
    status = json.loads((run / "status.json").read_text())
    assert status["state"] == "interrupted"
    assert (run / "checkpoints" / "latest").read_text() == f"step-{status['step']}"
    assert max(line["step"] for line in read_metrics(run) if line["split"] == "train") == status["step"] - 1


def test_two_signals_stop_at_once(server, model, tmp_path):
    run = tmp_path / "run"
    slow = {"SLOW": str(tmp_path / "scoring")}
    pid = server.start(run=str(run), config={**config(model, tmp_path), "eval": {"every": 0, "rows": 1}}, environ=slow)
    while not (tmp_path / "scoring").exists():
        time.sleep(0.02)  # polling another process
    began = time.monotonic()
    os.kill(pid, signal.SIGINT)
    while is_running(pid):
        time.sleep(0.3)  # a person's second press; and, should it come before the first was noticed, the next
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)
    assert server.end() == 130
    assert time.monotonic() - began < 45, "the reward sleeps for 60 s"
    assert not list(run.rglob(".tmp-*"))
    assert json.loads((run / "status.json").read_text())["state"] == "interrupted"


def test_full_disk_fails_clearly_and_resumes(server, model, unbroken, tmp_path):
    run = tmp_path / "run"
    job = {"run": str(run), "config": config(model, tmp_path)}
    assert server.run(**job, full=5) == 28
    status = json.loads((run / "status.json").read_text())
    assert status["state"] == "failed"
    assert status["message"] == f"no space left on {run}"
    assert (run / "checkpoints" / "latest").read_text() == "step-0", "the checkpoint before it survives"
    for line in (run / "metrics.jsonl").read_text().splitlines():
        json.loads(line)
    assert server.run(**job) == 0
    assert series(run) == unbroken


@pytest.mark.slow
def test_a_disk_that_is_really_full(model, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = f"mount -t tmpfs -o size=400k tmpfs {small}"
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "sh", "-c", mount], check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    server = Server("unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh")
    try:
        assert server.run(run=str(small / "run"), config=config(model, small, steps=50)) == 28
        run = Path(f"/proc/{server.process.pid}/root{small}/run")
        for line in (run / "metrics.jsonl").read_text().splitlines():
            json.loads(line)
        assert find_checkpoint(run / "checkpoints").weights()
        assert not list(run.rglob(".tmp-*"))
    finally:
        server.close()
