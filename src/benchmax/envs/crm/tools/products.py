"""Tools about products, orders and issues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from benchmax.envs.crm.org.base import Org, Row
from benchmax.envs.crm.soql import quoting
from benchmax.envs.crm.tools.arguments import DATE, TEXTS, created_in, read_date, search_words, some
from benchmax.envs.crm.tools.registry import BadArgument, tool
from benchmax.envs.generated_tasks import TEXT


@tool("Products whose name or description has all these words.", search_term=TEXT)
async def search_products(org: Org, search_term: str) -> list[Row]:
    return await org.sosl(f"FIND {{{search_words(search_term)}}} RETURNING Product2(Id, Name, Description)")


@tool("The account that a contact belongs to; null when there is none.", contact_id=TEXT)
async def get_account_id_by_contact_id(org: Org, contact_id: str) -> str | None:
    rows = await org.soql(f"SELECT AccountId FROM Contact WHERE Id = {quoting.text(contact_id)}")
    return rows[0].get("AccountId") if rows else None


@tool(
    "Which of the products an account bought on a day.",
    account_id=TEXT,
    purchase_date={"type": "string", "description": "such as 2021-05-01 or 2021-05-01T00:00:00Z"},
    related_product_ids=TEXTS,
)
async def get_purchase_history(
    org: Org, account_id: str, purchase_date: str, related_product_ids: Sequence[str]
) -> list[Row]:
    products = some("related_product_ids", related_product_ids)
    return await org.soql(
        f"SELECT Product2Id FROM OrderItem WHERE Order.AccountId = {quoting.text(account_id)} "
        f"AND Order.EffectiveDate = {_day(purchase_date).isoformat()} AND Order.Status = 'Activated' "
        f"AND Product2Id IN {quoting.texts(products)}"
    )


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text) if len(text) == 10 else read_date("purchase_date", text).date()
    except ValueError:
        raise BadArgument(f"purchase_date must be written like 2021-05-01, not {text[:60]!r}.") from None


@tool("Ids of the order items in which a product was sold.", product_id=TEXT)
async def get_order_item_ids_by_product(org: Org, product_id: str) -> list[str]:
    rows = await org.soql(f"SELECT Id FROM OrderItem WHERE Product2Id = {quoting.text(product_id)}")
    return [row["Id"] for row in rows]


@tool("All issues that a case may be about.")
async def get_issues(org: Org) -> list[Row]:
    return await org.soql("SELECT Id, Name FROM Issue__c")


@tool(
    "How many cases about these order items had each issue, created from start_date to before end_date; most first.",
    start_date=DATE,
    end_date=DATE,
    order_item_ids=TEXTS,
)
async def get_issue_counts(org: Org, start_date: str, end_date: str, order_item_ids: Sequence[str]) -> dict[str, int]:
    created, items = created_in(start_date, end_date), some("order_item_ids", order_item_ids)
    rows = await org.soql(
        f"SELECT IssueId__c, COUNT(Id) cases FROM Case WHERE {created} AND OrderItemId__c IN {quoting.texts(items)} "
        "AND IssueId__c != null GROUP BY IssueId__c ORDER BY COUNT(Id) DESC"
    )
    return {row["IssueId__c"]: int(row["cases"]) for row in rows}
