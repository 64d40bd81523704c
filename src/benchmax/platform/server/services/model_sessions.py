"""Model sessions: each a model behind an address and a key of its own, where every call is remembered.

They live in this process: a restart ends them. Names are the owner's own, so two users may use the same.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass, field

from benchmax import limits
from benchmax.platform.server.error_responses import Refused
from benchmax.platform.store.accounts import tokens

_ALL_BYTES = 256 * limits.MIB
"""Of the calls kept of all sessions together."""
_OVERHEAD = 200
"""Bytes of a kept call besides its text."""


@dataclass(slots=True)
class ModelSession:
    """One session, and what was asked in it."""

    id: str
    owner_id: str
    key_id: str
    """The API key that opened it, and ends it when it ends."""
    asked_model: str
    model: str
    """Who answers, and in `note` whom it replaces."""
    note: str
    max_context_tokens: int | None
    expires: float
    digest: str = ""
    """Of its own key, which `ModelSessions.open` makes."""
    created: float = field(default_factory=time.time)
    begun: int = 0
    """Calls, those under way included."""
    truncated: bool = False
    """The oldest calls are no longer kept, or something was left out of one."""
    calls: deque[tuple[int, bytes]] = field(default_factory=deque)
    """Number and JSON of those that are, as they ended."""
    size: int = 0

    @property
    def is_over(self) -> bool:
        return self.expires <= time.time()


class ModelSessions:
    """Those of all users."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], ModelSession] = {}
        self._by_key: dict[str, ModelSession] = {}
        self._size = 0
        self._lock = threading.Lock()

    def open(self, session: ModelSession) -> str:
        """Open a session; returns its key, shown now and never again. The owner's last one of that name is ended."""
        text = f"sk_{secrets.token_hex(4)}_{secrets.token_urlsafe(32)}"
        session.digest = tokens.digest(text)
        with self._lock:
            self._make_room(session.owner_id, session.id)
            self._open[session.owner_id, session.id] = self._by_key[session.digest] = session
        return text

    def find(self, owner_id: str, session_id: str) -> ModelSession | None:
        """The owner's session of that name, unless its time is over."""
        with self._lock:
            return self._alive(self._open.get((owner_id, session_id)))

    def of_key(self, digest: str) -> ModelSession | None:
        """The session with this key. Looked up by digest, so timing reveals nothing about keys."""
        with self._lock:
            return self._alive(self._by_key.get(digest))

    def end(self, owner_id: str, session_id: str) -> bool:
        """Forget a session and its calls; False when there is none."""
        with self._lock:
            found = self._alive(self._open.get((owner_id, session_id)))
            self._drop(found)
        return found is not None

    def begin_call(self, session: ModelSession) -> int:
        """The number of a call that begins."""
        with self._lock:
            session.begun += 1
            return session.begun - 1

    def keep_call(self, session: ModelSession, number: int, encoded: bytes, *, whole: bool) -> None:
        """Remember a call that is over; the session's oldest make room for it."""
        with self._lock:
            if self._by_key.get(session.digest) is not session:
                return  # ended meanwhile
            session.truncated = session.truncated or not whole
            self._add(session, (number, encoded))
            while session.calls and (session.size > limits.MODEL_SESSION_BYTES or self._size > _ALL_BYTES):
                self._forget_first(session)

    def calls_of(self, session: ModelSession) -> list[bytes]:
        """What is kept, in the order in which the calls began."""
        with self._lock:
            return [encoded for _, encoded in sorted(session.calls)]

    def _make_room(self, owner_id: str, session_id: str) -> None:
        """End the sessions that are over, and that of this name; Refused (429) when there are too many others."""
        for each in [each for each in self._open.values() if each.is_over]:
            self._drop(each)
        self._drop(self._open.get((owner_id, session_id)))
        if sum(owner == owner_id for owner, _ in self._open) >= limits.MODEL_SESSIONS:
            words = f"You have {limits.MODEL_SESSIONS} model sessions open. End some with DELETE /v1/sessions/ID."
            raise Refused(429, words, Retry_After="60")

    def _alive(self, session: ModelSession | None) -> ModelSession | None:
        if session is not None and session.is_over:
            self._drop(session)
            return None
        return session

    def _drop(self, session: ModelSession | None) -> None:
        if session is not None:
            del self._open[session.owner_id, session.id], self._by_key[session.digest]
            self._size -= session.size

    def _add(self, session: ModelSession, call: tuple[int, bytes]) -> None:
        session.calls.append(call)
        session.size += len(call[1]) + _OVERHEAD
        self._size += len(call[1]) + _OVERHEAD

    def _forget_first(self, session: ModelSession) -> None:
        _, encoded = session.calls.popleft()
        session.truncated = True
        session.size -= len(encoded) + _OVERHEAD
        self._size -= len(encoded) + _OVERHEAD
