"""The examination itself: what it plays, how it survives hostile environments, what it reports."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal

import pytest

from benchmax.doctor import CHECKS, Pace, examine, examine_sync
from benchmax.doctor.gold.ground_truths import truth_text
from benchmax.doctor.probe_answers import exploits, labelled, mentions
from benchmax.doctor.tool_arguments import arguments_for, edge_arguments
from benchmax.envs.example_id import make_example
from benchmax.envs.types import ToolCall, ToolDefinition
from benchmax.errors import ConfigError, EnvDefinitionError, RewardError, ToolError, UsageError
from benchmax.rollouts.toolbox import Toolbox
from benchmax.testing import run_env_contract
from broken_envs import (
    HURRIED,
    ROWS,
    TALKS,
    FileKeeper,
    Good,
    Hangs,
    MyEnv,
    Notebook,
    PaysEmptyTags,
    Ranked,
    SharedWhileScoring,
    ToolFailsAtEdges,
    WeightIsNaN,
    WithTool,
    is_right,
)

# --- what is played


async def test_the_whole_life_is_played_and_every_init_is_released() -> None:
    seen: list[str] = []

    class Logged(Notebook):
        async def init_rollout(self, rollout_id, **rollout_args):
            seen.append("init")
            await super().init_rollout(rollout_id)

        async def run_tool(self, rollout_id, tool_name, **tool_args):
            seen.append(f"tool {tool_name}")
            return await super().run_tool(rollout_id, tool_name, **tool_args)

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            seen.append("reward")
            return await super().compute_reward(rollout_id, messages, task)

        async def release_rollout(self, rollout_id):
            seen.append("release")
            await super().release_rollout(rollout_id)

        async def shutdown(self):
            seen.append("shutdown")

    diagnosis = await examine(Logged, rows=ROWS)
    assert diagnosis.ok
    assert seen.count("init") == seen.count("release") > 50
    assert {"tool write", "tool read", "reward"} <= set(seen)
    assert seen[-1] == "shutdown"
    assert seen.count("shutdown") == 1


async def test_the_same_seed_plays_the_same_examples() -> None:
    first, again, other = [await examine(Good, rows=ROWS, examples=3, seed=seed) for seed in (1, 1, 2)]
    asked = [{answer.question for answer in diagnosis.answers} for diagnosis in (first, again, other)]
    assert asked[0] == asked[1] != asked[2]
    assert len(asked[0]) == 3


async def test_group_rewards_are_probed_in_mixed_groups() -> None:
    sizes: list[set[str]] = []

    class Seen(Ranked):
        async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
            sizes.append({messages[-1]["content"] for messages in messages_list})
            return await super().compute_group_reward(rollout_ids, messages_list, tasks)

    diagnosis = await examine(Seen, rows=ROWS)
    assert diagnosis.errors == []
    mixed = max(sizes, key=len)
    assert "" in mixed
    assert any(text.startswith("<answer>") for text in mixed)
    gold = [a for a in diagnosis.answers if a.probe == "gold"]
    assert gold
    assert all(answer.rewards == {"correct": 1.0, "brief": 0.5} for answer in gold)


async def test_the_evidence_names_the_text_and_the_numbers() -> None:
    diagnosis = await examine(PaysEmptyTags, rows=ROWS)
    [finding] = diagnosis.find("pays-for-empty-tags")
    assert "'<answer></answer>' earned 0.2 (format=0.2, correct=0)" in finding.evidence
    assert "earns 1 (format=0.2, correct=0.8)" in finding.evidence
    assert "content" in finding.fix


async def test_rows_may_be_an_iterator_a_file_or_broken(tmp_path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([*map(json.dumps, ROWS), "{broken"]))
    assert (await examine(Good, rows=iter(ROWS))).ok
    diagnosis = await examine(Good, rows=path)
    assert [finding.check for finding in diagnosis.errors] == ["preprocess-fails"]
    assert "rows.jsonl:21" in diagnosis.errors[0].evidence
    nothing = await examine(Good, rows=[])
    assert not nothing.ok
    assert nothing.find("preprocess-fails")


async def test_multi_turn_rows_are_probed_with_old_answers() -> None:
    diagnosis = await examine(MyEnv, rows=TALKS)
    assert "reward-scores-prompt-turns" in diagnosis.passed
    assert "reward-scores-prompt-turns" in (await examine(MyEnv, rows=ROWS)).skipped


# --- what it survives


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        None,
        "1",
        Decimal(1),
        {"a": {"b": 1}},
        {},
        [1.0],
        (x for x in ()),
        {"a": None},
        {"": 1.0},
        {1: 1.0},
    ],
    ids=lambda value: type(value).__name__,
)
async def test_reward_values_that_are_no_rewards_are_errors(value: object) -> None:
    class Odd(Good):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"correct": value} if isinstance(value, float | str | Decimal) else value

    diagnosis = await examine(Odd, rows=ROWS, examples=2)
    assert {finding.check for finding in diagnosis.errors} & {"reward-unscored", "reward-not-finite", "reward-raises"}


async def test_numpy_and_bool_rewards_are_fine() -> None:
    numpy = pytest.importorskip("numpy")

    class Numbers(Good):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            right = (await super().compute_reward(rollout_id, messages, task))["correct"]
            return {"a": numpy.float32(right), "b": right > 0.5}

    diagnosis = await examine(Numbers, rows=ROWS)
    assert diagnosis.ok
    assert diagnosis.find("mirrored-component")


class Diary(Notebook):
    """Two notes are to be written; each component looks for one of them."""

    @classmethod
    def gold_tool_calls(cls, example):
        return [ToolCall("write", json.dumps({"text": f"{word} {example['task']['ground_truth']}"})) for word in "ab"]

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {word: float(f"{word} {task['ground_truth']}" in self.notes[rollout_id]) for word in "ab"}


class TwiceTheSame(Diary):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        kept = float(f"a {task['ground_truth']}" in self.notes[rollout_id])
        return {"kept": kept, "again": kept}


async def test_components_that_look_at_different_tool_calls_do_not_repeat_one_another() -> None:
    diagnosis = await examine(Diary, rows=ROWS, examples=2)
    assert [finding.title for finding in (*diagnosis.errors, *diagnosis.warnings)] == []
    assert (await examine(TwiceTheSame, rows=ROWS, examples=2)).find("mirrored-component")


class Sealed(FileKeeper):
    """What is to be written stands nowhere in the row."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"kept": float(f"<<{task['ground_truth']}>>" in self.notes[rollout_id])}


async def test_what_rewards_see_of_tool_calls_is_searched_or_asked_for() -> None:
    assert (await examine(FileKeeper, rows=ROWS, examples=2)).find("nothing-earns") == []
    diagnosis = await examine(Sealed, rows=ROWS, examples=2)
    (finding,) = diagnosis.find("nothing-earns")
    assert "gold_tool_calls" in finding.fix
    assert "ToolCall('write', json.dumps({'text':" in finding.code

    class AndSays(FileKeeper):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {**await super().compute_reward(rollout_id, messages, task), "said": is_right(messages, task)}

    (finding,) = (await examine(AndSays, rows=ROWS, examples=2)).find("dead-component")
    assert "gold_tool_calls" in finding.fix


async def test_errors_of_benchmax_bring_their_own_advice_and_end_the_examination() -> None:
    class NoServers(Notebook):
        async def list_tools(self):
            raise EnvDefinitionError("setup.sh failed. Its last lines were:\nno such package\nCorrect setup.sh.")

    class NoRewards(Good):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            asked.append(rollout_id)
            raise RewardError("reward_fn.py cannot be used: SyntaxError")

    asked: list[str] = []
    assert (await examine(NoServers, rows=ROWS)).find("tool-schema-invalid")[0].fix == "Correct setup.sh."
    assert "Correct the reward functions" in (await examine(NoRewards, rows=ROWS)).find("reward-raises")[0].fix
    assert len(asked) == 1, "what no answer can change is asked once"


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "error", [KeyError("x"), SystemExit(3), KeyboardInterrupt(), _Unprintable(), ValueError("y" * 10**7)]
)
async def test_whatever_a_reward_raises_is_a_finding(error: BaseException) -> None:
    class Raises(Good):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            raise error

    diagnosis = await examine(Raises, rows=ROWS, examples=2)
    [finding] = diagnosis.find("reward-raises")
    assert len(str(diagnosis)) < 20_000
    assert finding.severity == "error"


@pytest.mark.parametrize(
    "value", [b"\xff\xfe", "x" * 10**6, "\x1b[31mred", {"a": 1}, ["b"], 3], ids=lambda v: type(v).__name__
)
async def test_odd_tool_output_is_no_error(value: object) -> None:
    class Odd(WithTool):
        async def run_tool(self, rollout_id, tool_name, **tool_args):
            return value

    diagnosis = await examine(Odd, rows=ROWS, examples=2)
    assert diagnosis.ok
    assert "\x1b" not in str(diagnosis)


async def test_a_hanging_reward_costs_one_deadline() -> None:
    asked = []

    class Counted(Hangs):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            asked.append(rollout_id)
            return await super().compute_reward(rollout_id, messages, task, **kwargs)

    diagnosis = await examine(Counted, rows=ROWS, pace=HURRIED)
    assert len(diagnosis.answers) == 1
    assert len(asked) == 1


async def test_a_hanging_init_and_list_tools_are_findings() -> None:
    import asyncio

    class Init(Good):
        async def init_rollout(self, rollout_id, **rollout_args):
            await asyncio.sleep(3600)

    class Tools(Good):
        async def list_tools(self):
            await asyncio.sleep(3600)

    pace = Pace(init_seconds=1.0)
    assert "init-fails" in (await examine(Init, rows=ROWS, pace=pace)).failed
    assert "tool-schema-invalid" in (await examine(Tools, rows=ROWS, pace=pace)).failed


async def test_an_environment_that_says_what_to_do_is_quoted_as_the_fix() -> None:
    class Refuses(Good):
        async def init_rollout(self, rollout_id, **rollout_args):
            raise EnvDefinitionError("These rows are harder. Add --env-arg level=hard.")

    diagnosis = await examine(Refuses, rows=ROWS)
    assert [each.fix for each in diagnosis.findings if each.check == "init-fails"] == ["Add --env-arg level=hard."]


async def test_no_time_for_probes_still_gives_a_diagnosis() -> None:
    diagnosis = await examine(Good, rows=ROWS, pace=Pace(probe_seconds=0.0))
    assert diagnosis.ok
    assert {answer.probe for answer in diagnosis.answers} == {"first", "gold"}


async def test_an_unknown_pace_is_refused() -> None:
    with pytest.raises(ConfigError, match="quick, normal, patient"):
        await examine(Good, rows=ROWS, pace="slowly")


# --- what it reports


async def test_the_diagnosis_is_strict_json_and_readable() -> None:
    diagnosis = await examine(PaysEmptyTags, rows=ROWS)
    again = json.loads(json.dumps(diagnosis.to_dict(), allow_nan=False))
    assert again["ok"] is False
    assert again["findings"][0]["check"] == "pays-for-empty-tags"
    assert {line["id"] for line in again["checks"]} == set(CHECKS)
    assert len(diagnosis.passed) + len(diagnosis.failed) + len(diagnosis.skipped) == len(CHECKS)
    assert "✗ pays-for-empty-tags" in str(diagnosis)
    assert str(diagnosis).splitlines()[-1].startswith("PaysEmptyTags: 1 error, 0 warnings")
    assert not diagnosis


async def test_components_are_measured_over_all_answers() -> None:
    diagnosis = await examine(PaysEmptyTags, rows=ROWS)
    stats = {stat.name: stat for stat in diagnosis.components}
    assert stats["format"].by_probe["empty-tags"] == pytest.approx(0.2)
    assert stats["correct"].by_probe["gold"] == pytest.approx(0.8)
    assert stats["correct"].by_probe["nothing"] == 0.0
    assert stats["format"].std > 0.0


async def test_the_sync_twin_works_inside_a_running_loop() -> None:
    assert examine_sync(Good, rows=ROWS).ok


async def test_the_fix_is_what_an_error_of_ours_says() -> None:
    class NeedsMore(Good):
        def __init__(self) -> None:
            raise UsageError("The environment needs a package. Run: pip install thing")

    (finding,) = (await examine(NeedsMore, rows=ROWS)).errors
    assert finding.fix.endswith("Run: pip install thing")


def test_run_env_contract_raises_what_is_wrong() -> None:
    assert run_env_contract(Good, ROWS).ok
    with pytest.raises(AssertionError, match="pays-for-empty-tags"):
        run_env_contract(PaysEmptyTags, ROWS)
    with pytest.raises(AssertionError, match="cannot-construct"):
        run_env_contract(Good, ROWS, {"self": 1})


# --- its parts


def test_arguments_fit_the_schema_they_are_made_from() -> None:
    schema = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 3},
            "short": {"type": "string", "maxLength": 2},
            "mode": {"enum": ["fast", "slow"]},
            "limit": {"type": "integer", "minimum": 12, "maximum": 20},
            "low": {"type": "integer", "maximum": 3},
            "ratio": {"type": "number", "exclusiveMinimum": 1},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "where": {"$ref": "#/$defs/place"},
            "maybe": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            "given": {"type": "string", "default": "d"},
        },
        "required": ["query", "where"],
        "$defs": {"place": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
    }
    tool = ToolDefinition("search", "Search.", schema)
    arguments = arguments_for(tool, question="What?")
    from benchmax.envs.types import ToolCall

    assert Toolbox([tool]).arguments(ToolCall("search", json.dumps(arguments))) == arguments
    assert arguments["query"] == "What?"
    assert arguments["where"] == {"x": 10}
    assert arguments["given"] == "d"
    assert arguments_for(ToolDefinition("plain", "No schema.")) == {}
    assert arguments_for(ToolDefinition("loop", "", {"$ref": "#"})) == {}


def test_exploits_are_made_from_the_gold_answer() -> None:
    example = make_example([{"role": "user", "content": "2 + 2?"}], {"ground_truth": "4"})
    others = [("5", "<a>5</a>"), ("6", "<a>6</a>"), ("7", "<a>7</a>")]
    made = list(exploits(example, "4", "<a>4</a>", others, "Answer in <a> tags."))
    texts = {kind: [text for name, text in made if name == kind] for kind, _ in made}
    assert texts["echo"] == ["2 + 2?"]
    assert "<a></a>" in texts["empty-tags"]
    assert "<a>...</a>" in texts["placeholder"]
    assert texts["wrong"] == ["<a>5</a>"]
    assert texts["shotgun"][1] == "<a>5, 4, 6, 7</a>"
    assert texts["long-gold"][0].endswith("<a>4</a>")
    assert len(texts["long-gold"][0]) > 10 * len("<a>4</a>")


def test_truth_is_found_under_its_usual_names() -> None:
    def truth(**task: object) -> str | None:
        return truth_text(make_example([{"role": "user", "content": "?"}], task))

    assert truth(ground_truth="a") == "a"
    assert truth(answer=4) == "4"
    assert truth(expected=["x", "y"]) == "x"
    assert truth(target={"k": 1}) == '{"k": 1}'
    assert truth(prompt="only this") is None


def test_mentions_means_whole_words() -> None:
    assert mentions("The capital is Rome.", "rome")
    assert not mentions("12 + 3", "2")
    assert not mentions("romeo", "Rome")
    assert labelled("(ground truth: Rome)", "Rome")
    assert labelled("The answer is Rome", "Rome")
    assert not labelled("Is Rome old?", "Rome")


# --- what a reviewer found missing


async def test_a_tool_that_fails_at_the_edges_is_shown_with_the_call_and_how_many_more() -> None:
    (finding,) = (await examine(ToolFailsAtEdges, rows=ROWS)).find("tool-raises")
    assert "part(n=0, name='test', size=10) → ZeroDivisionError" in finding.evidence
    assert finding.evidence.endswith("and 1 more")  # name=''; size=0 is forbidden by the schema


async def test_a_tool_that_refuses_odd_values_in_words_is_fine() -> None:
    class Careful(ToolFailsAtEdges):
        async def run_tool(self, rollout_id, tool_name, **tool_args):
            if not tool_args["n"] or not tool_args["name"]:
                raise ToolError("Give a number other than 0, and a name.")
            return await super().run_tool(rollout_id, tool_name, **tool_args)

    assert (await examine(Careful, rows=ROWS)).find("tool-raises") == []


def test_edge_arguments_change_one_value_at_a_time() -> None:
    properties = {"n": {"type": "integer"}, "s": {"type": "string"}, "l": {"type": "array", "minItems": 1, "items": {}}}
    made = edge_arguments(ToolDefinition("t", "T", {"type": "object", "properties": properties}))
    usual = {"n": 10, "s": "test", "l": ["test"]}
    assert made == [
        {**usual, "n": 0}, {**usual, "n": -1}, {**usual, "s": ""}, {**usual, "s": "x" * 10_000}, {**usual, "l": []},
    ]  # fmt: skip
    assert edge_arguments(ToolDefinition("t", "T")) == []


async def test_row_problems_that_are_not_shown_are_counted() -> None:
    (finding,) = (await examine(Good, rows=[*ROWS, *[{"question": "?"}] * 10])).find("preprocess-fails")
    assert finding.title.startswith("10 row problems")
    assert finding.evidence.endswith("; and 7 more")


async def test_state_shared_while_scoring_is_shown_with_both_scores() -> None:
    finding = (await examine(SharedWhileScoring, rows=ROWS)).find("state-crosstalk")[0]
    assert "earned 1 alone and 0 with 7 others scored at the same time" in finding.evidence


async def test_a_judge_that_changes_its_mind_is_not_called_shared_state() -> None:
    class Moody(Good):
        calls = itertools.count()

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"correct": is_right(messages, task) * (0.5 + 0.5 * (next(self.calls) % 7 > 0))}

    diagnosis = await examine(Moody, rows=ROWS)
    assert diagnosis.find("nondeterministic-reward")
    assert diagnosis.find("state-crosstalk") == []


async def test_scores_that_compare_siblings_are_no_shared_state() -> None:
    assert (await examine(Ranked, rows=ROWS)).find("state-crosstalk") == []


async def test_weights_and_keys_that_fit_are_not_reported() -> None:
    class Fits(Good):
        reward_weights = {"correct": 2.0}
        PRIMARY_REWARD_KEY = "correct"

    diagnosis = await examine(Fits, rows=ROWS)
    assert {"bad-weights", "unknown-weight", "unknown-primary-key"} <= set(diagnosis.passed)


async def test_weights_that_cannot_be_used_are_one_finding_and_not_two() -> None:
    diagnosis = await examine(WeightIsNaN, rows=ROWS)
    assert [finding.check for finding in diagnosis.errors] == ["bad-weights"]
    assert "reward_weights['correct'] is nan" in diagnosis.errors[0].evidence
