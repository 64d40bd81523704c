"""Tasks about customers: what they bought, whose account they belong to, and who ordered most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from benchmax.envs.crm.company import Company
from benchmax.envs.crm.company.words import FAMILIES
from benchmax.envs.crm.soql import quoting
from benchmax.envs.crm.tasks.kinds import Drawn, call, kind
from benchmax.envs.crm.tasks.periods import draw_period, find_dates
from benchmax.envs.generated_tasks import Steps, single_best


def _draw_purchase(company: Company, rng: Random, hard: bool) -> Drawn | None:
    contact = rng.choice(company.table("Contact"))
    orders = {
        row["Id"]: row["EffectiveDate"] for row in company.table("Order")
        if row["AccountId"] == contact["AccountId"] and row["Status"] == "Activated"
    }  # fmt: skip
    products = company.by_id("Product2")
    bought = [
        (orders[item["OrderId"]], products[item["Product2Id"]])
        for item in company.table("OrderItem")
        if item["OrderId"] in orders
    ]
    day, product = rng.choice(bought)
    alike = [other for when, other in bought if when == day and other["Family"] == product["Family"]]
    if len(alike) != 1:
        return None
    noun = FAMILIES[product["Family"]].lower()
    query = f"Contact {contact['Id']} asks about the {noun} bought on {day}. Give the Id of that product."
    return Drawn(query, product["Id"], {"contact": contact["Id"], "noun": noun, "day": day})


@kind("named_entity_disambiguation", _draw_purchase)
def _find_purchase(facts: Mapping[str, Any]) -> Steps:
    account = yield from call("get_account_id_by_contact_id", contact_id=facts["contact"])
    products = yield from call("search_products", search_term=facts["noun"])
    bought = yield from call(
        "get_purchase_history", account_id=account, purchase_date=facts["day"],
        related_product_ids=[product["Id"] for product in products],
    )  # fmt: skip
    return bought[0]["Product2Id"]


def _draw_contact(company: Company, rng: Random, hard: bool) -> Drawn:
    contact = rng.choice(company.table("Contact"))
    query = f"To which account does the contact {contact['Name']} belong? Give the Id of the account."
    return Drawn(query, contact["AccountId"], {"name": contact["Name"]})


@kind("contact_lookup", _draw_contact)
def _find_contact(facts: Mapping[str, Any]) -> Steps:
    search = f'FIND {{"{quoting.search_words(facts["name"])}"}} IN NAME FIELDS RETURNING Contact(AccountId)'
    contacts = yield from call("issue_sosl_query", query=search)
    return contacts[0]["AccountId"]


def _draw_sales(company: Company, rng: Random, hard: bool) -> Drawn:
    period = draw_period(rng, months=rng.choice([1, 3]), hard=hard)
    totals: Counter[str] = Counter()
    for order in company.table("Order"):
        if order["Status"] == "Activated" and period.holds(order["EffectiveDate"]):
            totals[order["AccountId"]] += order["TotalAmount"]
    answer = single_best(totals)
    query = f"Which account's activated orders {period.words} have the largest total amount? Give its Id."
    return Drawn(query, answer, period.facts, period.required)


@kind("sales_amount_understanding", _draw_sales)
def _find_sales(facts: Mapping[str, Any]) -> Steps:
    start, end = yield from find_dates(facts)
    rows = yield from call(
        "issue_soql_query",
        query=(
            "SELECT AccountId, SUM(TotalAmount) total FROM Order WHERE Status = 'Activated' "
            f"AND EffectiveDate >= {start[:10]} AND EffectiveDate < {end[:10]} "
            "GROUP BY AccountId ORDER BY SUM(TotalAmount) DESC LIMIT 1"
        ),
    )
    return rows[0]["AccountId"]
