"""The scripted model."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from benchmax.envs.types import ToolCall
from benchmax.errors import ConfigError, ModelRejected, ModelUnavailable
from benchmax.models import Reply, Sampling, ScriptedModel, Usage


def ask(text):
    return [{"role": "user", "content": text}]


async def test_a_text_answers_every_turn_and_words_are_tokens():
    talk = ScriptedModel("four words are here").converse()
    first = await talk.reply(ask("one two"))
    assert first.message == {"role": "assistant", "content": "four words are here"}
    assert (first.finish, first.usage) == ("stop", Usage(2, 4))
    assert (await talk.reply(ask("three"))).usage == Usage(7, 4)


async def test_a_list_is_played_turn_by_turn_in_each_conversation_and_its_last_repeats():
    model = ScriptedModel(["a", "b"])
    for _ in range(2):
        talk = model.converse()
        assert [(await talk.reply(ask("?"))).message["content"] for _ in range(3)] == ["a", "b", "b"]


async def test_tool_calls_get_ids():
    talk = ScriptedModel([ToolCall("now"), [ToolCall("a"), ToolCall("b", '{"x": 1}', "mine")]]).converse()
    first = await talk.reply(ask("?"))
    assert first.finish == "tool_calls"
    assert first.message["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    ]
    second = await talk.reply([{"role": "tool", "tool_call_id": "call_1", "content": "12:00"}])
    assert [call["id"] for call in second.message["tool_calls"]] == ["call_2", "mine"]


async def test_a_function_sees_the_whole_conversation_and_may_be_async():
    async def script(messages):
        return {"content": " ".join(message["role"] for message in messages)}

    talk = ScriptedModel(script).converse()
    await talk.reply([{"role": "system", "content": "s"}, *ask("u")])
    assert (await talk.reply(ask("again"))).message["content"] == "system user assistant user"


async def test_an_exception_is_raised_and_the_turn_can_be_asked_again():
    talk = ScriptedModel([ModelUnavailable("down"), lambda: None, "fine"]).converse()
    with pytest.raises(ModelUnavailable, match="down"):
        await talk.reply(ask("a b c"))
    with pytest.raises(ConfigError, match="function"):
        await talk.reply(ask("a b c"))
    assert (await talk.reply(ask("a b c"))).usage.prompt_tokens == 3


async def test_a_reply_is_given_as_it_is():
    reply = Reply({"role": "assistant", "content": "cut"}, "length", Usage(7, 9, 0.5))
    assert await ScriptedModel([reply]).converse().reply(ask("?")) is reply


async def test_a_text_longer_than_the_turn_is_cut():
    talk = ScriptedModel("one two three four").converse(sampling=Sampling(max_tokens=3))
    assert (await talk.reply(ask("?"))).message["content"] == "one two three"
    tighter = await talk.reply(ask("?"), max_tokens=2)
    assert (tighter.message["content"], tighter.finish) == ("one two", "length")


async def test_answers_look_at_the_last_user_message():
    talk = ScriptedModel.answers({"2+2?": "4", "bye": ToolCall("leave")}).converse()
    assert (await talk.reply([*ask("bye"), *ask("2+2?")])).message["content"] == "4"
    assert (await talk.reply(ask("bye"))).finish == "tool_calls"
    with pytest.raises(ModelRejected, match="no answer to 'hm'"):
        await talk.reply(ask("hm"))


async def test_delay_is_waited_concurrently():
    model = ScriptedModel("x", delay=0.5)
    start = time.monotonic()
    await asyncio.gather(*(model.converse().reply(ask("?")) for _ in range(50)))
    assert 0.4 < time.monotonic() - start < 50 * 0.5 / 2


def test_an_empty_script_is_refused():
    with pytest.raises(ConfigError, match="at least one answer"):
        ScriptedModel([])


def test_importing_the_models_does_not_import_aiohttp():
    code = (
        "import sys, benchmax.models, benchmax.testing; assert 'aiohttp' not in sys.modules; benchmax.models.HttpModel"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
