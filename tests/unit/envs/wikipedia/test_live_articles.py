"""A live MediaWiki is asked politely, and its troubles are texts for the model."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest

from benchmax import limits
from benchmax.envs.wikipedia.articles.base import GET, SEARCH, call_tool
from benchmax.envs.wikipedia.articles.live import LiveArticles
from benchmax.envs.wikipedia.wiki_env import WikipediaEnv
from benchmax.errors import UsageError
from benchmax.models.scripted import ScriptedModel
from mediawiki_world import ARTICLES, MediaWiki, busy, mediawiki
from ready_world import play_all


@pytest.fixture
def wiki() -> Iterator[MediaWiki]:
    with mediawiki() as running:
        yield running


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmax.envs.wikipedia.articles import live

    monkeypatch.setattr(live, "_FIRST_PAUSE", 0.01)


async def ask(articles: LiveArticles, name: str, **arguments: Any) -> str:
    return await call_tool(articles, name, arguments)


async def test_searches_and_articles_are_plain_text(wiki: MediaWiki) -> None:
    articles = LiveArticles(url=wiki.url, per_second=1000)
    found = await ask(articles, SEARCH, q="emi", limit=1)
    assert found == '1. Emi Koussi: Emi Koussi is a high volcano. == Height == It is 3,415 m high & "old".'
    assert wiki.asked[-1]["srlimit"] == "1"
    text = await ask(articles, GET, title="Emi Kussi")
    assert text == 'Emi Koussi is a high volcano.\n\n== Height ==\nIt is 3,415 m high & "old".'
    assert wiki.asked[-1]["redirects"] == wiki.asked[-1]["explaintext"] == "1"
    long = await ask(articles, GET, title="Long")
    assert len(long) < limits.WIKIPEDIA_ARTICLE_CHARS + 100
    assert long.endswith("[cut: the article has 49999 characters]")
    assert (await ask(articles, SEARCH, q="zzz")).startswith("No results for 'zzz'")
    assert (await ask(articles, GET, title="Nowhere")).startswith("Error: There is no article 'Nowhere'")
    await articles.close()


@pytest.mark.parametrize("title", ["A|B", "A#b", "<b>", "{{x}}", "[[x]]"])
async def test_titles_that_cannot_be_are_not_asked_for(wiki: MediaWiki, title: str) -> None:
    articles = LiveArticles(url=wiki.url, per_second=1000)
    assert (await ask(articles, GET, title=title)).startswith("Error: There is no article")
    assert wiki.asked == []


async def test_it_says_who_asks_and_leaves_a_busy_wiki_alone(wiki: MediaWiki) -> None:
    articles = LiveArticles(["one", "two"], url=wiki.url, per_second=1000)
    await asyncio.gather(*(ask(articles, SEARCH, q=f"emi {number}") for number in range(4)))
    assert {each["maxlag"] for each in wiki.asked} == {"5"}
    assert all(each["User-Agent"].startswith("benchmax/") for each in wiki.headers)
    assert [each["Authorization"] for each in wiki.headers] == ["Bearer one", "Bearer two"] * 2
    await articles.close()


async def test_a_hundred_rollouts_ask_one_at_a_time_and_nothing_twice(wiki: MediaWiki) -> None:
    articles = LiveArticles(url=wiki.url, per_second=1000)
    said = await asyncio.gather(*(ask(articles, SEARCH, q=f"emi {number % 5}") for number in range(100)))
    assert len(set(said)) == 1
    assert wiki.most_inside == 1
    assert len(wiki.asked) == 5
    await articles.close()


async def test_requests_are_apart(wiki: MediaWiki) -> None:
    articles = LiveArticles(url=wiki.url, per_second=20)
    began = time.monotonic()
    await asyncio.gather(*(ask(articles, SEARCH, q=f"emi {number}") for number in range(5)))
    assert len(wiki.asked) == 5
    assert time.monotonic() - began > 4 / 20  # how they arrive depends on the machine, the time for all does not
    await articles.close()


@pytest.mark.parametrize(
    "failure",
    [
        busy("maxlag", **{"Retry-After": "0.3"}),
        busy("ratelimited", **{"Retry-After": "0.3"}),
        (429, {"Retry-After": "0.3"}, "Too many requests"),
        (503, {"Retry-After": "0.3"}, "<html>down</html>"),
    ],
    ids=["maxlag", "ratelimited", "429", "503"],
)
async def test_a_pause_that_is_asked_for_is_kept(wiki: MediaWiki, failure: Any) -> None:
    wiki.failures = [failure]
    articles = LiveArticles(url=wiki.url, per_second=1000)
    assert (await ask(articles, GET, title="Chad")).startswith("Chad is")
    assert len(wiki.asked) == 2
    assert wiki.moments[1] - wiki.moments[0] >= 0.3
    await articles.close()


@pytest.mark.parametrize("failure", [(500, {}, "x"), (200, {}, "<html>no JSON</html>"), (502, {}, "")])
async def test_other_troubles_are_tried_again_a_few_times(wiki: MediaWiki, failure: Any) -> None:
    wiki.failures = [failure] * 20
    articles = LiveArticles(url=wiki.url, per_second=1000)
    said = await ask(articles, GET, title="Chad")
    assert said.startswith("Error: Wikipedia is busy (")
    assert len(wiki.asked) == limits.WIKIPEDIA_LIVE_TRIES
    wiki.failures = []
    assert (await ask(articles, GET, title="Chad")).startswith("Chad is"), "a failure is not remembered"
    await articles.close()


async def test_a_long_pause_is_not_waited_for(wiki: MediaWiki) -> None:
    wiki.failures = [(429, {"Retry-After": "3600"}, "later")]
    articles = LiveArticles(url=wiki.url, per_second=1000)
    async with asyncio.timeout(60):
        assert await ask(articles, GET, title="Chad") == "Error: Wikipedia is busy (HTTP 429). Try again later."
    assert len(wiki.asked) == 1
    await articles.close()


async def test_a_refusal_is_not_repeated(wiki: MediaWiki) -> None:
    wiki.failures = [busy("cirrussearch-regex-syntax-error")]
    articles = LiveArticles(url=wiki.url, per_second=1000)
    assert (await ask(articles, SEARCH, q="insource:/[/")).startswith("Error: Wikipedia refuses this: Waiting")
    assert len(wiki.asked) == 1
    await articles.close()


async def test_nobody_at_the_address_is_a_text_too() -> None:
    articles = LiveArticles(url="http://127.0.0.1:9/w/api.php", per_second=1000)
    assert (await ask(articles, GET, title="Chad")).startswith("Error: Wikipedia is busy (ConnectError)")
    await articles.close()


async def test_the_environment_plays_rollouts_on_it(wiki: MediaWiki) -> None:
    rows = [{"Question": "How high is it?", "Answer": ["3,415 m", "3415 m"]}]
    env = WikipediaEnv(url=wiki.url)
    example = env.dataset_preprocess(rows[0])
    turns = [{"role": "assistant", "tool_calls": [{"name": GET, "arguments": '{"title": "Emi Kussi"}'}]}]
    [rollout] = await play_all(env, [example], lambda each: ScriptedModel([*turns, "<answer>3,415 m</answer>"]))
    assert rollout.rewards == {"text_match": 1.0}
    assert ARTICLES["Chad"] not in str(rollout.messages)


def test_keys_mean_the_live_api_and_nothing_else() -> None:
    kept = pickle.loads(pickle.dumps(WikipediaEnv(["key"])))
    assert isinstance(kept._articles, LiveArticles)
    assert isinstance(WikipediaEnv(wikipedia_api_keys=["key"])._articles, LiveArticles)
    with pytest.raises(UsageError, match="live API"):
        WikipediaEnv("factbook", wikipedia_api_keys=["key"])
