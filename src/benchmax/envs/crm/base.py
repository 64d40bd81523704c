"""What all CRM environments share: prompts, rows, levels and demonstrations. Where the tools run is up to each."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.crm.tasks import DEFAULT_LEVEL, KINDS, LEVELS, make_rows
from benchmax.envs.example_id import make_example
from benchmax.envs.generated_tasks import check_level, with_answer, worked_example
from benchmax.envs.required_columns import require_columns
from benchmax.envs.reward_helpers import accepted_answers
from benchmax.envs.types import Example, Messages
from benchmax.errors import EnvDefinitionError

COMPANY_FILE = "company.json"
"""Where an MCP server finds which company its rollout is about."""
COLUMNS = ("task", "persona", "query", "answer", "reward_metric")
_ARTICLE = {"Id": "ka0FansWarranty", "Title": "Warranty: Fans", "Content": "The warranty on fans lasts 60 months."}
WORKED_EXAMPLE: Messages = worked_example(
    "You work for Breeze Fans.\nknowledge_qa\nHow many months does the warranty on fans last?",
    "search_knowledge_articles",
    {"search_term": "warranty fans"},
    json.dumps([_ARTICLE]),
    "<answer>60</answer>",
)
"""A worked example, for the level at which small models begin; no company sells fans."""


class CRMBase(BaseEnv):
    """Rows in the columns of CRMArena: task, persona, query, answer, reward_metric, and, if it has any, metadata."""

    system_prompt = (
        "Answer the question about the company's CRM with the tools, one call at a time. "
        "Give the answer alone in <answer> tags, several separated by commas, None if nothing matches."
    )
    recommended_max_turns = 12
    recommended_max_tool_calls = 12
    PRIMARY_REWARD_KEY = "match"

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        row = dict(example)
        require_columns(row, *COLUMNS)
        parts = (row["persona"], row["task"], _metadata(row).get("required"), row["query"])
        question: Messages = [{"role": "user", "content": "\n".join(str(part) for part in parts if part)}]
        task: dict[str, Any] = {
            "kind": row["task"],
            "ground_truth": accepted_answers(row["answer"]),
            "reward_metric": row["reward_metric"],
        }
        if row.get("facts") is not None:
            task |= {"facts": dict(row["facts"]), "company": row["company"]}
        return make_example(
            prompt_messages=[*(WORKED_EXAMPLE if row.get("level") == DEFAULT_LEVEL else ()), *question],
            task=task,
            init_rollout_args={name: row[name] for name in ("company", "level") if row.get(name) is not None} or None,
        )

    @classmethod
    def load_dataset(cls, dataset_name: str = DEFAULT_LEVEL, **kwargs: Any) -> tuple[Any, str | None]:
        """The rows of a level (`rows=320, seed=0`), made here; any other name is looked up on the hub."""
        if dataset_name in LEVELS:
            return make_rows(dataset_name, **kwargs), None
        return super().load_dataset(dataset_name, **kwargs)

    @classmethod
    def gold_completion(cls, example: Example) -> str | None:
        truth = (example.get("task") or {}).get("ground_truth")
        return None if truth is None else f"<answer>{', '.join(truth)}</answer>"

    def demonstrate(self, example: Example) -> Generator[Any, Any, None] | None:
        """The solution of a generated task, from the facts in its question; other rows have none."""
        task = example.get("task") or {}
        if "facts" not in task or task.get("kind") not in KINDS:
            return None
        return with_answer(KINDS[task["kind"]].solve(task["facts"]))


def _metadata(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of a row; some files hold it as JSON text."""
    found = row.get("metadata")
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            return {}
    return found if isinstance(found, Mapping) else {}


def check_rows(level: str, of_row: str | None, company: int | None, live: bool) -> None:
    """Raises EnvDefinitionError when a row does not fit the environment that plays it."""
    if live and company is not None:
        raise EnvDefinitionError(
            "These rows are about a generated company, and the tools ask a live org. Give rows about that, with --data."
        )
    check_level(LEVELS, level, of_row)
