"""A live Salesforce org, by simple-salesforce.

The login comes from environment variables: `SALESFORCE_USERNAME`, `SALESFORCE_PASSWORD` and
`SALESFORCE_SECURITY_TOKEN`; or `SALESFORCE_SESSION_ID` and `SALESFORCE_INSTANCE_URL`; or `SALESFORCE_CONSUMER_KEY`,
`SALESFORCE_CONSUMER_SECRET` and `SALESFORCE_DOMAIN`. The domain is `test` for a sandbox.

Covered: a few calls at once, each with a deadline; an org that is busy is asked again after the pause that it asks for;
results come page by page, up to the same number of rows as from the embedded org; errors have the codes of Salesforce.
Not covered: the daily limit of calls, which is the org's own; nothing is cached, as records may change.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from benchmax import extras, limits
from benchmax.envs.crm.org.base import QueryError, Row, too_many_rows, without_empty_columns
from benchmax.errors import UsageError
from benchmax.retries import BUSY, pause, retry_after

_LOGINS = (
    ("session_id", "instance_url"),
    ("username", "password", "security_token"),
    ("consumer_key", "consumer_secret", "domain"),
)
T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0


def credentials(variables: Mapping[str, str]) -> dict[str, str]:
    """The arguments of a login that the variables hold; UsageError when they make none."""
    for names in _LOGINS:
        given = {name: value for name in (*names, "domain") if (value := variables.get(f"SALESFORCE_{name.upper()}"))}
        if all(name in given for name in names):
            return given
    ways = "; or ".join(", ".join(f"SALESFORCE_{name.upper()}" for name in names) for names in _LOGINS)
    raise UsageError(f"No Salesforce org can be asked without a login. Set {ways}.")


class SalesforceOrg:
    """The records of a live org, to be queried."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        extras.require("A live Salesforce org", "envs")
        self._login = credentials(os.environ if variables is None else variables)
        self._threads = ThreadPoolExecutor(limits.CRM_LIVE_CALLS, thread_name_prefix="benchmax-crm")
        self._lock = threading.Lock()
        self._client: Any = None

    async def open(self) -> None:
        """Log in; UsageError when that fails."""
        await self._in_thread(self._connected)

    async def soql(self, query: str) -> list[Row]:
        return await self._in_thread(lambda: self._asked(self._query, query))

    async def sosl(self, query: str) -> list[Row]:
        return await self._in_thread(lambda: self._asked(self._search, query))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    # All below runs in threads.

    def _connected(self) -> Any:
        from simple_salesforce.api import Salesforce
        from simple_salesforce.exceptions import SalesforceError

        with self._lock:
            if self._client is None:
                try:
                    self._client = Salesforce(**self._login, session=_session())
                except SalesforceError as error:
                    raise UsageError(f"Salesforce refuses the login: {_refusal(error)} Check its variables.") from None
                except OSError as error:
                    problem = type(error).__name__
                    raise UsageError(f"Salesforce cannot be reached: {problem}. Try again later.") from None
        return self._client

    def _asked(self, ask: Callable[[Any, str], list[Row]], query: str) -> list[Row]:
        from simple_salesforce.exceptions import SalesforceError

        if len(query) > limits.CRM_QUERY_CHARS:
            raise QueryError("QUERY_TOO_LONG", f"A query has at most {limits.CRM_QUERY_CHARS:,} characters.")
        try:
            return without_empty_columns(map(_plain, ask(self._connected(), query)))
        except SalesforceError as error:
            raise _refusal(error) from None
        except OSError as error:  # of requests, which may name the address
            raise QueryError("SERVER_UNAVAILABLE", f"The org does not answer ({type(error).__name__}).") from None

    @staticmethod
    def _query(client: Any, query: str) -> list[Row]:
        page = client.query(query)
        rows: list[Row] = list(page["records"])
        if not rows and page.get("totalSize"):  # SELECT COUNT()
            return [{"expr0": page["totalSize"]}]
        while not page["done"] and len(rows) <= limits.CRM_QUERY_ROWS:
            page = client.query_more(page["nextRecordsUrl"], identifier_is_url=True)
            rows += page["records"]
        if len(rows) > limits.CRM_QUERY_ROWS:
            raise too_many_rows()
        return rows

    @staticmethod
    def _search(client: Any, query: str) -> list[Row]:
        found = client.search(query) or {}
        return list(found.get("searchRecords") or ())


def _plain(value: Any) -> Any:
    """A value of the API without `attributes`, and a subquery's result as a list."""
    if not isinstance(value, Mapping):
        return value
    if "records" in value:
        return [_plain(each) for each in value["records"] or ()]
    return {name: _plain(each) for name, each in value.items() if name != "attributes"}


def _refusal(error: Any) -> QueryError:
    """What Salesforce answered, without the address that was asked."""
    content = error.content
    first = content[0] if isinstance(content, list) and content else content
    if isinstance(first, Mapping) and "message" in first:
        return QueryError(str(first.get("errorCode") or error.status), str(first["message"]))
    code = getattr(error, "code", None) or "SERVER_UNAVAILABLE"
    return QueryError(str(code), f"Salesforce answered with status {error.status}.")


def _session() -> Any:
    """A session of requests whose calls have a deadline, and are made again when the org is busy."""
    import requests
    from requests.adapters import HTTPAdapter

    class Session(requests.Session):  # type: ignore[misc]
        def send(self, request: Any, **options: Any) -> Any:
            options["timeout"] = options.get("timeout") or limits.CRM_LIVE_SECONDS
            for attempt in range(1, limits.CRM_LIVE_TRIES):
                try:
                    response = super().send(request, **options)
                    over = response.status_code == 403 and b"REQUEST_LIMIT_EXCEEDED" in response.content
                    if response.status_code not in BUSY and not over:
                        return response
                    asked = retry_after(response.headers)
                except requests.ConnectionError:
                    asked = None
                wait = pause(attempt, _FIRST_PAUSE, _LONGEST_PAUSE, asked)
                time.sleep(min(wait, limits.CRM_LIVE_SECONDS))
            return super().send(request, **options)

    session = Session()
    session.mount("https://", HTTPAdapter(pool_maxsize=limits.CRM_LIVE_CALLS))
    return session
