from __future__ import annotations

import enum
import math
import pickle
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax import limits
from benchmax.envs.example_id import canonical_example_id, json_fault, make_example
from benchmax.errors import UsageError


def user(text):
    return [{"role": "user", "content": text}]


def id_of(task):
    return canonical_example_id(user("x"), task)


def nested(levels):
    value: list = []
    for _ in range(levels - 1):
        value = [value]
    return value


GOLDEN = {
    "make_example": (
        lambda: make_example(user("what is 2+2?"), {"ground_truth": "4"})["id"],
        "2930bb0c81ee995a60d23f50e87b9c57948b30ceb63cd5581deb1511fcc631b8",
    ),
    "no task": (lambda: id_of(None), "8871e98f9164dbbfd053c9bc2fc8a2f98abcd5633914199fd31db11bb64113ba"),
    "normalised": (
        lambda: canonical_example_id(user("é"), {"a": 1.0, "b": None, "c": [None, 2.5], "d": True}),
        "a909ee97acc3ded971d7aeb5e8421bb40486965203d99c11bdd23294cf2ad8d5",
    ),
    "whole row as task": (
        lambda: make_example(user("what is 2+2?"), {"prompt": "what is 2+2?", "ground_truth": "4"})["id"],
        "59625b5946ab8710fbf4b7e6ebe68162cab237345c4be5c20ecc2c71bcb102f1",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_published_ids(name):
    make, expected = GOLDEN[name]
    assert make() == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1.0}, {"a": 1}),
        ({"a": -0.0}, {"a": 0}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({"a": None, "b": 1}, {"b": 1}),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        ({"a": enum.IntEnum("E", {"ONE": 1}).ONE}, {"a": 1}),
        ({"a": enum.StrEnum("S", {"X": "y"}).X}, {"a": "y"}),
    ],
)
def test_spellings_of_the_same_value_share_an_id(one, other):
    assert id_of(one) == id_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": True}, {"a": 1}),
        ({"a": "1"}, {"a": 1}),
        ({"a": [None]}, {"a": []}),
        ({}, None),
        ({"a": 2.5}, {"a": 2}),
    ],
)
def test_different_values_have_different_ids(one, other):
    assert id_of(one) != id_of(other)


def test_largest_integers_are_kept_apart():
    assert id_of({"a": 2**53 - 1}) != id_of({"a": 2**53 - 2})
    assert id_of({"a": -(2**53 - 1)})


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ({"a": math.nan}, "task.a is NaN, which is not JSON: write null or a finite number."),
        ({"a": [1, {"b": math.inf}]}, "task.a[1].b is Infinity, which is not JSON: write null or a finite number."),
        ({"a": -math.inf}, "task.a is -Infinity, which is not JSON: write null or a finite number."),
        ({"a": 2**53}, "task.a is an integer beyond 2^53-1, which JSON readers round: write it as text."),
        ({"a": -(2**80)}, "task.a is an integer beyond 2^53-1, which JSON readers round: write it as text."),
        ({"a": 1e300}, "task.a is an integer beyond 2^53-1, which JSON readers round: write it as text."),
        (
            {"a": "x\ud800"},
            "task.a holds half of a surrogate pair, which is no character: remove it or write the whole character.",
        ),
        ({1: "a"}, "task.1 is a key that is not text: use text for every key."),
        ({"a": b"x"}, "task.a is a bytes, which is not JSON: turn it into text, a number, a list or a dict."),
        ({"a": {1}}, "task.a is a set, which is not JSON: turn it into text, a number, a list or a dict."),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_place(task, text):
    with pytest.raises(ValueError, match="task") as refused:
        id_of(task)
    assert str(refused.value) == text
    assert isinstance(pickle.loads(pickle.dumps(refused.value)), UsageError)


def test_surrogates_in_keys_are_refused():
    with pytest.raises(ValueError, match="surrogate"):
        id_of({"\udfff": 1})


def test_depth_is_bounded_without_recursion_errors():
    assert id_of({"a": nested(limits.JSON_DEPTH - 1)})
    with pytest.raises(ValueError, match="nested deeper than 64 levels"):
        id_of({"a": nested(limits.JSON_DEPTH)})
    with pytest.raises(ValueError, match="nested deeper than 64 levels"):
        id_of({"a": nested(10_000)})
    circle: dict = {}
    circle["self"] = circle
    with pytest.raises(ValueError, match="nested deeper"):
        id_of(circle)


def test_example_fields_and_identity():
    example = make_example(user("a"), {"b": 1}, {"path": "x"})
    assert set(example) == {"id", "prompt_messages", "task", "init_rollout_args"}
    assert example["init_rollout_args"] == {"path": "x"}
    assert example["id"] == make_example(user("a"), {"b": 1})["id"]
    assert example["id"] != make_example(user("a"), {"b": 2})["id"]
    assert example["id"] != make_example(user("a"), {"b": 1}, system_prompt="be brief")["id"]


def test_system_prompt_becomes_the_first_message():
    messages = user("a")
    example = make_example(messages, system_prompt="be brief")
    assert example["prompt_messages"] == [{"role": "system", "content": "be brief"}, *messages]
    assert make_example(messages, system_prompt="")["prompt_messages"] == messages
    assert len(messages) == 1


def test_flat_tool_calls_are_nested_and_nested_ones_keep_their_id():
    nested_call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    flat = [{"role": "assistant", "tool_calls": [{"id": "c1", "name": "add", "arguments": {"a": 1}}]}]
    deep = [{"role": "assistant", "tool_calls": [nested_call]}]
    assert make_example(flat)["prompt_messages"] == deep
    assert make_example(flat)["id"] == make_example(deep)["id"] == canonical_example_id(deep, None)
    assert flat[0]["tool_calls"] == [{"id": "c1", "name": "add", "arguments": {"a": 1}}]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ("hi", 'prompt_messages is a str, not a list of messages: write [{"role": "user", "content": "…"}].'),
        (
            {"role": "user"},
            'prompt_messages is a dict, not a list of messages: write [{"role": "user", "content": "…"}].',
        ),
        (["hi"], 'prompt_messages[0] is a str, not a message: write {"role": "user", "content": "…"}.'),
    ],
)
def test_prompts_that_are_not_messages_are_refused(messages, text):
    with pytest.raises(UsageError) as refused:
        make_example(messages)
    assert str(refused.value) == text


def test_json_fault_names_the_place():
    assert json_fault({"a": [1, 2]}) is None
    fault = json_fault({"a": [1, math.nan]})
    assert fault is not None
    assert fault.path == "a[1]"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53 - 1), 2**53 - 1)
    | st.floats(-1e15, 1e15)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=8,
)


def shuffled(value):
    if isinstance(value, dict):
        return {key: shuffled(item) for key, item in reversed(value.items())}
    return tuple(map(shuffled, value)) if isinstance(value, list) else value


@given(st.dictionaries(st.text("abcd", max_size=3), JSON, max_size=4))
def test_order_and_container_types_never_matter(task):
    assert id_of(task) == id_of(shuffled(task))
