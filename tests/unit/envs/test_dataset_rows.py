"""The rules for rows: each case gives its text, all cases at once, one bad row never hides another."""

from __future__ import annotations

import datetime
import json
import math
import pickle
import time

import pytest

from benchmax import limits
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets import check_dataset, load_examples
from benchmax.envs.datasets.rows import RowIssue, one_line
from benchmax.envs.example_id import make_example
from benchmax.errors import DatasetError

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def found(*rows, env_class=None):
    return [str(issue) for issue in check_dataset(list(rows), env_class).issues]


def messages(*turns):
    return {"messages": list(turns)}


ROLES = "system, user, assistant, tool"
RULES = {
    "no prompt": (
        {"question": "a", "answer": "b"},
        "rows:1: the row has neither prompt nor messages; its columns are: question, answer → "
        "rename a column to prompt or messages, or override dataset_preprocess",
    ),
    "no columns": (
        {},
        "rows:1: the row has neither prompt nor messages; its columns are: none → "
        "rename a column to prompt or messages, or override dataset_preprocess",
    ),
    "both": (
        {"prompt": "a", "messages": [USER]},
        "rows:1: warning: the row has messages and prompt; messages is used → keep only messages",
    ),
    "prompt number": (
        {"prompt": 5},
        "rows:1: prompt: is a number, not text → write the question as text, or messages as a list",
    ),
    "prompt object": (
        {"prompt": {"a": 1}},
        "rows:1: prompt: is an object, not text → write the question as text, or messages as a list",
    ),
    "prompt empty": ({"prompt": ""}, "rows:1: prompt: is empty → write what the model is asked"),
    "prompt null": ({"prompt": None, "answer": "b"}, "rows:1: prompt: is empty → write what the model is asked"),
    "prompt blank": ({"prompt": " \n"}, "rows:1: prompt: is empty → write what the model is asked"),
    "messages text": (
        {"messages": "hi"},
        'rows:1: messages: is text, not a list → write [{"role": "user", "content": "…"}]',
    ),
    "messages empty": (messages(), "rows:1: messages: is an empty list → write at least one message"),
    "nested lists": (
        {"messages": [USER, [USER]]},
        'rows:1: messages[1]: is a list, not a message → write {"role": "user", "content": "…"}',
    ),
    "no role": (messages({"content": "a"}), f"rows:1: messages[0]: has no role → add one of {ROLES}"),
    "role unknown": (
        messages({"role": "boss", "content": "a"}),
        f"rows:1: messages[0].role: is 'boss', not one of {ROLES} → use one of {ROLES}",
    ),
    "role of another habit": (
        messages({"role": "human", "content": "a"}),
        f"rows:1: messages[0].role: is 'human', not one of {ROLES} → write 'user'",
    ),
    "role list": (
        messages({"role": ["user"], "content": "a"}),
        f"rows:1: messages[0].role: is ['user'], not one of {ROLES} → use one of {ROLES}",
    ),
    "content number": (
        messages({"role": "user", "content": 5}),
        "rows:1: messages[0].content: is a number, not text → write text, null or a list of content parts",
    ),
    "content part text": (
        messages({"role": "user", "content": ["a"]}),
        'rows:1: messages[0].content[0]: is text, not a content part → write {"type": "text", "text": "…"}',
    ),
    "content part type": (
        messages({"role": "user", "content": [{"text": "a"}]}),
        'rows:1: messages[0].content[0]: has no type → write {"type": "text", "text": "…"}',
    ),
    "nothing said": (
        messages({"role": "user", "content": ""}),
        "rows:1: messages: has no text in any message → write what the model is asked",
    ),
    "assistant last": (
        messages(USER, {"role": "assistant", "content": "ok"}),
        "rows:1: warning: messages: ends with an assistant message, so nothing is asked → end with a user message",
    ),
    "tool without id": (
        messages(USER, {"role": "tool", "content": "4"}),
        "rows:1: messages[1]: is a tool message without tool_call_id → name the call it answers in tool_call_id",
    ),
    "tool calls text": (
        messages(USER, {"role": "assistant", "tool_calls": "f()"}, USER),
        "rows:1: messages[1].tool_calls: is text, not a list → "
        'write {"id": "…", "type": "function", "function": {"name": "…", "arguments": "{}"}} in a list',
    ),
    "tool call nameless": (
        messages(USER, {"role": "assistant", "tool_calls": [{"id": "c"}]}, USER),
        "rows:1: messages[1].tool_calls[0]: names no function → "
        'write {"id": "…", "type": "function", "function": {"name": "…", "arguments": "{}"}}',
    ),
    "tool call arguments": (
        messages(USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, USER),
        "rows:1: warning: messages[1].tool_calls[0]: has arguments that are an object, not JSON text → "
        "use json.dumps(arguments)",
    ),
    "init_rollout_args": (
        {"prompt": "a", "init_rollout_args": [1]},
        'rows:1: init_rollout_args: is a list, not an object → write {"name": value} or leave it out',
    ),
    "row is a list": (
        ["a"],
        'rows:1: the row is a list, not an object → write {"prompt": "…", "ground_truth": "…"}',
    ),
    "row is text": (
        "a",
        'rows:1: the row is text, not an object → write {"prompt": "…", "ground_truth": "…"}',
    ),
    "row is null": (
        None,
        'rows:1: the row is null, not an object → write {"prompt": "…", "ground_truth": "…"}',
    ),
    "NaN": (
        {"prompt": "a", "meta": {"score": math.nan}},
        "rows:1: meta.score: is NaN, which is not JSON → write null or a finite number",
    ),
    "2^80": (
        {"prompt": "a", "n": 2**80},
        "rows:1: n: is an integer beyond 2^53-1, which JSON readers round → write it as text",
    ),
    "surrogate": (
        {"prompt": "a\ud800"},
        "rows:1: prompt: holds half of a surrogate pair, which is no character → "
        "remove it or write the whole character",
    ),
    "date": (
        {"prompt": "a", "at": datetime.date(2026, 1, 1)},
        "rows:1: at: is a date, which is not JSON → turn it into text, a number, a list or a dict",
    ),
    "too many columns": (
        {f"c{i}": i for i in range(10_000)},
        "rows:1: the row has 10,000 columns, the limit is 1,000 → remove columns",
    ),
}


@pytest.mark.parametrize("case", RULES)
def test_each_rule_says_its_text(case):
    row, text = RULES[case]
    assert found(row) == [text]
    severity = "warning" if ": warning: " in text else "error"
    report = check_dataset([row])
    assert report.kept == (severity == "warning")
    assert (report.errors, report.warnings) == ((1, 0) if severity == "error" else (0, 1))


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "a"},
        {"prompt": [USER]},
        {"prompt": "a", "messages": None, "prompt_messages": None, "init_rollout_args": None},
        {"prompt_messages": [{"role": "system", "content": "s"}, USER]},
        messages(
            USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c"}
        ),
        messages(USER, {"role": "assistant", "tool_calls": [{"name": "f", "arguments": {}}]}, USER),
        messages({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
        {"prompt": "a", "zero": -0.0, "none": None, "init_rollout_args": {"path": "x"}},
    ],
)
def test_good_rows_have_no_issue(row):
    report = check_dataset([row])
    assert (report.kept, report.issues) == (1, [])


def test_all_issues_of_a_row_are_found_at_once():
    issues = check_dataset([messages({"role": "x", "content": 1}, 5, {"content": "a"})]).issues
    assert [issue.column for issue in issues] == [
        "messages[0].role",
        "messages[0].content",
        "messages[1]",
        "messages[2]",
    ]


def test_a_too_large_row_is_refused_in_time():
    began = time.thread_time()
    text = found({"prompt": "x" * 50_000_000})
    assert text == [
        "rows:1: the row is 50,000,006 bytes, the limit is 2,097,152 bytes → shorten it or store files apart"
    ]
    assert time.thread_time() - began < 2


def test_a_too_deep_row_is_refused_without_recursion():
    deep: list = []
    for _ in range(10_000):
        deep = [deep]
    assert found({"prompt": "a", "x": deep}) == ["rows:1: the row is nested deeper than 64 levels → flatten it"]


def test_issues_are_listed_up_to_the_limit_and_counted_beyond():
    report = check_dataset([{"prompt": ""}] * 80 + [{"prompt": "a", "messages": [USER]}] * 70)
    assert (report.rows, report.kept, report.bad_rows, report.errors) == (150, 70, 80, 80)
    assert len(report.issues) == limits.ROW_ISSUES_SHOWN
    assert {issue.severity for issue in report.issues} == {"error"}
    with pytest.raises(DatasetError, match=r"80 of 150 rows of rows cannot be used") as refused:
        report.raise_if_bad()
    assert str(refused.value).count("is empty") == 3, "three of a kind say it"
    assert "… and 77 more" in str(refused.value)
    assert len(refused.value.issues) == limits.ROW_ISSUES_SHOWN


def test_an_early_flood_of_warnings_does_not_hide_errors():
    report = check_dataset([{"prompt": "a", "messages": [USER]}] * 80 + [{"prompt": ""}])
    assert report.issues[0].severity == "error"


def test_issue_is_one_line_whatever_the_row_holds():
    issue = RowIssue("a\nb.jsonl", 3, "c\x1b[31m", "bad\r\nthing", "fix\0it", excerpt="\u202ex" * 500)
    assert str(issue).startswith("a\\nb.jsonl:3: c\\x1b[31m: bad\\r\\nthing → fix\\x00it | \\u202ex")
    assert len(str(issue)) <= 400
    assert str(issue).isprintable()
    assert pickle.loads(pickle.dumps(issue)) == issue
    assert one_line("é — ok") == "é — ok"


def test_rows_are_never_changed():
    rows = [{"prompt": "a", "meta": {"tags": ["x"]}, "messages": None}, {"prompt": ""}]
    before = json.dumps(rows)

    class Greedy(BaseEnv):
        @classmethod
        def dataset_preprocess(cls, example, **kwargs):
            prompt = example.pop("prompt")
            if "meta" in example:
                example["meta"]["tags"].append("mine")
            return make_example([{"role": "user", "content": prompt or "?"}], example)

    loaded = load_examples(rows, Greedy)
    assert json.dumps(rows) == before
    assert loaded[0]["task"]["meta"] == {"tags": ["x", "mine"]}
    plain = load_examples(rows[:1])
    plain[0]["task"]["meta"]["tags"].append("later")
    assert json.dumps(rows) == before


# Environments with their own columns


class Question(BaseEnv):
    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        return make_example([{"role": "user", "content": example["question"]}], {"ground_truth": example.get("answer")})


def returning(result):
    class Env(BaseEnv):
        @classmethod
        def dataset_preprocess(cls, example, **kwargs):
            if isinstance(result, BaseException):
                raise result
            return result

    return Env


def test_own_columns_need_no_prompt():
    (example,) = load_examples([{"question": "2+2?", "answer": "4"}], Question)
    assert example == make_example([{"role": "user", "content": "2+2?"}], {"ground_truth": "4"})


def test_an_exception_of_preprocess_is_an_issue_of_its_row():
    assert found({"question": "a"}, {"q": "a", "answer": 1}, env_class=Question) == [
        "rows:2: question: dataset_preprocess raised KeyError('question'): the row has the columns q, answer → "
        "add that column, or change dataset_preprocess"
    ]


class Unprintable(Exception):
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Unprintable(), "rows:1: dataset_preprocess raised Unprintable: the row has the columns a"),
        (RecursionError("deep"), "rows:1: dataset_preprocess raised RecursionError('deep')"),
        (ValueError("x" * 10_000_000), "rows:1: dataset_preprocess raised ValueError('xxx"),
        (None, "rows:1: dataset_preprocess raised TypeError('dataset_preprocess returned NoneType, not an Example."),
        ({"a": 1}, "rows:1: dataset_preprocess raised ValueError('dataset_preprocess returned the keys a, but no"),
        ({"id": 5, "prompt_messages": [USER]}, "rows:1: id: the example's id is a number, not text"),
        ({"id": "", "prompt_messages": [USER]}, "rows:1: id: the example's id is empty →"),
        ({"id": "x", "prompt_messages": []}, "rows:1: prompt_messages: is an empty list"),
        ({"id": "x", "prompt_messages": [{"role": "me"}]}, "rows:1: prompt_messages[0].role: is 'me'"),
        ({"id": "x", "prompt_messages": [USER], "task": 5}, "rows:1: task: the example's task is a number, not a dict"),
        (
            {"id": "x", "prompt_messages": [USER], "init_rollout_args": "a"},
            "rows:1: init_rollout_args: the example's init_rollout_args is text, not a dict",
        ),
        ({"id": "x", "prompt_messages": [USER], "task": {"a": math.nan}}, "rows:1: task.a: is NaN"),
    ],
)
def test_results_that_are_no_example(result, text):
    issues = found({"a": 1}, env_class=returning(result))
    assert issues[0].startswith(text)
    assert len(issues[0]) <= 400


def test_async_preprocess_is_explained():
    class Env(BaseEnv):
        @classmethod
        async def dataset_preprocess(cls, example, **kwargs):
            return make_example([USER])

    assert "it is async; write it as a plain classmethod" in found({"a": 1}, env_class=Env)[0]


def test_results_of_the_older_style_are_converted():
    env = returning({"prompt": "2+2?", "ground_truth": "4", "init_rollout_args": {"a": 1}})
    (example,) = load_examples([{"x": 1}], env)
    expected = make_example([{"role": "user", "content": "2+2?"}], {"ground_truth": "4"}, {"a": 1})
    assert example == expected


def test_keyboard_interrupt_is_not_an_issue():
    with pytest.raises(KeyboardInterrupt):
        check_dataset([{"a": 1}], returning(KeyboardInterrupt()))
