"""What somebody gets wrong in a first environment: the doctor names it, and says where and how to mend it."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest

from benchmax.doctor import Diagnosis, Finding, examine
from benchmax.doctor.gold.answer_formats import asked_forms
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.loading import check_arguments
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import ToolCall, ToolDefinition
from benchmax.errors import EnvDefinitionError

SHELVES = {f"article{at}": f"{at + 2}:{at * 3 % 7 + 1}" for at in range(20)}
ROWS = [{"prompt": f"Where is {article}?", "article": article, "place": place} for article, place in SHELVES.items()]


async def diagnose(env: type[BaseEnv], rows: Any = ROWS) -> Diagnosis:
    return await examine(env, rows=rows, examples=4, pace="quick")


def only(diagnosis: Diagnosis, check: str) -> Finding:
    (finding,) = diagnosis.find(check)
    return finding


class Shelves(BaseEnv):
    system_prompt = "Use look_up, then answer with the place alone."
    required = ("article",)

    async def list_tools(self):
        properties = {"article": {"type": "string"}}
        schema = {"type": "object", "properties": properties, "required": list(self.required)}
        return [ToolDefinition("look_up", "The place of an article.", schema)]

    async def run_tool(self, rollout_id, tool_name, article):
        return self.known(article) if article in SHELVES else f"There is no {article}."

    def known(self, article: str) -> str | None:
        return SHELVES[article]

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": float(extract_completion_text(messages).strip() == task["place"])}


class WithCalls(Shelves):
    @classmethod
    def gold_completion(cls, example):
        return example["task"]["place"]

    @classmethod
    def gold_tool_calls(cls, example):
        return [ToolCall("look_up", json.dumps({"article": example["task"]["article"]}))]


class Raises(WithCalls):
    def known(self, article: str) -> str | None:
        return {}[article]


class GivesNothing(WithCalls):
    def known(self, article: str) -> str | None:
        return None


class Demonstrates(Raises):
    gold_tool_calls = BaseEnv.gold_tool_calls

    def demonstrate(self, example):
        yield "look_up", {"article": example["task"]["article"]}
        yield example["task"]["place"]


class MisspeltSchema(Shelves):
    required = ("artcle",)


async def test_sound_tools_are_left_in_peace():
    for env in (Shelves, WithCalls):
        assert not [f for f in (await diagnose(env)).findings if "tool" in f.check]


@pytest.mark.parametrize("env", [Raises, GivesNothing, Demonstrates])
async def test_tools_that_fail_the_solution_itself_are_named(env):
    finding = only(await diagnose(env), "tools-not-served")
    assert finding.severity == "warning"
    assert "4 of its 4 calls" in finding.evidence
    assert "article" in finding.evidence


async def test_tools_are_also_tried_with_values_of_a_row():
    class RaisesUntold(Shelves):
        known = Raises.known

    class GivesNothingUntold(Shelves):
        known = GivesNothing.known

    assert "article" in only(await diagnose(RaisesUntold), "tool-raises").evidence
    assert "NoneType" in only(await diagnose(GivesNothingUntold), "tool-returns-no-text").title


async def test_a_schema_that_requires_what_it_does_not_define_is_an_error():
    finding = only(await diagnose(MisspeltSchema), "tool-schema-invalid")
    assert finding.severity == "error"
    assert "'article' instead of 'artcle'" in finding.fix


# The form of the answer


@pytest.mark.parametrize("marks", [
    (">>", "<<"), ("<<", ">>"), ("))", "(("), ("]]", "[["), ("»", "«"), ("~~", "~~"), ("%%", "%%"), ("##", "##"),
    ("::", "::"), ("<|", "|>"), ("@", "@"), ("=>", "<="), ("LOC", "END"), (">> ", " <<"),
])  # fmt: skip
def test_marks_are_read_in_the_order_in_which_the_prompt_shows_them(marks):
    opening, closing = marks
    prompt = f"Answer with the place, written as {opening}aisle:bin{closing}, for example {opening}4:9{closing}."
    assert asked_forms(prompt, ["12:3"])[0].write("12:3") == f"{opening}12:3{closing}"


@pytest.mark.parametrize(("prompt", "form"), [
    ("Put the place between ]] and [[.", "]]?[["),
    ("Write )) place (( and nothing else.", "))?(("),
    ("Reply with »place«.", "»?«"),
    ("Write the answer like /place/.", "/?/"),
])  # fmt: skip
def test_marks_need_no_example(prompt, form):
    assert form in [each.write("?") for each in asked_forms(prompt)]


@pytest.mark.parametrize("prompt", [
    "Pens cost $5 or $6. How many?", "Call f(g(x)) and then ((y)) not.", "Answer as *one word*.", "#### 5 is the form.",
    "Is a > b or c < d?", "std::vector and std::map", "Answer in <answer> tags.",
])  # fmt: skip
def test_marks_that_mean_something_else_are_no_form(prompt):
    forms = [form.write("?") for form in asked_forms(prompt)]
    assert not {"$?$", "))?((", "*?*", "##?##", ">?<", "::?::", "<?>"} & set(forms)


async def test_an_answer_between_turned_brackets_is_found():
    class Turned(Shelves):
        system_prompt = "Answer with the place, written as >>aisle:bin<<, for example >>4:9<<."
        list_tools = BaseEnv.list_tools

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"right": float(extract_completion_text(messages).strip() == f">>{task['place']}<<")}

    assert not (await diagnose(Turned)).errors


# The stub


def pasted(code: str) -> type[Any]:
    """The stub in a class, in a module that imports nothing."""
    namespace: dict[str, Any] = {}
    exec(f"class Pasted:\n{textwrap.indent(code, '    ')}", namespace)
    return namespace["Pasted"]


class PaysNothing(Shelves):
    system_prompt = "Answer in \\boxed{}."

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": 0.0}


async def test_the_stub_runs_as_pasted():
    stub = pasted(only(await diagnose(PaysNothing), "nothing-earns").code)
    example: Any = {"task": ROWS[0] | {"article": "4:9", "place": "4:9"}}
    assert stub.gold_completion(example) == "\\boxed{4:9}"
    assert [call.name for call in stub.gold_tool_calls(example)] == ["look_up"]


@pytest.mark.parametrize("hook", ["gold_completion", "gold_tool_calls"])
async def test_the_gold_method_that_raised_is_named(hook):
    def raises(cls, example):
        raise ValueError("boom")

    finding = only(await diagnose(type("Env", (WithCalls,), {hook: classmethod(raises)})), "gold-unknown")
    assert finding.title == f"{hook} raised."
    assert finding.fix == f"Correct {hook}."


@pytest.mark.parametrize(
    ("returned", "seen"), [(5, "'int' object is not iterable"), ([("look_up", {})], "tuple is no tool call. Return a")]
)
async def test_gold_calls_that_are_none_are_named(returned, seen):
    env = type("Env", (WithCalls,), {"gold_tool_calls": classmethod(lambda cls, example: returned)})
    assert seen in only(await diagnose(env), "gold-unknown").evidence


@pytest.mark.parametrize("prompt", [None, 7, property(lambda self: "Say it.")])
async def test_a_system_prompt_that_is_no_text_is_no_fault_of_the_gold_answer(prompt):
    diagnosis = await diagnose(type("Env", (Shelves,), {"system_prompt": prompt}))
    assert not [each for each in diagnosis.find("gold-unknown") if "raised" in each.title]


async def test_rows_that_end_the_program_are_rows_that_cannot_be_used():
    def leaves(cls, example):
        raise SystemExit(3)

    diagnosis = await diagnose(type("Env", (Shelves,), {"dataset_preprocess": classmethod(leaves)}))
    assert "SystemExit(3)" in only(diagnosis, "preprocess-fails").evidence


# Hooks


async def test_a_hook_with_other_parameters_is_shown_the_right_ones():
    class Narrow(Shelves):
        async def compute_reward(self, rollout_id, messages):
            return {"right": 0.0}

    finding = only(await diagnose(Narrow), "reward-raises")
    assert "async def compute_reward(self, rollout_id, messages, task, **kwargs)" in finding.fix


async def test_a_hook_that_raises_is_told_by_file_and_line():
    class Boom(Shelves):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            if extract_completion_text(messages):
                raise TypeError("boom")
            return {"right": 0.0}

    finding = only(await diagnose(Boom), "reward-raises")
    line = Boom.compute_reward.__code__.co_firstlineno + 2
    assert f"TypeError: boom (at test_doctor_first_steps.py:{line}, in compute_reward)" in finding.evidence
    assert "def compute_reward" not in finding.fix


async def test_a_misspelt_hook_is_recognised():
    class Misspelt(BaseEnv):
        async def compute_rewards(self, rollout_id, messages, task, **kwargs):
            return {"right": 0.0}

    finding = only(await diagnose(Misspelt), "cannot-construct")
    assert "Misspelt does not implement compute_reward." in finding.evidence
    assert finding.fix == "Rename compute_rewards to compute_reward."
    with pytest.raises(EnvDefinitionError, match="Rename compute_rewards to compute_reward"):
        check_arguments(Misspelt, {})


async def test_all_bad_rows_are_counted():
    finding = only(await diagnose(Shelves, [{"question": str(at)} for at in range(60)]), "preprocess-fails")
    assert finding.title == "60 row problems."
    assert "and 57 more" in finding.evidence
