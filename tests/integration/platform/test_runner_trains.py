"""The real child: a bundle in its own process, the trainer, a toy model, and the database at the end."""

import json
import os
import re
import signal
import subprocess

import pytest

from benchmax.bundle import dump_bundle
from benchmax.envs.base_env import BaseEnv
from benchmax.errors import ConfigError
from benchmax.platform.runner import supervisor
from benchmax.platform.runner.children.child_process import failure
from benchmax.platform.runner.children.run_environment import env_limits
from benchmax.platform.runner.children.train_child import train_config
from benchmax.platform.runner.ingest import reindex
from benchmax.platform.runner.jobs.leases import machine_slots
from benchmax.platform.runner.jobs.outcome import CRASHED, MISTAKE, NO_MEMORY, NO_SPACE, Exit, judge
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import evals, rollouts, runs
from benchmax.platform.store.uploads.blobs import BlobStore
from benchmax.platform.wire.launch_args import complete_args, launch_args, settings_tree, total_steps
from benchmax.trainer.tiny_model import make_tiny
from living import content, files_under
from platform_world import make_run
from runner_world import active, drive, end_all, ended, get, is_running, open_world, steps, wait_until

pytestmark = pytest.mark.timeout(300)  # several processes for each test, on machines that do other things too


class DigitsEnv(BaseEnv):
    """Pays for digits."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        import logging
        import os

        key = os.environ["JUDGE_KEY"]
        logging.getLogger(__name__).info("the key %s has %d characters", key, len(key))
        print("printed", key)
        text = messages[-1]["content"]
        return {"digits": sum(letter.isdigit() for letter in text) / max(1, len(text))}


class HeldEnv(DigitsEnv):
    """Scores no more than so many rollouts until a file is there."""

    def __init__(self, gate, most):
        self.gate, self.most, self.scored = gate, most, 0

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        import asyncio
        import os

        self.scored += 1
        while self.scored > self.most and not os.path.exists(self.gate):
            await asyncio.sleep(0.05)
        return await DigitsEnv.compute_reward(self, rollout_id, messages, task, **kwargs)


class FlatEnv(BaseEnv):
    """Pays nothing."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"nothing": 0.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=2)


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "HEARTBEAT_SECONDS", 0.5)
    database, data = open_world(tmp_path)
    boss = Supervisor(database, data, slots=["cpu:0"])
    yield database, data, boss
    end_all(boss)
    database.close()


def store_files(data, rows, env_class, env_args):
    bundle = dump_bundle(env_class, constructor_args=env_args)
    lines = "".join(json.dumps({"prompt": f"{number}?"}) + "\n" for number in range(rows)).encode()
    contents = {
        "env_cls_path": ("env.pkl", bundle.pickled),
        "env_metadata_path": ("env.json", bundle.metadata.to_json_bytes()),
        "train_dataset_path": ("train.jsonl", lines),
        "eval_dataset_path": ("eval.jsonl", lines),
    }
    blobs, store = {}, BlobStore(data.blobs)
    for name, (_, piece) in contents.items():
        with store.receive() as incoming:
            incoming.write(piece)
            blobs[name] = incoming.keep()
    return {name: path for name, (path, _) in contents.items()}, blobs


def start(database, data, boss, rows=16, env_class=DigitsEnv, env_args=None, **args):
    paths, blobs = store_files(data, rows, env_class, env_args)
    with database.write() as session:
        run = make_run(session, args=args, paths=paths, blobs=blobs)
        jobs.enqueue(session, run.id)
        boss._vault.put(session, run.owner_id, "JUDGE_KEY", "abc-def-ghi", run_id=run.id)
    return run.id


ARGS = {"learning_rate": 1e-2, "tune": "full", "group_size": 4, "max_new_tokens": 6, "max_turns": 1, "eval_every": 2}


@pytest.mark.slow
def test_a_whole_run_and_a_crash_in_it(world, model, tmp_path, monkeypatch):
    database, data, boss = world
    many = 6
    gate = tmp_path / "seen" / "gate"
    gate.parent.mkdir(mode=0o755)
    monkeypatch.setenv("BENCHMAX_SANDBOX_READ", str(gate.parent))
    held = {"gate": str(gate), "most": 200}  # more than three steps need, and less than all
    run_id = start(
        database, data, boss, env_class=HeldEnv, env_args=held, model=str(model), max_steps=many, num_epochs=many,
        **ARGS,
    )  # fmt: skip

    def family():
        return [int(each[0]) for watched in boss.watched.values() for each in watched.process.family]

    # The environment has a process of its own.
    drive(boss, lambda: len(steps(database, run_id)) >= 3 and len(family()) >= 2, 120)
    assert get(database, run_id).status == "active"
    first_family = family()
    (watched,) = boss.watched.values()
    os.kill(watched.process.pid, signal.SIGKILL)
    gate.touch()
    drive(boss, ended(database, run_id), 120)
    run = get(database, run_id)
    assert (run.status, run.reason) == ("complete", "All steps are done."), run.reason
    assert steps(database, run_id, name="reward/mean") == list(range(many))
    assert steps(database, run_id, "eval", "reward/mean") == list(range(0, many + 1, 2))
    assert (run.latest_step, run.total_steps) == (many - 1, many)
    with database.read() as session:
        assert {row.step for row in rollouts.page(session, run_id, split="train", limit=1000)} == set(range(many))
        messages = {log.message for log in rollouts.logs(session, run_id)}
    assert "the key [secret] has 11 characters" in messages
    log = (data.run(run_id) / "child.log").read_text()
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} env stdout: printed \[secret\]$", log, re.MULTILINE), log
    assert "abc-def" not in log
    wait_until(lambda: not any(map(is_running, first_family)))
    assert "abc-def" not in (data.run(run_id) / "launch.json").read_text()
    check_evaluations(database, data, boss, run_id)
    files = files_under(data.run(run_id))
    assert [path for path in files if b"key [secret] has" in content(path)]
    assert not [path for path in files if b"abc-def" in content(path)], "S34: not on disk either"


def test_a_run_that_learned_nothing_says_so(world, model):
    database, data, boss = world
    run_id = start(database, data, boss, env_class=FlatEnv, model=str(model), max_steps=4, num_epochs=4, **ARGS)
    drive(boss, ended(database, run_id), 120)
    run = get(database, run_id)
    assert run.status == "complete", run.reason
    assert run.reason.startswith("No step had anything to learn from: in no group did rewards differ. All steps are")
    assert "group_size" in run.reason
    events = [json.loads(line) for line in (data.run(run_id) / "events.jsonl").read_text().splitlines()]
    (alert,) = (event for event in events if event.get("alert") == "nothing_learned")
    assert (alert["step"], alert["evidence"]["highest"], bool(alert["rollouts"])) == (3, 0.0, True)


def check_evaluations(database, data, boss, run_id):
    """Of the trained weights, and of one that cannot be."""
    with database.write() as session:
        rows = [
            evals.create(session, run_id, model=model, options={"rows": 5, "samples": 2})
            for model in ("checkpoint:latest", "checkpoint:step-999")
        ]
        for row in rows:
            jobs.enqueue(session, run_id, kind="eval", eval_id=row.id)

    def both_ended():
        with database.read() as session:
            return all(row.ended is not None for row in evals.of_run(session, run_id))

    drive(boss, both_ended, 120)
    with database.read() as session:
        good, bad = (evals.get(session, run_id, row.id) for row in rows)
        assert (good.status, good.done, good.total) == ("complete", 10, 10), good.reason
        assert good.summary["rollouts"] == 10
        page = rollouts.page(session, run_id, split=evals.SPLIT, eval_id=good.id)
        assert len(page) == 10
        assert rollouts.read_body(data.run(run_id), page[0])["id"] == page[0].id
        assert (bad.status, "step-999" in bad.reason) == ("failed", True)
        assert runs.get(session, run_id).status == "complete", "the run itself stays as it was"
    reindex(database, data, run_id)
    with database.read() as session:
        assert len(rollouts.page(session, run_id, split=evals.SPLIT, eval_id=good.id)) == 10


@pytest.mark.slow
def test_cancel_saves_and_leaves_nobody(world, model):
    database, data, boss = world
    run_id = start(database, data, boss, model=str(model), max_steps=5000, num_epochs=5000, **ARGS)
    drive(boss, active(database, run_id), 120)
    boss._look_around()
    family = [int(each[0]) for watched in boss.watched.values() for each in watched.process.family]
    with database.write() as session:
        runs.request_cancel(session, run_id)
    drive(boss, ended(database, run_id))
    assert get(database, run_id).status == "cancelled"
    assert not any(map(is_running, family))
    assert (data.run(run_id) / "checkpoints" / "latest").exists()


@pytest.mark.parametrize(("given", "bytes"), [("2", 2**31), ("0.5", 2**29), ("0", None)])
def test_an_environment_has_a_memory_limit(monkeypatch, given, bytes):
    assert env_limits().memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    monkeypatch.setenv("BENCHMAX_ENV_MEMORY", given)
    assert env_limits().memory_bytes == bytes


@pytest.mark.parametrize("given", ["much", "-1", "nan", "inf"])
def test_a_memory_limit_that_is_none_is_refused(monkeypatch, given):
    monkeypatch.setenv("BENCHMAX_ENV_MEMORY", given)
    with pytest.raises(ConfigError, match="Give a number of GiB"):
        env_limits()


def test_a_users_mistake_fails_at_once_with_its_words(world, model):
    database, data, boss = world
    few = start(database, data, boss, rows=3, model=str(model))
    drive(boss, ended(database, few), 120)
    assert get(database, few).status == "failed"
    assert "16" in get(database, few).reason


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_full_disk_fails_with_words_and_resumes_when_there_is_room(world, model):
    """F9: 3 MiB for a run whose checkpoints need more."""
    database, data, boss = world
    run_id = start(database, data, boss, model=str(model), max_steps=6, num_epochs=4, **ARGS)
    mount = data.run(run_id)
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=384k,mode=700", "tmpfs", str(mount)], check=True)
    try:
        drive(boss, ended(database, run_id), 60)
        run = get(database, run_id)
        assert run.status == "failed"
        assert "o space left" in run.reason
        for line in (mount / "metrics.jsonl").read_text().splitlines():
            json.loads(line)
        subprocess.run(["mount", "-o", "remount,size=64m", str(mount)], check=True)
        with database.write() as session:
            assert runs.reopen(session, run_id)
            jobs.enqueue(session, run_id)
        drive(boss, ended(database, run_id), 60)
        assert get(database, run_id).status == "complete", get(database, run_id).reason
        assert steps(database, run_id, name="reward/mean") == list(range(6))
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_what_is_worth_another_attempt(tmp_path):
    from benchmax.errors import ConfigError, EnvError

    assert failure(ConfigError("Set it."), tmp_path) == Exit(MISTAKE, "Set it.")
    assert failure(OSError(28, "full", "/x/y"), tmp_path).code == NO_SPACE
    assert "/x/y" in failure(OSError(28, "full", "/x/y"), tmp_path).reason
    theirs = RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert failure(theirs, tmp_path) == Exit(NO_SPACE, f"No space left on {tmp_path}. Free some, then resume the run.")
    assert failure(MemoryError(), tmp_path).code == NO_MEMORY
    for error in (EnvError("gone"), OSError(5, "io"), RuntimeError("?")):
        assert failure(error, tmp_path).code == CRASHED
    assert judge(Exit(NO_SPACE, ""), "", 1, 5, "").status == "failed", "also when there was no room for its last note"
    assert judge(Exit(0, "done"), "cancel", 1, 5, "").status == "complete", "it was faster than the cancel"
    assert judge(Exit(-15, ""), "stop", 5, 5, "")[::2] == ("pending", False)
    assert judge(Exit(-9, ""), "", 5, 5, "boom").status == "failed"
    assert "boom" in judge(Exit(-9, ""), "", 5, 5, "boom").reason


# Launch arguments


def test_arguments_become_settings(tmp_path):
    args = {"learning_rate": 3e-4, "lora_rank": 8, "max_rollout_len": 40, "num_epochs": 2, "seed": 5, "kl": 0.1}
    config = train_config(tmp_path / "run_1", args, rows=200)
    assert config.optim.lr == 3e-4
    assert (config.lora.rank, config.lora.alpha) == (8, 16.0)
    assert (config.rollouts.max_tokens, config.rollouts.max_new_tokens) == (40, 40)
    assert (config.rollouts.max_turns, config.rollouts.max_tool_calls) == (None, None)
    assert (config.limits.steps, config.limits.seconds) == (100, 720.0)
    assert (config.eval.every, config.seed, config.algorithm.kl) == (5, 5, 0.1)
    assert (config.output.dir, config.output.name) == (str(tmp_path), "run_1")


def test_gpus_are_those_that_may_be_used(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-ab")
    assert machine_slots() == ["cuda:2", "cuda:GPU-ab"]
    monkeypatch.setenv("BENCHMAX_GPUS", "1")
    assert machine_slots() == ["cuda:2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine_slots() == ["cpu:0"]


def test_defaults_suit_the_machine():
    assert total_steps({}, 200) == 250
    assert settings_tree({}, 200, gpu=False)["limits"] == {"steps": 250, "seconds": 720.0}
    assert settings_tree({}, 200, gpu=True)["limits"]["seconds"] is None
    assert complete_args({"seed": 3, "unknown": 1}, gpu=False)["seed"] == 3
    assert {spec.name for spec in launch_args(gpu=False)} >= {"model", "learning_rate", "max_minutes"}
    assert launch_args(gpu=False, models=["a", "b"])[0].enum == ["a", "b"]


@pytest.mark.parametrize("gpu", [False, True])
def test_every_default_is_a_valid_setting(gpu):
    from benchmax.platform.wire.launches import check_launch_args
    from benchmax.trainer.config import build_config

    args, warnings = check_launch_args(launch_args(gpu), {})
    assert warnings == []
    assert build_config(settings_tree(args, 100, gpu)).model.name == "smollm2-135m"
