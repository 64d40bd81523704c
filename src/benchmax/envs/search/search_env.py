"""Answer a question by searching a corpus, in `<answer>` tags, and cite the texts that say so: `[Source: id]`.

    env = SearchEnv()                                  # an invented company's handbook
    env = SearchEnv("docs/")                           # a folder, an index's file, `platform:NAME`, …
    env = SearchEnv(my_client, judge_base_url="https://…/v1", judge_model="…")

`answer_correctness` is 0, 0.5 or 1: by the words alone, or by a judge where one is given. Everything else is multiplied
by it, so that nothing is earned with a wrong answer.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from benchmax import limits
from benchmax.concurrency import call_function
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.generated_tasks import TEXT, arguments_schema, row_example, worked_example
from benchmax.envs.required_columns import require_columns, require_task
from benchmax.envs.reward_helpers import (
    accepted_answers,
    count_search_calls,
    extract_completion_text,
    extract_last_answer_block,
    tool_call_efficiency,
)
from benchmax.envs.search import grading
from benchmax.envs.search.handbook import DEFAULT_LEVEL, LEVELS, handbook_index, make_rows
from benchmax.envs.search.handbook.tasks import NAME, searches, solve
from benchmax.envs.search.judging import AnswerJudge, TokenProvider
from benchmax.envs.types import Example, Messages, RewardValue, ToolCall, ToolDefinition, Unscored
from benchmax.errors import EnvDefinitionError, JudgeError, UsageError
from benchmax.search.open_corpus import open_corpus
from benchmax.search.types import LEXICAL

MOST_RESULTS, DEFAULT_RESULTS = 50, 10
WORKED_EXAMPLE: Messages = worked_example(
    "What is the extension of Ina Falk?",
    "search",
    {"query": "Ina Falk extension", "limit": 1},
    "[Source: d999] Ina Falk, engineer. Office: Rosdal. Extension: 3907. Joined: 1998.",
    "<answer>3907</answer> [Source: d999]",
)
"""A worked example, for the level at which small models begin; no employee has this name."""
_CUT = "\n[cut: search for less, or with a smaller limit]"
_PROMPT = "Search{about}. Answer in <answer> tags and cite the text that says so: [Source: id]."


class SearchEnv(BaseEnv):
    """Questions answered by searching a corpus, with citations.

    One question a row: `{"question": …, "answer": …, "reference_chunks": [{"id": …, "metadata": {…}}]}`; `answer` may
    be a list of accepted answers.
    """

    system_prompt = _PROMPT.format(about="")
    recommended_max_turns = 11
    recommended_max_tool_calls = 10
    PRIMARY_REWARD_KEY = "answer_correctness"

    def __init__(
        self,
        search: Any = None,
        judge_base_url: str | None = None,
        judge_model: str | None = None,
        judge_token_provider: TokenProvider | None = None,
        judge_timeout: float = 30.0,
        w_correctness: float = 1.0,
        w_conciseness: float = 0.5,
        w_citation_recall: float = 0.5,
        w_citation_precision: float = 0.5,
        w_search_efficiency: float = 0.1,
        max_search_calls: int = 10,
        **kwargs: Any,
    ) -> None:
        """`search` is a corpus: an object with a method `search`, or what `benchmax.search.open_corpus` opens."""
        super().__init__(**kwargs)
        if isinstance(search, os.PathLike):
            search = os.fspath(search)
        self._is_handbook = search is None or search == NAME
        self._corpus = handbook_index() if self._is_handbook else _opened(search)
        self._opened_here = isinstance(search, str) and not self._is_handbook
        self._judge = (
            AnswerJudge(judge_base_url, judge_model, judge_token_provider, judge_timeout)
            if judge_base_url or judge_model
            else None
        )
        self.reward_weights = _shares(  # type: ignore[misc]
            {
                "answer_correctness": w_correctness,
                "conciseness": w_conciseness,
                "citation_recall": w_citation_recall,
                "citation_precision": w_citation_precision,
                "search_efficiency": w_search_efficiency,
            }
        )
        self._max_calls = max_search_calls
        self._calls: dict[str, int] = {}

    @classmethod
    def render_system_prompt(cls, corpus_description: str = "") -> str:
        """The system prompt, with a few words about the corpus."""
        about = corpus_description.strip().rstrip(".")
        return _PROMPT.format(about=f" {about}" if about else "")

    # Rows

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        row = dict(example)
        require_columns(row, "question", "answer")
        chunks = [{name: each[name] for name in ("id", "metadata") if each.get(name)} for each in _chunks(row)]
        task = {"ground_truth": row["answer"], "question": str(row["question"]), "reference_chunks": chunks}
        if row.get("facts") is not None:
            task["facts"] = dict(row["facts"])
        shown = WORKED_EXAMPLE if row.get("level") == DEFAULT_LEVEL else []
        return row_example(row, str(row["question"]), task, shown, ("corpus",))

    @classmethod
    def load_dataset(cls, dataset_name: str = DEFAULT_LEVEL, **kwargs: Any) -> tuple[Any, str | None]:
        """A level (`rows`, `seed`) of questions about the handbook, made here; any other is looked up on the hub."""
        if dataset_name in LEVELS:
            return make_rows(dataset_name, **kwargs), None
        return super().load_dataset(dataset_name, **kwargs)

    # Tools

    async def list_tools(self) -> list[ToolDefinition]:
        optional: dict[str, Any] = {"limit": {"type": "integer", "default": DEFAULT_RESULTS}}
        modes = list(self._corpus.available_modes()) if hasattr(self._corpus, "available_modes") else []
        if len(modes) > 1:
            optional["mode"] = {"enum": modes}
        return [ToolDefinition("search", "Searches texts by words.", arguments_schema(optional, query=TEXT))]

    async def init_rollout(self, rollout_id: str, corpus: str | None = None, **rollout_args: Any) -> None:
        if corpus == NAME and not self._is_handbook:
            raise EnvDefinitionError(
                "These rows are about the handbook that comes with benchmax, and the tool searches another corpus. "
                "Give rows about that, with --data."
            )

    async def run_tool(self, rollout_id: str, tool_name: str, /, **tool_args: Any) -> str:
        if tool_name != "search":
            return f"Error: There is no tool {tool_name!r}. Use search."
        query, limit, mode = tool_args.get("query"), tool_args.get("limit"), tool_args.get("mode")
        if not isinstance(query, str) or not query.strip():
            return "Error: query must be a text. Give one."
        limit = DEFAULT_RESULTS if limit is None else limit
        if type(limit) is not int or not 1 <= limit <= MOST_RESULTS:
            return f"Error: limit must be a whole number from 1 to {MOST_RESULTS}."
        self._calls[rollout_id] = self._calls.get(rollout_id, 0) + 1
        if self._calls[rollout_id] > self._max_calls:
            return f"Error: {self._max_calls} searches are all there are. Answer now."
        try:
            given = {"mode": mode} if mode and mode != LEXICAL else {}
            found = await call_function(self._corpus.search, query, limit, **given)
        except UsageError as error:  # a mode or filter that the corpus does not have
            return f"Error: {error}"
        return _shown(list(found or ()), query)

    async def release_rollout(self, rollout_id: str) -> None:
        self._calls.pop(rollout_id, None)

    async def shutdown(self) -> None:
        close = getattr(self._corpus, "close", None) if self._opened_here else None
        if close is not None and inspect.isawaitable(closing := close()):
            await closing
        if self._judge is not None:
            await self._judge.close()

    # Rewards

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        task = dict(require_task(task, "ground_truth"))
        said = extract_completion_text(messages)
        answer = grading.without_citations(extract_last_answer_block(said))
        try:
            correct = await self._grade(answer, task)
        except JudgeError as error:
            return dict.fromkeys(self.reward_weights, Unscored(str(error)))
        chunks = task.get("reference_chunks") or []
        citations = grading.cited(said, chunks)
        return {
            "answer_correctness": correct,
            "conciseness": correct * grading.conciseness(answer, said, task["ground_truth"]),
            "citation_recall": correct * citations.recall,
            "citation_precision": correct * citations.precision,
            "search_efficiency": self._efficiency(messages, correct, len(chunks)),
        }

    def _efficiency(self, messages: Messages, correct: float, chunks: int) -> float:
        """Few searches, but not none: an answer that was guessed was not found efficiently."""
        if count_search_calls(messages) == 0:
            return 0.0
        return tool_call_efficiency(
            messages, correctness_raw=correct, reference_chunk_count=chunks, max_calls=self._max_calls
        )

    async def _grade(self, answer: str, task: Mapping[str, Any]) -> float:
        if self._judge is None:
            return grading.correctness(answer, task["ground_truth"])
        return await self._judge.grade(str(task.get("question", "")), answer, task["ground_truth"])

    # Solutions

    @classmethod
    def gold_completion(cls, example: Example) -> str | None:
        task = example.get("task") or {}
        truth = task.get("ground_truth")
        answers = [] if truth is None else accepted_answers(truth)
        if not answers:
            return None
        marks = " ".join(f"[Source: {each['id']}]" for each in task.get("reference_chunks", ()) if each.get("id"))
        return f"<answer>{answers[0]}</answer> {marks}".strip()

    @classmethod
    def gold_tool_calls(cls, example: Example) -> list[ToolCall]:
        facts = (example.get("task") or {}).get("facts")
        return [ToolCall("search", json.dumps(each)) for each in searches(facts)] if facts else []

    def demonstrate(self, example: Example) -> Generator[Any, str, None] | None:
        """The searches that lead to the answer of a generated question; other rows have none."""
        facts = (example.get("task") or {}).get("facts")
        return solve(facts) if facts else None


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    """The weights as shares of their sum, so that a perfect answer earns 1."""
    total = sum(weights.values())
    if total <= 0 or min(weights.values()) < 0:
        raise EnvDefinitionError("The weights w_… must not be negative, and at least one must be above 0.")
    return {name: weight / total for name, weight in weights.items()}


def _chunks(row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = row.get("reference_chunks") or []
    return [each for each in found if isinstance(each, Mapping)]


def _opened(search: Any) -> Any:
    if isinstance(search, str):
        return open_corpus(search, [NAME])
    if not callable(getattr(search, "search", None)):
        raise EnvDefinitionError(f"search is {search!r}, which has no method search. Give a corpus, or its address.")
    return search


def _shown(found: Sequence[Any], query: str) -> str:
    """What a search shows to the model: for each text its source, as it is to be cited, and what it says."""
    if not found:
        return f"No results for {query[:100]!r}. Try other words."
    text = "\n".join(f"[Source: {_part(each, 'id')}] {_part(each, 'content')}".rstrip() for each in found)
    return text if len(text) <= limits.SEARCH_OUTPUT_CHARS else text[: limits.SEARCH_OUTPUT_CHARS] + _CUT


def _part(hit: Any, name: str) -> str:
    """Of a hit: an object or a mapping with an id and a content, or a plain text."""
    if isinstance(hit, str):
        return hit if name == "content" else "?"
    value = hit.get(name) if isinstance(hit, Mapping) else getattr(hit, name, "")
    return " ".join(str(value or "").split()) if name == "id" else str(value or "").strip()
