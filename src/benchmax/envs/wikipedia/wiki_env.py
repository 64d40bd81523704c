"""Answer a question with an encyclopedia, in `<answer>` tags.

    env = WikipediaEnv()                      # the World Factbook of 2015, offline
    env = WikipediaEnv("enwiki.sqlite")       # an index that `benchmax wikipedia index` built
    env = WikipediaEnv("live")                # the API of en.wikipedia.org

`text_match` is 1 when the answer says the same as one of the accepted ones. No tool changes anything, so all rollouts
share the articles.
"""

from __future__ import annotations

import html
import os
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.generated_tasks import row_example, with_answer, worked_example
from benchmax.envs.required_columns import require_columns, require_task
from benchmax.envs.reward_helpers import (
    accepted_answers,
    exact_match,
    extract_completion_text,
    extract_last_answer_block,
)
from benchmax.envs.types import Example, Messages, RewardValue, ToolDefinition
from benchmax.envs.wikipedia.articles.base import SEARCH, TOOLS, Articles, call_tool
from benchmax.envs.wikipedia.articles.live import URL, LiveArticles
from benchmax.envs.wikipedia.articles.local import LocalArticles
from benchmax.envs.wikipedia.factbook.corpus import NAME, open_articles
from benchmax.envs.wikipedia.tasks import DEFAULT_LEVEL, KINDS, LEVELS, make_rows
from benchmax.errors import EnvDefinitionError, UsageError
from benchmax.search.index import Index
from benchmax.search.open_corpus import open_corpus

LIVE = "live"
WORKED_EXAMPLE: Messages = worked_example(
    "How many airports are in Atlantis?",
    SEARCH,
    {"q": "Atlantis airports", "limit": 1},
    "1. Transportation of Atlantis: Airports: 73 (2013) Airports - with paved runways, total: 31 …",
    "<answer>73</answer>",
)
"""A worked example, for the level at which small models begin; there is no such country."""


class WikipediaEnv(BaseEnv):
    """Questions answered with an encyclopedia: one search, or several articles one after the other.

    One question a row: `{"Question": "How many airports are in Chad?", "Answer": "59"}`; `Answer` may be a list of
    accepted answers.
    """

    system_prompt = "Look it up. Answer in <answer> tags."
    recommended_max_turns = 9
    recommended_max_tool_calls = 8
    PRIMARY_REWARD_KEY = "text_match"
    reward_weights: ClassVar = {"text_match": 1.0}

    def __init__(
        self,
        corpus: str | os.PathLike[str] | Index | Sequence[str] | None = None,
        *,
        wikipedia_api_keys: Sequence[str] | None = None,
        url: str | None = None,
        **kwargs: Any,
    ) -> None:
        """`corpus` is `factbook`, `live`, an index's file or a folder; `url` is the API of another live MediaWiki.

        `wikipedia_api_keys` are bearer tokens of the live API, used in turn; a list in place of `corpus` is that, too.
        """
        super().__init__(**kwargs)
        if isinstance(corpus, os.PathLike):
            corpus = os.fspath(corpus)
        if corpus is not None and not isinstance(corpus, str | Index):
            corpus, wikipedia_api_keys = LIVE, list(corpus)
        self._corpus = corpus or (LIVE if wikipedia_api_keys or url else NAME)
        self._articles = _open(self._corpus, wikipedia_api_keys or (), url)

    # Rows

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        row = dict(example)
        asked = {name: row.get(name, row.get(name.lower())) for name in ("Question", "Answer")}
        require_columns(asked, *asked)
        question, answer = asked.values()
        task: dict[str, Any] = {"ground_truth": accepted_answers(row.get("accepted") or answer)}
        if row.get("kind") in KINDS and row.get("facts"):
            task |= {"kind": row["kind"], "facts": dict(row["facts"])}
        shown = WORKED_EXAMPLE if row.get("level") == DEFAULT_LEVEL else []
        return row_example(row, str(question), task, shown, ("corpus",))

    @classmethod
    def load_dataset(cls, dataset_name: str = DEFAULT_LEVEL, **kwargs: Any) -> tuple[Any, str | None]:
        """A level (`rows`, `seed`), made from the World Factbook; any other name is looked up on the hub."""
        if dataset_name in LEVELS:
            return make_rows(dataset_name, **kwargs), None
        return super().load_dataset(dataset_name, **kwargs)

    # Tools

    async def list_tools(self) -> list[ToolDefinition]:
        return TOOLS

    async def init_rollout(self, rollout_id: str, corpus: str | None = None, **rollout_args: Any) -> None:
        if corpus is not None and corpus != self._corpus:
            raise EnvDefinitionError(
                f"These rows are about the corpus {corpus!r}, and the tools search {str(self._corpus)!r}. "
                "Give rows about that, with --data."
            )

    async def run_tool(self, rollout_id: str, tool_name: str, /, **tool_args: Any) -> str:
        return await call_tool(self._articles, tool_name, tool_args)

    async def shutdown(self) -> None:
        await self._articles.close()

    # Rewards

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        truth = require_task(task, "ground_truth")["ground_truth"]
        answer = html.unescape(extract_last_answer_block(extract_completion_text(messages)))
        return {"text_match": exact_match(answer, truth)}

    # Solutions

    @classmethod
    def gold_completion(cls, example: Example) -> str | None:
        truths = (example.get("task") or {}).get("ground_truth")
        return f"<answer>{truths[0]}</answer>" if truths else None

    def demonstrate(self, example: Example) -> Generator[Any, str, None] | None:
        """The solution of a generated question, step by step; other rows have none."""
        task = example.get("task") or {}
        return with_answer(KINDS[task["kind"]].solve(task["facts"])) if task.get("kind") in KINDS else None


def _open(corpus: str | Index, keys: Sequence[str], url: str | None) -> Articles:
    if corpus == LIVE:
        return LiveArticles(keys, url or URL)
    if keys or url:
        raise UsageError(f"wikipedia_api_keys and url are for the live API, not for {str(corpus)!r}. Leave them out.")
    if isinstance(corpus, Index):
        return LocalArticles(corpus)
    found = open_articles() if corpus == NAME else open_corpus(corpus, [NAME, LIVE])
    if not isinstance(found, Index):
        raise UsageError(f"{corpus!r} has no articles by title. Use the environment `search` with it.")
    return LocalArticles(found)
