"""Tools that read cases, and those that compute with cases they are given."""

from __future__ import annotations

import calendar
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmax.envs.crm.org.base import Org, Row
from benchmax.envs.crm.soql import quoting
from benchmax.envs.crm.tools.arguments import (
    DATE,
    TEXTS,
    read_date,
    read_span,
    record_text,
    record_time,
    rows_with,
    some,
)
from benchmax.envs.crm.tools.registry import BadArgument, tool
from benchmax.envs.generated_tasks import TEXT

Case = Mapping[str, Any]


_FILTERS = {
    "agent_ids": "OwnerId", "case_ids": "Id", "order_item_ids": "OrderItemId__c", "issue_ids": "IssueId__c",
    "statuses": "Status",
}  # fmt: skip
"""Lists of values that cases are looked for by, and the columns that hold them."""


@tool(
    "Cases by any of these filters: created from start_date to before end_date, and so on.",
    optional={"start_date": DATE, "end_date": DATE, **dict.fromkeys(_FILTERS, TEXTS)},
)
async def get_cases(
    org: Org, start_date: str | None = None, end_date: str | None = None, **lists: Sequence[str]
) -> list[Row]:
    conditions = _created(start_date, end_date)
    for name, column in _FILTERS.items():
        if name in lists:
            conditions.append(f"{column} IN {quoting.texts(some(name, lists[name]))}")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return await org.soql(f"SELECT Id, OwnerId, CreatedDate, ClosedDate, AccountId FROM Case{where}")


def _created(start_date: str | None, end_date: str | None) -> list[str]:
    if start_date is not None and end_date is not None:
        read_span(start_date, end_date)
    conditions = []
    if start_date is not None:
        conditions.append(f"CreatedDate >= {quoting.moment(read_date('start_date', start_date))}")
    if end_date is not None:
        conditions.append(f"CreatedDate < {quoting.moment(read_date('end_date', end_date))}")
    return conditions


@tool("The text of a case's live chat, and when it ended.", case_id=TEXT)
async def get_livechat_transcript_by_case_id(org: Org, case_id: str) -> list[Row]:
    return await org.soql(f"SELECT Body, EndTime FROM LiveChatTranscript WHERE CaseId = {quoting.text(case_id)}")


@tool("How many of the cases were created in each month, the years taken together.", cases=rows_with("CreatedDate"))
async def get_month_to_case_count(org: Org, cases: Sequence[Case]) -> dict[str, int]:
    counted = Counter(record_time(case, "CreatedDate").month for case in cases)
    return {calendar.month_name[month]: counted[month] for month in sorted(counted)}


@tool("The cases, each with the ShippingState of its account.", cases=rows_with("AccountId"))
async def get_shipping_state(org: Org, cases: Sequence[Case]) -> list[Row]:
    accounts = some("cases", (record_text(case, "AccountId") for case in cases))
    found = await org.soql(f"SELECT Id, ShippingState FROM Account WHERE Id IN {quoting.texts(accounts)}")
    states = {row["Id"]: row.get("ShippingState") for row in found}
    return [{**case, "ShippingState": states.get(case["AccountId"])} for case in cases]


@tool(
    "Average minutes from creation to closure of the cases of each agent.",
    cases=rows_with("OwnerId", "CreatedDate", "ClosedDate"),
)
async def calculate_average_handle_time(org: Org, cases: Sequence[Case]) -> dict[str, float]:
    return {agent: round(seconds / 60, 2) for agent, seconds in _average_seconds(cases, "OwnerId").items()}


@tool(
    "Average seconds from creation to closure of the cases of each state.",
    cases=rows_with("ShippingState", "CreatedDate", "ClosedDate"),
)
async def calculate_region_average_closure_times(org: Org, cases: Sequence[Case]) -> dict[str, float]:
    if not cases:
        raise BadArgument("cases is empty. Give at least one.")
    return {state: round(seconds, 2) for state, seconds in _average_seconds(cases, "ShippingState").items()}


def _average_seconds(cases: Sequence[Case], column: str) -> dict[str, float]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        took = (record_time(case, "ClosedDate") - record_time(case, "CreatedDate")).total_seconds()
        if took < 0:
            raise BadArgument(
                f"A case was closed ({case['ClosedDate']}) before it was created ({case['CreatedDate']})."
            )
        seconds[record_text(case, column)].append(took)
    return {name: fmean(each) for name, each in seconds.items()}
