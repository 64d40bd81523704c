"""Encoded answers, kept until the run records something new: most readers of a chart ask for what another just read.

Ingest writes an event together with the points and rollouts it stores, so the id of a run's last event is the version
of everything that is read from them; a browser that has that version gets 304. When many ask at once for an
answer that is not there yet, one computes it and the others wait.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from weakref import WeakValueDictionary

from fastapi import Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from benchmax import limits
from benchmax.platform.store.runs import events
from benchmax.platform.store.tables import Run

_BYTES = 64 * limits.MIB
_OVERHEAD = 500
"""Bytes of an entry besides the answer and its address."""


class ResponseCache:
    """The newest answers, as bytes, within a bound."""

    def __init__(self, most: int = _BYTES) -> None:
        self._most = most
        self._size = 0
        self._kept: OrderedDict[tuple[str, str], tuple[str, bytes]] = OrderedDict()
        self._lock = threading.Lock()
        self._computing: WeakValueDictionary[tuple[str, str], threading.Lock] = WeakValueDictionary()
        """One lock for those who ask for the same answer, for as long as any of them does."""

    def answer(self, request: Request, db: Session, run: Run, make: Callable[[], bytes]) -> Response:
        """What `make` returns for this address and the run as it is now, with its version as the ETag."""
        version = f'"{events.last_id(db, run.id)}-{run.updated:.6f}"'
        headers = {"ETag": version, "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == version:
            return Response(status_code=304, headers=headers)
        key = run.id, f"{request.url.path}?{request.url.query}"
        found = self._find(key, version)
        if found is None:
            with self._lock:
                alone = self._computing.setdefault(key, threading.Lock())
            with alone:
                found = self._find(key, version)
                if found is None:
                    found = make()
                    self._keep(key, version, found)
        return Response(found, media_type="application/json", headers=headers)

    def _find(self, key: tuple[str, str], version: str) -> bytes | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None or found[0] != version:
                return None
            self._kept.move_to_end(key)
            return found[1]

    def _keep(self, key: tuple[str, str], version: str, encoded: bytes) -> None:
        with self._lock:
            old = self._kept.pop(key, None)
            self._size += _cost(key, encoded) - (_cost(key, old[1]) if old else 0)
            self._kept[key] = version, encoded
            while self._size > self._most and self._kept:
                dropped, (_, answer) = self._kept.popitem(last=False)
                self._size -= _cost(dropped, answer)


def _cost(key: tuple[str, str], encoded: bytes) -> int:
    """Bytes of an entry: small answers to long addresses take memory, too."""
    return len(encoded) + len(key[1]) + _OVERHEAD
