"""One chat, with a model that says what it is told to: tools run live, tasks are scored, what is cut off is gone."""

import asyncio

import pytest

from benchmax.inference.engine.sampling import Generation
from benchmax.platform.runner.live import chat as session_chat
from benchmax.rollouts.host import EnvHost
from benchmax.trainer.tiny_model import make_tiny
from session_world import CounterEnv


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=1)


def kinds(events):
    return [event["event"] for event in events if event["event"] != "token"]


class ScriptedEngine:
    """Draws the ids of one text after the other, a few at a time."""

    max_len = 100_000

    def __init__(self, chat, texts):
        self.chat, self.texts, self.prompts = chat, list(texts), []

    async def generate(self, prompt, params, *, should_stop=None, on_tokens=None):
        self.prompts.append(self.chat.decode(prompt))
        text = self.texts.pop(0)
        if text == "hang":
            await asyncio.sleep(60)
        ids = self.chat.encode(text)
        for at in range(0, len(ids), 3):
            on_tokens(ids[at : at + 3], [0.0] * 3)
            await asyncio.sleep(0)
        return Generation(ids, [0.0] * len(ids), "stop")


@pytest.fixture
async def chat_with(model):
    """Opens a chat in a counting environment with a scripted model; gives what each turn was told."""
    from contextlib import AsyncExitStack

    from benchmax.inference.local_model import LocalModel
    from benchmax.inference.tokens.chat import ChatTokens

    stack = AsyncExitStack()

    async def make(*texts, example=None, shown=()):
        tokens = ChatTokens(model)
        tokens.context = 100_000
        engine = ScriptedEngine(tokens, texts)
        host = await stack.enter_async_context(EnvHost(CounterEnv))
        local = LocalModel(engine, tokens)
        opened_chat = await stack.enter_async_context(session_chat.Chat.open(host, local, example, shown))
        opened_chat.engine = engine
        return opened_chat

    async with stack:
        yield make


async def turn(chat, content="", **more):
    events = []
    await chat.answer({"content": content, **more}, events.append)
    return events


CALL = 'Let me see. <tool_call>{"name": "add", "arguments": {}}</tool_call>'


async def test_tools_run_live_and_the_environment_remembers_the_chat(chat_with):
    chat = await chat_with(CALL, "It is one.", CALL, "Two.")
    events = await turn(chat, "Count.")
    assert kinds(events) == ["message", "message", "message", "done"]
    call, result, answer = (event["message"] for event in events if event["event"] == "message")
    assert call["tool_calls"][0]["function"]["name"] == "add"
    assert (result["role"], result["content"]) == ("tool", "count 1")
    assert answer["content"] == "It is one."
    text = "".join(event["text"] for event in events if event["event"] == "token")
    assert text == "Let me see.It is one.", "a call is shown as a message, never as text"
    again = await turn(chat, "Again.")
    told = [event["message"]["content"] for event in again if event["event"] == "message"]
    assert told == ["Let me see.", "count 2", "Two."], "the same rollout, the same count"
    assert "It is one." in chat.engine.prompts[-1]
    assert chat.engine.prompts[0].startswith("Count.\n\n# Tools"), "system prompt and tools"
    assert not any(event["event"] == "reward" for event in events + again), "no task, no reward"
    assert chat.about()["tools"][0]["name"] == "add"


async def test_an_example_is_scored_at_each_answer(chat_with):
    example = CounterEnv.dataset_preprocess({"prompt": "Count to one.", "answer": "count 1"})
    chat = await chat_with(CALL, "count 1", "no more", example=example)
    events = await turn(chat)
    assert events[-2] == {
        "event": "reward", "rewards": {"said": 1.0, "count": 1.0}, "total": 2.0, "unscored": {}
    }  # fmt: skip
    assert (await turn(chat, "and now?"))[-2]["rewards"] == {"said": 0.0, "count": 1.0}


SHOWN = [{"role": "user", "content": "5 + 7?"}, {"role": "assistant", "content": "<answer>12</answer>"}]


async def test_what_is_typed_comes_after_the_worked_examples_of_training(chat_with):
    chat = await chat_with("seven", "eight", shown=SHOWN)
    assert chat.about()["prompt_messages"] == SHOWN
    await turn(chat, "3 + 4?")
    told = chat.engine.prompts[0]
    assert told.index("5 + 7?") < told.index("<answer>12</answer>") < told.index("3 + 4?")
    await turn(chat, "4 + 4?")
    assert chat.engine.prompts[1].count("5 + 7?") == 1


async def test_a_question_of_ones_own_replaces_the_examples(chat_with):
    example = CounterEnv.dataset_preprocess({"prompt": "Count to one.", "answer": "count 1"})
    chat = await chat_with("fine", example=example, shown=SHOWN)
    events = await turn(chat, "3 + 4?", own=True)
    assert "Count to one." not in chat.engine.prompts[0]
    assert "<answer>12</answer>" in chat.engine.prompts[0]
    assert "reward" not in kinds(events)


def test_shared_turns_are_what_all_prompts_begin_with():
    def prompt(asked, *before):
        return [{"role": "system", "content": "Add."}, *before, {"role": "user", "content": asked}]

    assert session_chat.shared_turns([prompt("1 + 1?", *SHOWN), prompt("2 + 2?", *SHOWN)]) == SHOWN
    assert session_chat.shared_turns([prompt("1 + 1?", *SHOWN), prompt("2 + 2?", *SHOWN[:1])]) == SHOWN[:1]
    assert session_chat.shared_turns([prompt("1 + 1?"), prompt("1 + 1?")]) == []
    assert session_chat.shared_turns([]) == []


async def test_a_turn_that_is_cut_off_is_forgotten(chat_with):
    chat = await chat_with("first", "hang", "third", "fourth")
    await turn(chat, "one")
    cut = asyncio.create_task(turn(chat, "two"))
    while len(chat.engine.prompts) < 2:
        await asyncio.sleep(0.01)
    cut.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut
    assert kinds(await turn(chat, "three")) == ["message", "done"]
    assert "two" not in chat.engine.prompts[-1]
    assert "one" in chat.engine.prompts[-1]
    queued = asyncio.create_task(turn(chat, "never"))
    queued.cancel()
    await asyncio.gather(queued, return_exceptions=True)
    await turn(chat, "four")
    assert "never" not in chat.engine.prompts[-1]


async def test_what_cannot_be_said_is_an_error_and_the_chat_goes_on(chat_with):
    chat = await chat_with("fine")
    assert kinds(await turn(chat, "")) == ["error"]
    assert kinds(await turn(chat, "hello")) == ["message", "done"]
    (failed,) = await turn(chat, "no text is left")
    assert failed["event"] == "error"
