"""Tools that search knowledge, and those that let the model write a query of its own."""

from __future__ import annotations

from benchmax.envs.crm.org.base import Org, QueryError, Row
from benchmax.envs.crm.tools.arguments import search_words
from benchmax.envs.crm.tools.registry import tool
from benchmax.envs.generated_tasks import TEXT


@tool("Knowledge articles that have all these words.", search_term=TEXT)
async def search_knowledge_articles(org: Org, search_term: str) -> list[Row]:
    rows = await org.sosl(
        f"FIND {{{search_words(search_term)}}} RETURNING Knowledge__kav(Id, Title, FAQ_Answer__c "
        "WHERE PublishStatus = 'Online' AND Language = 'en_US')"
    )
    return [{"Id": row["Id"], "Title": row.get("Title"), "Content": row.get("FAQ_Answer__c")} for row in rows]


@tool("The rows of a SOQL query of yours.", query=TEXT)
async def issue_soql_query(org: Org, query: str) -> list[Row] | str:
    try:
        return await org.soql(query)
    except QueryError as error:
        return str(error)


@tool("The rows of a SOSL search of yours.", query=TEXT)
async def issue_sosl_query(org: Org, query: str) -> list[Row] | str:
    try:
        return await org.sosl(query)
    except QueryError as error:
        return str(error)
