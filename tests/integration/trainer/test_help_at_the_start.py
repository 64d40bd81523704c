"""A model that finds nothing by itself is helped, one that finds something is not; what was done is recorded."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets import load_examples
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import ToolDefinition
from benchmax.errors import RewardError
from benchmax.files.jsonl import read_jsonl
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.record_files import read_rollouts
from benchmax.rollouts.settings import RolloutSettings
from benchmax.trainer.config import build_config
from benchmax.trainer.learning.batch import sequence_of
from benchmax.trainer.rundir import read_config, read_metrics
from benchmax.trainer.start import resume, train
from benchmax.trainer.task import Task
from benchmax.trainer.tiny_model import make_tiny
from benchmax.trainer.warm_start.hints import hinted_solutions, with_hint
from benchmax.trainer.warm_start.solutions import Solver


class CopyEnv(BaseEnv):
    """Say the letter again, in tags: a fresh model never does."""

    system_prompt = "Put the letter in <answer> tags."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        found = re.search(r"<answer>(.*?)</answer>", extract_completion_text(messages))
        return {"same": float(bool(found) and found[1] == task["letter"])}


class LengthEnv(BaseEnv):
    """Shorter is better: even a fresh model's samples differ."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"short": 1.0 / (1 + len(extract_completion_text(messages)))}


class SecretEnv(BaseEnv):
    """What is paid is nowhere to be found."""

    system_prompt = "Guess."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": float("xyzzy" in extract_completion_text(messages))}


class BrokenEnv(BaseEnv):
    """Nothing can be scored."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        raise ZeroDivisionError


# So few letters that a tiny model learns them, whatever it samples.
ROWS = [{"prompt": f"{letter}{number}?", "letter": letter} for number in range(9) for letter in "abcd"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=64, layers=2, context=2048)


def task(env, rows=ROWS, held_out=6):
    examples = list(load_examples(rows, env))
    return Task(env, examples[:-held_out], examples[-held_out:])


def settings(model, folder, **tree):
    base = {
        "model": {"name": str(model), "tune": "full", "device": "cpu"},
        "optim": {"lr": 5e-3},
        "rollouts": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 12, "max_turns": 1},
        "eval": {"every": 5},
        "limits": {"steps": 20},
        "sft": {"doses": 60, "lr": 3e-3},
        "output": {"dir": str(folder), "name": "run"},
    }
    for section, values in tree.items():
        base[section] = {**base.get(section, {}), **values} if isinstance(values, dict) else values
    return build_config(base)


def run(model, folder, env, task_of=None, **tree):
    seen = []
    chosen = task_of or task(env)
    done = asyncio.run(
        train(settings(model, folder, **tree), task=chosen, on_event=lambda kind, data: seen.append((kind, data)))
    )
    return done, seen


def events(path: Path, kind: str) -> list[dict]:
    return [line for line in read_jsonl(path / "events.jsonl") if line["kind"] == kind]


@pytest.fixture(scope="module")
def helped(model, tmp_path_factory):
    """A run that needed help, and what it said."""
    return run(model, tmp_path_factory.mktemp("helped"), CopyEnv)


def test_a_model_without_signal_is_shown_solutions_until_it_has_some(helped):
    done, _ = helped
    (signal,) = events(done.path, "signal")
    assert (signal["learns"], signal["spread"], signal["gold"]) == (False, 0.0, 1.0)
    assert "No group in 4 had signal" in signal["forecast"]
    (warm,) = events(done.path, "warm_start")
    assert (warm["how"], warm["sources"]) == ("gold", {"gold": warm["rows"]})
    assert warm["before"] == 0.0
    doses = events(done.path, "dose")
    assert len(doses) == warm["doses"]
    assert doses[-1]["reward"] > 0
    losses = [line["values"]["loss"] for line in read_metrics(done.path) if line["split"] == "sft"]
    assert len(losses) == warm["steps"]
    assert losses[-1] < losses[0]


def test_training_goes_on_from_there_and_is_at_least_as_good(helped):
    done, _ = helped
    (warm,) = events(done.path, "warm_start")
    assert done.first_eval["reward/mean"] == 0.0
    assert done.best >= warm["after"]
    assert done.learned


def test_held_out_rows_are_never_shown(helped):
    done, _ = helped
    solutions = list(read_rollouts(done.path / "rollouts" / "warm_start-0.jsonl"))
    assert {rollout.split for rollout in solutions} == {"demonstration"}
    shown = {rollout.example_id for rollout in solutions}
    held_out = {row["id"] for row in task(CopyEnv).held_out}
    assert shown
    assert not shown & held_out


def test_what_will_happen_is_said_before_and_what_was_learned_after(helped):
    done, seen = helped
    kinds = [kind for kind, _ in seen]
    (plan,) = events(done.path, "plan")
    assert kinds.index("plan") < next(
        at for at, (kind, data) in enumerate(seen) if kind == "metrics" and data["split"] == "train"
    )
    assert (plan["prompts"], plan["samples"], plan["steps"], plan["device"]) == (4, 4, 20, "cpu")
    assert plan["sampled_tokens"] > 0
    assert plan["computed_tokens"] > 0
    assert plan["step_seconds"] > 0
    assert plan["memory_bytes"] > 1e7
    assert "loses 50% of its pay" in plan["cut_off"]
    (summary,) = events(done.path, "summary")
    assert summary["before"] == 0.0
    assert summary["best"] == pytest.approx(done.best)
    assert len(summary["pairs"]) == 3
    for pair in summary["pairs"]:
        assert re.fullmatch(r"[a-z]\d\?", pair["question"])
        assert pair["before"]["reward"] == 0.0
    assert summary["pairs"][0]["after"]["reward"] == 1.0
    assert summary["pairs"][0]["after"]["text"].startswith("<answer>")


def test_a_model_with_signal_is_left_alone(model, tmp_path):
    done, _ = run(model, tmp_path, LengthEnv, limits={"steps": 1})
    (signal,) = events(done.path, "signal")
    assert signal["learns"]
    assert "it will learn" in signal["forecast"]
    (warm,) = events(done.path, "warm_start")
    assert (warm["how"], warm["steps"]) == ("none", 0)
    assert not (done.path / "rollouts" / "warm_start-0.jsonl").exists()


def test_the_first_look_costs_no_samples(model, tmp_path):
    """What it samples is what the first step would have drawn."""
    looked, _ = run(model, tmp_path / "a", LengthEnv, limits={"steps": 1}, output={"save_tokens": True})
    plain, _ = run(model, tmp_path / "b", LengthEnv, limits={"steps": 1}, output={"save_tokens": True}, recipe="plain")

    def drawn(path):
        rollouts = read_rollouts(path / "rollouts" / "train-0.jsonl")
        return sorted((rollout.example_id, rollout.sample, rollout.tokens[1].ids) for rollout in rollouts)

    assert drawn(looked.path) == drawn(plain.path)


def test_where_nothing_helps_that_is_said_and_training_begins(model, tmp_path):
    done, _ = run(model, tmp_path, SecretEnv, limits={"steps": 1})
    (warm,) = events(done.path, "warm_start")
    assert warm["how"] == "none"
    assert "No solution was found" in warm["why"]
    assert "gold_completion or demonstrate" in warm["why"]


def test_without_any_reward_no_solution_is_looked_for(model, tmp_path):
    with pytest.raises(RewardError, match="No rollout got a reward"):
        run(model, tmp_path, BrokenEnv, limits={"steps": 1})
    (warm,) = events(tmp_path / "run", "warm_start")
    assert warm["how"] == "none"
    assert "No sample got a reward" in warm["why"]
    assert "correct the reward" in warm["why"]


@pytest.mark.parametrize("given", [{"warm_start": "off"}, pytest.param({"recipe": "plain"}, marks=pytest.mark.slow)])
def test_help_can_be_turned_off(model, tmp_path, given):
    done, _ = run(model, tmp_path, CopyEnv, limits={"steps": 1}, **given)
    assert all(event["steps"] == 0 for event in events(done.path, "warm_start"))
    assert not [line for line in read_metrics(done.path) if line["split"] == "sft"]


def test_a_run_with_a_warm_start_is_resumed_exactly(model, helped, tmp_path):
    whole, _ = helped
    half = asyncio.run(train(settings(model, tmp_path, limits={"steps": 10}), task=task(CopyEnv)))
    asyncio.run(resume(half.path, task=task(CopyEnv), changes={"limits": {"steps": 20}}))
    clock = {"seconds/sample", "seconds/update", "tokens_per_second"}

    def numbers(path):
        return [
            (line["split"], line["step"], {name: value for name, value in line["values"].items() if name not in clock})
            for line in read_metrics(path)
        ]

    assert numbers(half.path) == numbers(whole.path)


def test_settings_nobody_gave_are_chosen_said_and_kept(model, tmp_path):
    tree = settings(model, tmp_path)
    tree = build_config({
        **json.loads(tree.model_dump_json()),
        "rollouts": {"prompts_per_step": 4, "group_size": 4},
        "limits": {"steps": 1},
    })  # fmt: skip
    done = asyncio.run(train(tree, task=task(CopyEnv)))
    chosen = {each["name"]: each for event in events(done.path, "chosen") for each in event["settings"]}
    assert chosen["rollouts.max_turns"]["value"] == 3
    assert chosen["rollouts.max_turns"]["why"] == "known solutions take 1"
    assert chosen["rollouts.max_new_tokens"]["value"] == 64
    saved = read_config(done.path)
    assert (saved.rollouts.max_turns, saved.rollouts.max_new_tokens) == (3, 64)
    assert "limits.seconds" not in chosen, "steps were given"
    assert (tree.rollouts.max_turns, tree.rollouts.max_new_tokens) == (None, 256), "the caller's own stay as they were"


# Solutions as tokens


class LookUpEnv(BaseEnv):
    system_prompt = "Look it up, then answer in <answer> tags."

    async def list_tools(self):
        schema = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
        return [ToolDefinition("look", "Looks up.", schema)]

    async def run_tool(self, rollout_id, tool_name, key):
        return {"a": "1", "b": "2"}.get(key, "?")

    def demonstrate(self, example):
        found = yield "look", {"key": example["task"]["key"]}
        yield f"<answer>{found}</answer>"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": float(f"<answer>{task['value']}</answer>" in extract_completion_text(messages))}


async def test_every_turn_of_a_solution_is_learned_in_the_very_prompt_of_the_rollouts(model):
    chat = ChatTokens(model)
    rows = list(load_examples([{"prompt": "a?", "key": "a", "value": "1"}], LookUpEnv))
    async with EnvHost(LookUpEnv) as host:
        solution = await Solver(host, chat, RolloutSettings(), rows).solve(rows[0])
        tools = (await host.toolbox()).tools
    assert solution is not None
    assert (solution.source, solution.reward) == ("demonstrate", 1.0)
    asked = [{"role": "system", "content": LookUpEnv.system_prompt}, *rows[0]["prompt_messages"]]
    prompt = chat.prompt(asked, tools)
    ids, targets = solution.sequence.ids.tolist(), solution.sequence.targets.tolist()
    assert ids[: len(prompt)] == prompt
    said = chat.spell([ids[at] for at in targets])
    end = chat.spell(chat.end_of_turn)
    assert said.count(end) == 2, "each turn ends"
    assert said.startswith("<tool_call>")
    assert said.endswith(f"<answer>1</answer>{end}")
    observed = chat.spell([token for at, token in enumerate(ids) if at not in targets])
    assert "<tool_response>" in observed
    assert solution.sequence.ids.tolist() == [*sequence_of(solution.rollout).ids.tolist()]


def test_a_hint_follows_a_question_in_parts():
    parts = [{"type": "text", "text": "Which "}, {"type": "text", "text": "letter?"}]
    hinted = with_hint({"id": "1", "prompt_messages": [{"role": "user", "content": parts}], "task": {"letter": "a"}})
    assert hinted is not None
    assert hinted["prompt_messages"][-1]["content"].startswith("Which letter?\n\nThe solution")


async def test_a_hinted_answer_is_learned_without_the_hint(model):
    chat = ChatTokens(model)
    rows = list(load_examples(ROWS[:4], CopyEnv))
    hinted = with_hint(rows[0])
    assert hinted is not None
    assert '"letter": "a"' in hinted["prompt_messages"][-1]["content"]

    class Sampler:
        async def sample(self, examples, draw, on_group):
            groups = []
            for row, example in zip(rows, examples, strict=True):
                answer = [*chat.encode(f"<answer>{row['task']['letter']}</answer>"), *chat.end_of_turn]
                good, bad = (told(example, chat, answer, reward) for reward in (1.0, 0.0))
                groups.append([bad, good])
            return groups

    class Trainer:
        sampler = Sampler()
        config = build_config({})

        @staticmethod
        def on_group(group):
            pass

    async with EnvHost(CopyEnv) as host:
        found = await hinted_solutions(Solver(host, chat, RolloutSettings(), rows), Trainer(), rows)
    assert [solution.reward for solution in found] == [1.0] * 4
    text = chat.spell(found[0].sequence.ids.tolist())
    assert "solution" not in text
    assert "a0?" in text
    assert text.endswith(f"<answer>a</answer>{chat.spell(chat.end_of_turn)}")


def told(example, chat, answer, reward):
    from benchmax.envs.types import Transcript
    from benchmax.models.base import TokenSegment

    prompt = chat.prompt(example["prompt_messages"])
    return Rollout(
        id=f"{example['id']}{reward}", example_id=example["id"], messages=Transcript(example["prompt_messages"]),
        reward=reward, ok=True, turns=1, termination=Termination.FINISHED,
        tokens=[TokenSegment(prompt, sampled=False), TokenSegment(answer, sampled=True)],
    )  # fmt: skip
