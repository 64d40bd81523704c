"""One rollout: turns, tools, budgets, failures as data."""

from __future__ import annotations

import asyncio
import json
import logging
from time import thread_time
from typing import Any

import pytest

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.types import ToolCall, ToolDefinition, ToolResult, Unscored
from benchmax.errors import ConfigError, ContextExceeded, EnvDefinitionError, ModelUnavailable, UsageError
from benchmax.models.base import Conversation, Reply, Sampling, Usage
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, Rollout, RolloutSettings, Termination, run_batch, run_group, run_rollout
from benchmax.rollouts.record import Failure
from benchmax.rollouts.toolbox import BadToolCall, Toolbox

ADD = ToolDefinition(
    "add",
    "Adds two integers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)


async def test_rollouts_that_begin_together_share_the_checked_tools():
    async with EnvHost(Calculator) as host:
        found = await asyncio.gather(*(host.toolbox() for _ in range(20)))
    assert all(each is found[0] for each in found)


class Calculator(BaseEnv):
    system_prompt = "Use the tools."

    async def list_tools(self):
        return [ADD, ToolDefinition("odd", "Returns odd things.")]

    async def run_tool(self, rollout_id, tool_name, **args):
        if tool_name == "add":
            return str(args["a"] + args["b"])
        return args.get("what") and _odd(args["what"])

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"said": float(messages[-1].get("content") == task["gold"])}


def _odd(what: str) -> Any:
    things = {
        "bytes": b"\xff\xfe caf\xc3\xa9",
        "huge": "x" * 200_000,
        "object": object(),
        "dict": {"a": [1, 2]},
        "failed": ToolResult("no such file", is_error=True),
        "surrogate": "bad \ud800 end",
        "image": ToolResult("a picture", parts=({"type": "image_url", "image_url": {"url": "data:,"}},)),
    }
    if what == "raise":
        raise ValueError("the disk is on fire")
    if what == "quit":
        raise SystemExit(3)
    return things[what]


def example(**task):
    return make_example([{"role": "user", "content": "2 + 3?"}], {"gold": "5", **task})


async def play(script, env=Calculator, ex=None, **settings) -> Rollout:
    script = script if isinstance(script, str | list) else [script]
    async with EnvHost(env) as host:
        return await run_rollout(host, ex or example(), ScriptedModel(script), RolloutSettings(**settings))


def call(name, **args):
    return ToolCall(name, json.dumps(args), "c1")


async def test_a_tool_is_called_and_the_answer_scored():
    rollout = await play([call("add", a=2, b=3), "5"])
    assert rollout.ok
    assert rollout.reward == 1.0
    assert [m["role"] for m in rollout.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert rollout.messages[3] == {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "5"}
    assert rollout.prompt == rollout.messages[:2]
    assert [m["role"] for m in rollout.completion] == ["assistant", "tool", "assistant"]
    assert rollout.termination is Termination.FINISHED
    assert rollout.turns == 2
    assert [(e.name, e.ok, e.turn) for e in rollout.tool_events] == [("add", True, 1)]


async def test_arguments_may_be_called_anything():
    class Named(BaseEnv):
        async def list_tools(self):
            return [ToolDefinition("look", "Looks.")]

        async def init_rollout(self, rollout_id, deadline, **kw):
            self.deadline = deadline

        async def run_tool(self, rollout_id, tool_name, key, label, hook, args):
            return f"{key} {label} {hook} {args}"

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {"x": float(kw == {"deadline": "soon", "key": 1} and self.deadline == "soon")}

    ex = make_example([{"role": "user", "content": "q"}], {}, init_rollout_args={"deadline": "soon", "key": 1})
    rollout = await play([call("look", key=1, label=2, hook=3, args=4), "5"], env=Named, ex=ex)
    assert rollout.messages[-2]["content"] == "1 2 3 4"
    assert rollout.reward == 1.0


async def test_system_prompt_is_not_doubled():
    ex = make_example([{"role": "system", "content": "mine"}, {"role": "user", "content": "q"}], {"gold": "5"})
    rollout = await play("5", ex=ex)
    assert [m["content"] for m in rollout.prompt] == ["mine", "q"]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (ToolCall("add", "{not json", "c"), "not valid JSON"),
        (ToolCall("add", "[1]", "c"), "must be a JSON object"),
        (ToolCall("subtract", "{}", "c"), "There is no tool named 'subtract'"),
        (ToolCall("", "{}", "c"), "There is no tool named ''"),
        (call("add", a=1), "'b' is a required property"),
        (call("add", a="x", b=1), "a: 'x' is not of type 'integer'"),
        (call("add", a=True, b=1), "is not of type 'integer'"),
        (call("add", a=1, b=2, c=3), "Additional properties are not allowed"),
        (ToolCall("add", json.dumps({"a": "x" * 2_000_000, "b": 1}), "c"), "longer than"),
        (ToolCall("add", "[" * 100_000, "c"), "not valid JSON"),
        (call("odd", what="raise"), "the disk is on fire"),
        (call("odd", what="object"), "returned object, which is not text"),
        (call("odd", what="quit"), "SystemExit"),
    ],
)
async def test_a_bad_call_is_answered_and_the_rollout_goes_on(bad, says):
    rollout = await play([bad, "5"])
    assert rollout.ok
    answer = rollout.messages[3]["content"]
    assert answer.startswith("Error: ")
    assert says in answer
    assert not rollout.tool_events[0].ok


@pytest.mark.parametrize(
    ("what", "content"),
    [("dict", '{"a": [1, 2]}'), ("bytes", "\ufffd\ufffd café"), ("surrogate", "bad ? end"), ("failed", "no such file")],
)
async def test_tool_results_become_text(what, content):
    rollout = await play([call("odd", what=what), "5"])
    assert rollout.messages[3]["content"] == content
    assert rollout.tool_events[0].ok == (what != "failed")
    json.dumps(rollout.to_dict()).encode()


async def test_a_huge_tool_result_is_cut_with_a_mark():
    rollout = await play([call("odd", what="huge"), "5"], tool_output_chars=1000)
    content = rollout.messages[3]["content"]
    assert len(content) < 1100
    assert "[cut: 199,000 of 200,000 characters left out]" in content


async def test_images_are_kept_as_content_parts():
    rollout = await play([call("odd", what="image"), "5"])
    assert [part["type"] for part in rollout.messages[3]["content"]] == ["text", "image_url"]


async def test_calls_of_one_turn_run_at_once_and_keep_their_order():
    class Slow(Calculator):
        all_begun = asyncio.Barrier(3)

        async def run_tool(self, rollout_id, tool_name, **args):
            await self.all_begun.wait()
            await asyncio.sleep(0.1 / args["a"])
            return str(args["a"])

    calls = [ToolCall("add", json.dumps({"a": a, "b": 0}), f"c{a}") for a in (1, 2, 4)]
    rollout = await play([calls, "5"], env=Slow)
    assert [m["content"] for m in rollout.messages if m["role"] == "tool"] == ["1", "2", "4"]


@pytest.mark.parametrize(
    ("script", "settings", "reason", "calls"),
    [
        (call("add", a=1, b=1), {"max_turns": 3}, Termination.MAX_TURNS, 3),
        (call("add", a=1, b=1), {"max_tool_calls": 2}, Termination.TOOL_BUDGET, 2),
        ([[call("add", a=1, b=1)] * 200, "5"], {"max_tool_calls": 500}, Termination.FINISHED, 32),
        (call("add", a=1, b=1), {"max_tool_calls": 0}, Termination.TOOL_BUDGET, 0),
    ],
)
async def test_each_budget_ends_with_its_reason(script, settings, reason, calls):
    ran = []

    class Counting(Calculator):
        async def run_tool(self, rollout_id, tool_name, **args):
            ran.append(args)
            return "1"

    rollout = await play(script, env=Counting, **settings)
    assert rollout.termination is reason
    assert len(ran) == calls
    assert rollout.reward is not None
    assert all(
        m["role"] != "assistant"
        or len(m.get("tool_calls", []))
        == sum(t["role"] == "tool" for t in rollout.messages[i + 1 : i + 1 + len(m.get("tool_calls", []))])
        for i, m in enumerate(rollout.messages)
    )


async def test_token_cost_and_time_budgets():
    def reply(tokens, cost=0.0, finish="stop"):
        message = {"role": "assistant", "content": "", "tool_calls": [call("add", a=1, b=1).to_dict()]}
        return Reply(message, finish, Usage(1, tokens, cost))

    assert (await play(reply(10), max_tokens=25)).termination is Termination.TOKEN_BUDGET
    assert (await play(reply(1, 0.4), max_cost_usd=1.0)).termination is Termination.COST_BUDGET
    cut = Reply({"role": "assistant", "content": "5"}, "length", Usage(1, 5))
    assert (await play(cut)).termination is Termination.OUTPUT_EXCEEDED
    assert (await play(cut)).reward == 1.0
    grown = await play([reply(10), ContextExceeded("too long")])
    assert (grown.termination, grown.reward, grown.error) == (Termination.CONTEXT_EXCEEDED, 0.0, None)
    never_fit = await play(ContextExceeded("too long"))
    assert (never_fit.termination, never_fit.reward, never_fit.ok) == (Termination.CONTEXT_EXCEEDED, None, False)
    assert (never_fit.error.type, never_fit.error.message) == ("ContextExceeded", "too long")
    async with EnvHost(Calculator) as host:
        slow = ScriptedModel("5", delay=5.0)
        rollout = await run_rollout(host, example(), slow, RolloutSettings(max_seconds=0.05))
        assert rollout.termination is Termination.TIME_BUDGET
        assert rollout.reward == 0.0
        rollout = await run_rollout(host, example(), slow, RolloutSettings(model_seconds=0.05))
        assert rollout.termination is Termination.MODEL_ERROR
        assert rollout.reward is None


@pytest.mark.parametrize("error", [ModelUnavailable("gone"), RuntimeError("bug"), TimeoutError("late")])
async def test_a_model_that_fails_is_a_record_without_a_reward(error):
    rollout = await play(error)
    assert rollout.termination is Termination.MODEL_ERROR
    assert rollout.error is not None
    assert str(error) in rollout.error.message
    assert rollout.reward is None
    assert not rollout.ok


class Broken(ScriptedModel):
    """Cannot be talked to, or cannot be left."""

    def __init__(self, *, opens: bool) -> None:
        super().__init__("5")
        self.opens = opens

    def converse(self, **options: Any) -> Conversation:
        if not self.opens:
            raise ConfigError("Sampling.extra may not set stream. Remove it.")
        conversation = super().converse(**options)
        conversation.aclose = self.fail
        return conversation

    async def fail(self) -> None:
        raise RuntimeError("the session is gone")


async def test_a_conversation_that_cannot_begin_is_the_models_failure():
    async with EnvHost(Calculator) as host:
        rollout = await run_rollout(host, example(), Broken(opens=False))
    assert rollout.termination is Termination.MODEL_ERROR
    assert (rollout.error.type, rollout.error.where) == ("ConfigError", "model")
    assert rollout.reward is None


async def test_a_conversation_that_cannot_be_closed_costs_no_rollout(caplog):
    async with EnvHost(Calculator) as host:
        rollouts = await run_group(host, example(), Broken(opens=True), samples=range(2))
    assert [(rollout.ok, rollout.reward) for rollout in rollouts] == [(True, 1.0)] * 2
    assert "the session is gone" in caplog.text


async def test_init_arguments_reach_init_and_reward_and_release_always_runs():
    seen = []

    class Stateful(Calculator):
        async def init_rollout(self, rollout_id, path, **kw):
            seen.append(("init", path))
            if path == "bad":
                raise OSError("no such workbook")

        async def release_rollout(self, rollout_id):
            seen.append(("release",))

        async def compute_reward(self, rollout_id, messages, task, path=None, **kw):
            seen.append(("reward", path))
            return {"x": 1.0}

    ex = make_example([{"role": "user", "content": "q"}], {"gold": "5"}, init_rollout_args={"path": "book.xlsx"})
    assert (await play("5", env=Stateful, ex=ex)).ok
    assert seen == [("init", "book.xlsx"), ("reward", "book.xlsx"), ("release",)]
    seen.clear()
    ex = make_example([{"role": "user", "content": "q"}], {"gold": "5"}, init_rollout_args={"path": "bad"})
    rollout = await play("5", env=Stateful, ex=ex)
    assert rollout.termination is Termination.ENV_ERROR
    assert "no such workbook" in rollout.error.message
    assert seen == [("init", "bad"), ("release",)]


async def test_rewards_can_tell_prompt_from_completion_and_cannot_touch_the_record():
    class Rude(BaseEnv):
        async def compute_reward(self, rollout_id, messages, task, **kw):
            said = [m["content"] for m in messages.completion]
            messages[0]["content"][0]["text"] = "changed"
            messages.clear()
            task["gold"]["parts"].append("z")
            task.clear()
            return {"x": float(said == ["new"])}

    history = [
        {"role": "user", "content": [{"type": "text", "text": "q1"}]},
        {"role": "assistant", "content": "old"},
        {"role": "user", "content": "q2"},
    ]
    gold = {"gold": {"parts": ["x", 1, None, ["y"]]}}
    rollout = await play("new", env=Rude, ex=make_example(history, gold))
    assert rollout.reward == 1.0
    assert [m["content"] for m in rollout.messages] == [[{"type": "text", "text": "q1"}], "old", "q2", "new"]
    assert rollout.task == {"gold": {"parts": ["x", 1, None, ["y"]]}}


async def test_old_style_environments_run():
    class Old(BaseEnv):
        async def compute_reward(self, rollout_id, completion, ground_truth, **kwargs):
            return {"match": float(completion[-1]["content"] == ground_truth and kwargs["hint"] == "h")}

        async def compute_group_reward(self, rollout_ids, completions, ground_truths, **kwargs):
            return [{"group": float(len(completions) == 2 and truth == "4")} for truth in ground_truths]

    from benchmax.envs.legacy import example_from

    ex = example_from({"prompt": "2+2?", "ground_truth": "4", "hint": "h", "init_rollout_args": None})
    async with EnvHost(Old) as host:
        group = await run_group(host, ex, ScriptedModel("4"), samples=range(2))
    assert [r.rewards for r in group] == [{"match": 1.0, "group": 1.0}] * 2


async def test_group_rewards_see_all_siblings_before_any_is_released():
    alive: set[str] = set()

    class Grouped(BaseEnv):
        async def init_rollout(self, rollout_id, **kw):
            alive.add(rollout_id)

        async def release_rollout(self, rollout_id):
            alive.discard(rollout_id)

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {"own": 1.0}

        async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kw):
            assert set(rollout_ids) == alive
            logging.getLogger("benchmax.env").info("ranked %d", len(rollout_ids))
            return [{"rank": float(i)} for i, _ in enumerate(rollout_ids)]

    logging.getLogger("benchmax.env").setLevel(logging.INFO)
    async with EnvHost(Grouped) as host:
        group = await run_group(host, example(), ScriptedModel("5"), samples=range(3))
    assert [r.rewards for r in group] == [{"own": 1.0, "rank": float(i)} for i in range(3)]
    assert [r.reward for r in group] == [1.0, 2.0, 3.0]
    assert not alive
    assert all(any("ranked 3" in line.message for line in r.logs) for r in group)


@pytest.mark.parametrize(
    ("result", "says"),
    [([{}], "1 results for 2"), ("no", "str"), ([{"own": 1.0}, {"own": 1.0}], "both return own"), (None, "NoneType")],
)
async def test_a_broken_group_reward_leaves_all_unscored(result, says):
    class Broken(BaseEnv):
        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {"own": 1.0}

        async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kw):
            return result

    async with EnvHost(Broken) as host:
        group = await run_group(host, example(), ScriptedModel("5"), samples=range(2))
    for rollout in group:
        assert rollout.reward is None
        assert rollout.termination is Termination.GROUP_REWARD_ERROR
        assert says in rollout.unscored["group_reward"]
        assert rollout.rewards == {"own": 1.0}


async def test_a_component_a_sibling_has_is_zero_where_it_is_missing():
    class Ragged(BaseEnv):
        async def compute_reward(self, rollout_id, messages, task, **kw):
            self.n = getattr(self, "n", 0) + 1
            return {"a": 1.0} if self.n == 1 else {"a": 1.0, "b": 2.0}

    async with EnvHost(Ragged) as host:
        group = await run_group(host, example(), ScriptedModel("5"), samples=range(3))
    assert sorted(r.reward for r in group) == [1.0, 3.0, 3.0]
    assert min(group, key=lambda r: r.reward).rewards == {"a": 1.0, "b": 0.0}


async def test_weights_count_and_unscored_is_not_zero():
    class Weighted(BaseEnv):
        reward_weights = {"a": 2.0}

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {"a": 1.0, "b": Unscored("the judge was away") if task["gold"] == "none" else 1.0}

    assert (await play("x", env=Weighted)).reward == 3.0
    assert (await play("x", env=Weighted, weights={"a": 0.5, "b": 0.5})).reward == 1.0
    rollout = await play("x", env=Weighted, ex=example(gold="none"))
    assert rollout.reward is None
    assert rollout.unscored == {"b": "the judge was away"}
    assert rollout.rewards == {"a": 1.0}
    assert rollout.termination is Termination.FINISHED
    assert not rollout.ok


async def test_logs_belong_to_their_rollout():
    class Chatty(BaseEnv):
        async def compute_reward(self, rollout_id, messages, task, **kw):
            log = logging.getLogger(__name__)
            await asyncio.sleep(0.01)
            log.info("scoring %s", rollout_id)
            return {"x": 1.0}

    async with EnvHost(Chatty) as host:
        group = await run_group(host, example(), ScriptedModel("5"), samples=range(8))
    for rollout in group:
        assert [line.message for line in rollout.logs] == [f"scoring {rollout.id}"]


async def test_without_scoring_no_reward_is_computed():
    rollout = await play("5", score=False, ex=Calculator.playground_preprocess("hi"))
    assert rollout.ok
    assert rollout.reward is None
    assert rollout.rewards == {}


async def test_records_round_trip():
    rollout = await play([call("add", a=2, b=3), "5"])
    text = json.dumps(rollout.to_dict(), allow_nan=False)
    again = Rollout.from_dict(json.loads(text))
    assert again.to_dict() == rollout.to_dict()
    assert again.messages.completion_start == rollout.messages.completion_start


async def test_sampling_reaches_the_model():
    seen = []

    class Spy(ScriptedModel):
        def converse(self, *, tools=(), sampling=Sampling()):
            seen.append((list(tools), sampling))
            return super().converse(tools=tools, sampling=sampling)

    async with EnvHost(Calculator) as host:
        await run_rollout(host, example(), Spy("5"), RolloutSettings(sampling=Sampling(temperature=0.3)))
    assert seen[0][1].temperature == 0.3
    assert [t.name for t in seen[0][0]] == ["add", "odd"]


# Totals


class Overflowing(Calculator):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"a": 9e17, "b": 9e17}


async def test_a_total_that_is_not_finite_leaves_the_sample_unscored():
    rollout = await play("5", Overflowing)
    assert rollout.reward is None
    assert not rollout.ok
    assert "1.8e+18" in rollout.unscored["reward"]
    assert rollout.termination is Termination.REWARD_ERROR
    json.dumps(rollout.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"said": float("nan")}, "reward_weights['said'] is nan"),
        ({"said": float("inf")}, "reward_weights['said'] is inf"),
        ({"said": "2"}, "reward_weights['said'] is '2'"),
        ({"said": None}, "reward_weights['said'] is a NoneType"),
        ([("said", 1.0)], "reward_weights is a list"),
        (None, "reward_weights is a NoneType"),
    ],
)
async def test_weights_that_are_no_numbers_leave_the_sample_unscored_with_the_reason(weights, said):
    env = type("Weighted", (Calculator,), {"reward_weights": weights})
    rollout = await play("5", env)
    assert (rollout.reward, rollout.ok) == (None, False)
    assert list(rollout.unscored) == ["reward"]
    assert said in rollout.unscored["reward"]
    assert rollout.error.where == "reward_weights"


# What the model is told


class SlowTool(Calculator):
    async def run_tool(self, rollout_id, tool_name, **args):
        await asyncio.sleep(30)


async def test_a_tool_that_is_stopped_speaks_to_the_model():
    rollout = await play([call("add", a=1, b=2), "5"], SlowTool, tool_seconds=0.05)
    assert rollout.completion[1]["content"] == "Error: The tool took longer than 0.05 s and was stopped."


async def test_the_model_sees_no_class_names():
    rollout = await play([call("odd", what="raise"), "5"])
    assert rollout.completion[1]["content"] == "Error: the disk is on fire"


# Patterns


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "(a|aa)+$", "(.*.*.*)*x", "(((a+)+)+)+$", "(.|a|b.)+$", "^(a?){40}a{40}$", ".*.*.*.*.*x"]
)
def test_a_pattern_cannot_hold_the_loop(pattern):
    tool = ToolDefinition("t", "T", {"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}})
    toolbox = Toolbox([tool])
    began = thread_time()
    for length in (20, 40, 5_000):
        hostile = "a" * (length - 1) + "!"
        try:
            toolbox.arguments(call("t", x=hostile))
        except BadToolCall:
            pass
    assert thread_time() - began < 1.0


def test_a_name_pattern_cannot_hold_the_loop():
    toolbox = Toolbox([ToolDefinition("t", "T", {"type": "object", "patternProperties": {"^(a+)+$": {}}})])
    began = thread_time()
    with pytest.raises(BadToolCall, match="longer than 20 characters"):
        toolbox.arguments(call("t", **{"a" * 40 + "!": 1}))
    assert thread_time() - began < 1.0
    assert toolbox.arguments(call("t", aaa=1)) == {"aaa": 1}


def test_an_ordinary_pattern_is_still_checked():
    schema = {"type": "object", "properties": {"day": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$"}}}
    toolbox = Toolbox([ToolDefinition("t", "T", schema)])
    assert toolbox.arguments(call("t", day="2024-01-02")) == {"day": "2024-01-02"}
    with pytest.raises(BadToolCall, match="day: 'soon' does not match"):
        toolbox.arguments(call("t", day="soon"))


# Schemas


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": None}, {"type": "object", "required": None}, {"properties": ["a"]},
        {"required": [["x"]]}, {"$schema": []}, {"$schema": 5}, ["a"], {"properties": {"a": {"type": {}}}},
    ],
)  # fmt: skip
def test_a_schema_that_is_none_is_an_error_of_the_environment(schema):
    with pytest.raises(EnvDefinitionError, match="is not a JSON schema"):
        Toolbox([ToolDefinition("t", "T", schema)])


def test_an_old_draft_may_require_the_arguments_themselves():
    draft3 = {"$schema": "http://json-schema.org/draft-03/schema#", "required": True}
    toolbox = Toolbox([ToolDefinition("t", "T", {**draft3, "properties": {"a": {"type": "string"}}})])
    assert toolbox.arguments(call("t", a="x")) == {"a": "x"}


OTHERS = {"anyOf": [{"properties": {"b": {"type": "string"}}, "required": ["b"]}, {"required": ["a"]}]}


@pytest.mark.parametrize("more", [OTHERS, {"$defs": {"both": OTHERS}, "$ref": "#/$defs/both"}])
def test_names_that_other_parts_of_a_schema_bring_are_legal(more):
    toolbox = Toolbox([ToolDefinition("t", "T", {"type": "object", "properties": {"a": {"type": "string"}}, **more})])
    for arguments in ({"a": "x"}, {"b": "x"}, {"a": "x", "b": "y"}):
        assert toolbox.arguments(call("t", **arguments)) == arguments
    for arguments in ({"a": "x", "c": "y"}, {"b": 1}, {}):
        with pytest.raises(BadToolCall):
            toolbox.arguments(call("t", **arguments))


# Settings


@pytest.mark.parametrize(
    "field",
    [
        {"max_turns": 0}, {"max_turns": 1.5}, {"max_turns": True}, {"max_turns": "3"}, {"max_tool_calls": -1},
        {"max_tokens": 0}, {"max_cost_usd": float("nan")}, {"max_cost_usd": -1}, {"max_seconds": 0},
        {"tool_seconds": -1}, {"reward_seconds": float("inf")}, {"init_seconds": None}, {"release_seconds": "5"},
        {"model_seconds": float("nan")}, {"tool_output_chars": 0}, {"weights": [1]}, {"weights": {"a": "1"}},
        {"weights": {"a": float("inf")}}, {"sampling": {"temperature": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_settings_are_refused_by_name(field):
    ((name, value),) = field.items()
    with pytest.raises(ConfigError, match=f"^{name}.*; give ") as refused:
        RolloutSettings(**field)
    shown = value["a"] if isinstance(value, dict) and "a" in value else value
    assert repr(shown) in str(refused.value)


@pytest.mark.parametrize(
    "field",
    [
        {"temperature": -0.1}, {"temperature": float("nan")}, {"temperature": "1"}, {"temperature": None},
        {"top_p": 0}, {"top_p": 1.01}, {"top_k": 0}, {"max_tokens": 0}, {"max_tokens": 1.5}, {"seed": "a"},
        {"stop": "END"}, {"stop": (1,)}, {"extra": None},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_sampling_is_refused_by_name(field):
    ((name, value),) = field.items()
    with pytest.raises(ConfigError, match=rf"^Sampling\.{name} is ") as refused:
        Sampling(**field)
    assert repr(value) in str(refused.value)


def test_settings_at_their_limits_are_taken():
    Sampling(temperature=0, top_p=1, top_k=None, max_tokens=None, seed=-1)
    RolloutSettings(max_turns=1, max_tool_calls=0, max_tokens=1, max_cost_usd=0, weights={"a": -1})


# Arguments in the wrong place


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"group_size": 0}, "group_size is 0"),
        ({"group_size": 1.0}, "group_size is 1.0"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"model": "gpt"}, "model is a str"),
        ({"model": ScriptedModel}, "model is the class ScriptedModel"),
        ({"host": Calculator}, "host is the class Calculator"),
        ({"settings": {}}, "settings is a dict"),
        ({"examples": [{"prompt": "hi"}]}, r"load_examples\(rows, MyEnv\)"),
        ({"examples": [3]}, r"load_examples\(rows, MyEnv\)"),
        ({"examples": example()}, r"\[example\]"),
        ({"examples": None}, r"\[example\]"),
    ],
    ids=str,
)
async def test_wrong_arguments_are_a_usage_error(wrong, said):
    async with EnvHost(Calculator) as host:
        given = {"host": host, "examples": [example()], "model": ScriptedModel("5"), **wrong}
        with pytest.raises(UsageError, match=said):
            await run_batch(**given)


async def test_a_closed_host_is_a_usage_error():
    host = EnvHost(Calculator())
    with pytest.raises(UsageError, match="not open"):
        await run_batch(host, [example()], ScriptedModel("5"))
    async with host:
        pass
    with pytest.raises(UsageError, match="not open"):
        await run_batch(host, [example()], ScriptedModel("5"))


async def test_a_batch_is_returned_in_the_order_of_its_examples():
    examples = [make_example([{"role": "user", "content": name}], {"gold": name}) for name in ("slow", "quick", "last")]
    others_done = asyncio.Event()

    async def answers(messages):
        if messages[-1]["content"] == "slow":
            await others_done.wait()
        return messages[-1]["content"]

    finished: list[str] = []

    def note(rollout: Rollout) -> None:
        finished.append(rollout.example_id)
        if len(finished) == 2:
            others_done.set()

    async with EnvHost(Calculator) as host:
        rollouts = await run_batch(host, examples, ScriptedModel(answers), on_rollout=note)
    assert [rollout.example_id for rollout in rollouts] == [each["id"] for each in examples]
    assert finished[-1] == examples[0]["id"]


def test_what_a_reference_to_nowhere_would_check_is_left_to_the_tool(caplog):
    schema = {"type": "object", "properties": {"tree": {"$ref": "#/$defs/Tree"}, "size": {"type": "integer"}}}
    tools = Toolbox([ToolDefinition("add", "Adds a tree.", schema)])
    assert tools.arguments(ToolCall("add", '{"tree": [1]}')) == {"tree": [1]}
    assert "'/$defs/Tree' does not exist" in caplog.text


def test_a_pattern_that_only_javascript_reads_is_not_checked(caplog):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "pattern": "^\\p{L}+$"}, "size": {"type": "integer"}},
    }
    tools = Toolbox([ToolDefinition("add", "Adds a name.", schema)])
    assert tools.arguments(ToolCall("add", '{"name": "Zoë"}')) == {"name": "Zoë"}
    with pytest.raises(BadToolCall, match="size: 'x' is not of type 'integer'"):
        tools.arguments(ToolCall("add", '{"name": "Zoë", "size": "x"}'))
    assert "is not a 'regex'. It is not checked" in caplog.text
    with pytest.raises(EnvDefinitionError, match="is not a JSON schema"):
        Toolbox([ToolDefinition("add", "Adds.", {**schema, "required": 3})])


def test_a_failure_in_one_line_has_its_type():
    assert str(Failure.of(KeyError("boom"), "compute_reward")) == "KeyError in compute_reward: 'boom'"
