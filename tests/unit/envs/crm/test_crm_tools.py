"""The 25 tools: what each returns, and what they say to arguments that make no sense."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from benchmax.envs.crm.company import company_of
from benchmax.envs.crm.org.embedded import org_of
from benchmax.envs.crm.tools import TOOLS, call_tool

COMPANY = company_of(0)
ORG = org_of(0)
CASES = COMPANY.table("Case")
MAY = {"start_date": "2022-05-01T00:00:00Z", "end_date": "2022-06-01T00:00:00Z"}
NAMES = (
    "get_cases get_non_transferred_case_ids get_agent_handled_cases_by_period get_agent_transferred_cases_by_period "
    "get_livechat_transcript_by_case_id get_qualified_agent_ids_by_case_count get_agents_with_max_cases "
    "get_agents_with_min_cases calculate_average_handle_time get_shipping_state calculate_region_average_closure_times "
    "get_start_date get_period get_month_to_case_count search_products get_purchase_history get_issues "
    "get_issue_counts get_order_item_ids_by_product search_knowledge_articles get_account_id_by_contact_id "
    "find_id_with_max_value find_id_with_min_value issue_soql_query issue_sosl_query"
)


async def ask(name: str, **arguments: Any) -> Any:
    text = await call_tool(ORG, name, arguments)
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_exactly_the_25_tools():
    assert set(TOOLS) == set(NAMES.split())
    assert len(TOOLS) == 25


async def test_cases_by_every_filter():
    inside = [case for case in CASES if "2022-05" <= case["CreatedDate"] < "2022-06"]
    rows = await ask("get_cases", **MAY)
    assert {row["Id"] for row in rows} == {case["Id"] for case in inside}
    assert set(rows[0]) >= {"OwnerId", "CreatedDate", "AccountId"}
    one = inside[0]
    filters = {"agent_ids": "OwnerId", "case_ids": "Id", "order_item_ids": "OrderItemId__c", "issue_ids": "IssueId__c"}
    for name, column in {**filters, "statuses": "Status"}.items():
        rows = await ask("get_cases", **MAY, **{name: [one[column], "nothing"]})
        assert {row["Id"] for row in rows} == {case["Id"] for case in inside if case[column] == one[column]}


async def test_the_end_is_exclusive_for_cases_and_inclusive_for_transfers():
    case = CASES[5]
    moment = case["CreatedDate"].replace(".000+0000", "Z")
    assert await ask("get_cases", case_ids=[case["Id"]], end_date=moment) == []
    [assigned] = [
        row for row in COMPANY.table("CaseHistory__c")
        if row["CaseId__c"] == case["Id"] and row["Field__c"] == "Owner Assignment"
    ][:1]  # fmt: skip
    at = assigned["CreatedDate"].replace(".000+0000", "Z")
    assert await ask("get_non_transferred_case_ids", start_date=at, end_date=at) == [case["Id"]]
    assert await ask("get_agent_handled_cases_by_period", start_date=at, end_date=at) == {}


@pytest.mark.parametrize(
    ("end", "period", "count", "start"),
    [
        ("2022-05-31", "month", 3, "2022-02-28"), ("2024-03-31", "month", 1, "2024-02-29"),
        ("2022-01-15", "quarter", 1, "2021-10-15"), ("2022-03-01", "day", 1, "2022-02-28"),
        ("2022-03-01", "week", 2, "2022-02-15"), ("2022-03-01", "week", 0, "2022-03-01"),
    ],
)  # fmt: skip
async def test_dates_are_counted_back_by_the_calendar(end, period, count, start):
    found = await ask("get_start_date", end_date=f"{end}T00:00:00Z", period=period, interval_count=count)
    assert found == f"{start}T00:00:00Z"


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [("May", "2022-05-01", "2022-06-01"), ("Q4", "2022-10-01", "2023-01-01"), ("Winter", "2022-12-01", "2023-03-01")],
)
async def test_periods_end_on_the_first_day_after(name, start, end):
    assert await ask("get_period", period_name=name, year=2022) == {
        "start_date": f"{start}T00:00:00Z", "end_date": f"{end}T00:00:00Z",
    }  # fmt: skip


async def test_ties_are_all_named_and_more_than_is_strict():
    assert await ask("find_id_with_max_value", values_by_id={"a": 2, "b": 3, "c": 3}) == ["b", "c"]
    assert await ask("find_id_with_min_value", values_by_id={}) == []
    assert await ask("get_qualified_agent_ids_by_case_count", agent_handled_cases={"a": 2, "b": 3}, n_cases=2) == ["b"]
    owned = [{"OwnerId": name} for name in "aabbc"]
    assert await ask("get_agents_with_max_cases", subset_cases=owned) == ["a", "b"]
    assert await ask("get_agents_with_min_cases", subset_cases=owned) == ["c"]


async def test_times_in_minutes_and_seconds():
    case = {"OwnerId": "a", "ShippingState": "CA", "CreatedDate": "2022-05-01T09:00:00.000+0000"}
    cases = [{**case, "ClosedDate": f"2022-05-01T09:{minute}:00.000+0000"} for minute in (10, 20)]
    assert await ask("calculate_average_handle_time", cases=cases) == {"a": 15.0}
    assert await ask("calculate_region_average_closure_times", cases=cases) == {"CA": 900.0}
    assert await ask("get_month_to_case_count", cases=cases) == {"May": 2}
    early = [{**case, "ClosedDate": "2022-04-01T09:00:00.000+0000"}]
    assert "before it was created" in await ask("calculate_average_handle_time", cases=early)


async def test_only_published_english_articles_are_found():
    drafts = [
        row for row in COMPANY.table("Knowledge__kav") if (row["PublishStatus"], row["Language"]) != ("Online", "en_US")
    ]
    assert drafts
    for row in drafts:
        found = await ask("search_knowledge_articles", search_term=row["Title"])
        assert [each["Title"] for each in found] == [row["Title"]]
        assert found[0]["Content"] != row["FAQ_Answer__c"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get_cases", {"start_date": "May"}),
        ("get_cases", {"start_date": MAY["end_date"], "end_date": MAY["start_date"]}),
        ("get_cases", {"agent_ids": []}),
        ("get_cases", {"agent_ids": "x"}),
        ("get_cases", {"limit": 3}),
        ("get_start_date", {"end_date": "2022-05-01T00:00:00Z", "period": "year", "interval_count": 1}),
        ("get_start_date", {"end_date": "2022-05-01T00:00:00Z", "period": "day", "interval_count": -1}),
        ("get_start_date", {"end_date": "2022-05-01T00:00:00Z", "period": "day", "interval_count": 10**9}),
        ("get_period", {"period_name": "Q5", "year": 2022}),
        ("get_period", {"period_name": "Winter", "year": 9999}),
        ("search_products", {"search_term": "  "}),
        ("get_issue_counts", {**MAY, "order_item_ids": []}),
        ("get_shipping_state", {"cases": [{}]}),
        ("calculate_region_average_closure_times", {"cases": []}),
        ("find_id_with_max_value", {"values_by_id": {"a": "many"}}),
        ("get_issues", {"all": True}),
        ("drop_table", {}),
    ],
)
async def test_arguments_that_make_no_sense_are_told(name, arguments):
    assert str(await ask(name, **arguments)).startswith("Error: ")


async def test_an_empty_list_is_told_by_its_name():
    assert (
        await ask("get_issue_counts", **MAY, order_item_ids=[]) == "Error: order_item_ids is empty. Give at least one."
    )


async def test_errors_of_own_queries_have_the_codes_of_salesforce():
    assert (await ask("issue_soql_query", query="SELECT Nope FROM Case")).startswith("INVALID_FIELD: ")
    assert (await ask("issue_sosl_query", query="FIND Alma")).startswith("MALFORMED_SEARCH: ")


async def test_no_argument_is_more_than_a_value():
    """Texts with every sign of the query languages go through every text argument, and find nothing."""
    rng = random.Random(0)
    for _ in range(200):
        text = "x'" + "".join(rng.choice("') OR(Id!=null\\\"{}%_-;") for _ in range(12))
        assert await ask("get_account_id_by_contact_id", contact_id=text) is None
        assert await ask("get_livechat_transcript_by_case_id", case_id=text) == []
        assert await ask("get_order_item_ids_by_product", product_id=text) == []
        assert await ask("get_cases", agent_ids=[text]) == []
        assert await ask("search_products", search_term=f"zzzz{text}") == []


@pytest.mark.parametrize("name", sorted(NAMES.split()))
async def test_random_arguments_never_raise(name):
    rng = random.Random(name)
    junk = [None, 1, -1.5, "", "x", [], ["x"], {}, {"a": 1}, [{"OwnerId": 5}], "2022-05-01T00:00:00Z", True, [[]]]
    properties = list((TOOLS[name].definition.input_schema or {})["properties"]) or ["x"]
    for _ in range(60):
        given = {each: rng.choice(junk) for each in properties if rng.random() < 0.8}
        assert isinstance(await call_tool(ORG, name, given), str)
