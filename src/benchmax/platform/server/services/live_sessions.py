"""The server's side of a live session: open one, wait until it is ready, and pass its events on.

The server opens no bundle; it only names it and receives JSON. When the reader of a stream disconnects, the connection
to the live session closes, which stops what was under way there.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool

from benchmax.config import setting
from benchmax.errors import BenchmaxError
from benchmax.net import sse
from benchmax.platform.server.settings import ServerSettings
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.queue import live_sessions
from benchmax.platform.store.queue.live_sessions import MESSAGE_BYTES, SessionFolder

POLL_SECONDS = 0.1
NOBODY_SECONDS = 20.0
"""For a runner to start a live session."""
ALIVE_SECONDS = 10.0
"""A reader receives something at least this often."""
ROLLOUT_IDLE_SECONDS = 120.0
CHAT_IDLE_SECONDS = 600.0
MODEL_IDLE_SECONDS = 300.0

Event = dict[str, Any]


class SessionBroken(BenchmaxError):
    """A live session cannot be reached, or broke off; the message says why."""

    def __init__(self, words: str, *, begun: bool) -> None:
        super().__init__(words)
        self.begun = begun
        """Whether an event had come before."""


class LiveSessionClient:
    """Opens live sessions, and finds those that can be used again."""

    def __init__(self, data: DataDir) -> None:
        self._data = data
        self._shared: dict[tuple[str, str], SessionFolder] = {}
        """By owner and by the bundle or model that is open; a model has no owner."""
        self._lock = threading.Lock()

    def for_rollouts(self, owner_id: str, digest: str, files: Mapping[str, Path | bytes]) -> SessionFolder:
        """A live session with this bundle open: the owner's last one, or another."""
        asked = {"kind": "rollout", "owner_id": owner_id, "idle_seconds": ROLLOUT_IDLE_SECONDS}
        return self._open((owner_id, digest), {**asked, "files": {name: name for name in files}}, files)

    def for_model(self, name: str) -> SessionFolder:
        """A live session with this model of the machine loaded, shared by all users."""
        asked = {"kind": "model", "owner_id": "", "idle_seconds": MODEL_IDLE_SECONDS, "model": name, "files": {}}
        return self._open(("", name), asked, {})

    def _open(self, key: tuple[str, str], asked: Mapping[str, Any], files: Mapping[str, Path | bytes]) -> SessionFolder:
        with self._lock:
            self._shared = {known: each for known, each in self._shared.items() if each.status != "ended"}
            if key not in self._shared:
                self._shared[key] = live_sessions.create(self._data, asked, files)
            return self._shared[key]

    def forget(self, folder: SessionFolder) -> None:
        """Do not reuse a live session that does not answer."""
        with self._lock:
            self._shared = {key: each for key, each in self._shared.items() if each.id != folder.id}

    async def ask(
        self, find: Callable[[], SessionFolder], request: Mapping[str, Any]
    ) -> AsyncGenerator[Event | None, None]:
        """The events of a live session that others may use too; of a new one, if the first was about to end."""
        for final in (False, True):
            folder = await run_in_threadpool(find)
            used = folder.status == "ready"
            try:
                async with aclosing(session_events(folder, request)) as said:
                    async for event in said:
                        yield event
                return
            except SessionBroken as broken:
                self.forget(folder)
                if broken.begun or final or not used:
                    raise

    def for_chat(self, owner_id: str, asked: Mapping[str, Any]) -> SessionFolder:
        own = {"kind": "chat", "owner_id": owner_id, "idle_seconds": CHAT_IDLE_SECONDS}
        return live_sessions.create(self._data, {**asked, **own})


async def session_events(folder: SessionFolder, request: Mapping[str, Any]) -> AsyncGenerator[Event | None, None]:
    """The events of a live session; None now and then while there is none. SessionBroken when it cannot be reached."""
    began = time.monotonic()
    while folder.status == "starting":
        if not folder.was_begun and time.monotonic() - began > NOBODY_SECONDS:
            folder.ask_to_end("No runner took it.")
            raise SessionBroken(
                "There is no runner to open the session. Start the platform with `benchmax up`.", begun=False
            )
        await asyncio.sleep(POLL_SECONDS)
        yield None
    if folder.status == "ended":
        raise SessionBroken(folder.reason, begun=False)
    begun = False
    try:
        with folder.socket_path() as path:
            reader, writer = await asyncio.open_unix_connection(path, limit=MESSAGE_BYTES)
        try:
            writer.write(json.dumps({**request, "token": folder.note("ready")["token"]}).encode() + b"\n")
            while (line := await _line(reader)) != b"":
                yield None if line is None else json.loads(line)
                begun = begun or line is not None
        finally:
            writer.close()
    except (OSError, ValueError, KeyError) as error:
        raise SessionBroken(f"The session's process cannot be reached: {error}. Try again.", begun=begun) from None
    if not begun:
        raise SessionBroken(await _why_gone(folder), begun=False)


async def _line(reader: asyncio.StreamReader) -> bytes | None:
    """The next line; None when none came for a while, empty at the end."""
    try:
        line = await asyncio.wait_for(reader.readline(), ALIVE_SECONDS)
    except TimeoutError:
        return None
    return line if line.endswith(b"\n") else b""


async def _why_gone(folder: SessionFolder) -> str:
    """Why a live session ended; the runner writes it a moment later."""
    for _ in range(int(2 / POLL_SECONDS)):
        if folder.status == "ended":
            break
        await asyncio.sleep(POLL_SECONDS)
    return folder.reason if folder.status == "ended" else "The session gave no answer. Try again."


async def encoded(
    said: AsyncGenerator[Event | None, None], last: Collection[str], failed: Callable[[str, bool], Event]
) -> AsyncIterator[bytes]:
    """The events of a live session as they come, and a comment now and then while there is none. One that breaks off
    before one of the `last` events ends with what `failed` makes of the reason, and of whether anything came before."""
    ended, sent = False, time.monotonic()
    try:
        async with aclosing(said):
            async for event in said:
                if event is not None:
                    ended = ended or event["event"] in last
                    yield sse.event(event)
                elif time.monotonic() - sent < ALIVE_SECONDS:
                    continue
                else:
                    yield sse.ALIVE
                sent = time.monotonic()
        if not ended:
            yield sse.event(failed("The session broke off. Try again.", True))
    except SessionBroken as broken:
        yield sse.event(failed(str(broken), broken.begun))


def reach_of(settings: ServerSettings) -> dict[str, Any]:
    """Which addresses models may be called at: private ones too where only this machine's user can ask."""
    own = settings.is_loopback and not settings.allowed_hosts and not settings.public_url
    named = [host.strip().lower() for host in setting("ENDPOINT_HOSTS").split(",") if host.strip()]
    return {"private": own, "hosts": named}
