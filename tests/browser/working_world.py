"""A console over a server that works: a real runner beside it, a toy model, uploads, keys, a run that trains.

`python tests/browser/working_world.py --port 8400` serves it to look at while pages are written.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from console_world import EMAIL, PASSWORD, ConsoleWorld

from benchmax.envs.base_env import BaseEnv

ROWS = [{"prompt": f"Count to {n}.", "ground_truth": str(n)} for n in range(40)]
ARGS = {"learning_rate": 1e-2, "tune": "full", "group_size": 2, "max_new_tokens": 4, "max_turns": 1, "eval_every": 5}


class CountingEnv(BaseEnv):
    """Pays for saying the number that was asked for. A toy: no tools, one component."""

    system_prompt = "Say the number."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"said": float(str(task["ground_truth"]) in messages[-1]["content"])}


class WorkingWorld(ConsoleWorld):
    """A world with a model and a runner."""

    model: str

    def record(self, run_id: str, run_dir: Path) -> None:
        """Let a run have been trained as a run directory says."""
        import shutil

        from benchmax.platform.runner.ingest import Ingest
        from benchmax.platform.store.runs import runs

        shutil.copytree(run_dir, self.data.run(run_id), dirs_exist_ok=True)
        with self.database.write() as session:
            runs.set_status(session, run_id, "active", "training")
        ingest = Ingest(self.database, run_id, self.data.run(run_id))
        while not ingest.step():
            pass
        times = [json.loads(line)["time"] for line in (run_dir / "metrics.jsonl").read_text("utf-8").splitlines()]
        with self.database.write() as session:
            runs.set_status(session, run_id, "complete", "")
            run = runs.get(session, run_id)
            run.started, run.ended = times[0], times[-1]


@contextmanager
def stored_models(folder: Path) -> Iterator[None]:
    """Let this folder hold the machine's models, for this process and those it starts."""
    before = os.environ.get("BENCHMAX_HOME")
    os.environ["BENCHMAX_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("BENCHMAX_HOME")
        if before is not None:
            os.environ["BENCHMAX_HOME"] = before


@contextmanager
def working(folder: Path, link: Sequence[str] = (), **settings) -> Iterator[WorkingWorld]:
    """A world whose runner works in a thread of this process, as `session_world.supervised` has it; `link` names models
    of this machine it may use besides its toy."""
    from benchmax.inference.weights.store import models_dir
    from benchmax.platform.runner.supervisor import Supervisor
    from benchmax.trainer.tiny_model import make_tiny

    store, own = folder / "store", models_dir()
    with stored_models(store), WorkingWorld(folder, **settings) as world:
        world.model = "toy"
        make_tiny(model_folder(world.model), hidden=32, layers=2)
        for name in link:
            (store / "models" / name).symlink_to(own / name)
        boss = Supervisor(world.database, world.data, slots=["cpu:0", "cpu:1"])
        thread = threading.Thread(target=boss.run, daemon=True)
        thread.start()
        try:
            yield world
        finally:
            boss.stop()
            thread.join(120)
            assert not thread.is_alive()


def model_folder(name: str) -> Path:
    """Where a model of this name belongs, with its card written."""
    from benchmax.inference.weights.store import models_dir

    folder = models_dir() / name
    folder.mkdir(parents=True)
    card = {
        "name": name,
        "title": name,
        "source": "random",
        "license": "none",
        "sha256": "",
        "parameters": 1,
        "bytes": 1,
    }
    (folder / "benchmax.json").write_text(json.dumps(card))
    return folder


def add_never_ending(name: str) -> None:
    """A toy that draws letters until it is stopped: the token that ends a turn is the least like all it reads."""
    import torch
    from transformers import AutoModelForCausalLM

    from benchmax.trainer.tiny_model import make_tiny

    folder = make_tiny(model_folder(name), hidden=32, layers=2, context=100_000)
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        letters = model.get_input_embeddings().weight  # also those it draws from
        letters[:, 0] = 3.0
        letters[model.config.eos_token_id, 0] = -3.0
    model.save_pretrained(folder)


def key_of(world: ConsoleWorld) -> str:
    """The one key of the user these functions act as, made when it is first asked for."""
    if not hasattr(world, "own_key"):
        world.own_key = world.user(EMAIL)[1]
    return world.own_key


def add_environment(world: ConsoleWorld, env_class=CountingEnv, rows=ROWS, name="counting"):
    """Upload a bundle and its rows, as the SDK does; gives the upload."""
    from benchmax.platform.training_run import upload_training_run

    key = key_of(world)
    return upload_training_run(
        env_class=env_class, train_dataset=rows[:30], eval_dataset=rows[30:], run_name=name, api_key=key,
        base_url=world.url,
    )  # fmt: skip


def add_dataset(world: ConsoleWorld, name: str, content: bytes) -> str:
    """Put a file among the user's datasets by the server's own route; gives its path."""
    with world.client(key_of(world)) as client:
        answer = client.post("/v1/datasets", params={"name": name}, content=content)
        assert answer.status_code == 201, answer.text
        return answer.json()["path"]


def lines(rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def train(world: ConsoleWorld, *, name="counting, live", steps=100_000) -> str:
    """A run that trains in a process of its own, with its first checkpoint saved."""
    from runner_world import wait_until
    from session_world import store_run

    run_id = store_run(
        world, world.user_id, CountingEnv, ROWS[:30], queued=True, email=EMAIL, model=world.model, max_steps=steps,
        num_epochs=steps, save_every=1, **ARGS,
    )  # fmt: skip
    with world.client(key_of(world)) as client:
        client.patch(f"/v1/train/runs/{run_id}", json={"name": name})
    wait_until(lambda: (world.data.run(run_id) / "checkpoints" / "latest").exists(), 240)
    return run_id


def furnish(world: ConsoleWorld) -> None:
    """Keys, endpoints, secrets, users, datasets and an upload: what the pages show of a platform in use."""
    key = key_of(world)
    with world.client(key) as client:
        for name, scopes, days in (
            ("laptop", ["read", "write"], 90),
            ("nightly job", ["read", "write"], None),
            ("dashboard", ["read"], 7),
        ):
            client.post("/v1/keys", json={"name": name, "scopes": scopes, "days": days})
        for name, model, url in (
            ("the big one", "qwen3-32b", "http://10.0.0.7:8000/v1"),
            ("provider", "gpt-5-mini", "https://api.example.com/v1"),
        ):
            client.post("/v1/endpoints", json={"name": name, "model": model, "baseUrl": url, "apiKey": "sk-hidden"})
        client.post("/v1/webhooks", json={"url": "https://hooks.example.org/services/training"})
        for name in ("SEARCH_API_KEY", "JUDGE_API_KEY"):
            client.put(f"/v1/secrets/{name}", json={"value": "hidden"})
        for name in ("grace@example.org", "alan@example.org"):
            client.post("/v1/users", json={"name": name, "password": "a long password"})
    add_environment(world)
    questions = [
        {
            "prompt": f"A train leaves at {h}:10 and arrives at {h + 2}:{m:02}. How long is it under way?",
            "ground_truth": f"{2 if m >= 10 else 1} h {(m - 10) % 60} min",
        }
        for h in range(6, 18)
        for m in (5, 25, 40, 55)
    ]
    add_dataset(world, "timetable.jsonl", lines(questions))
    bad = [{"prompt": "", "ground_truth": "1"}, {"promt": "What is 2 + 2?", "ground_truth": "4"}, {"prompt": 17}]
    add_dataset(world, "support-questions.jsonl", lines([*questions[:30], *bad, questions[0]]))
    sums = "question,ground_truth\n" + "".join(f"{a} + {b}?,{a + b}\n" for a in range(10, 30) for b in range(3, 9))
    add_dataset(world, "sums.csv", sums.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--console", type=Path)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        working(Path(folder), port=given.port, console=given.console) as world,
    ):
        furnish(world)
        run_id = train(world)
        print(f"Sign in at {world.url} as {EMAIL} with the password: {PASSWORD}\n  {world.url}/experiments/{run_id}")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
