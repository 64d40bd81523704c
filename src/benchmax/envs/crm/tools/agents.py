"""Tools about agents: which cases they were given and passed on, and who has most or fewest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmax.envs.crm.org.base import Org, Row
from benchmax.envs.crm.soql import quoting
from benchmax.envs.crm.tools.arguments import (
    DATE,
    NUMBERS_BY_ID,
    TEXTS,
    created_in,
    read_span,
    record_text,
    rows_with,
    some,
)
from benchmax.envs.crm.tools.registry import tool

_ASSIGNED = "Field__c = 'Owner Assignment'"


@tool("Ids of the cases that were assigned once, and so never transferred, from start_date to end_date.",
      start_date=DATE, end_date=DATE)  # fmt: skip
async def get_non_transferred_case_ids(org: Org, start_date: str, end_date: str) -> list[str]:
    start, end = read_span(start_date, end_date)
    rows = await org.soql(
        f"SELECT CaseId__c FROM CaseHistory__c WHERE {_ASSIGNED} AND CreatedDate >= {quoting.moment(start)} "
        f"AND CreatedDate <= {quoting.moment(end)} GROUP BY CaseId__c HAVING COUNT(Id) = 1"
    )
    return [row["CaseId__c"] for row in rows]


@tool("How many cases were assigned to each agent from start_date to before end_date.", start_date=DATE, end_date=DATE)
async def get_agent_handled_cases_by_period(org: Org, start_date: str, end_date: str) -> dict[str, int]:
    rows = await org.soql(
        f"SELECT NewValue__c, COUNT_DISTINCT(CaseId__c) cases FROM CaseHistory__c WHERE {_ASSIGNED} "
        f"AND {created_in(start_date, end_date)} AND NewValue__c != null GROUP BY NewValue__c"
    )
    return _counts(rows, "NewValue__c")


@tool(
    "How many cases each agent transferred to another from start_date to before end_date.",
    start_date=DATE,
    end_date=DATE,
    optional={"qualified_agent_ids": TEXTS},
)
async def get_agent_transferred_cases_by_period(
    org: Org, start_date: str, end_date: str, qualified_agent_ids: Sequence[str] | None = None
) -> dict[str, int]:
    created, among = created_in(start_date, end_date), ""
    if qualified_agent_ids is not None:
        among = f" AND OldValue__c IN {quoting.texts(some('qualified_agent_ids', qualified_agent_ids))}"
    rows = await org.soql(
        f"SELECT OldValue__c, COUNT_DISTINCT(CaseId__c) cases FROM CaseHistory__c WHERE {_ASSIGNED} "
        f"AND {created} AND OldValue__c != null{among} GROUP BY OldValue__c"
    )
    return _counts(rows, "OldValue__c")


def _counts(rows: Sequence[Row], column: str) -> dict[str, int]:
    return {row[column]: int(row["cases"]) for row in rows}


@tool("Ids of the agents with more than n_cases.", agent_handled_cases=NUMBERS_BY_ID, n_cases={"type": "integer"})
async def get_qualified_agent_ids_by_case_count(
    org: Org, agent_handled_cases: Mapping[str, float], n_cases: int
) -> list[str]:
    return [agent for agent, count in agent_handled_cases.items() if count > n_cases]


@tool("Ids of the agents with the most of the cases.", subset_cases=rows_with("OwnerId"))
async def get_agents_with_max_cases(org: Org, subset_cases: Sequence[Mapping[str, Any]]) -> list[str]:
    return _with_most(_owned(subset_cases))


@tool("Ids of the agents with the fewest of the cases.", subset_cases=rows_with("OwnerId"))
async def get_agents_with_min_cases(org: Org, subset_cases: Sequence[Mapping[str, Any]]) -> list[str]:
    return _with_most({agent: -count for agent, count in _owned(subset_cases).items()})


@tool("Ids with the largest value; several when they are equal.", values_by_id=NUMBERS_BY_ID)
async def find_id_with_max_value(org: Org, values_by_id: Mapping[str, float]) -> list[str]:
    return _with_most(values_by_id)


@tool("Ids with the smallest value; several when they are equal.", values_by_id=NUMBERS_BY_ID)
async def find_id_with_min_value(org: Org, values_by_id: Mapping[str, float]) -> list[str]:
    return _with_most({name: -value for name, value in values_by_id.items()})


def _owned(cases: Sequence[Mapping[str, Any]]) -> Counter[str]:
    return Counter(record_text(case, "OwnerId") for case in cases)


def _with_most(values: Mapping[str, float]) -> list[str]:
    most = max(values.values(), default=None)
    return [name for name, value in values.items() if value == most]
