"""What a viewer of rollouts asks: how many there are at each step, where a text occurs, the exact tokens."""

from __future__ import annotations

import asyncio
import json

import pytest

from benchmax.platform.runner.ingest import Ingest
from benchmax.platform.server.services.runs.rollout_tokens import token_runs
from benchmax.platform.store.runs import rollout_search as outline
from platform_world import make_run

EMAIL = "outline@example.org"


def line(step: int, example: str, sample: int, reward: float | None, **more) -> dict:
    messages = [{"role": "user", "content": f"prompt of {example}"}, {"role": "assistant", "content": f"Answer {step}"}]
    base = {
        "id": f"r-{step}-{example}-{sample}", "example_id": example, "sample": sample, "split": "train", "step": step,
        "messages": messages, "completion_start": 1, "rewards": {}, "reward": reward, "termination": "finished",
        "ok": reward is not None, "usage": {"completion_tokens": 10 + sample}, "turns": 1, "started_at": 1.0,
    }  # fmt: skip
    return base | more


RECORDS = [
    line(0, "a", 0, 0.0),
    line(0, "a", 1, 1.0, discarded="overlong"),
    line(0, "b", 0, None, error={"type": "JudgeError", "message": "no answer from the Judge", "where": "reward"}),
    line(1, "a", 0, 0.25, tool_events=[{"turn": 1, "name": "search", "ok": True, "seconds": 0.1}]),
    line(
        1,
        "b",
        0,
        0.75,
        tokens=[{"ids": [0, 1], "sampled": False}, {"ids": [2, 9], "sampled": True, "logprobs": [-0.1, -2.0]}],
    ),
]


@pytest.fixture(scope="module")
def run_id(live):
    live.user(EMAIL)
    with live.database.write() as session:
        run = make_run(session, EMAIL)
    folder = live.data.run(run.id)
    (folder / "rollouts").mkdir(parents=True)
    for step in (0, 1):
        text = "".join(json.dumps(each) + "\n" for each in RECORDS if each["step"] == step)
        (folder / "rollouts" / f"train-{step}.jsonl").write_text(text)
    (folder / "vocabulary.json").write_text(json.dumps(["Hel", "lo", " wor"]))
    Ingest(live.database, run.id, folder).step()
    return run.id


@pytest.fixture
def get(live, run_id):
    with live.client(live.user(EMAIL)[1]) as client:

        def ask(path: str, **query):
            answer = client.get(f"/v1/train/runs/{run_id}/rollouts{path}", params={"mode": "train", **query})
            assert answer.status_code == 200, answer.text
            return answer.json()

        yield ask


def test_the_outline_counts_each_step_newest_first(get):
    found = get("/outline")
    assert [step["step"] for step in found["steps"]] == [1, 0]
    first = found["steps"][1]
    assert (first["rollouts"], first["groups"], first["failed"], first["discarded"]) == (3, 2, 1, 1)
    assert (first["lowest"], first["highest"], first["meanReward"]) == (0.0, 1.0, 0.5)
    assert first["mostTokens"] == 11
    assert found["tools"] == ["search"]
    assert found["terminations"] == ["finished"]


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ({"discarded": True}, ["r-0-a-1"]),
        ({"discarded": False, "step": 0}, ["r-0-a-0", "r-0-b-0"]),
        ({"lowest": 0.5}, ["r-1-b-0", "r-0-a-1"]),
        ({"highest": 0.25}, ["r-1-a-0", "r-0-a-0"]),
        ({"lowest": 0.1, "highest": 0.5}, ["r-1-a-0"]),
        ({"tool": "search"}, ["r-1-a-0"]),
        ({"failed": True}, ["r-0-b-0"]),
        ({"promptMessageId": "b"}, ["r-1-b-0", "r-0-b-0"]),
    ],
)
def test_lists_and_outline_filter_alike(get, query, left):
    assert [row["id"] for row in get("", **query)["data"]] == left
    assert sum(step["rollouts"] for step in get("/outline", **query)["steps"]) == len(left)


@pytest.mark.parametrize(
    ("order", "first", "last"),
    [("worst", "r-0-a-0", "r-0-b-0"), ("best", "r-0-a-1", "r-0-b-0"), ("longest", "r-0-a-1", "r-0-b-0")],
)
def test_orders_put_what_is_unscored_last(get, order, first, last):
    rows = [row["id"] for row in get("", order=order)["data"]]
    assert (rows[0], rows[-1]) == (first, last)


def test_text_is_found_in_turns_and_errors_not_in_names_of_fields(get):
    found = get("/search", text="ANSWER 1")
    assert [each["rollout"]["id"] for each in found["found"]] == ["r-1-a-0", "r-1-b-0"]
    assert found["found"][0]["words"] == "Answer 1"
    assert found["searched"] == found["total"] == 5
    assert [each["rollout"]["id"] for each in get("/search", text="from the judge")["found"]] == ["r-0-b-0"]
    assert get("/search", text="completion_start")["found"] == []
    assert len(get("/search", text="prompt of a", lowest=0.5)["found"]) == 1


def test_a_search_that_runs_out_of_time_says_how_far_it_came(get, monkeypatch):
    monkeypatch.setattr(outline, "SEARCH_SECONDS", -1.0)
    found = get("/search", text="nothing like it")
    assert (found["searched"], found["total"]) == (1, 5)


def test_tokens_come_with_what_they_read(get):
    given, sampled = get("/r-1-b-0/details")["tokenRuns"]
    assert given == {"sampled": False, "ids": [0, 1], "texts": ["Hel", "lo"], "logprobs": None}
    assert sampled == {"sampled": True, "ids": [2, 9], "texts": [" wor", "\ufffd"], "logprobs": [-0.1, -2.0]}
    assert get("/r-1-a-0/details")["tokenRuns"] is None


def test_the_trainer_saves_tokens_with_what_they_read(tmp_path):
    """The conversation is spelled by its tokens."""
    pytest.importorskip("torch")
    from benchmax.envs.base_env import BaseEnv
    from benchmax.envs.example_id import make_example
    from benchmax.trainer.config import build_config
    from benchmax.trainer.start import train
    from benchmax.trainer.task import Task
    from benchmax.trainer.tiny_model import make_tiny

    class AnyEnv(BaseEnv):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"one": 1.0}

    model = make_tiny(tmp_path / "model", hidden=16, layers=1)
    settings = {
        "model": {"name": str(model), "tune": "full", "device": "cpu"},
        "rollouts": {"prompts_per_step": 1, "group_size": 2, "max_new_tokens": 4, "max_turns": 1},
        "limits": {"steps": 1},
        "output": {"dir": str(tmp_path), "name": "toy", "save_tokens": True},
    }
    rows = [make_example(prompt_messages=[{"role": "user", "content": f"What is {i}?"}]) for i in range(2)]
    asyncio.run(train(build_config(settings), task=Task(AnyEnv, rows[:1], rows[1:])))
    record = json.loads((tmp_path / "toy" / "rollouts" / "train-0.jsonl").read_text().splitlines()[0])
    runs = token_runs(tmp_path / "toy", record)
    assert "What is 0?" in "".join(text for run in runs if not run.sampled for text in run.texts)
    assert next(run for run in runs if run.sampled).logprobs
