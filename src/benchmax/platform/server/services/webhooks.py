"""Sends queued messages to webhooks: signed as standardwebhooks.com has it, to checked and pinned addresses.

Covered: addresses inside the network (`models.address_rules`), names that resolve to another machine later, redirects
(reported, not followed), answers of any size (not read), receivers that hang, a server that dies in between. Not
covered: order, and messages that arrive twice, with the same id.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp
import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from benchmax import limits
from benchmax.errors import BenchmaxError, UsageError
from benchmax.models.address_rules import AddressRules, pin
from benchmax.models.http import proxy_for
from benchmax.platform.store.accounts import webhooks
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.accounts.webhooks import Outcome
from benchmax.platform.store.database import Database
from benchmax.platform.store.tables import Delivery, Secret, Webhook
from benchmax.retries import BUSY, TEMPORARY

log = structlog.get_logger("benchmax.server")

LOOK_SECONDS = 1.0
"""Between two looks for what waits."""
AT_ONCE = 8
"""Attempts going on at the same time."""


class Sender:
    """Sends what waits, as long as it runs."""

    def __init__(self, database: Database, vault: Vault, rules: AddressRules, base_url: str) -> None:
        self._database = database
        self._vault = vault
        self._rules = rules
        self._base_url = base_url

    async def run(self) -> None:
        """Send until cancelled. When the database is unreachable, try again later."""
        while True:
            try:
                busy = await self.send_due()
            except SQLAlchemyError as error:
                log.warning("webhooks not looked up", error=str(getattr(error, "orig", error)))
                busy = False
            if not busy:
                await asyncio.sleep(LOOK_SECONDS)

    async def send_due(self) -> bool:
        """Make one attempt for each message that can be sent now; False when there was none."""
        taken = await run_in_threadpool(self._take)
        outcomes = await asyncio.gather(*(self._attempt(*each) for each in taken))
        if taken:
            await run_in_threadpool(self._settle, dict(zip((each[0].id for each in taken), outcomes, strict=True)))
        return bool(taken)

    def _take(self) -> list[tuple[Delivery, str, str]]:
        """Messages that this sender claimed, each with the address and the secret."""
        with self._database.read() as db:
            found = webhooks.due(db, AT_ONCE)
        if not found:
            return []
        with self._database.write() as db:
            mine = [delivery for delivery in found if webhooks.claim(db, delivery)]
            rows = [db.get_one(Webhook, delivery.webhook_id) for delivery in mine]
            return [(each, row.url, self._secret(db, row)) for each, row in zip(mine, rows, strict=True)]

    def _secret(self, db: Session, row: Webhook) -> str:
        """Empty for a secret that cannot be read any more: nothing is sent unsigned."""
        secret = db.get(Secret, row.secret_id) if row.secret_id else None
        try:
            return "" if secret is None else self._vault.reveal(secret)
        except UsageError:
            return ""

    def _settle(self, outcomes: Mapping[int, Outcome]) -> None:
        with self._database.write() as db:
            for delivery_id, outcome in outcomes.items():
                webhooks.settle(db, delivery_id, outcome)

    async def _attempt(self, delivery: Delivery, url: str, secret: str) -> Outcome:
        if not secret:
            return Outcome(None, "Its signing secret cannot be read. Remove this webhook and add it again.", final=True)
        body = self._body(delivery)
        try:
            async with asyncio.timeout(limits.WEBHOOK_SECONDS):
                return _outcome(await self._post(url, body, signed_headers(secret, f"msg_{delivery.id}", body)))
        except TimeoutError:
            return Outcome(None, f"No answer within {limits.WEBHOOK_SECONDS:g} s.")
        except BenchmaxError as error:
            return Outcome(None, str(error))
        except (aiohttp.ClientError, OSError) as error:
            return Outcome(None, f"It cannot be reached: {_reason(error)}.")

    def _body(self, delivery: Delivery) -> bytes:
        message: dict[str, Any] = dict(delivery.payload)
        message["timestamp"] = datetime.fromtimestamp(delivery.created, UTC).isoformat(timespec="milliseconds")
        if delivery.run_id:
            message["data"] = {**message["data"], "url": f"{self._base_url}/experiments/{delivery.run_id}"}
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> int:
        """The status of the answer; its body is not read."""
        resolver = await pin(url, self._rules)
        proxy = proxy_for(url)
        connector = aiohttp.TCPConnector(resolver=None if proxy else resolver, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), proxy=proxy) as client,
            client.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            return response.status


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientSSLError):
        return "its certificate is not valid, or it does not speak TLS"
    number = getattr(getattr(error, "os_error", error), "errno", None) or 0
    return os.strerror(number) if number > 0 else type(error).__name__


def signed_headers(secret: str, message_id: str, body: bytes) -> dict[str, str]:
    """The headers of a message; the signature covers its id, its time and its body."""
    now = str(int(time.time()))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = hmac.new(key, f"{message_id}.{now}.".encode() + body, hashlib.sha256).digest()
    return {
        "Content-Type": "application/json",
        "User-Agent": "benchmax",
        "webhook-id": message_id,
        "webhook-timestamp": now,
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def _outcome(status: int) -> Outcome:
    if 200 <= status < 300:
        return Outcome(status)
    if 300 <= status < 400:
        return Outcome(
            status, "It answered with a redirect, which is not followed. Give the final address.", final=True
        )
    final = status < 500 and status not in BUSY | TEMPORARY
    return Outcome(status, f"It answered {status}.", final)
