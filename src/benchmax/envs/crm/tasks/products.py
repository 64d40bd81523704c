"""Tasks about products: their most frequent issue, and the month in which most went wrong."""

from __future__ import annotations

import calendar
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from benchmax.envs.crm.company import Company
from benchmax.envs.crm.org.base import Row
from benchmax.envs.crm.tasks.kinds import Drawn, call, kind
from benchmax.envs.crm.tasks.periods import Period, a_year, draw_period, find_dates
from benchmax.envs.generated_tasks import Steps, single_best


def _cases_about(company: Company, product: str, period: Period) -> Iterator[Row]:
    """The cases of a period that are about a product."""
    sold = {item["Id"] for item in company.table("OrderItem") if item["Product2Id"] == product}
    return (
        case for case in company.table("Case") if case["OrderItemId__c"] in sold and period.holds(case["CreatedDate"])
    )


def _order_items(name: str) -> Steps:
    """The order items in which the product of a name was sold."""
    products = yield from call("search_products", search_term=name)
    product = next(each["Id"] for each in products if each["Name"] == name)
    return (yield from call("get_order_item_ids_by_product", product_id=product))


def _draw_issue(company: Company, rng: Random, hard: bool) -> Drawn:
    product = rng.choice(company.table("Product2"))
    period = draw_period(rng, months=3, hard=hard) if hard else a_year(rng.choice([2021, 2022]))
    answer = single_best(Counter(case["IssueId__c"] for case in _cases_about(company, product["Id"], period)))
    query = f"Which issue do most cases about the {product['Name']} have that were created {period.words}? Give its Id."
    facts = {"product": product["Name"], **period.facts}
    return Drawn(query, answer, facts, period.required)


@kind("top_issue_identification", _draw_issue)
def _find_issue(facts: Mapping[str, Any]) -> Steps:
    items = yield from _order_items(facts["product"])
    start, end = yield from find_dates(facts)
    counts = yield from call("get_issue_counts", start_date=start, end_date=end, order_item_ids=items)
    return next(iter(counts))


def _draw_month(company: Company, rng: Random, hard: bool) -> Drawn:
    product = rng.choice(company.table("Product2"))
    period = a_year(rng.choice([2021, 2022]))
    months = Counter(int(case["CreatedDate"][5:7]) for case in _cases_about(company, product["Id"], period))
    answer = single_best({calendar.month_name[month]: count for month, count in months.items()})
    query = f"In which month of {period.start.year} were most cases about the {product['Name']} created? Give its name."
    return Drawn(query, answer, {"product": product["Name"], **period.facts})


@kind("monthly_trend_analysis", _draw_month)
def _find_month(facts: Mapping[str, Any]) -> Steps:
    items = yield from _order_items(facts["product"])
    start, end = yield from find_dates(facts)
    cases = yield from call("get_cases", start_date=start, end_date=end, order_item_ids=items)
    months = yield from call("get_month_to_case_count", cases=cases)
    return (yield from call("find_id_with_max_value", values_by_id=months))[0]
