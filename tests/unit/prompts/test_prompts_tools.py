"""Tools as text, and tool calls out of text."""

from __future__ import annotations

import copy
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.envs.types import ToolDefinition
from benchmax.prompts.tools import (
    mcp2openai,
    parse_hermes_tool_call,
    render_tool_call,
    render_tools_prompt,
    split_tool_calls,
)

ADD = ToolDefinition(
    "add", "Add two numbers – <fast> & exact", {"type": "object", "properties": {"a": {"type": "number"}}}
)
NOW = ToolDefinition("now", "The time")

# The system part of Qwen's chat template, as its models ship it.
QWEN_SYSTEM = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}"
    "{%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] + '\\n\\n' }}{%- endif %}"
    '{{- "# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n'
    'You are provided with function signatures within <tools></tools> XML tags:\\n<tools>" }}'
    '{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}'
    '{{- "\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within '
    '<tool_call></tool_call> XML tags:\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": '
    '<args-json-object>}\\n</tool_call><|im_end|>\\n" }}{%- endif %}'
)


def test_the_callers_schema_is_left_alone_and_required_is_always_there():
    before = copy.deepcopy(ADD.input_schema)
    function = mcp2openai(ADD)["function"]
    assert function["parameters"] == {**before, "required": []}
    assert function["strict"] is False
    assert ADD.input_schema == before
    function["parameters"]["required"].append("a")
    assert mcp2openai(ADD)["function"]["parameters"]["required"] == []


def test_a_tool_without_a_schema_takes_no_arguments():
    assert mcp2openai(NOW)["function"]["parameters"] == {"type": "object", "properties": {}, "required": []}


@pytest.mark.parametrize("system", ["You help.", ""])
def test_the_text_is_the_one_the_chat_template_writes(system):
    templates = pytest.importorskip("transformers.utils.chat_template_utils")
    messages = [{"role": "system", "content": system}] if system else [{"role": "user", "content": "hi"}]
    [rendered], _ = templates.render_jinja_template(
        [messages], tools=[mcp2openai(ADD), mcp2openai(NOW)], chat_template=QWEN_SYSTEM
    )
    assert rendered == f"<|im_start|>system\n{render_tools_prompt([ADD, NOW], system)}<|im_end|>\n"


def test_each_tool_is_one_line_of_json_within_the_tags():
    prompt = render_tools_prompt([ADD, NOW], "You help.")
    assert prompt.startswith("You help.\n\n# Tools\n")
    lines = prompt.split("<tools>\n")[1].split("\n</tools>")[0].split("\n")
    assert [json.loads(line)["function"]["name"] for line in lines] == ["add", "now"]


def test_without_tools_the_system_message_is_unchanged():
    assert render_tools_prompt([], "You help. {braces}") == "You help. {braces}"


def test_good_calls_survive_a_malformed_one():
    text = (
        'Look.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>{"name": "add", "arguments": {oops}}</tool_call>'
        '<tool_call>{"name": "now"}</tool_call> Done.'
    )
    assert parse_hermes_tool_call(text) == [{"name": "add", "arguments": {"a": 1}}, {"name": "now"}]
    split = split_tool_calls(text)
    assert split.content == "Look.\n\n Done."
    assert split.malformed == ['{"name": "add", "arguments": {oops}}']


@pytest.mark.parametrize(
    ("text", "calls", "malformed"),
    [
        ("no call, only\n text ", 0, 0),
        ("the <tool_call> tag", 0, 0),
        ('the <tool_call> tag: <tool_call>{"name": "a"}</tool_call>', 1, 0),
        ('<tool_call>{"name": "a", "arguments": {"x": "</tool_call>"}}</tool_call>', 1, 0),
        ('<tool_call>{"name": "a", "arguments": {}}', 1, 0),
        ('<tool_call>{"name": "a", "arguments": {"x": 1', 0, 1),
        ('<tool_call>{"arguments": {}}</tool_call>', 0, 1),
        ('<tool_call>{"name": ""}</tool_call>', 0, 1),
        ("<tool_call>[1]</tool_call>", 0, 1),
        ("<tool_call></tool_call>", 0, 1),
        ('<tool_call>{"name": "a"} and more</tool_call>', 0, 1),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", 0, 1),
        ("<tool_call>" * 100_000, 0, 0),
        ("<tool_call>" + "{" * 100_000 + "</tool_call>", 0, 1),
        ('<tool_call>{"name": "a"}</tool_call>' * 200, 200, 0),
    ],
)
def test_odd_texts(text, calls, malformed):
    split = split_tool_calls(text)
    assert (len(split.calls), len(split.malformed)) == (calls, malformed)
    if not calls and not malformed:
        assert split.content == text


def test_endless_repetition_is_not_followed_to_its_end():
    text = "<tool_call>{x</tool_call>" * 100_000
    began = time.thread_time()
    split = split_tool_calls(text)
    assert time.thread_time() - began < 1.0
    assert len(split.malformed) == 64
    assert len(split.content) == len(text) * (100_000 - 64) / 100_000


@given(name=st.text(min_size=1), arguments=st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_a_rendered_call_is_read_back(name, arguments):
    text = render_tool_call(name, json.dumps(arguments))
    assert parse_hermes_tool_call(text) == [{"name": name, "arguments": arguments}]


@given(st.lists(st.sampled_from(["<tool_call>", "</tool_call>", '{"name": "a"}', "{", '"', " ", "x"])).map("".join))
def test_any_text_is_split_without_an_error(text):
    split = split_tool_calls(text)
    assert all(call["name"] for call in split.calls)
