import asyncio
import json

import pytest

from benchmax.errors import ConfigError, JudgeError, ModelUnavailable
from benchmax.models.base import Reply, Usage
from benchmax.models.scripted import ScriptedModel
from benchmax.rewards import Judge, JudgeCache
from benchmax.rewards.verdict import parse_object, read_partition, read_score

DATA = [("response", "Paris")]


def read(raw):
    return read_score(raw, [0, 1])


def scripted(*answers):
    """A judge model that gives one answer after another, over all its conversations."""
    left = list(answers)
    model = ScriptedModel(lambda messages: prompts.append(messages[-1]["content"]) or left.pop(0))
    prompts = model.prompts = []
    return model


# --- reading verdicts ---


@pytest.mark.parametrize(
    "text",
    [
        '{"score": 1}',
        '```json\n{"score": 1}\n```',
        'Sure! Here it is:\n{"score": 1}\nHope that helps.',
        '<think>maybe {"score": 0}?</think>{"score": 1}',
        '{"score": 1} I repeat: {"score": 1}',
        '{broken {"score": 1}',
        '\ufeff {"score": 1}',
    ],
)
def test_verdicts_in_many_wrappings(text):
    assert parse_object(text) == {"score": 1}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"),
        ("<think>hm</think>", "empty"),
        ("I cannot judge that.", "no JSON"),
        ("[1, 2]", "no JSON"),
        ('{"score": 1', "no JSON"),
        ('{"score": 1} or {"score": 0}', "more than one"),
        ("x" * 1_000_000, "1000000 characters"),
        ('{"a":' * 10_000, "no JSON"),
    ],
)
def test_replies_that_are_no_verdict(text, word):
    with pytest.raises(ValueError, match=word):
        parse_object(text)


def test_scores_are_kept_to_the_scale():
    assert read_score({"score": "0.5"}, [0, 0.5]) == 0.5
    assert read_score({"score": 0.75}) == 0.75
    assert read_score({"score": True}, [0, 1]) == 1.0
    for bad in ({}, {"score": None}, {"score": "high"}, {"score": float("nan")}, {"score": [1]}, {"score": 10}):
        with pytest.raises(ValueError, match="score"):
            read_score(bad, [0, 1])
    for bad in (1.5, -0.1, 10):
        with pytest.raises(ValueError, match="between 0 and 1"):
            read_score({"score": bad})


def test_partitions_name_everything_once():
    assert read_partition({"t": [["A"], "B", []]}, "t", ["A", "B"]) == [["A"], ["B"]]
    for bad in (None, [], [["A"]], [["A", "A"], ["B"]], [["A", "B", "C"]]):
        with pytest.raises(ValueError, match="t"):
            read_partition({"t": bad}, "t", ["A", "B"])


# --- asking ---


async def test_a_verdict_and_its_account():
    model = scripted(Reply({"role": "assistant", "content": '{"score": 1}'}, usage=Usage(10, 5, 0.25)))
    judge = Judge(model)
    assert await judge.ask("Judge.", DATA, read) == 1.0
    assert (judge.usage.calls, judge.usage.verdicts, judge.usage.failures) == (1, 1, 0)
    assert judge.usage.tokens == Usage(10, 5, 0.25)


async def test_nonsense_is_asked_for_once_more_with_the_reason():
    model = scripted("no idea", '{"score": 0}')
    judge = Judge(model)
    assert await judge.ask("Judge.", DATA, read) == 0.0
    assert "could not be used" not in model.prompts[0]
    assert "the reply holds no JSON object" in model.prompts[1]
    assert (judge.usage.calls, judge.usage.reasks, judge.usage.failures) == (2, 1, 0)


async def test_data_is_fenced_and_fences_differ():
    model = scripted('{"score": 1}', '{"score": 1}')
    judge = Judge(model)
    await judge.ask("Judge.", [("response", "a</data>b")], read)
    await judge.ask("Judge.", [("response", "a</data>b")], read)
    first, second = model.prompts
    assert first != second
    assert '<data name="response" id="' in first


async def test_concurrency_is_limited():
    open_now = most = 0

    async def answer(messages):
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        for _ in range(5):
            await asyncio.sleep(0)
        open_now -= 1
        return '{"score": 1}'

    judge = Judge(ScriptedModel(answer), concurrency=3)
    await asyncio.gather(*(judge.ask("Judge.", [("response", str(n))], read) for n in range(20)))
    assert most == 3
    assert judge.usage.calls == 20


def test_one_judge_serves_many_loops():
    judge = Judge(ScriptedModel('{"score": 1}'), concurrency=1)

    async def several():
        return await asyncio.gather(*(judge.ask("Judge.", DATA, read) for _ in range(4)))

    for _ in range(3):
        assert asyncio.run(several()) == [1.0] * 4
    assert judge.usage.verdicts == 12


# --- cache ---


async def test_cache_hits_are_counted_and_cost_nothing():
    judge = Judge(scripted('{"score": 1}', '{"score": 0}'), cache=10)
    assert await judge.ask("Judge.", DATA, read) == 1.0
    assert await judge.ask("Judge.", DATA, read) == 1.0
    assert await judge.ask("Judge.", [("response", "Rome")], read) == 0.0
    assert (judge.usage.calls, judge.usage.cache_hits, judge.usage.verdicts) == (2, 1, 3)


async def test_failures_are_not_cached():
    judge = Judge(scripted("?", "?", '{"score": 1}'), cache=10)
    with pytest.raises(JudgeError):
        await judge.ask("Judge.", DATA, read)
    assert await judge.ask("Judge.", DATA, read) == 1.0


async def test_a_directory_keeps_verdicts(tmp_path):
    first = Judge(scripted('{"score": 1}'), name="m", cache=tmp_path / "cache")
    await first.ask("Judge.", DATA, read)
    again = Judge(scripted(), name="m", cache=tmp_path / "cache")
    assert await again.ask("Judge.", DATA, read) == 1.0
    assert again.usage.cache_hits == 1
    other = Judge(scripted('{"score": 0}'), name="another model", cache=tmp_path / "cache")
    assert await other.ask("Judge.", DATA, read) == 0.0
    assert not list((tmp_path / "cache").glob(".verdict-*"))


async def test_a_damaged_cache_entry_is_asked_for_again(tmp_path):
    await Judge(scripted('{"score": 1}'), cache=tmp_path).ask("Judge.", DATA, read)
    (entry,) = tmp_path.glob("*.txt")
    entry.write_bytes(b"\xff\xfe half a verd")
    assert await Judge(scripted('{"score": 0}'), cache=tmp_path).ask("Judge.", DATA, read) == 0.0
    assert json.loads(entry.read_text()) == {"score": 0}


async def test_a_cache_that_cannot_be_written_costs_no_verdict(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    judge = Judge(scripted('{"score": 1}'), cache=tmp_path / "file" / "cache")
    assert await judge.ask("Judge.", DATA, read) == 1.0
    assert "could not be written" in caplog.text


def test_the_cache_forgets_the_least_used():
    cache = JudgeCache(size=2)
    for key in "ab":
        cache.put(key, key)
    cache.get("a")
    cache.put("c", "c")
    assert [cache.get(key) for key in "abc"] == ["a", None, "c"]


# --- mistakes ---


def test_a_judge_needs_a_model():
    with pytest.raises(ConfigError, match="base_url"):
        Judge()
    with pytest.raises(ConfigError, match="positive"):
        Judge(ScriptedModel("x"), concurrency=0)


async def test_a_model_that_fails_is_a_judge_error():
    judge = Judge(ScriptedModel([ModelUnavailable("connection refused")]))
    with pytest.raises(JudgeError, match="connection refused"):
        await judge.ask("Judge.", DATA, read)
    assert judge.usage.failure_rate == 1.0


async def test_a_slow_model_is_given_up():
    judge = Judge(ScriptedModel("{}", delay=30), timeout=0.05)
    with pytest.raises(JudgeError, match=r"within 0\.05 s"):
        await judge.ask("Judge.", DATA, read)
