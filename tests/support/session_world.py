"""What the tests of sessions stand on: a real server, a supervisor beside it, and environments to talk to."""

import json
import threading
from contextlib import contextmanager

import pytest

from benchmax.bundle import dump_bundle
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import ToolDefinition
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.uploads.blobs import BlobStore
from platform_world import LiveServer, make_run
from training_world import store_tiny


class CounterEnv(BaseEnv):
    """A counter for each rollout, and a reward for saying its number."""

    system_prompt = "Count."

    def __init__(self, **kwargs):
        self.counts = {}

    async def list_tools(self):
        return [ToolDefinition("add", "Adds one and gives the count.", {"type": "object", "properties": {}})]

    async def init_rollout(self, rollout_id, **rollout_args):
        self.counts[rollout_id] = 0

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        self.counts[rollout_id] += 1
        return f"count {self.counts[rollout_id]}"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"said": float(str(task["answer"]) in messages[-1]["content"]), "count": float(self.counts[rollout_id])}

    async def release_rollout(self, rollout_id):
        print("released", self.counts.pop(rollout_id))


@contextmanager
def supervised(folder, *, slots=("cpu:0",), **settings):
    """A server, and a supervisor at work on the same data."""
    with LiveServer(folder, **settings) as live:
        boss = Supervisor(live.database, live.data, slots=list(slots))
        thread = threading.Thread(target=boss.run, daemon=True)
        thread.start()
        live.boss = boss
        try:
            yield live
        finally:
            boss.stop()
            thread.join(60)
            assert not thread.is_alive()


@contextmanager
def platform_with_a_model(tmp_path_factory):
    """A platform at work on a machine that has one model, `toy`."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        store_tiny(home, "toy")
        patch.setenv("BENCHMAX_HOME", str(home))
        with supervised(tmp_path_factory.mktemp("live")) as server:
            yield server


def bundled(env_class, **options):
    bundle = dump_bundle(env_class, **options)
    return {"env_cls_bytes": bundle.pickled, "env_metadata_bytes": bundle.metadata.to_json_bytes()}


def store_run(live, owner_id, env_class, rows, *, queued=False, email="me@example.org", **args):
    """A run with its files in the blob store, as a launch leaves it."""
    bundle = dump_bundle(env_class)
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    contents = {
        "env_cls_path": ("env.pkl", bundle.pickled),
        "env_metadata_path": ("env.json", bundle.metadata.to_json_bytes()),
        "train_dataset_path": ("train.jsonl", lines),
        "eval_dataset_path": ("eval.jsonl", lines),
    }
    blobs, store = {}, BlobStore(live.data.blobs)
    for name, (_, content) in contents.items():
        with store.receive() as incoming:
            incoming.write(content)
            blobs[name] = incoming.keep()
    with live.database.write() as session:
        paths = {name: path for name, (path, _) in contents.items()}
        run = make_run(session, email=email, args=args, paths=paths, blobs=blobs)
        assert run.owner_id == owner_id
        if queued:
            jobs.enqueue(session, run.id)
    return run.id


def events_of(answer):
    """The JSON of each `data: ` line of a streamed answer."""
    return [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]


@contextmanager
def fake_model(script, **options):
    """A fake model server in a loop of its own."""
    import asyncio

    from benchmax.testing import FakeModelServer

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

    async def make():
        return FakeModelServer(script, **options)

    server = run(make())
    run(server.__aenter__())
    try:
        yield server
    finally:
        run(server.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
