"""A live org: the same tools over Salesforce's API, its errors, its limits, and its login."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmax import extras, limits
from benchmax.envs.crm.crm_env import CRMEnvInProcess
from benchmax.envs.crm.org import salesforce
from benchmax.envs.crm.org.base import QueryError
from benchmax.envs.crm.org.embedded import org_of
from benchmax.envs.crm.org.salesforce import SalesforceOrg
from benchmax.envs.crm.tasks import KINDS, make_rows
from benchmax.envs.crm.tools import call_tool
from benchmax.errors import EnvDefinitionError, UsageError
from salesforce_world import SalesforceServer, problem, salesforce_server


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SalesforceServer, Path]]:
    with salesforce_server(org_of(0), tmp_path_factory.mktemp("salesforce")) as found:
        yield found


@pytest.fixture
def server(running: tuple[SalesforceServer, Path], monkeypatch: pytest.MonkeyPatch) -> SalesforceServer:
    found, certificate = running
    found.asked, found.failures, found.gate, found.most_inside = [], [], None, 0
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    monkeypatch.setattr(salesforce, "_FIRST_PAUSE", 0.01)
    return found


@pytest.fixture
def org(server: SalesforceServer) -> Iterator[SalesforceOrg]:
    found = SalesforceOrg(server.variables)
    yield found
    found.close()


async def test_every_kind_of_task_is_solved_on_a_live_org(org):
    rows = [row for row in make_rows("reports", rows=40) if row["company"] == 0]
    assert {row["task"] for row in rows} == set(KINDS)
    for row in rows:
        solution: Any = KINDS[row["task"]].solve(row["facts"])
        result, answer = None, None
        while answer is None:
            try:
                name, arguments = solution.send(result)
            except StopIteration as end:
                answer = end.value
            else:
                result = await call_tool(org, name, arguments)
        assert [answer] == row["answer"]


async def test_pages_are_joined_and_counts_read(org, server):
    rows = await org.soql("SELECT Id, ContactId, Account.Name FROM Case WHERE CreatedDate > 2022-01-01T00:00:00Z")
    assert rows == await server.org.soql(
        "SELECT Id, ContactId, Account.Name FROM Case WHERE CreatedDate > 2022-01-01T00:00:00Z"
    )
    assert len(server.asked) == -(-len(rows) // 50) > 3
    assert await org.soql("SELECT COUNT() FROM Case") == [{"expr0": 720}]
    assert await org.soql("SELECT Id FROM Case WHERE Id = 'none'") == []
    with pytest.raises(QueryError, match="OPERATION_TOO_LARGE"):
        await org.soql("SELECT Id FROM CaseHistory__c LIMIT 2001")


async def test_refused_queries_have_their_code(org):
    assert (await call_tool(org, "issue_soql_query", {"query": "SELECT Nope FROM Case"})).startswith("INVALID_FIELD: ")
    assert (await call_tool(org, "issue_sosl_query", {"query": "Alma"})).startswith("MALFORMED_SEARCH: ")


@pytest.mark.parametrize(
    "busy",
    [
        (503, {"Retry-After": "0.01"}, "<html>maintenance</html>"), (429, {}, "slow down"),
        (403, {}, problem("REQUEST_LIMIT_EXCEEDED", "ConcurrentRequests Limit exceeded.")),
    ],
)  # fmt: skip
async def test_a_busy_org_is_asked_again(org, server, busy):
    server.failures = [busy, busy]
    assert await org.soql("SELECT COUNT() FROM Case") == [{"expr0": 720}]
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ((503, {}, "<html>"), "SERVER_UNAVAILABLE"),
        ((403, {}, problem("REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded.")), "REQUEST_LIMIT_EXCEEDED"),
    ],
)
async def test_one_that_stays_busy_is_told_after_some_tries(org, server, failure, code):
    server.failures = [failure] * 20
    with pytest.raises(QueryError) as caught:
        await org.soql("SELECT Id FROM Case")
    assert caught.value.code == code
    assert server.url not in str(caught.value)
    assert len(server.asked) == limits.CRM_LIVE_TRIES


async def test_only_a_few_calls_are_made_at_once(org, server):
    await org.soql("SELECT COUNT() FROM Case")
    server.gate = threading.Barrier(limits.CRM_LIVE_CALLS)  # each waits for the others: all of them are inside
    await asyncio.gather(*(org.soql("SELECT COUNT() FROM Case") for _ in range(4 * limits.CRM_LIVE_CALLS)))
    assert server.most_inside == limits.CRM_LIVE_CALLS


async def test_a_refused_or_missing_login_is_told_without_secrets(server):
    with pytest.raises(UsageError, match="SALESFORCE_USERNAME"):
        SalesforceOrg({"SALESFORCE_PASSWORD": "hunter2"})
    expired = SalesforceOrg({**server.variables, "SALESFORCE_SESSION_ID": "stale-secret"})
    with pytest.raises(QueryError, match="INVALID_SESSION_ID") as caught:
        await expired.soql("SELECT COUNT() FROM Case")
    assert "stale-secret" not in str(caught.value)
    expired.close()


async def test_the_environment_asks_the_org_of_its_variables(server, monkeypatch):
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    env = CRMEnvInProcess(level="reports", org="salesforce")
    await env.init_rollout("r")
    assert json.loads(await env.run_tool("r", "get_issues")) == await server.org.soql("SELECT Id, Name FROM Issue__c")
    with pytest.raises(EnvDefinitionError, match="--data"):
        await env.init_rollout("r2", company=0, level="reports")
    await env.shutdown()


def test_without_its_package_the_command_is_told(monkeypatch):
    monkeypatch.setitem(extras.MODULES, "envs", ("no_such_package",))
    with pytest.raises(UsageError, match=re.escape(extras.install("envs"))):
        SalesforceOrg({})
