"""Encoded series, kept until the run tells something new: most readers of a chart see what another just saw."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict

from sqlalchemy.orm import Session

from benchmax import limits
from benchmax.platform.store import events, points
from benchmax.platform.store.tables import Run

_BYTES = 64 * limits.MIB


class Charts:
    """The newest answers, as bytes, within a bound."""

    def __init__(self, most: int = _BYTES) -> None:
        self._most = most
        self._size = 0
        self._kept: OrderedDict[tuple[str, str], tuple[tuple[int, float], bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def scalars(self, session: Session, run: Run, mode: str) -> bytes:
        """`points.scalars` as JSON. Ingest writes an event together with the points: its id is the version."""
        version = events.last_id(session, run.id), run.updated
        with self._lock:
            found = self._kept.get((run.id, mode))
            if found is not None and found[0] == version:
                self._kept.move_to_end((run.id, mode))
                return found[1]
        encoded = json.dumps(points.scalars(session, run.id, mode), separators=(",", ":")).encode()
        self._keep((run.id, mode), version, encoded)
        return encoded

    def _keep(self, key: tuple[str, str], version: tuple[int, float], encoded: bytes) -> None:
        with self._lock:
            old = self._kept.pop(key, None)
            self._size += len(encoded) - (len(old[1]) if old else 0)
            self._kept[key] = version, encoded
            while self._size > self._most and self._kept:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._size -= len(dropped)
