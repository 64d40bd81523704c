"""A zoo: environments with one deliberate fault each and the check that must catch it, and good ones without any."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from benchmax.doctor import Pace
from benchmax.envs.arithmetic import ArithmeticEnv
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.reward_helpers import extract_completion_text, f1_score
from benchmax.envs.types import ToolCall, ToolDefinition, Unscored
from benchmax.errors import ToolError
from documents_env import MyEnv

CITIES = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Egypt": "Cairo", "Peru": "Lima",
    "Kenya": "Nairobi", "Cuba": "Havana", "Chile": "Santiago", "Norway": "Oslo", "Austria": "Vienna",
    "Greece": "Athens", "Poland": "Warsaw", "Hungary": "Budapest", "Ireland": "Dublin", "Portugal": "Lisbon",
    "Finland": "Helsinki", "Sweden": "Stockholm", "Ghana": "Accra", "Nepal": "Kathmandu",
}  # fmt: skip
SUMS = [{"prompt": f"{at} + 7?", "ground_truth": str(at + 7)} for at in range(20)]
ROWS = [{"prompt": f"Capital of {land}?", "ground_truth": city} for land, city in CITIES.items()]
TALKS = [
    {
        "messages": [
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "Hello! Ask me for a capital."},
            {"role": "user", "content": f"Capital of {land}?"},
        ],
        "ground_truth": city,
    }
    for land, city in CITIES.items()
]
YES_ROWS = [
    {"prompt": f"Is {city} a capital?" if at else "Is Milan a capital?", "ground_truth": "yes" if at else "no"}
    for at, city in enumerate(CITIES.values())
]
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
HURRIED = Pace(reward_seconds=0.3)
"""For rewards that never come; other hooks have their time, however slow the machine."""


def answer_in(messages: Any) -> str | None:
    found = ANSWER.search(extract_completion_text(messages))
    return found[1].strip().lower() if found else None


def is_right(messages: Any, task: Any) -> float:
    return float(answer_in(messages) == task["ground_truth"].lower())


class Good(BaseEnv):
    system_prompt = "Answer with the city, in <answer> tags."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": is_right(messages, task)}


# --- what pays though it must not


class PaysEmptyTags(Good):
    """The run that learned empty tags in 25 steps: 0.2 for any pair of tags."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"format": 0.2 * (answer_in(messages) is not None), "correct": 0.8 * is_right(messages, task)}


class PaysForFormat(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"format": 0.6 * bool(answer_in(messages)), "correct": 0.4 * is_right(messages, task)}


class PaysForNothing(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        said = answer_in(messages) or ""
        return {"correct": float(said in task["ground_truth"].lower())}


class PaysForGarbage(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {
            "said": 0.7 * bool(extract_completion_text(messages).strip()),
            "correct": 0.3 * is_right(messages, task),
        }


class PaysForEcho(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages).lower()
        on_topic = all(word in text for word in task["prompt"].lower().split())
        return {"on_topic": float(on_topic), "correct": is_right(messages, task)}


class PaysForShotgun(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(task["ground_truth"].lower() in extract_completion_text(messages).lower())}


class PaysForLength(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": is_right(messages, task), "effort": len(extract_completion_text(messages)) / 1000}


class PaysForRefusal(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        polite = "sorry" in extract_completion_text(messages)
        return {"correct": is_right(messages, task), "harmless": float(polite)}


class BelievesTheAnswer(Good):
    """A judge that can be talked to."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        told = re.search(r"highest possible score", extract_completion_text(messages))
        return {"judge": 1.0 if told else is_right(messages, task)}


class PaysForWrongAnswers(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(answer_in(messages) in {city.lower() for city in CITIES.values()})}


class WithTool(Good):
    async def list_tools(self):
        schema = {"type": "object", "properties": {"term": {"type": "string"}}, "required": ["term"]}
        return [ToolDefinition("look_up", "Look a word up.", schema)]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return f"Nothing about {tool_args['term']}."


class PaysForToolSpam(WithTool):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        calls = sum(len(m.get("tool_calls") or ()) for m in messages if m["role"] == "assistant")
        return {"effort": min(1.0, calls / 3), "correct": is_right(messages, task)}


class PaysForManyCalls(WithTool):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        calls = sum(len(m.get("tool_calls") or ()) for m in messages if m["role"] == "assistant")
        return {"effort": min(1.0, calls / 10), "correct": is_right(messages, task)}


class TakesNanForRight(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        try:
            said = float(answer_in(messages) or "")
        except ValueError:
            return {"correct": 0.0}
        return {"correct": 0.0 if abs(said - float(task["ground_truth"])) > 0.01 else 1.0}


class RunsTheAnswer(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        try:
            said = eval(extract_completion_text(messages).removeprefix("<answer>").removesuffix("</answer>"))
        except Exception:
            return {"correct": 0.0}
        return {"correct": float(said == int(task["ground_truth"]))}


class OneForAll(WithTool):
    """What a tool sets is the same for all rollouts, and only that pays."""

    async def run_tool(self, rollout_id, tool_name, **arguments):
        self.value = next(iter(arguments.values()), None)
        return "set"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"set": float(getattr(self, "value", None) == task["ground_truth"])}


# --- what the reward does


class ReadsTheWrongForm(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(f"FINAL: {task['ground_truth']}" in extract_completion_text(messages)), "other": 0.0}


class HalfTheRows(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": is_right(messages, task) * (len(task["prompt"]) % 2)}


class PaysAnotherForm(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(extract_completion_text(messages).strip() == task["ground_truth"])}


class MostlyYes(BaseEnv):
    system_prompt = "Is it a capital? Put yes or no in <answer> tags."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(answer_in(messages) == task["ground_truth"])}


class Constant(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": 0.0}


class ConstantOne(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": 1.0}


class LooksAtTheRow(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": len(task["prompt"]) / 100}


class Random(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": random.random()}


class Saturated(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": 0.95 + 0.05 * is_right(messages, task)}


class DeadComponent(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": is_right(messages, task), "style": 0.0}


class Mirrored(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        right = is_right(messages, task)
        return {"correct": right, "accuracy": right}


class Ragged(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        right = is_right(messages, task)
        return {"correct": right, "bonus": 0.1} if right else {"correct": 0.0}


class ShowsNothing(Good):
    """Its demonstration forgets the tags that are paid."""

    def demonstrate(self, example):
        return [example["task"]["ground_truth"]]


class Huge(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": 1000.0 * is_right(messages, task)}


class RaisesOnNoAnswer(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages)
        return {"correct": float(ANSWER.search(text)[1].lower() == task["ground_truth"].lower())}


class NotFinite(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        said = answer_in(messages)
        return {"correct": is_right(messages, task) if said else float("nan")}


class ReturnsText(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": "yes" if is_right(messages, task) else "no"}


class ForgetsToReturn(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):  # noqa: RET503
        if is_right(messages, task):
            return {"correct": 1.0}


class NeverJudges(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"judge": Unscored("the judge cannot be reached")}


class Hangs(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        await asyncio.sleep(3600)


class Slow(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        await asyncio.sleep(0.025)
        return {"correct": is_right(messages, task)}


class Blocks(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        time.sleep(0.055)
        return {"correct": is_right(messages, task)}


class Mutates(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        last = messages.pop()
        return {"correct": is_right(last["content"], task)}


class ScoresOldTurns(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = "\n".join(m["content"] for m in messages if m["role"] == "assistant")
        return {"correct": is_right(text, task)}


# --- tools


class OldTool(WithTool):
    tool = ToolDefinition("look_up", "Look a word up.", {"type": "object", "properties": {"term": {"type": "string"}}})

    async def list_tools(self):
        return [self.tool]


class ToolRaises(OldTool):
    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return self.index[tool_args["term"]]


class ToolFailsAtEdges(Good):
    """Divides by what the schema lets be 0, and takes the first letter of what may be empty."""

    async def list_tools(self):
        properties = {"n": {"type": "integer"}, "name": {"type": "string"}, "size": {"type": "integer", "minimum": 1}}
        schema = {"type": "object", "properties": properties, "required": ["n", "name", "size"]}
        return [ToolDefinition("part", "A part.", schema)]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return f"{100 // tool_args['n']} {tool_args['name'][0]} {10 // tool_args['size']}"


class ToolTakesOtherArguments(OldTool):
    async def run_tool(self, rollout_id, tool_name, word):
        return word


class ToolGivesNothing(OldTool):
    async def run_tool(self, rollout_id, tool_name, **tool_args):
        self.last = tool_args


class ToolGivesObject(OldTool):
    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return object()


class BadSchema(OldTool):
    tool = ToolDefinition("look_up", "Look a word up.", {"type": "dictionary"})


class DoubledTool(OldTool):
    async def list_tools(self):
        return [self.tool, self.tool]


class SilentTool(OldTool):
    tool = ToolDefinition("look_up", "")


class ListToolsFails(OldTool):
    async def list_tools(self):
        raise ConnectionError("no server")


class ToolsNotServed(Good):
    async def list_tools(self):
        return [ToolDefinition("look_up", "Look a word up.")]


class ToolUnknown(OldTool):
    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return {"lookup": self.look_up}[tool_name](**tool_args)

    def look_up(self, term):
        return term


class ToolTells(OldTool):
    def __init__(self, **kwargs):
        self.truths = {}

    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        made = super().dataset_preprocess(example)
        return make_example(made["prompt_messages"], made["task"], {"truth": example["ground_truth"]})

    async def init_rollout(self, rollout_id, truth):
        self.truths[rollout_id] = truth

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return f"The answer is {self.truths[rollout_id]}"

    async def release_rollout(self, rollout_id):
        self.truths.pop(rollout_id, None)


# --- life of a rollout


class InitFails(Good):
    async def init_rollout(self, rollout_id, **rollout_args):
        raise FileNotFoundError("input.xlsx")


class InitWantsArguments(Good):
    async def init_rollout(self, rollout_id, path):
        pass


class ReleaseFails(Good):
    async def release_rollout(self, rollout_id):
        del self.state[rollout_id]


class Leaks(Good):
    def __init__(self, **kwargs):
        self.state = {}

    async def init_rollout(self, rollout_id, **rollout_args):
        self.state[rollout_id] = []


class SharedNotes(OldTool):
    """One notebook for all rollouts."""

    def __init__(self, **kwargs):
        self.notes = []

    async def run_tool(self, rollout_id, tool_name, term="", **tool_args):
        self.notes.append(term)
        return "Notes: " + "; ".join(self.notes)


class SharedTask(Good):
    """Keeps the task of the newest rollout only."""

    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        made = super().dataset_preprocess(example)
        return make_example(made["prompt_messages"], made["task"], {"truth": example["ground_truth"]})

    async def init_rollout(self, rollout_id, truth):
        self.truth = truth

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": float(answer_in(messages) == self.truth.lower())}


class SharedWhileScoring(Good):
    """Keeps the task in one attribute while it waits."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        self.current = task
        await asyncio.sleep(0.001)
        return {"correct": is_right(messages, self.current)}


class SharedInTools(OldTool):
    """Scores what the newest tool call noted."""

    async def run_tool(self, rollout_id, tool_name, term="", **tool_args):
        self.asker = rollout_id
        await asyncio.sleep(0.001)
        return "Noted."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": is_right(messages, task) * (getattr(self, "asker", rollout_id) == rollout_id)}

    @classmethod
    def gold_tool_calls(cls, example):
        return [ToolCall("look_up", '{"term": "x"}')]


# --- weights and keys


class TotalOverflows(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"a": 9e17, "b": 9e17, "correct": is_right(messages, task)}


class WeightsAreAList(Good):
    reward_weights = [("correct", 1.0)]  # type: ignore[assignment]


class WeightIsNaN(Good):
    reward_weights = {"correct": float("nan")}


class WeightTypo(Good):
    reward_weights = {"corect": 2.0}


class PrimaryTypo(Good):
    PRIMARY_REWARD_KEY = "corect"


# --- groups


class Ranked(Good):
    """Good: the shortest right answer of the group earns a bonus."""

    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        lengths = [len(extract_completion_text(messages)) for messages in messages_list]
        right = [is_right(messages, task) for messages, task in zip(messages_list, tasks, strict=True)]
        best = min((n for n, ok in zip(lengths, right, strict=True) if ok), default=None)
        return [{"brief": 0.5 * float(ok and n == best)} for n, ok in zip(lengths, right, strict=True)]


class GroupOnly(Good):
    """Good: nothing but ranks."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {}

    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        right = [is_right(messages, task) for messages, task in zip(messages_list, tasks, strict=True)]
        return [{"rank": sum(ok >= other for other in right) / len(right)} for ok in right]


class GroupWrongLength(Good):
    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        return [{"rank": 1.0}]


class GroupSameKey(Good):
    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        return [{"correct": 1.0} for _ in rollout_ids]


class GroupRaises(Good):
    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        lengths = [len(extract_completion_text(messages)) for messages in messages_list]
        return [{"rank": 1.0 / length} for length in lengths]


class GroupRanksEquals(Good):
    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        lengths = [len(extract_completion_text(messages)) for messages in messages_list]
        order = sorted(range(len(lengths)), key=lambda at: lengths[at])
        return [{"short": 0.1 / (1 + order.index(at))} for at in range(len(lengths))]


class GroupPaysGarbage(GroupOnly):
    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        lengths = [len(extract_completion_text(messages)) for messages in messages_list]
        return [{"rank": sum(n >= other for other in lengths) / len(lengths)} for n in lengths]


# --- definition and data


class NoPrompt(Good):
    system_prompt = ""


class LongPrompt(Good):
    system_prompt = Good.system_prompt + " Think." * 2000


class NeedsArgument(Good):
    def __init__(self, path):
        self.path = path


class Abstract(BaseEnv):
    system_prompt = "Forgets compute_reward."


class BadColumns(Good):
    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        return make_example([{"role": "user", "content": example["question"]}], {"ground_truth": "x"})


class UnstableIds(Good):
    counter = itertools.count()

    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        return make_example([{"role": "user", "content": example["prompt"]}], {**example, "nr": next(cls.counter)})


class TellsInPrompt(Good):
    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        text = f"{example['prompt']} (ground truth: {example['ground_truth']})"
        return make_example([{"role": "user", "content": text}], dict(example))


class NoTruth(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"brief": float(0 < len(extract_completion_text(messages)) < 10)}


class OwnProbeFails(Good):
    async def validate_probe(self, eval_dataset):
        return {"ok": False, "summary": f"the index is empty for {len(eval_dataset)} rows"}


@dataclass
class Broken:
    env: type[BaseEnv]
    check: str
    severity: str = "error"
    rows: list[dict[str, Any]] = field(default_factory=lambda: ROWS)
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.env.__name__}-{self.check}"


BROKEN = [
    Broken(PaysEmptyTags, "pays-for-empty-tags"),
    Broken(PaysForFormat, "pays-for-format-alone"),
    Broken(PaysForNothing, "pays-for-nothing"),
    Broken(PaysForGarbage, "pays-for-garbage"),
    Broken(PaysForEcho, "pays-for-echo"),
    Broken(PaysForShotgun, "pays-for-shotgun"),
    Broken(PaysForLength, "pays-for-length"),
    Broken(PaysForRefusal, "pays-for-refusal"),
    Broken(BelievesTheAnswer, "pays-for-injection"),
    Broken(PaysForWrongAnswers, "pays-for-wrong-answer"),
    Broken(PaysForToolSpam, "pays-for-tool-spam"),
    Broken(PaysForManyCalls, "pays-for-tool-spam"),
    Broken(RunsTheAnswer, "pays-for-code", rows=SUMS),
    Broken(TakesNanForRight, "pays-for-no-number", rows=SUMS),
    Broken(OneForAll, "state-crosstalk"),
    Broken(ReadsTheWrongForm, "nothing-earns"),
    Broken(Constant, "nothing-earns"),
    Broken(HalfTheRows, "gold-scores-low", "warning"),
    Broken(PaysAnotherForm, "unasked-form", "warning"),
    Broken(MostlyYes, "pays-for-laziness", rows=YES_ROWS),
    Broken(ConstantOne, "constant-reward"),
    Broken(LooksAtTheRow, "reward-ignores-completion"),
    Broken(Random, "nondeterministic-reward"),
    Broken(Saturated, "saturated-reward", "warning"),
    Broken(DeadComponent, "dead-component", "warning"),
    Broken(Mirrored, "mirrored-component", "warning"),
    Broken(Ragged, "ragged-components", "warning"),
    Broken(ShowsNothing, "demonstrate-earns-nothing", "warning"),
    Broken(Huge, "unbounded-component", "warning"),
    Broken(RaisesOnNoAnswer, "reward-raises"),
    Broken(NotFinite, "reward-not-finite"),
    Broken(ReturnsText, "reward-unscored"),
    Broken(ForgetsToReturn, "reward-unscored"),
    Broken(NeverJudges, "reward-unscored"),
    Broken(Hangs, "slow-reward", options={"pace": HURRIED}),
    Broken(Slow, "slow-reward", "warning", options={"pace": Pace(slow_reward=0.02), "examples": 2}),
    Broken(Blocks, "blocking-hook", "warning", options={"examples": 1}),
    Broken(Mutates, "reward-mutates-messages", "warning"),
    Broken(ScoresOldTurns, "reward-scores-prompt-turns", rows=TALKS),
    Broken(ToolRaises, "tool-raises"),
    Broken(ToolTakesOtherArguments, "tool-raises"),
    Broken(ToolFailsAtEdges, "tool-raises", "warning"),
    Broken(ToolGivesNothing, "tool-returns-no-text", "warning"),
    Broken(ToolGivesObject, "tool-returns-no-text"),
    Broken(BadSchema, "tool-schema-invalid"),
    Broken(ListToolsFails, "tool-schema-invalid"),
    Broken(DoubledTool, "duplicate-tool"),
    Broken(SilentTool, "tool-description-missing", "warning"),
    Broken(ToolsNotServed, "tools-not-served"),
    Broken(ToolUnknown, "tools-not-served"),
    Broken(ToolTells, "leaks-ground-truth-tool"),
    Broken(InitFails, "init-fails"),
    Broken(InitWantsArguments, "init-fails"),
    Broken(ReleaseFails, "release-fails"),
    Broken(Leaks, "release-leaks", "warning"),
    Broken(SharedNotes, "state-crosstalk"),
    Broken(SharedTask, "state-crosstalk"),
    Broken(SharedWhileScoring, "state-crosstalk"),
    Broken(SharedWhileScoring, "state-crosstalk", options={"examples": 1}),
    Broken(SharedWhileScoring, "state-crosstalk", rows=ROWS[:3]),
    Broken(SharedInTools, "state-crosstalk"),
    Broken(TotalOverflows, "reward-not-finite"),
    Broken(WeightsAreAList, "bad-weights"),
    Broken(WeightIsNaN, "bad-weights"),
    Broken(WeightTypo, "unknown-weight", "warning"),
    Broken(PrimaryTypo, "unknown-primary-key"),
    Broken(GroupWrongLength, "group-reward-wrong-length"),
    Broken(GroupSameKey, "group-reward-duplicate-key"),
    Broken(GroupRaises, "group-reward-raises"),
    Broken(GroupRanksEquals, "group-reward-unequal", "warning"),
    Broken(GroupPaysGarbage, "pays-for-length"),
    Broken(NoPrompt, "system-prompt-missing", "warning"),
    Broken(LongPrompt, "system-prompt-too-long", "warning"),
    Broken(NeedsArgument, "cannot-construct"),
    Broken(Abstract, "cannot-construct"),
    Broken(Good, "not-picklable", "warning", options={"env_args": {"lock": threading.Lock()}}),
    Broken(BadColumns, "preprocess-fails"),
    Broken(Good, "preprocess-fails", rows=[*ROWS, {"question": "no prompt"}]),
    Broken(UnstableIds, "preprocess-unstable-id"),
    Broken(TellsInPrompt, "leaks-ground-truth-prompt"),
    Broken(Good, "too-few-rows", "warning", rows=ROWS[:3]),
    Broken(Good, "duplicate-rows", "warning", rows=ROWS + ROWS[:2]),
    Broken(Good, "train-eval-overlap", "warning", options={"eval_rows": ROWS[:5]}),
    Broken(Good, "train-eval-overlap", "warning", options={"eval_rows": [{**row, "nr": 1} for row in ROWS[:5]]}),
    Broken(Good, "truth-missing", "warning", rows=[*ROWS, {"prompt": "Capital of Atlantis?", "ground_truth": ""}]),
    Broken(NoTruth, "gold-unknown", "warning", rows=[{"prompt": row["prompt"]} for row in ROWS]),
    Broken(OwnProbeFails, "own-probe", "warning"),
]


# --- good ones


class Notebook(Good):
    """Tools with state under the rollout's id; one of them has no schema."""

    def __init__(self, **kwargs):
        self.notes = {}

    async def list_tools(self):
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return [ToolDefinition("write", "Write a note.", schema), ToolDefinition("read", "Read all notes.")]

    async def init_rollout(self, rollout_id, **rollout_args):
        self.notes[rollout_id] = []

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        if tool_name == "write":
            self.notes[rollout_id].append(tool_args["text"])
            return "Written."
        if not self.notes[rollout_id]:
            raise ToolError("There are no notes yet.")
        return "\n".join(self.notes[rollout_id])

    async def release_rollout(self, rollout_id):
        self.notes.pop(rollout_id, None)


class FileKeeper(Notebook):
    """Earns only by what is in the notes, which no text can show."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"kept": float(task["ground_truth"] in self.notes[rollout_id])}


class Talk(Good):
    """Several turns; the reward reads only the model's own."""


class OldStyle(BaseEnv):
    """Written for the older contract."""

    system_prompt = "Answer in <answer> tags."

    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        return {"prompt": example["prompt"], "ground_truth": example["ground_truth"], "init_rollout_args": {}}

    async def list_tools(self):
        return []

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return ""

    async def compute_reward(self, rollout_id, completion, ground_truth, **kwargs):
        return {"match": float(answer_in(completion) == ground_truth.lower())}


class Penalty(Good):
    """Wrong answers cost, saying nothing does not."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"score": 0.0 if not answer_in(messages) else 1.0 if is_right(messages, task) else -1.0}


class NeverPositive(Good):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"cost": is_right(messages, task) - 1.0}


class PlainHooks(Good):
    """Plain functions instead of coroutines."""

    def list_tools(self):
        return []

    def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": is_right(messages, task)}


class OwnGold(Good):
    """Answers in a form of its own, shown by gold_completion."""

    system_prompt = "End with FINAL: and the city."

    @classmethod
    def gold_completion(cls, example):
        return f"FINAL: {example['task']['ground_truth']}"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        last = extract_completion_text(messages).rsplit("FINAL:", 1)
        return {"correct": float(len(last) == 2 and last[1].strip() == task["ground_truth"])}


class Thinker(BaseEnv):
    """Wants two pairs of tags, both with content; the gold answer is found by the tags of the prompt."""

    system_prompt = "Think in <reasoning> tags, then give the city in <final> tags."
    form = re.compile(r"<reasoning>\s*\S.*?</reasoning>\s*<final>([^<]+)</final>", re.DOTALL)

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        found = self.form.search(extract_completion_text(messages))
        return {"form": 0.2 * bool(found), "correct": 0.8 * bool(found and found[1] == task["ground_truth"])}


LABELS = [{"prompt": f"Review {i}: it was {w}.", "ground_truth": g} for i in range(10)
          for w, g in (("fine", "positive"), ("dull", "negative"))]  # fmt: skip


class Sentiment(MyEnv):
    system_prompt = "Say positive or negative, in <answer> tags."


class Words(BaseEnv):
    """Partial credit by shared words."""

    system_prompt = "Answer in a few words."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"f1": f1_score(extract_completion_text(messages), task["ground_truth"])}


class Letters(BaseEnv):
    """Multiple choice: the right letter stands in every prompt."""

    system_prompt = "Answer with the letter alone."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        found = re.match(r"\s*([A-D])\b", extract_completion_text(messages))
        return {"correct": float(bool(found and found[1] == task["ground_truth"]))}


class Boxed(BaseEnv):
    """The last box counts, and length costs a little."""

    system_prompt = "Put the city in \\boxed{}."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages)
        boxes = re.findall(r"\\boxed\{([^}]*)\}", text)
        return {"correct": float(boxes[-1:] == [task["ground_truth"]]), "length": -min(0.2, len(text) / 5000)}


class Search(Good):
    """A search tool that does give the answer to who asks the right question, and a bonus for having asked."""

    async def list_tools(self):
        properties = {"query": {"type": "string"}, "limit": {"type": "integer", "default": 5}}
        schema = {"type": "object", "properties": properties, "required": ["query"]}
        return [ToolDefinition("search", "Search the atlas.", schema)]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        found = [f"{city} is in {land}." for land, city in CITIES.items() if land in tool_args["query"]]
        return "\n".join(found) or "Nothing found."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        right = is_right(messages, task)
        asked = any(message.get("tool_calls") for message in messages.completion)
        return {"correct": right, "grounded": 0.2 * right * asked}


class Code(BaseEnv):
    """No ground truth, but a solution of its own."""

    system_prompt = "Write a function f."

    @classmethod
    def gold_completion(cls, example):
        return f"f = lambda x: x * {example['task']['factor']}"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        names: dict[str, Any] = {}
        try:
            exec(extract_completion_text(messages), names)
            return {"passed": float(names["f"](3) == 3 * task["factor"])}
        except Exception:
            return {"passed": 0.0}


CHOICES = [{"prompt": f"Question {i}: A) a B) b C) c D) d", "ground_truth": "ABCD"[i % 4]} for i in range(20)]
FACTORS = [{"prompt": f"Multiply by {i}.", "factor": i} for i in range(2, 22)]
PASSAGES = [{**row, "prompt": f"{row['ground_truth']} is the capital. {row['prompt']}"} for row in ROWS]


GOOD: list[tuple[type[BaseEnv], list[dict[str, Any]]]] = [
    (MyEnv, ROWS),
    (ArithmeticEnv, ArithmeticEnv.load_dataset("sums")[0]),
    (Good, ROWS),
    (Notebook, ROWS),
    (FileKeeper, ROWS),
    (Talk, TALKS),
    (Ranked, ROWS),
    (GroupOnly, ROWS),
    (OldStyle, ROWS),
    (Penalty, ROWS),
    (NeverPositive, ROWS),
    (PlainHooks, ROWS),
    (OwnGold, ROWS),
    (Sentiment, LABELS),
    (Thinker, ROWS),
    (Words, ROWS),
    (Letters, CHOICES),
    (Boxed, ROWS),
    (Search, ROWS),
    (Code, FACTORS),
    (MyEnv, PASSAGES),
]
