"""The levels of difficulty, and the rows of each: the columns of CRMArena's, made by seed, and what made them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import Any

from benchmax.envs.crm.company import Company, company_of
from benchmax.envs.crm.tasks import agents, customers, knowledge, products
from benchmax.envs.crm.tasks.kinds import KINDS, Drawn
from benchmax.envs.crm.tools import TOOLS
from benchmax.envs.generated_tasks import draw_different

__all__ = ["DEFAULT_LEVEL", "LEVELS", "Level", "agents", "customers", "knowledge", "make_rows", "products"]

ROWS = 320
ROWS_OF_A_COMPANY = 40
_COMPANIES_OF_A_SEED = 1_000
"""Rows of two seeds are about different companies."""
_TRIES = 400


@dataclass(frozen=True, slots=True)
class Level:
    """What is asked, and which tools are listed for it."""

    kinds: tuple[str, ...]
    tools: tuple[str, ...]
    hard: bool = False


DEFAULT_LEVEL = "lookup"
LEVELS = {
    "lookup": Level(("knowledge_qa",), ("search_knowledge_articles",)),
    "steps": Level(
        (
            "named_entity_disambiguation", "transfer_count", "top_issue_identification",
            "policy_violation_identification", "contact_lookup",
        ),
        (
            "find_id_with_max_value", "find_id_with_min_value", "get_account_id_by_contact_id",
            "get_agent_transferred_cases_by_period", "get_issue_counts", "get_livechat_transcript_by_case_id",
            "get_order_item_ids_by_product", "get_period", "get_purchase_history", "issue_sosl_query",
            "search_knowledge_articles", "search_products",
        ),
    ),
    "reports": Level(tuple(KINDS), tuple(TOOLS), hard=True),
}  # fmt: skip
"""From one short call to eight long ones."""


def make_rows(level: str = DEFAULT_LEVEL, *, rows: int | None = ROWS, seed: int = 0) -> list[dict[str, Any]]:
    """The first `rows` rows of a level, about as many companies as it takes."""
    companies = map(company_of, count(seed * _COMPANIES_OF_A_SEED))
    found = list(islice((row for each in companies for row in _rows_of(each, level)), ROWS if rows is None else rows))
    Random(f"benchmax crm order {seed}").shuffle(found)
    return found


def _rows_of(company: Company, level: str) -> list[dict[str, Any]]:
    """Different tasks of one company, of all kinds in turn."""
    rng = Random(f"benchmax crm {level} {company.seed}")

    def row(kind: str) -> dict[str, Any] | None:
        drawn = KINDS[kind].draw(company, rng, LEVELS[level].hard)
        return None if drawn is None or drawn.answer is None else _row(kind, drawn, company, level)

    return draw_different(LEVELS[level].kinds, row, lambda each: each["query"], ROWS_OF_A_COMPANY, _TRIES)


def _row(kind: str, drawn: Drawn, company: Company, level: str) -> dict[str, Any]:
    return {
        "task": kind,
        "persona": f"You work for {company.name}.",
        "metadata": {"required": drawn.required},
        "query": drawn.query,
        "answer": [drawn.answer],
        "reward_metric": drawn.metric,
        "level": level,
        "company": company.seed,
        "facts": drawn.facts,
    }
